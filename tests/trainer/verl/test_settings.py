"""Tests for `longhaul_trainer.verl.settings`: our recipes as verl itself reads them."""

import importlib.util
import json
import re
from itertools import cycle
from pathlib import Path
from typing import cast

import pytest
from omegaconf import DictConfig, OmegaConf

from longhaul_core.errors import ConfigError, MachineError
from longhaul_trainer.config import RunConfig, load_config, load_default_config
from longhaul_trainer.config.fields import config_fields
from longhaul_trainer.models import prepare_model
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

CONFIGS = Path(__file__).parents[3] / "configs"
ALGORITHMS = sorted((CONFIGS / "algorithms").glob("*.toml"))
MACHINES = sorted((CONFIGS / "machines").glob("*.toml"))
RECIPES = sorted((CONFIGS / "recipes").glob("*.toml"))
ON_TWO_GPUS = (
    CONFIGS / "recipes" / "gigpo.toml",
    CONFIGS / "machines" / "qwen2.5-1.5b-2x80gb.toml",
)
ON_MACHINES = {(ON_TWO_GPUS[0], machine) for machine in MACHINES} | {
    (recipe, ON_TWO_GPUS[1]) for recipe in RECIPES
}
"""Every recipe and every machine: no field of the one depends on the other."""
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
QUEUE = "transfer_queue.backend.SimpleStorage"


def settings_of(
    run: RunConfig, *, device: str, tmp: Path = Path("/run"), only_validate: bool = False
) -> DictConfig:
    from longhaul_trainer.verl.settings import Paths, verl_settings

    return verl_settings(
        run,
        paths=Paths(
            model=tmp / "model",
            checkpoints=tmp / "ck",
            agent_loops=tmp / "loops.yaml",
            critic=prepare_model("tiny") if run.algorithm.uses_critic else None,
        ),
        device=device,
        only_validate=only_validate,
    )


def small_run(**sections: object) -> RunConfig:
    return RunConfig.model_validate(
        {"num_training_steps": 3, "tasks_per_training_step": 4} | sections
    )


_TWO_RUNS = (
    (small_run(algorithm={"name": "gae"}), "one"),
    (
        small_run(
            num_training_steps=9,
            tasks_per_training_step=8,
            name="other",
            seed=3,
            algorithm={"name": "gae", "reward_kl_coefficient": 0.1, "reward_kl_kind": "k2"},
            model={"dtype": "bfloat16", "engine_dtype": "float32", "lora_rank": 8,
                   "gradient_checkpointing": True},
            rollout={"group_size": 6, "max_prompt_tokens": 300, "max_reply_tokens": 20,
                     "temperature": 0.5, "top_p": 0.9, "agent_loops": 2},
            loss={"clip_low": 0.1, "clip_high": 0.3, "dual_clip": 4.0, "kl_coefficient": 0.1,
                  "kl_kind": "k2", "entropy_coefficient": 0.1, "importance_sampling": "token",
                  "importance_cap": 3.0},
            optimizer={"learning_rate": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9),
                       "max_gradient_norm": 0.5, "warmup_training_steps": 2,
                       "optimizer_steps_per_training_step": 4, "micro_batch_tokens": 9000},
            critic={"learning_rate": 0.3, "warmup_training_steps": 2},
            validation={"every": 2, "before": False, "temperature": 0.4, "samples_per_task": 3},
            checkpoint={"every": 3, "optimizer": False},
            engine={"max_sequences": 8, "max_batched_tokens": 5000, "memory_gib": 3.0,
                    "gpu_memory_utilization": 0.7, "weight_bucket_megabytes": 256},
            resources={"num_workers": 2, "num_nodes": 2, "ray_address": "auto", "storage_units": 3},
            trainer={"mode": "colocate_async", "prefetch_batches": 1, "max_staleness": 1,
                     "on_stale": "wait"},
        ),
        "two",
    ),
)  # fmt: skip
"""Two runs that differ wherever both can, and the name of their folder."""

_TWO_SEPARATE_RUNS = tuple(
    (
        small_run(
            algorithm={"name": "gae"},
            model={"engine_dtype": dtype, "lora_rank": 4, "lora_alpha": alpha,
                   "lora_target_modules": modules},
            resources={"num_workers": 2, "num_engine_workers": alpha, "num_engine_nodes": alpha,
                       "ray_address": "auto"},
            trainer={"mode": "separate_async", "prefetch_batches": alpha, "max_staleness": 3},
        ),
        f"separate {alpha}",
    )
    for alpha, modules, dtype in ((1, ["q_proj"], "float32"), (2, ["v_proj"], "bfloat16"))
)  # fmt: skip
"""Two more, with engines beside the learner and an adapter."""

_WITHOUT_WHICH_THERE_IS_NONE = {
    "actor_rollout_ref.actor.checkpoint.save_lora_only",  # of model.lora_rank
    "trainer.v1.colocate_async.num_warmup_batches",  # of one run alone
    f"{ROLLOUT}.checkpoint_engine.backend",  # left to `[verl]`, as its own test says
    f"{ROLLOUT}.checkpoint_engine.custom_backend_module",
}
"""Derived for some runs alone, by a field that says whether."""


