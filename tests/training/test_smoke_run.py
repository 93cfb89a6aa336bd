"""A real training run (verl, vLLM, Ray, FSDP) leaves what it should. About two minutes."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# transformers is typed in part.

import json
import math
import struct
from pathlib import Path
from statistics import fmean

import pytest
from sqlalchemy.orm import Session

from longhaul_core.audit import audit_run, one_line
from longhaul_core.store import read_only_engine
from longhaul_core.store.queries import get_episode, get_run
from longhaul_trainer.config.load import stored_config
from longhaul_trainer.models import prepare_model
from training.launching import Launched, processes_in
from training.listening import Seen
from training.variety import assert_advantages_vary, assert_rewards_vary
from variation import assert_both_signs, assert_several

pytestmark = pytest.mark.timeout(900)

LOGPROB_BOUND = 1e-4
"""Nats per token, mean, in float32: sampler and learner differ by their kernels alone."""
FLOAT32_ROUNDING = 2.0**-24
"""Relative; the store has the trainer's float64, the loss reads float32."""


def test_the_run_ends_well_and_says_where_to_look(smoke: Launched) -> None:
    assert "finished" in smoke.output
    assert "uv run viewer" in smoke.output
    assert smoke.query("SELECT status FROM runs") == [("finished",)]


def test_while_it_trains_nothing_of_it_listens_beyond_the_machine_but_the_engines_store_of_torch(
    smoke: Launched,
) -> None:
    seen = Seen.read(smoke.folder)

    assert len(seen.listeners) > 5, "somebody must have looked"
    beyond = [one for one in seen.listeners if not one.address.startswith("127.")]
    assert [one.program for one in beyond if "VLLM::Engine" not in one.program] == []
    assert len(beyond) <= 1, beyond  # docs/decisions/0066: torch gives its store no address


def test_while_it_trains_no_port_does_anything_for_a_stranger(smoke: Launched) -> None:
    seen = Seen.read(smoke.folder)

    assert seen.taken == []
    assert seen.open_sockets == []


def test_each_training_step_was_trained(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT training_step, value FROM metrics WHERE name = 'actor/optimizer_steps' "
        "AND NOT rolled_back ORDER BY training_step"
    )

    assert rows == [(step, 2.0) for step in (1, 2, 3, 4)]


def test_rewards_differ_within_groups_and_from_step_to_step(smoke: Launched) -> None:
    """Without this, no test of credit below could fail."""
    assert_rewards_vary(smoke)
    assert_several(length for (length,) in smoke.query("SELECT num_steps FROM episodes"))
    endings = smoke.query("SELECT DISTINCT terminated FROM episodes WHERE trained")
    assert len(endings) == 2, "episodes must end in both ways"


def test_advantages_and_their_parts_take_many_values_of_both_signs(smoke: Launched) -> None:
    assert_advantages_vary(smoke, training_steps=(1, 2, 3, 4))


def test_sampler_and_learner_agree_after_each_weight_sync(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT training_step, value FROM metrics "
        "WHERE name = 'agreement/logprob_difference_mean' ORDER BY training_step"
    )

    assert [step for step, _ in rows] == [1, 2, 3, 4]
    assert all(0 < value < LOGPROB_BOUND for _, value in rows), rows


def test_the_run_audited_its_first_training_step_and_all_of_it_is_as_it_was_meant(
    smoke: Launched,
) -> None:
    by_itself = smoke.query(
        "SELECT first_training_step, last_training_step, num_findings FROM audits"
    )
    assert by_itself == [(1, 1, 0)], smoke.query("SELECT * FROM audit_findings")

    engine = read_only_engine(smoke.folder / "longhaul.db")
    with Session(engine) as session:
        report = audit_run(session, smoke.run_id)
    engine.dispose()
    assert [one_line(finding) for finding in report.findings] == []
    assert report.training_steps == (1, 2, 3, 4)
    assert report.not_checked == ()


def test_the_weights_moved(smoke: Launched) -> None:
    norms = smoke.query("SELECT value FROM metrics WHERE name = 'actor/grad_norm'")

    assert len(norms) == 4
    assert all(norm > 0 for (norm,) in norms)


