"""Options that the smoke run leaves alone, together, through the whole stack and the audit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from longhaul_trainer.models import prepare_model
from training.launching import Launched, audit, in_world, path_with_tests, run
from training.test_smoke_run import LOGPROB_BOUND
from training.thoughts import thoughts_of
from training.wordy_world import ID

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

COMMON = (
    'environment.import_modules=["training.wordy_world"]',
    "num_training_steps=2",
    "validation.num_tasks=2",
    "checkpoint.every=2",
)
ADAPTER = "an adapter, merged rows, the whole batch for a baseline, KL in the reward"
ALL_WEIGHTS = "all weights, states with their past, KL in the loss"
UNREAD = (
    "algorithm.pass_k=4",
    "critic.warmup_training_steps=1",
    "loss.dual_clip=3.0",
    "memory.summarize_every=3",
    "model.lora_alpha=4",
    "optimizer.max_row_tokens=600",
    "optimizer.warmup_training_steps=3",
    "sampling.max_refills=7",
)
"""Settings of other estimators, losses, memories and modes, as a sweep has them."""
OPTIONS = {
    ADAPTER: (
        "model.lora_rank=4",
        "model.lora_alpha=12",
        'model.lora_target_modules=["q_proj", "down_proj"]',
        "checkpoint.huggingface=false",
        "validation.temperature=0.4",
        "validation.samples_per_task=3",
        'memory.kind="full"',
        'optimizer.rows="merged"',
        "optimizer.max_row_tokens=160",
        'algorithm.name="reinforce_plus_plus_baseline"',
        'algorithm.whiten="episode"',
        'algorithm.loss_unit="step"',
        "algorithm.reward_kl_coefficient=0.05",
        'loss.kind="gspo"',
        'loss.importance_sampling="sequence"',
        "algorithm.tokens_per_episode=96",  # means nothing here
        "algorithm.overlong_end_tokens=8",  # nor does this
    ),
    ALL_WEIGHTS: (
        'algorithm.name="hgpo"',
        'algorithm.loss_unit="fixed_token"',
        "algorithm.tokens_per_episode=96",
        "algorithm.overlong_penalty=0.1",
        "algorithm.overlong_start_tokens=4",
        "algorithm.overlong_end_tokens=16",
        'loss.kind="cispo"',
        'loss.importance_sampling="token"',
        "loss.kl_coefficient=0.1",
        'loss.kl_kind="k2"',
        'tasks.order="difficulty"',
        "retention.full_training_steps=1",
        "checkpoint.optimizer=false",
        *UNREAD,
    ),
}
SPLIT_REASONS = {
    ADAPTER: {"first_step", "row_full", None},
    ALL_WEIGHTS: {"first_step", "one_row_per_step"},
}
"""Why rows began; None where a step continued one."""

TRAINED_CALLS = (
    "FROM calls JOIN steps USING (episode_id, step_index) WHERE steps.trained AND calls.trained"
)


@pytest.fixture(scope="module", params=OPTIONS)
def options(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def trained(options: str, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder: Path = tmp_path_factory.mktemp("options")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        launched = run(folder, "train", *in_world(ID), *COMMON, *OPTIONS[options])
    assert launched.returncode == 0, launched.output
    return launched


def test_sampler_and_learner_agree(trained: Launched) -> None:
    rows = trained.query(
        "SELECT value FROM metrics WHERE name = 'agreement/logprob_difference_mean'"
    )

    assert len(rows) == 2
    assert all(0 < value < LOGPROB_BOUND for (value,) in rows), rows


def test_episodes_were_told_apart_and_moved_the_weights(trained: Launched) -> None:
    (lowest, highest) = trained.query(
        "SELECT min(advantage), max(advantage) FROM steps WHERE trained"
    )[0]
    norms = trained.query("SELECT value FROM metrics WHERE name = 'actor/grad_norm'")

    assert lowest < highest
    assert norms
    assert all(norm > 0 for (norm,) in norms)
    assert trained.value("SELECT max(training_step) FROM policy_versions") == 2


def test_the_store_says_of_every_trained_call_why_a_row_began_with_it(
    trained: Launched, options: str
) -> None:
    found = trained.query(f"SELECT DISTINCT calls.split_reason {TRAINED_CALLS}")

    assert {reason for (reason,) in found} == SPLIT_REASONS[options]
    rows = trained.value(
        "SELECT sum(value) FROM metrics WHERE name = 'rows/count' AND training_step IN "
        "(SELECT trained_training_step FROM episodes WHERE trained)"
    )
    assert rows == trained.value(f"SELECT count(calls.split_reason) {TRAINED_CALLS}")


def test_the_final_weights_have_plain_names_and_are_not_the_first(
    trained: Launched, options: str, tmp_path: Path
) -> None:
    start = load_file(prepare_model("tiny", tmp_path) / "model.safetensors")

    final = load_file(trained.run_folder / "model" / "model.safetensors")

    assert final.keys() == start.keys()
    moved = {name for name, weight in final.items() if not torch.equal(weight, start[name])}
    assert "model.layers.0.self_attn.q_proj.weight" in moved
    if options == ADAPTER:
        assert {name.split(".")[-2] for name in moved} == {"q_proj", "down_proj"}


def test_validation_plays_every_sample_of_a_task_and_scores_all_of_them(
    trained: Launched, options: str
) -> None:
    samples = 3 if options == ADAPTER else 1

    episodes = trained.query(
        "SELECT training_step, group_index, count(*), count(DISTINCT sample_index), "
        "min(group_size) FROM episodes JOIN groups "
        "USING (run_id, attempt, phase, training_step, group_index) "
        "WHERE phase = 'validation' GROUP BY 1, 2"
    )
    assert episodes == [
        (step, task, samples, samples, samples) for step in (0, 2) for task in (0, 1)
    ]
    scores = trained.query(
        "SELECT v.training_step, v.num_episodes, v.mean_return, avg(e.episode_return) "
        "FROM evaluations v JOIN episodes e ON e.training_step = v.training_step "
        "AND e.phase = 'validation' GROUP BY 1"
    )
    assert [row[:2] for row in scores] == [(0, 2 * samples), (2, 2 * samples)]
    assert all(score == pytest.approx(mean) for _, _, score, mean in scores)
    if options == ADAPTER:
        replies = trained.query(
            "SELECT count(DISTINCT reply) FROM calls JOIN episodes e ON e.id = episode_id "
            "WHERE phase = 'validation' AND step_index = 0 GROUP BY training_step, group_index"
        )
        assert max(number for (number,) in replies) > 1, "samples of a task are one and the same"


def test_a_checkpoint_holds_what_was_asked_for(trained: Launched, options: str) -> None:
    (folder,) = (trained.run_folder / "checkpoints").glob("global_step_2")
    names = {file.name for file in folder.rglob("*") if file.is_file()}

    assert ("optim_world_size_1_rank_0.pt" in names) == (options != ALL_WEIGHTS)
    assert ("model.safetensors" in names) == (options != ADAPTER)


def test_the_store_keeps_of_older_training_steps_what_retention_says(
    trained: Launched, options: str
) -> None:
    removed = trained.query(
        "SELECT DISTINCT training_step FROM episode_summary WHERE retention = 'removed'"
    )
    whole = trained.query("SELECT DISTINCT training_step FROM step_detail WHERE reply IS NOT NULL")

    assert {step for (step,) in removed} == ({0, 1} if options == ALL_WEIGHTS else set())
    assert {step for (step,) in whole} == ({2} if options == ALL_WEIGHTS else {0, 1, 2})


def test_no_thought_is_put_into_prompts_where_the_run_asks_for_none(trained: Launched) -> None:
    thoughts = thoughts_of(trained)

    assert thoughts.num_prompts > 1
    assert thoughts.num_empty == 0
    assert not thoughts.known_to_model


def test_nothing_is_valued_without_a_critic(trained: Launched) -> None:
    assert trained.value("SELECT count(*) FROM step_detail WHERE value IS NOT NULL") == 0
    assert trained.value("SELECT count(*) FROM episodes WHERE final_value IS NOT NULL") == 0
    assert trained.value("SELECT count(*) FROM metrics WHERE name = 'critic/grad_norm'") == 0


def test_the_audit_finds_nothing(trained: Launched) -> None:
    audit(trained)
    assert trained.value("SELECT count(*) FROM audits") == 2
    assert trained.value("SELECT sum(num_findings) FROM audits") == 0