def _derived_of(run: RunConfig, folder: str, *, device: str) -> dict[str, object]:
    from longhaul_trainer.verl import settings

    here = Path(folder)
    paths = settings.Paths(
        model=here / "model", checkpoints=here / "ck", agent_loops=here / "loops", critic=here
    )
    of_device = settings._cpu(run) if device == "cpu" else settings._gpu(run)
    return {
        **settings._derived(run, paths),
        **settings._critic(run, paths, device),
        **settings._weights(run, device),
        **settings._queue(run, device),
        **of_device,
    }


def value(config: DictConfig, name: str) -> object:
    found = OmegaConf.select(config, name)
    assert found is not None, name
    return found


# Recipes


@pytest.mark.parametrize(
    "files",
    [(CONFIGS / "smoke.toml",), *sorted(ON_MACHINES)],
    ids=lambda files: "+".join(file.stem for file in files),
)
def test_verl_itself_accepts_every_recipe_on_every_machine(files: tuple[Path, ...]) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    run = load_config(files[0], layers=files[1:])
    config = settings_of(run, device="cpu" if run.resources.device == "cpu" else "gpu")
    OmegaConf.resolve(config)

    validate_config(config, need_reference_policy(config), need_critic(config))
    assert need_reference_policy(config) == (run.loss.kl_coefficient > 0)
    assert not need_critic(config)


@pytest.mark.parametrize("file", ALGORITHMS, ids=lambda file: file.stem)
def test_verl_itself_accepts_every_algorithm_over_a_recipe(file: Path) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    run = load_config(ON_TWO_GPUS[0], layers=[ON_TWO_GPUS[1], file])
    config = settings_of(run, device="gpu")
    OmegaConf.resolve(config)
    assert need_critic(config) == run.algorithm.uses_critic

    validate_config(config, need_reference_policy(config), need_critic(config))
    keeps_reference = run.loss.kl_coefficient > 0 or run.algorithm.reward_kl_coefficient > 0
    assert need_reference_policy(config) == keeps_reference


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_critic_is_verls_own_worker_with_our_settings(device: str) -> None:
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import FSDPCriticConfig

    run = small_run(
        algorithm={"name": "gae"},
        critic={"learning_rate": 3e-4, "warmup_training_steps": 2},
        optimizer={"max_gradient_norm": 0.5, "betas": (0.8, 0.9), "micro_batch_tokens": 5000},
    )
    config = settings_of(run, device=device)
    OmegaConf.resolve(config)

    critic = omega_conf_to_dataclass(config.critic)
    assert isinstance(critic, FSDPCriticConfig)
    assert (critic.strategy, critic.engine.strategy) == ("fsdp2", "fsdp2")
    assert critic.ppo_infer_max_token_len_per_gpu == critic.ppo_max_token_len_per_gpu == 5000
    assert (critic.optim.lr, critic.optim.clip_grad) == (3e-4, 0.5)
    assert list(critic.optim.betas) == [0.8, 0.9]
    assert critic.model.use_remove_padding == (device == "gpu")
    # verl trains the policy from this training step on
    assert value(config, "trainer.critic_warmup") == 3


def test_an_evaluation_has_no_critic() -> None:
    config = settings_of(small_run(algorithm={"name": "gae"}), device="cpu", only_validate=True)

    assert value(config, "critic.enable") is False


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_what_no_section_decides_is_overridable_or_named_as_relied_on(device: str) -> None:
    """Every derived name is of one kind, and what sections decide follows them."""
    from longhaul_trainer.verl import settings

    derived = [_derived_of(*each, device=device) for each in (*_TWO_RUNS, *_TWO_SEPARATE_RUNS)]
    names = set[str]().union(*derived)
    constant = {
        name
        for name in names
        if len({repr(each[name]) for each in derived if name in each}) == 1
        and name not in _WITHOUT_WHICH_THERE_IS_NONE
    }
    named = settings.OVERRIDABLE | settings.RELIED_ON
    of_device = set[str]()
    if device == "cpu":
        of_device |= settings._cpu(_TWO_RUNS[0][0]).keys() | settings.CRITIC_ON_CPU.keys()
    else:  # what `[verl]` names of them is left to it, as their own tests say
        of_device |= set().union(*(settings._gpu_attention(run) for run, _ in _TWO_RUNS))

    # the GPUs of an engine divide the workers, and on a CPU it has none
    by_sections = {f"{ROLLOUT}.tensor_model_parallel_size"}
    assert constant - named - of_device <= by_sections
    assert named <= names, "named, and derived for no run"
    assert not settings.OVERRIDABLE & settings.RELIED_ON


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_overridable_name_reaches_verl_as_the_run_says(device: str) -> None:
    from longhaul_trainer.verl.settings import OVERRIDABLE

    table: dict[str, object] = {name: "bf16" for name in OVERRIDABLE if name.endswith("dtype")}
    table |= {
        "trainer.project_name": "mine",
        "trainer.logger": ["console", "swanlab"],
        f"{QUEUE}.total_storage_size": 123_456,
        f"{ROLLOUT}.disable_log_stats": True,
    }
    assert table.keys() == OVERRIDABLE

    config = settings_of(small_run(algorithm={"name": "gae"}, verl=table), device=device)

    for name, wanted in table.items():
        assert value(config, name) == wanted