def test_the_number_of_steps_is_the_sum_of_episode_lengths(smoke: Launched) -> None:
    assert smoke.value("SELECT count(*) FROM step_detail") == smoke.value(
        "SELECT sum(num_steps) FROM episode_summary"
    )


def test_the_horizon_grows_in_training_and_validation_plays_the_final_one(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT DISTINCT phase, training_step, horizon FROM episode_summary ORDER BY 1, 2"
    )

    assert [row for row in rows if row[0] == "train"] == [
        ("train", 1, 6),
        ("train", 2, 6),
        ("train", 3, 8),
        ("train", 4, 8),
    ]
    assert {horizon for phase, _, horizon in rows if phase == "validation"} == {8}


def test_its_log_has_a_line_for_each_stage_and_training_step_and_for_its_end(
    smoke: Launched,
) -> None:
    lines = (smoke.run_folder / "logs" / "longhaul.log").read_text(encoding="utf-8").splitlines()
    messages = [line.partition(": ")[2] for line in lines]

    for number in (1, 2, 3, 4):
        assert [m for m in messages if m.startswith(f"training step {number} is over: return ")]
        assert {f"training step {number}: {stage}" for stage in ("episodes", "update")} <= {
            *messages
        }
    assert messages[-1] == "finished"


def test_each_trained_token_has_both_logprobs(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT t.tokens IS NOT NULL, length(t.behavior_logprobs), length(t.policy_logprobs), "
        "c.num_action_tokens FROM steps s JOIN calls c USING (episode_id, step_index) "
        "LEFT JOIN call_tokens t USING (episode_id, step_index, call_index) "
        "JOIN episodes e ON e.id = s.episode_id WHERE s.trained AND NOT e.rolled_back"
    )

    assert rows
    for has_tokens, behavior, policy, count in rows:
        assert has_tokens
        assert behavior == policy == 4 * count > 0


def test_each_trained_token_has_an_entropy_and_their_mean_is_the_curves(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT e.trained_training_step, t.policy_entropies, c.num_action_tokens "
        "FROM call_tokens t JOIN calls c USING (episode_id, step_index, call_index) "
        "JOIN episodes e ON e.id = t.episode_id WHERE e.trained AND c.trained"
    )
    curve = dict(
        smoke.query("SELECT training_step, value FROM metrics WHERE name = 'actor/entropy'")
    )

    entropies: dict[int, list[float]] = {}
    for training_step, blob, count in rows:
        of_call = struct.unpack(f"<{count}e", blob)
        assert min(of_call) >= 0
        entropies.setdefault(training_step, []).extend(of_call)
    assert sorted(entropies) == sorted(curve) == [1, 2, 3, 4]
    for training_step, of_step in entropies.items():
        assert fmean(of_step) == pytest.approx(curve[training_step], rel=1e-3)
        assert_several(of_step)


