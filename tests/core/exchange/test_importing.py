"""Files written by hand from each format's description, and what the store has of them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from core.exchange.conftest import Import
from longhaul_core.errors import ConfigError, FormatError
from longhaul_core.exchange import ImportSettings, format_named, import_files
from longhaul_core.store import StoreWriter, queries

Lines = Callable[..., Path]


def texts(messages: tuple[queries.PromptMessage, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


def replies(episode: queries.EpisodeDetail) -> list[str | None]:
    return [call.reply for step in episode.steps for call in step.calls]


def test_verls_rows_of_one_rollout_are_one_episode(lines: Lines, imported: Import) -> None:
    row = {"gts": "42", "step": 3, "acc": 1.0}
    path = lines(
        {"input": "What is 6*7?", "output": "6*7 is", "score": 1.0, "uid": "q_0_0", **row},
        {"input": "What is 6*7? 6*7 is", "output": "42", "score": 1.0, "uid": "q_0_1", **row},
        {"input": "What is 6*7?", "output": "41", "score": 0.0, "uid": "q_1_0", **row},
        {"input": "What is 1+1?", "output": "2", "score": 0.5, "uid": "p_0_0", **row},
    )
    first, second, other = imported(path, "verl")
    assert replies(first) == ["6*7 is", "42"]
    assert [step.reward for step in first.steps] == [0.0, 1.0]
    assert first.summary.success is True
    assert second.summary.success is False
    assert first.summary.training_step == 3
    assert json.loads(first.task_data) == {"ground_truth": "42"}
    assert [each.summary.sample_index for each in (first, second, other)] == [0, 1, 0]
    assert [each.summary.group_index for each in (first, second, other)] == [0, 0, 1]
    assert first.summary.task_id == second.summary.task_id != other.summary.task_id
    assert first.summary.environment == "imported/verl"


def test_rows_without_a_uid_are_grouped_by_their_prompt(lines: Lines, imported: Import) -> None:
    row = {"score": 0.0, "step": 1}
    path = lines(
        {"input": "a", "output": "1", **row},
        {"input": "b", "output": "2", **row},
        {"input": "a", "output": "3", **row},
    )
    episodes = imported(path, "verl")
    assert [(each.summary.group_index, replies(each)) for each in episodes] == [
        (0, ["1"]),
        (0, ["3"]),
        (1, ["2"]),
    ]


def test_rows_of_a_rollout_that_stand_apart_are_refused(lines: Lines, imported: Import) -> None:
    row = {"input": "a", "output": "1", "score": 0.0, "step": 1}
    path = lines({**row, "uid": "a_0_0"}, {**row, "uid": "a_1_0"}, {**row, "uid": "a_0_1"})
    with pytest.raises(FormatError, match=r"line 3: field uid: rollout 'a_0' of step 1"):
        imported(path, "verl")


def test_verl_agents_rows_are_episodes_of_one_step(lines: Lines, imported: Import) -> None:
    row = {"input": "room 1", "score": 10.0, "step": 2}
    path = lines({**row, "output": "go north"}, {**row, "output": "go south"})
    episodes = imported(path, "verl_agent", success_at=10.0)
    assert [each.summary.episode_return for each in episodes] == [10.0, 10.0]
    assert [each.summary.sample_index for each in episodes] == [0, 1]
    assert all(each.summary.success for each in episodes)


INSTRUCTIONS = "You are in a house. Answer with Thought and Action."
OK = "OK. I'll follow your instructions and try my best to solve the task."


def test_agentgyms_rollout_log_is_an_array_of_conversations(
    tmp_path: Path, imported: Import
) -> None:
    path = tmp_path / "logs" / "step12" / "0.json"
    path.parent.mkdir(parents=True)
    said = ["Room 1.", "Action: go north", "Room 2.", "Action: stop", "Done."]
    turns = [
        {"role": "user", "content": INSTRUCTIONS},
        {"role": "assistant", "content": OK},
        *(
            {"role": "assistant" if place % 2 else "user", "content": text}
            for place, text in enumerate(said)
        ),
    ]
    log = {"item_id": 7, "conversations": turns, "reward": 1.0}
    path.write_text(json.dumps([log, log], indent=1), encoding="utf-8")
    first, second = imported(tmp_path / "logs", "agentgym")
    assert [step.observation for step in first.steps] == ["Room 1.", "Room 2."]
    assert replies(first) == ["Action: go north", "Action: stop"]
    assert texts(first.steps[0].calls[0].messages) == [
        ("user", INSTRUCTIONS),
        ("assistant", OK),
        ("user", "Room 1."),
    ]
    assert [step.reward for step in first.steps] == [0.0, 1.0]
    assert first.final_observation == "Done."
    assert first.summary.task_id == "7"
    assert first.summary.training_step == 12
    assert second.summary.sample_index == 1


def test_agentgyms_evaluation_has_another_shape(lines: Lines, imported: Import) -> None:
    path = lines(
        {
            "conversations": [
                {"from": "human", "loss": None, "value": INSTRUCTIONS},
                {"from": "gpt", "loss": False, "value": "Understood."},
                {"from": "human", "loss": None, "value": "Room 1."},
                {"from": "gpt", "loss": True, "value": "Action: go north"},
            ],
            "item_id": "webshop_12",
            "reward": 0.75,
            "success": False,
        }
    )
    (episode,) = imported(path, "agentgym_eval")
    assert replies(episode) == ["Action: go north"]
    assert episode.summary.task_id == "webshop_12"
    assert episode.summary.episode_return == 0.75
    assert episode.summary.success is False


def test_a_turn_of_no_shape_is_named(lines: Lines, imported: Import) -> None:
    turns = [{"role": "user", "value": "hello"}]
    path = lines({"item_id": 1, "conversations": turns, "reward": 0})
    with pytest.raises(FormatError, match=r"line 1: field conversations\.0: .*either role and"):
        imported(path, "agentgym")


def characters(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode()


TRIPLET = {
    "prompt": {"token_ids": [1, 2, 3]},
    "response": {"token_ids": [4, 5], "logprobs": [-0.5, -0.25], "text": "go north"},
    "reward": None,
    "metadata": {
        "response_id": "chatcmpl-1",
        "agent_name": "walker",
        "messages": [{"role": "user", "content": "Room 1."}],
    },
}


def test_triplets_keep_their_tokens(lines: Lines, imported: Import) -> None:
    last = TRIPLET | {"reward": 2.0}
    path = lines({"rollout_id": "ro-1", "final_reward": 2.0, "triplets": [TRIPLET, last]})
    (episode,) = imported(path, "agent_lightning")
    first = episode.steps[0].calls[0]
    assert first.tokens is not None
    assert first.tokens.prompt_tokens == (1, 2, 3)
    assert first.tokens.action_tokens == (4, 5)
    assert first.tokens.behavior_logprobs == (-0.5, -0.25)
    assert first.agent == "walker"
    assert episode.steps[0].observation == "Room 1."
    assert [step.reward for step in episode.steps] == [0.0, 2.0]


def test_triplets_without_text_need_the_tokenizer(lines: Lines, imported: Import) -> None:
    bare = {
        "prompt": {"token_ids": [72, 105]},
        "response": {"token_ids": [111, 107], "log_probs": [-1, 0]},
    }
    path = lines({"rollout_id": "ro-1", "final_reward": 1.0, "triplets": [bare]})
    with pytest.raises(FormatError, match=r"triplets\.0\.response: has token_ids and no text"):
        imported(path, "agent_lightning")
    (episode,) = imported(path, "agent_lightning", run_id="again", decode=characters)
    assert replies(episode) == ["ok"]
    assert texts(episode.steps[0].calls[0].messages) == [("user", "Hi")]
    assert episode.summary.success is True


def test_logprobs_of_another_number_are_refused(lines: Lines, imported: Import) -> None:
    short = TRIPLET | {"response": {"token_ids": [4, 5], "logprobs": [-0.5], "text": "x"}}
    path = lines({"rollout_id": "ro-1", "triplets": [TRIPLET, short]})
    with pytest.raises(FormatError, match=r"triplets\.1\.response\.logprobs: 1 for 2 token_ids"):
        imported(path, "agent_lightning")


ATIF = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s-1",
    "agent": {
        "name": "terminus",
        "version": "2.0",
        "model_name": "m",
        "tool_definitions": [
            {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
        ],
    },
    "steps": [
        {"step_id": 1, "source": "system", "message": "You have a shell."},
        {"step_id": 2, "source": "user", "message": "How many files?"},
        {
            "step_id": 3,
            "source": "agent",
            "message": "",
            "reasoning_content": "List them.",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "shell", "arguments": {"cmd": "ls"}}
            ],
            "observation": {
                "results": [{"source_call_id": "c1", "content": [{"type": "text", "text": "a b"}]}]
            },
            "metrics": {
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "prompt_token_ids": [1, 2, 3],
                "completion_token_ids": [4, 5],
                "logprobs": [-0.5, -0.125],
                "cost_usd": 0.01,
            },
        },
        {"step_id": 4, "source": "agent", "message": "Two.", "timestamp": "2026-01-01T00:00:00Z"},
    ],
    "final_metrics": {"total_steps": 4},
}


def test_atif_is_read_in_one_object_over_many_lines(tmp_path: Path, imported: Import) -> None:
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(ATIF, indent=2), encoding="utf-8")
    (episode,) = imported(path, "atif")
    listed, answered = episode.steps
    call = listed.calls[0]
    assert texts(call.messages) == [("system", "You have a shell."), ("user", "How many files?")]
    assert call.reply == "<think>List them.</think>"
    assert [(each.id, each.name, json.loads(each.arguments)) for each in call.tool_calls] == [
        ("c1", "shell", {"cmd": "ls"})
    ]
    assert call.tokens is not None
    assert call.tokens.action_tokens == (4, 5)
    assert call.cost_usd == 0.01
    assert [tool.name for tool in call.tools] == ["shell"]
    assert listed.action == 'shell {"cmd": "ls"}'
    assert answered.observation == "a b"
    roles = [message.role for message in answered.calls[0].messages]
    assert roles == ["system", "user", "assistant", "tool"]
    assert answered.calls[0].reply == "Two."


@pytest.mark.parametrize("version", ["ATIF-v2.0", "1.4", ""])
def test_another_version_of_atif_is_refused(version: str, lines: Lines, imported: Import) -> None:
    path = lines(ATIF | {"schema_version": version})
    with pytest.raises(FormatError, match="field schema_version"):
        imported(path, "atif")


def test_a_conversation_is_an_episode_of_its_replies(lines: Lines, imported: Import) -> None:
    asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    path = lines(
        {
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Room 1."}]},
                {"role": "assistant", "content": None, "tool_calls": [asked]},
                {"role": "tool", "tool_call_id": "c1", "content": "A door."},
                {"role": "assistant", "content": "Open it.", "reasoning_content": "A door!"},
            ],
            "source": "by hand",
        }
    )
    (episode,) = imported(path, "conversations")
    assert replies(episode) == ["", "<think>A door!</think>Open it."]
    assert [step.observation for step in episode.steps] == ["Room 1.", "A door."]
    assert episode.steps[0].calls[0].tool_calls[0].name == "look"
    assert episode.steps[0].calls[0].messages[0].role == "system"


@pytest.mark.parametrize(
    "facts",
    [
        {"phase": "branch"},
        {"phase": "branch", "branched_from": "a"},
        {"branched_from": "a", "branched_at_step": 1},
        {"branched_action": "up"},
    ],
)
def test_a_continuation_of_nothing_is_refused(
    facts: dict[str, object], lines: Lines, imported: Import
) -> None:
    said = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "up"}]
    path = lines({"messages": said, "metadata": facts})
    with pytest.raises(FormatError, match=r'line 1: an episode of phase "branch", and no other'):
        imported(path, "conversations")


def test_no_address_in_a_file_is_fetched(lines: Lines, imported: Import) -> None:
    part = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/secret.png"}}
    path = lines({"messages": [{"role": "user", "content": [part]}]})
    with pytest.raises(FormatError, match=r"line 1: .*no address is fetched"):
        imported(path, "conversations")


def test_a_run_says_that_it_was_imported_and_from_where(
    lines: Lines, imported: Import, engine: Engine
) -> None:
    path = lines({"input": "a", "output": "b", "score": 0.5, "step": 1})
    imported(path, "verl", environment="mine/Maze-v0", success_at=0.5)
    with Session(engine) as session:
        run = queries.get_run(session, run_id="imported")
    assert (run.summary.kind, run.summary.status) == ("imported", "finished")
    assert json.loads(run.config_json)["import"] == {
        "format": "verl",
        "environment": "mine/Maze-v0",
        "success_at": 0.5,
    }
    assert json.loads(run.attempts[0].provenance_json) == {"files": [str(path)]}
    assert run.summary.num_episodes == 1


def test_what_has_no_place_is_counted(lines: Lines, writer: StoreWriter) -> None:
    row = {"input": "a", "output": "b", "score": 0.5, "step": 1}
    path = lines({**row, "acc": 1}, {**row, "acc": 0, "format_ok": True})
    settings = ImportSettings(format=format_named("verl"), run_id="r", name="r")
    result = import_files(writer, path, settings)
    assert dict(result.left_out) == {"acc": 2, "format_ok": 1}
    assert (result.num_episodes, result.num_steps, result.num_solved) == (2, 2, 0)


def test_a_file_that_breaks_off_leaves_a_failed_run(
    lines: Lines, imported: Import, engine: Engine
) -> None:
    row = {"input": "a", "output": "b", "score": 0.5, "step": 1}
    path = lines(*([row] * 60), {**row, "score": "much"})
    with pytest.raises(FormatError, match=r"line 61: field score: .*got 'much'"):
        imported(path, "verl")
    with Session(engine) as session:
        (run,) = queries.list_runs(session)
    assert run.status == "failed"
    assert "line 61" in run.message
    assert run.num_episodes == 50  # whole transactions


def test_a_tokenizer_that_breaks_leaves_a_failed_run(
    lines: Lines, imported: Import, engine: Engine
) -> None:
    def broken(tokens: Sequence[int]) -> str:
        raise OverflowError(f"no token {max(tokens)}")

    triplet = {"prompt": {"token_ids": [1]}, "response": {"token_ids": [2**40]}}
    path = lines({"rollout_id": "a", "triplets": [triplet]})
    with pytest.raises(OverflowError):
        imported(path, "agent_lightning", decode=broken)
    with Session(engine) as session:
        (run,) = queries.list_runs(session)
    assert (run.status, run.message) == ("failed", f"OverflowError('no token {2**40}')")


@pytest.mark.parametrize("success_at", [float("nan"), float("inf")])
def test_a_success_at_must_be_a_number(success_at: float) -> None:
    with pytest.raises(ConfigError, match="success_at"):
        ImportSettings(format=format_named("verl"), run_id="r", name="r", success_at=success_at)


def test_an_unknown_format_is_named_beside_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'pickle'; there are conversations, messages, atif"):
        format_named("pickle")