@pytest.mark.parametrize(("device", "suggested"), [("cpu", 1), ("gpu", 2)])
def test_verl_starts_as_many_agent_loops_as_the_run_asks_for(device: str, suggested: int) -> None:
    loops = f"{ROLLOUT}.agent.num_workers"

    roomy = small_run(environment={"num_workers": 64})
    assert value(settings_of(roomy, device=device), loops) == suggested
    asked = small_run(rollout={"agent_loops": 3})
    assert value(settings_of(asked, device=device), loops) == 3
    with pytest.raises(ConfigError, match=r"agent.num_workers: say rollout.agent_loops = 3"):
        settings_of(small_run(verl={loops: 3}), device=device)


@pytest.mark.parametrize(
    ("device", "nodes", "asked", "units"),
    [("gpu", 1, None, 2), ("gpu", 3, None, 6), ("gpu", 3, 4, 4), ("cpu", 2, None, 1)],
)
def test_the_queue_has_as_many_processes_as_the_run_says_or_two_on_a_node_with_gpus(
    device: str, nodes: int, asked: int | None, units: int
) -> None:
    run = small_run(resources={"num_nodes": nodes, "ray_address": "auto", "storage_units": asked})

    assert value(settings_of(run, device=device), f"{QUEUE}.num_data_storage_units") == units
    table = small_run(verl={f"{QUEUE}.num_data_storage_units": 8})
    with pytest.raises(ConfigError, match=r"num_data_storage_units: set by the run's own sections"):
        settings_of(table, device=device)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_queue_has_room_for_the_rows_of_the_run_and_no_limit_where_they_are_not_known(
    device: str,
) -> None:
    large = small_run(tasks_per_training_step=256, rollout={"group_size": 8, "horizon": 50})
    own = small_run(agent={"kind": "mine:Agent"})

    rows = value(settings_of(large, device=device), f"{QUEUE}.total_storage_size")
    assert isinstance(rows, int)
    assert rows >= 256 * 8 * 50
    queue = value(settings_of(own, device=device), QUEUE)
    assert isinstance(queue, DictConfig)
    assert queue.total_storage_size is None


def test_a_tracker_of_ours_is_not_started_a_second_time_by_verl() -> None:
    run = small_run(verl={"trainer.logger": ["console", "wandb"]})

    with pytest.raises(ConfigError, match=r'verl.trainer.logger: .* say trackers = \["wandb"\]'):
        settings_of(run, device="gpu")


def test_what_the_trainer_relies_on_cannot_be_changed() -> None:
    run = small_run(verl={"trainer.resume_mode": "disable"})

    with pytest.raises(
        ConfigError, match=r"trainer.resume_mode = .*: the trainer relies on 'auto'; leav"
    ):
        settings_of(run, device="gpu")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_default_run_resolves_to_a_complete_configuration(device: str) -> None:
    config = settings_of(load_default_config(), device=device)

    OmegaConf.resolve(config)
    assert value(config, "trainer.v1.trainer_mode") == "sync"
    assert value(config, "trainer.use_v1") is True
    assert value(config, f"{ACTOR}.use_dynamic_bsz") == value(
        config, f"{ROLLOUT}.log_prob_use_dynamic_bsz"
    )


def test_what_a_run_says_reaches_verl_under_its_name() -> None:
    run = small_run(
        seed=11,
        optimizer={"learning_rate": 3e-5, "optimizer_steps_per_training_step": 2,
                   "warmup_training_steps": 1, "max_gradient_norm": 0.5},
        rollout={"group_size": 6, "max_prompt_tokens": 300, "max_reply_tokens": 20},
        loss={"kl_coefficient": 0.02, "kl_kind": "k2"},
    )  # fmt: skip
    config = settings_of(run, device="gpu", tmp=Path("/here"))

    expected = {
        "actor_rollout_ref.model.path": "/here/model",
        "data.train_batch_size": 4,
        f"{ACTOR}.ppo_mini_batch_size": 2,
        f"{ACTOR}.optim.lr": 3e-5,
        f"{ACTOR}.optim.clip_grad": 0.5,
        f"{ACTOR}.grad_clip": 0.5,
        f"{ACTOR}.optim.lr_warmup_steps": 2,  # verl's schedule advances once per optimizer step
        f"{ACTOR}.kl_loss_type": "mse",
        f"{ROLLOUT}.n": 6,
        f"{ROLLOUT}.max_model_len": 320,
        f"{ROLLOUT}.seed": 11,
        f"{ROLLOUT}.calculate_log_probs": True,
        "trainer.total_training_steps": 3,
        "transfer_queue.enable": True,
    }
    assert {name: value(config, name) for name in expected} == expected


