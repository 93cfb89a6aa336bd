"""The guide to agents of one's own is carried out as it stands.

Where it wants a hosted model, a gateway is one: it has the addresses, the keys and the dialects of
all of them, and a model that knows one way.
"""

import asyncio
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import ByteChatRenderer, make_task
from gateways import Played, Stage
from guides import Guide
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import EpisodeLimits, EpisodeOutcome, EpisodeSpec, Responder
from longhaul_core.types import StopReason, Trajectory
from longhaul_trainer.gateway.episode import CallRules
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.play.programs.command import CommandProgram
from longhaul_trainer.play.programs.function import FunctionProgram
from longhaul_trainer.play.programs.grader import Grader
from longhaul_trainer.play.programs.play import play_program
from longhaul_trainer.play.programs.program import Program
from training.launching import forked_trainer

GUIDE = Guide.read("agents.md")
COMMANDS = [name for name in GUIDE.files if name.endswith("robot.py")]


class GoesRight:
    """A hosted model that leads to the exit if that is on the right."""

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        arrived = "The exit is 0 rooms to the right and 0 rooms up." in prompt.messages[-1].text
        has_tools = b"tools: move" in bytes(prompt.tokens)
        call = '<call>{"name": "move", "arguments": {"direction": "right"}}</call>'
        reply = "Done." if arrived else call if has_tools else "right"
        tokens = tuple(reply.encode())
        return Completion(
            text=reply,
            action_tokens=tokens,
            behavior_logprobs=(-0.5,) * len(tokens),
            policy_version=0,
        )


@pytest.fixture
def responder() -> Responder:
    return Responder(policy=GoesRight(), renderer=ByteChatRenderer())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_file_command_and_query_of_the_guide_does_what_it_says(
    tmp_path: Path, responder: Responder, agents_python: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    forked_trainer(programs / "trainer")
    (programs / "python").symlink_to(agents_python)

    async def follow(hosted: Played) -> None:
        variables = hosted.episode.environ()
        await asyncio.to_thread(
            GUIDE.carry_out, tmp_path, variables=variables, programs=programs, seconds=600
        )

    with Stage() as stage:
        stage.played(
            follow,
            models={"gpt-4o-mini": responder},
            rules=CallRules(trains=False),
            horizon=200,
        )

    assert len(GUIDE.commands) >= 10
    with closing(sqlite3.connect(tmp_path / "longhaul.db")) as store:
        answers = [store.execute(query).fetchall() for query in GUIDE.queries]
        (failed,) = store.execute("SELECT count(*) FROM episode_summary WHERE failed").fetchone()
        (exact,) = store.execute(
            "SELECT count(*) FROM calls WHERE continuation = 'exact'"
        ).fetchone()
    assert len(answers) == len(GUIDE.queries) >= 2
    assert answers[0], "the guide's question finds no call"
    assert failed == 0
    assert exact > 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With the guide's files, which can be imported."""
    for name, text in GUIDE.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in GUIDE.files:
        sys.modules.pop(Path(name).stem, None)


def played(
    responder: Responder, programs: Mapping[str, Program], *, grader: Grader | None = None
) -> dict[str, Trajectory]:
    """One episode of each program, two rooms from the exit, all at once."""

    async def play(gateway: Gateway, program: Program) -> EpisodeOutcome:
        return await play_program(
            EpisodeSpec(task=replace(make_task(), data='{"exit": [2, 0]}'), seed=1),
            program=program,
            gateway=gateway,
            models={"policy": responder},
            rules=CallRules(trains=True),
            limits=EpisodeLimits(horizon=20, max_prompt_tokens=100_000),
            grader=grader,
        )

    async def all_of_them() -> list[EpisodeOutcome]:
        gateway = Gateway()
        await gateway.start()
        try:
            return await asyncio.gather(*(play(gateway, one) for one in programs.values()))
        finally:
            for program in programs.values():
                await program.close()
            await gateway.stop()

    found: dict[str, Trajectory] = {}
    for name, outcome in zip(programs, asyncio.run(all_of_them()), strict=True):
        assert isinstance(outcome, Trajectory), f"{name}: {outcome}"
        found[name] = outcome
    return found


@pytest.mark.slow
def test_every_program_of_the_guide_is_played_as_it_is(
    folder: Path, responder: Responder, agents_python: Path
) -> None:
    commands = {
        name: CommandProgram([str(agents_python), str(folder / name)], deadline_seconds=120)
        for name in COMMANDS
    }

    found = played(responder, {**commands, "function": FunctionProgram("robot_function:play")})

    assert found.keys() > {"robot.py", "lightning_robot.py"}
    for name, trajectory in found.items():
        assert trajectory.episode_return == pytest.approx(1.0), name
        assert (trajectory.success, trajectory.stop_reason) == (True, StopReason.TASK_SOLVED), name
    agents = [call.agent for step in found["team_robot.py"].steps for call in step.calls]
    assert agents == ["planner", "worker"] * 2
    assert [step.reward for step in found["function"].steps] == [0.5, 0.5]


def test_the_grader_of_the_guide_pays_for_few_calls(folder: Path, responder: Responder) -> None:
    program = CommandProgram([sys.executable, str(folder / "robot.py")], deadline_seconds=120)

    trajectory = played(responder, {"": program}, grader=Grader("robot_grader:grade"))[""]

    assert trajectory.episode_return == pytest.approx(0.9)
    assert trajectory.success