def test_entropies_of_the_first_training_step_are_those_of_the_first_weights(
    smoke: Launched, tmp_path: Path
) -> None:
    """By the definition, from the logits that transformers computes for the stored tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(prepare_model("tiny-moves", tmp_path))
    found = smoke.query("SELECT id FROM episodes WHERE trained_training_step = 1 LIMIT 4")
    engine = read_only_engine(smoke.folder / "longhaul.db")
    with Session(engine) as session:
        episodes = [get_episode(session, episode_id=episode_id) for (episode_id,) in found]
    engine.dispose()

    for call in (call for each in episodes for step in each.steps for call in step.calls):
        assert call.tokens is not None
        prompt, reply = call.tokens.prompt_tokens, call.tokens.action_tokens
        with torch.no_grad():
            logits_TV = model(torch.tensor([[*prompt, *reply]])).logits[0, len(prompt) - 1 : -1]
        shares_TV = logits_TV.double().softmax(-1)
        expected = [-sum(p * math.log(p) for p in row if p > 0) for row in shares_TV.tolist()]
        assert call.tokens.policy_entropies == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_a_small_policy_in_this_process_has_the_logprobs_of_the_engine(smoke: Launched) -> None:
    from longhaul_trainer.play.small_policy import SmallModel
    from longhaul_trainer.play.truth.logprobs import check_against_engine

    engine = read_only_engine(smoke.folder / "longhaul.db")
    with Session(engine) as session:
        run = get_run(session, run_id=smoke.run_id)
        played = stored_config(run.config_json, run_id=smoke.run_id)
        model = SmallModel(prepare_model(played.model.path))
        found = check_against_engine(session, smoke.run_id, played, model, policy_version=0)
    engine.dispose()

    assert found is not None
    assert found.num_tokens > found.num_calls > 50
    assert 0 < found.largest < LOGPROB_BOUND


def test_each_call_has_what_the_engine_had_kept_of_its_prompt_and_how_long_it_waited(
    smoke: Launched,
) -> None:
    (counts,) = smoke.query(
        "SELECT count(*), count(num_cached_tokens), min(num_cached_tokens) >= 0, "
        "max(num_cached_tokens - num_prompt_tokens) < 0, min(queue_seconds) >= 0, "
        "sum(queue_seconds > 0), sum(num_cached_tokens) FROM call_detail"
    )
    calls, known, at_least_none, not_all, no_wait_below_0, waited, cached = counts

    assert calls == known > 0
    assert (at_least_none, not_all, no_wait_below_0) == (1, 1, 1)
    assert waited > calls / 2  # for the engine's present pass at least
    rates = smoke.query("SELECT value FROM metrics WHERE name = 'engine/prefix_cache_hit_rate'")
    assert len(rates) == 4
    assert (max(rate for (rate,) in rates) > 0) == (cached > 0)


def test_each_group_has_all_its_episodes_or_a_recorded_failure(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT g.training_step, g.group_index, g.group_size, count(DISTINCT e.sample_index) "
        "FROM groups g JOIN episodes e USING (run_id, attempt, phase, training_step, group_index) "
        "WHERE g.phase = 'train' GROUP BY 1, 2, 3"
    )

    assert len(rows) == 4 * 4
    assert all(size == found == 4 for _, _, size, found in rows)


def test_the_episode_parts_of_a_group_cancel(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT sum(episode_advantage) FROM episodes WHERE trained "
        "GROUP BY training_step, group_index"
    )

    assert len(rows) == 4 * 4
    assert all(abs(total) < 1e-6 for (total,) in rows)


def test_the_step_parts_of_an_anchor_group_cancel(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT sum(s.step_advantage) FROM steps s JOIN episodes e ON e.id = s.episode_id "
        "WHERE s.trained GROUP BY e.training_step, e.group_index, s.anchor_hash"
    )

    assert rows
    assert all(abs(total) < 1e-6 for (total,) in rows)


def test_the_loss_weights_of_an_optimizer_step_add_up_to_one(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT sum(c.loss_weight * c.num_action_tokens) FROM calls c "
        "JOIN episodes e ON e.id = c.episode_id WHERE e.trained AND NOT e.rolled_back "
        "GROUP BY e.training_step, e.optimizer_step_index"
    )

    assert len(rows) == 8
    assert all(abs(total - 1) < 1e-6 for (total,) in rows)


def test_each_step_with_an_advantage_went_through_the_loss_once_as_it_was_credited(
    smoke: Launched,
) -> None:
    rows = smoke.query(
        "SELECT advantage, loss_weight, num_action_tokens, count(num_tokens), sum(num_tokens), "
        "min(advantage_low), max(advantage_high), min(weight_low), max(weight_high), "
        "update_training_step, optimizer_step_index "
        "FROM call_loss_inputs WHERE trained AND advantage <> 0 GROUP BY episode_id, step_index"
    )

    assert_both_signs(row[0] for row in rows)
    assert_several((row[0] for row in rows), at_least=32)
    assert_several(row[1] for row in rows)
    assert len({(row[1], *row[-2:]) for row in rows}) == 8  # a weight for each of the updates
    for (
        advantage,
        weight,
        num_tokens,
        times,
        num_loss_inputs,
        low,
        high,
        lightest,
        heaviest,
        *_,
    ) in rows:
        assert (times, num_loss_inputs) == (1, num_tokens)
        assert low == high == pytest.approx(advantage, rel=FLOAT32_ROUNDING)
        assert lightest == heaviest == pytest.approx(weight, rel=FLOAT32_ROUNDING)


def test_nothing_but_trained_steps_went_through_the_loss(smoke: Launched) -> None:
    assert smoke.value("SELECT count(*) FROM loss_inputs") > 0
    assert not smoke.query(
        "SELECT c.episode_id, c.step_index FROM loss_inputs c "
        "JOIN episodes e ON e.id = c.episode_id JOIN steps s USING (episode_id, step_index) "
        "WHERE NOT s.trained OR c.optimizer_step_index <> e.optimizer_step_index"
    )


def test_the_loss_read_the_old_logprobs_that_are_stored(smoke: Launched) -> None:
    rows = smoke.query(
        "SELECT i.old_logprob_sum, t.policy_logprobs FROM loss_inputs i "
        "JOIN call_tokens t USING (episode_id, step_index, call_index)"
    )

    assert rows
    for old_logprob_sum, blob in rows:
        logprobs = struct.unpack(f"<{len(blob) // 4}f", blob)
        assert old_logprob_sum == pytest.approx(sum(logprobs), abs=1e-9)


def test_prompts_are_composed_afresh_and_tokens_are_those_of_the_engine(smoke: Launched) -> None:
    """Under window memory the prompt of a step does not grow with the step."""
    longest = smoke.query(
        "SELECT step_index, max(num_prompt_tokens) FROM step_detail "
        "WHERE phase = 'train' AND step_index >= 2 GROUP BY step_index"
    )

    lengths = [length for _, length in longest]
    assert len(lengths) == 6
    assert max(lengths) - min(lengths) < 64


def test_no_reply_carries_an_end_it_did_not_write(smoke: Launched) -> None:
    engine = read_only_engine(smoke.folder / "longhaul.db")
    with Session(engine) as session:
        episodes = [
            get_episode(session, episode_id=episode_id)
            for (episode_id,) in smoke.query("SELECT id FROM episodes")
        ]
    engine.dispose()
    calls = [call for each in episodes for step in each.steps for call in step.calls]
    tokenizer = json.loads((smoke.run_folder / "model" / "generation_config.json").read_text())
    end = tokenizer["eos_token_id"]

    assert {call.finish_reason for call in calls} == {"stop", "length"}
    for call in calls:
        assert call.tokens is not None
        tokens = call.tokens.action_tokens
        assert (tokens[-1] == end) != (call.finish_reason == "length")
        assert end not in tokens[:-1]


def test_validation_before_and_after_is_on_the_same_panel(smoke: Launched) -> None:
    rows = smoke.query("SELECT training_step, num_episodes FROM evaluations ORDER BY training_step")
    tasks = smoke.query(
        "SELECT training_step, group_concat(task_id) FROM (SELECT training_step, task_id "
        "FROM episode_summary WHERE phase = 'validation' ORDER BY training_step, group_index) "
        "GROUP BY training_step"
    )

    assert rows == [(0, 8), (2, 8), (4, 8)]
    assert len({ids for _, ids in tasks}) == 1


def test_the_final_weights_load_in_transformers(smoke: Launched) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = smoke.run_folder / "model"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer("hello", return_tensors="pt")

    assert model.generate(**tokens, max_new_tokens=2, do_sample=False).shape[1] > 2


def test_the_run_records_how_to_repeat_it(smoke: Launched) -> None:
    ((provenance,),) = smoke.query("SELECT provenance_json FROM attempts")
    known = json.loads(str(provenance))

    assert {"git", "host", "packages"} <= known.keys()
    assert (smoke.run_folder / "config.toml").is_file()


def test_nothing_of_the_run_is_left_running(smoke: Launched) -> None:
    assert not processes_in(smoke.folder)