def test_no_prompt_is_read_in_parts_on_a_cpu() -> None:
    """The engine would end: vLLM turns the random numbers of a request with a seed back."""
    run = small_run(
        rollout={"max_prompt_tokens": 48_000, "max_reply_tokens": 24},
        optimizer={"micro_batch_tokens": 49_000},
    )

    on_cpu, on_gpu = (settings_of(run, device=device) for device in ("cpu", "gpu"))

    assert value(on_cpu, f"{ROLLOUT}.enable_chunked_prefill") is False
    assert value(on_cpu, f"{ROLLOUT}.max_num_batched_tokens") == 48_024
    assert value(on_gpu, f"{ROLLOUT}.enable_chunked_prefill") is True
    assert value(on_gpu, f"{ROLLOUT}.max_num_batched_tokens") == 4096


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "qwen3_5_moe"])
def test_states_of_linear_attention_are_kept_for_later_prompts_on_gpus_alone(
    family: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}), encoding="utf-8")
    run = small_run(model={"path": str(tmp_path)})
    name = f"{ROLLOUT}.enable_prefix_caching"

    assert value(settings_of(run, device="gpu"), name) is True
    assert value(settings_of(run, device="cpu"), name) is (family == "qwen3_vl")


def test_an_engine_that_spans_workers_is_refused_on_a_cpu() -> None:
    run = RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "engine": {"tensor_parallel_size": 2},
            "resources": {"num_workers": 2},
        }
    )

    assert value(settings_of(run, device="gpu"), f"{ROLLOUT}.tensor_model_parallel_size") == 2
    with pytest.raises(ConfigError, match=r"engine\.tensor_parallel_size = 2 spans GPUs"):
        settings_of(run, device="cpu")


def test_verl_computes_the_learners_own_logprobs_for_importance_sampling() -> None:
    from verl.utils.config import validate_config

    run = small_run(loss={"importance_sampling": "sequence", "importance_cap": 5.0})
    config = settings_of(run, device="gpu")
    OmegaConf.resolve(config)

    validate_config(config, False, False)
    correction = "algorithm.rollout_correction"
    assert value(config, f"{correction}.rollout_is") == "sequence"
    assert value(config, f"{correction}.rollout_is_threshold") == 5.0
    # or the learner's own logprobs would not be computed
    assert value(config, f"{correction}.bypass_mode") is False


def test_importance_sampling_is_off_unless_asked_for() -> None:
    config = settings_of(small_run(), device="gpu")

    assert OmegaConf.select(config, "algorithm.rollout_correction.rollout_is") is None


def test_a_divergence_in_the_reward_keeps_a_reference_model() -> None:
    from verl.trainer.ppo.utils import need_reference_policy

    config = settings_of(small_run(algorithm={"reward_kl_coefficient": 0.01}), device="gpu")

    assert need_reference_policy(config)
    assert value(config, "algorithm.kl_penalty") == "kl"
    assert value(config, "algorithm.kl_ctrl.kl_coef") == 0.01
    assert value(config, f"{ACTOR}.use_kl_loss") is False


def test_pairs_of_episodes_keep_a_reference_model_and_other_imitations_none() -> None:
    from verl.trainer.ppo.utils import need_reference_policy

    for loss in ("dpo", "nll"):
        run = small_run(imitation={"sources": [{"run": "stored"}], "loss": loss})
        config = settings_of(run, device="gpu")

        assert need_reference_policy(config) is (loss == "dpo")
        assert value(config, f"{ACTOR}.use_kl_loss") is False


@pytest.mark.parametrize("role", ["actor", "ref"])
def test_learner_and_reference_compute_in_the_precision_that_samples(role: str) -> None:
    run = small_run(model={"engine_dtype": "float32"}, loss={"kl_coefficient": 0.1})
    config = settings_of(run, device="gpu")

    # otherwise the divergence from a reference of equal weights is not zero
    engine = f"actor_rollout_ref.{role}.fsdp_config"
    assert value(config, f"{engine}.mixed_precision.param_dtype") == "fp32"
    assert value(config, f"{engine}.dtype") == "float32"
    assert value(config, f"{ROLLOUT}.dtype") == "float32"


ASYNCHRONOUS = ("colocate_async", "separate_async")


@pytest.mark.parametrize(
    ("mode", "file"),
    [*((mode, None) for mode in ASYNCHRONOUS), *zip(cycle(ASYNCHRONOUS), ALGORITHMS, strict=False)],
    ids=lambda part: part.stem if isinstance(part, Path) else part,
)
def test_verl_itself_accepts_every_algorithm_played_ahead(mode: str, file: Path | None) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    recipe, machine = ON_TWO_GPUS
    algorithm = [] if file is None else [file]
    run = load_config(recipe, layers=[machine, *algorithm, CONFIGS / "modes" / f"{mode}.toml"])
    config = settings_of(run, device="gpu")
    OmegaConf.resolve(config)

    validate_config(config, need_reference_policy(config), need_critic(config))
    assert need_critic(config) == run.algorithm.uses_critic
    assert value(config, "trainer.v1.trainer_mode") == mode


PLAYS_AHEAD: dict[str, object] = {"prefetch_batches": 1, "max_staleness": 2, "on_stale": "wait"}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_verl_takes_what_is_played_ahead_and_by_how_much(mode: str, device: str) -> None:
    from verl.trainer.ppo.v1.trainer_base import get_trainer_cls
    from verl.utils.config import validate_config

    engines = {"num_workers": 2, "num_engine_workers": 2 if mode == "separate_async" else 0}
    run = small_run(
        trainer=PLAYS_AHEAD | {"mode": mode},
        resources=engines,
        optimizer={"optimizer_steps_per_training_step": 2},
    )
    config = settings_of(run, device=device)
    OmegaConf.resolve(config)

    validate_config(config, False, False)
    assert value(config, "trainer.v1.trainer_mode") == mode
    assert value(config, "trainer.v1.sampler.max_off_policy_threshold") == 3
    assert value(config, "trainer.v1.sampler.max_off_policy_strategy") == "wait"
    assert value(config, f"trainer.v1.{mode}.num_warmup_batches") == 1
    assert get_trainer_cls(mode) is not None


def test_the_engines_beside_the_learner_are_as_verl_demands() -> None:
    # The conditions that verl's trainer asserts when it is made.
    run = small_run(
        trainer=PLAYS_AHEAD | {"mode": "separate_async"},
        resources={"num_workers": 4, "num_engine_workers": 2},
        optimizer={"optimizer_steps_per_training_step": 2},
    )
    config = settings_of(run, device="gpu")

    assert value(config, "data.train_batch_size") == 4
    assert value(config, f"{ACTOR}.ppo_mini_batch_size") == 4
    assert value(config, "trainer.v1.separate_async.parameter_sync_step") == 1
    assert value(config, "actor_rollout_ref.hybrid_engine") is False
    assert value(config, f"{ROLLOUT}.n_gpus_per_node") == 2
    assert value(config, f"{ROLLOUT}.nnodes") == 1
    assert value(config, f"{ROLLOUT}.checkpoint_engine.backend") == "longhaul_tcp"
    sent_in = f"{ROLLOUT}.checkpoint_engine.engine_kwargs.longhaul_tcp.dtype"
    assert value(config, sent_in) == run.model.engine_dtype
    module = value(config, f"{ROLLOUT}.checkpoint_engine.custom_backend_module")
    assert importlib.util.find_spec(str(module)) is not None


def test_another_way_for_weights_is_one_setting_away() -> None:
    name = f"{ROLLOUT}.checkpoint_engine.backend"
    run = small_run(
        trainer=PLAYS_AHEAD | {"mode": "separate_async"},
        resources={"num_engine_workers": 1},
        verl={name: "nccl"},
    )

    assert value(settings_of(run, device="gpu"), name) == "nccl"


@pytest.mark.parametrize(
    ("way", "device", "cupy", "backend"),
    [
        ("auto", "gpu", True, "nccl"),
        ("auto", "gpu", False, "longhaul_tcp"),
        ("auto", "cpu", True, "longhaul_tcp"),
        ("tcp", "gpu", True, "longhaul_tcp"),
        ("nccl", "gpu", True, "nccl"),
    ],
)
def test_weights_travel_by_nccl_where_gpus_and_cupy_are(
    way: str, device: str, cupy: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhaul_trainer.verl.weight_choice.has_cupy", lambda: cupy)
    run = small_run(
        trainer=PLAYS_AHEAD | {"mode": "separate_async"},
        resources={"num_engine_workers": 1},
        engine={"weight_transfer": way, "weight_bucket_megabytes": 300},
    )
    config = settings_of(run, device=device)
    transfer = f"{ROLLOUT}.checkpoint_engine"

    assert value(config, f"{transfer}.backend") == backend
    assert value(config, f"{transfer}.update_weights_bucket_megabytes") == 300
    ours = OmegaConf.select(config, f"{transfer}.custom_backend_module") is not None
    assert ours == (backend == "longhaul_tcp")


def test_nccl_on_a_cpu_is_refused() -> None:
    run = small_run(
        trainer=PLAYS_AHEAD | {"mode": "separate_async"},
        resources={"num_engine_workers": 1},
        engine={"weight_transfer": "nccl"},
    )

    with pytest.raises(ConfigError, match=r'engine.weight_transfer = "nccl" needs GPUs'):
        settings_of(run, device="cpu")


def test_what_one_run_sets_is_not_set_in_the_next() -> None:
    name = "trainer.project_name"
    before = settings_of(small_run(), device="cpu")

    changed = settings_of(small_run(verl={name: "of its own"}), device="cpu")
    after = settings_of(small_run(), device="cpu")

    assert OmegaConf.select(changed, name) == "of its own"
    assert after == before


def test_evaluation_stops_after_the_validation_before_training() -> None:
    config = settings_of(small_run(), device="cpu", only_validate=True)

    assert value(config, "trainer.val_only") is True
    assert value(config, "trainer.val_before_train") is True


def test_a_run_without_validation_validates_at_no_time() -> None:
    config = settings_of(small_run(validation={"num_tasks": 0}), device="cpu")

    assert value(config, "trainer.test_freq") == -1
    assert value(config, "trainer.val_before_train") is False


# CPU and GPU


def test_gpu_runs_are_verls_own_without_a_word_of_the_cpu() -> None:
    run = small_run()
    cpu, gpu = (settings_of(run, device=device) for device in ("cpu", "gpu"))

    assert value(gpu, "trainer.device") == "cuda"
    text = OmegaConf.to_yaml(gpu)
    assert "longhaul_trainer.verl.cpu" not in text
    assert "kv_cache_memory_bytes" not in text
    assert OmegaConf.select(gpu, f"{ROLLOUT}.enable_sleep_mode") is None
    # sleep, compilation, rows without padding: as verl ships them
    assert value(gpu, f"{ROLLOUT}.free_cache_engine") is True
    assert value(gpu, "actor_rollout_ref.model.use_remove_padding") is True
    assert value(gpu, f"{ACTOR}.use_torch_compile") is True
    for name in (f"{ROLLOUT}.free_cache_engine", f"{ACTOR}.use_torch_compile"):
        assert value(cpu, name) is False


MODEL = "actor_rollout_ref.model"
MODEL_FUSED = f"{MODEL}.use_fused_kernels"
ATTENTIONS = (
    f"{MODEL}.override_config.attn_implementation",
    "critic.model.override_config.attn_implementation",
)


@pytest.mark.parametrize(
    ("version", "engine_dtype", "attention"),
    [
        ("2.8.3", "bfloat16", "flash_attention_2"),
        ("2.8.3", "float32", "sdpa"),  # which FlashAttention cannot compute in
        (None, "bfloat16", "flash_attention_torch"),
    ],
)
def test_a_gpu_s_attention_is_flash_attention_where_numbers_are_short(
    version: str | None, engine_dtype: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhaul_trainer.verl.attention.flash_attention_version", lambda: version)
    run = small_run(algorithm={"name": "gae"}, model={"engine_dtype": engine_dtype})
    config = settings_of(run, device="gpu")

    assert {value(config, name) for name in ATTENTIONS} == {attention}
    # verl takes log-probabilities from flash-attn too, and loops over tokens without it
    assert value(config, MODEL_FUSED) == (attention != "flash_attention_2")
    assert value(config, f"{MODEL}.fused_kernel_options.impl_backend") == "torch"


@pytest.mark.parametrize(
    ("model_type", "attention"), [("qwen3", "flash_attention_torch"), ("bloom", "sdpa")]
)
def test_a_family_that_was_not_compared_keeps_sdpa(
    model_type: str, attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bloom and others compute without their causal mask by an attention whose name has `flash`."""
    monkeypatch.setattr("longhaul_trainer.verl.attention.flash_attention_version", lambda: None)
    (tmp_path / "config.json").write_text(f'{{"model_type": "{model_type}"}}', encoding="utf-8")
    model = {"path": str(tmp_path), "engine_dtype": "bfloat16"}

    assert value(settings_of(small_run(model=model), device="gpu"), ATTENTIONS[0]) == attention

    named = {ATTENTIONS[0]: "flash_attention_torch"}
    if attention == "sdpa":
        with pytest.raises(ConfigError, match=rf"is for models of granite, .*, not {model_type}"):
            settings_of(small_run(model=model, verl=named), device="gpu")
    model["engine_dtype"] = "float32"
    with pytest.raises(ConfigError, match=r"computes in bfloat16, and .* is .float32"):
        settings_of(small_run(model=model, verl=named), device="gpu")


@pytest.mark.parametrize(
    ("family", "engine_dtype", "packed"),
    [
        ("text", "float32", True),
        ("qwen2_5_vl", "bfloat16", False),  # verl packs it by `flash-attn` alone
        ("qwen3_vl", "bfloat16", True),
        ("qwen3_vl", "float32", False),
    ],
)
def test_rows_with_pictures_are_packed_in_flash_attention_alone(
    family: str,
    engine_dtype: str,
    packed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": "{family}"}}', encoding="utf-8")
    monkeypatch.setattr("longhaul_trainer.verl.attention.flash_attention_version", lambda: None)
    run = small_run(model={"path": str(tmp_path), "engine_dtype": engine_dtype})

    assert value(settings_of(run, device="gpu"), f"{MODEL}.use_remove_padding") is packed

    run = small_run(model={"path": str(tmp_path), "engine_dtype": "bfloat16"})
    monkeypatch.setattr("longhaul_trainer.verl.attention.flash_attention_version", lambda: "2.8.3")
    assert value(settings_of(run, device="gpu"), f"{MODEL}.use_remove_padding") is True


def test_another_attention_is_one_setting_away() -> None:
    run = small_run(
        algorithm={"name": "gae"}, verl={ATTENTIONS[0]: "flex_attention", MODEL_FUSED: False}
    )
    config = settings_of(run, device="gpu")

    assert {value(config, name) for name in ATTENTIONS} == {"flex_attention"}
    assert value(config, MODEL_FUSED) is False


@pytest.mark.parametrize("section", [ACTOR, f"{ACTOR}.fsdp_config", "critic.fsdp"])
def test_a_row_is_shared_among_gpus_in_flash_attention_alone(
    section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verl exchanges what the GPUs hold of a row there and nowhere else."""
    name = f"{section}.ulysses_sequence_parallel_size"
    run = small_run(algorithm={"name": "gae"}, verl={name: 2}, resources={"num_workers": 2})

    refused = rf"verl\.{name} = 2: .* with '(sdpa|flash_attention_torch)' each GPU would read"
    with pytest.raises(ConfigError, match=refused):
        settings_of(run, device="gpu")
    monkeypatch.setattr("longhaul_trainer.verl.attention.flash_attention_version", lambda: "2.8.3")
    assert value(settings_of(run, device="gpu"), name) == 2


def test_the_cpu_is_given_what_it_needs() -> None:
    config = settings_of(small_run(engine={"memory_gib": 0.5}), device="cpu")

    engine = f"{ROLLOUT}.engine_kwargs.vllm"
    assert value(config, "trainer.device") == "cpu"
    assert value(config, f"{engine}.kv_cache_memory_bytes") == 2**29
    assert value(config, f"{ACTOR}.strategy") == "fsdp2"
    module, _, name = str(value(config, f"{engine}.worker_extension_cls")).rpartition(".")
    found = importlib.util.find_spec(module)  # importing it would import vLLM
    assert found is not None
    assert found.origin is not None
    assert f"class {name}(" in Path(found.origin).read_text(encoding="utf-8")


# The `[verl]` table


def test_a_setting_of_verl_that_is_not_ours_is_taken() -> None:
    offload = f"{ACTOR}.fsdp_config.param_offload"
    config = settings_of(small_run(verl={offload: True}), device="gpu")

    assert value(config, offload) is True


def test_an_unknown_setting_is_refused_with_the_one_that_was_meant() -> None:
    run = small_run(verl={f"{ACTOR}.fsdp_config.param_ofload": True})

    with pytest.raises(ConfigError, match=r"no such setting; did you mean '.*param_offload'\?"):
        settings_of(run, device="gpu")


def test_a_setting_that_the_run_derives_is_refused() -> None:
    run = small_run(verl={f"{ACTOR}.optim.lr": 1e-3, "trainer.nosuch": 1})

    with pytest.raises(ConfigError) as raised:
        settings_of(run, device="gpu")

    lines = str(raised.value).splitlines()
    assert lines[0] == f"verl.{ACTOR}.optim.lr: set by the run's own sections; change it there"
    assert lines[1].startswith("verl.trainer.nosuch: verl has no such setting")


@pytest.mark.parametrize(
    "name",
    ["algorithm.filter_groups.enable", "trainer.v1.sampler.sync_refill_failed_groups"],
)
def test_settings_that_draw_tasks_in_the_midst_of_a_training_step_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"verl.{name}: groups are chosen by episodes here"):
        settings_of(small_run(verl={name: True}), device="gpu")


@pytest.mark.parametrize("engine", ["megatron", "veomni", "dp", "no such engine"])
def test_another_training_engine_than_fsdp_is_refused(engine: str) -> None:
    with pytest.raises(ConfigError, match=r"verl\.model_engine: .* by FSDP2 alone; .*\(Megatron,"):
        settings_of(small_run(verl={"model_engine": engine}), device="gpu")


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_another_sampling_engine_than_vllm_is_refused(engine: str) -> None:
    with pytest.raises(ConfigError, match=r"verl\..*rollout\.name: .* by vLLM alone; SGLang and"):
        settings_of(small_run(verl={f"{ROLLOUT}.name": engine}), device="gpu")


def test_what_verl_has_and_the_trainer_does_not_read_is_refused_with_what_it_reads() -> None:
    """Each is a setting of verl, and each word of ours that a reason names is a field."""
    from longhaul_trainer.verl.settings import REPLACED, _defaults, _names

    known = {"model_engine", *_names(_defaults())}
    fields = {*config_fields(), *(name.rpartition(".")[2] for name in config_fields())}
    for start, reason in REPLACED.items():
        names = [name for name in known if name.startswith(start)]
        assert names, start
        with pytest.raises(ConfigError) as raised:
            settings_of(small_run(verl={min(names, key=len): 1}), device="gpu")
        assert str(raised.value).endswith(f": {reason}")
        named = re.findall(r"\b[a-z]+\.[a-z_]+\b|\blora_[a-z_]+\b", reason)
        assert {name for name in named if name not in fields} == set(), start


@pytest.mark.parametrize(
    "name",
    [
        f"{ACTOR}.fsdp_config.param_offload",
        f"{ACTOR}.fsdp_config.optimizer_offload",
        f"{ACTOR}.fsdp_config.offload_policy",
        f"{ACTOR}.fsdp_config.fsdp_size",
        f"{ACTOR}.fsdp_config.entropy_from_logits_with_chunking",
        f"{ACTOR}.optim.lr_scheduler_type",
        f"{ROLLOUT}.load_format",
        f"{ROLLOUT}.enforce_eager",
        f"{ROLLOUT}.enable_prefix_caching",
        f"{ROLLOUT}.engine_kwargs.vllm.kv_cache_dtype",
        f"{MODEL}.lora.merge",
        f"{MODEL}.trust_remote_code",
        f"{MODEL}.use_liger",
        f"{MODEL}.enable_activation_offload",
        f"{MODEL}.exclude_modules",
        f"{MODEL}.override_config.attn_implementation",
        f"{MODEL}.use_fused_kernels",
        "trainer.esi_redundant_time",
    ],
)
def test_what_only_machines_differ_in_is_left_to_the_verl_table(name: str) -> None:
    wanted = {"load_format": "auto", "attn_implementation": "eager"}.get(name.split(".")[-1], 2)

    assert value(settings_of(small_run(verl={name: wanted}), device="gpu"), name) == wanted


def test_a_training_in_bfloat16_is_refused_and_an_evaluation_is_not() -> None:
    run = small_run(model={"dtype": "bfloat16"})

    with pytest.raises(ConfigError, match=r'model\.dtype = "bfloat16" would train'):
        settings_of(run, device="gpu")
    config = settings_of(run, device="gpu", only_validate=True)
    assert value(config, f"{ACTOR}.fsdp_config.model_dtype") == "bf16"


def test_an_adapter_is_as_the_run_says() -> None:
    run = small_run(
        model={"lora_rank": 8, "lora_alpha": 32, "lora_target_modules": ["q_proj", "v_proj"]}
    )
    config = settings_of(run, device="gpu")
    default = settings_of(small_run(model={"lora_rank": 8}), device="gpu")

    assert value(config, f"{MODEL}.lora_alpha") == 32
    assert value(config, f"{MODEL}.target_modules") == ["q_proj", "v_proj"]
    assert value(default, f"{MODEL}.lora_alpha") == 8
    assert value(default, f"{MODEL}.target_modules") == "all-linear"


@pytest.mark.parametrize(
    ("checkpoint", "actor", "critic"),
    [
        ({}, ["model", "optimizer", "extra", "hf_model"], ["model", "optimizer", "extra"]),
        ({"huggingface": False}, ["model", "optimizer", "extra"], ["model", "optimizer", "extra"]),
        ({"optimizer": False}, ["hf_model"], []),
    ],
)
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_a_checkpoint_holds_what_the_run_says(
    checkpoint: dict[str, bool], actor: list[str], critic: list[str], lora_rank: int
) -> None:
    from verl.utils.config import omega_conf_to_dataclass

    run = small_run(
        algorithm={"name": "gae"}, checkpoint=checkpoint, model={"lora_rank": lora_rank}
    )
    config = settings_of(run, device="gpu")

    read = omega_conf_to_dataclass(config.actor_rollout_ref.actor.checkpoint)
    assert (list(read.save_contents), read.save_lora_only) == (actor, lora_rank > 0)
    assert value(config, "critic.checkpoint.save_contents") == critic


def test_validation_samples_as_the_run_says() -> None:
    sampled = small_run(validation={"temperature": 0.4, "samples_per_task": 3})

    for run, expected in ((sampled, (3, 0.4, True)), (small_run(), (1, 0.0, False))):
        config = settings_of(run, device="gpu")
        names = ("n", "temperature", "do_sample")
        found = tuple(value(config, f"{ROLLOUT}.val_kwargs.{name}") for name in names)
        assert found == expected


def test_a_verl_that_dropped_a_setting_is_refused_by_name() -> None:
    from longhaul_trainer.verl.settings import _refuse_missing

    config = settings_of(small_run(), device="cpu")
    with pytest.raises(MachineError, match=r"has no setting .*actor\.optim\.speed"):
        _refuse_missing(config, {"data.train_batch_size": 4, f"{ACTOR}.optim.speed": 1})


def test_the_agent_loop_is_named_to_verl_with_its_ticket(tmp_path: Path) -> None:
    from verl.utils.import_utils import load_class_from_fqn

    from longhaul_trainer.verl.settings import AGENT_LOOP, agent_loop_file

    path = agent_loop_file(tmp_path / "run_context-0.json")
    (entry,) = cast("list[dict[str, str]]", OmegaConf.to_container(OmegaConf.load(path)))

    assert entry["name"] == AGENT_LOOP
    assert entry["run_context"] == str(tmp_path / "run_context-0.json")
    assert load_class_from_fqn(entry["_target_"]).__name__ == "EpisodeAgentLoop"
