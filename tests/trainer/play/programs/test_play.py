"""Episodes of programs, from their start to their record: a real gateway, and a scripted policy."""

import asyncio
import contextlib
import gc
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import AsyncOpenAI

import faulty_program
from fakes import FailingPolicy, HangingPolicy, ScriptedPolicy
from longhaul_core.errors import ConfigError
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import EpisodeOutcome
from longhaul_core.types import FailedEpisode, FailureCause, StopReason, Trajectory
from longhaul_trainer.play.programs.command import CommandProgram
from longhaul_trainer.play.programs.function import FunctionProgram
from longhaul_trainer.play.programs.grader import Graded, Grader
from longhaul_trainer.play.programs.program import Endpoint
from other_processes import command_of, still_running
from program_house import COMMAND, LIMITS, Choices, House

logger = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with House.open() as house:
        yield house


def rewards(outcome: EpisodeOutcome) -> list[float]:
    return [step.reward for step in outcome.steps]


def entries(folder: Path, pattern: str) -> list[str]:
    return [str(path) for path in folder.glob(pattern)]


def marked() -> list[int]:
    """Processes of the faulty program that should be gone."""
    found: list[int] = []
    for process in psutil.process_iter(["cmdline", "status"]):
        alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if alive and faulty_program.MARK in (process.info["cmdline"] or ()):
            found.append(process.pid)
    return found


# What each fault comes to: all are played at once, in one event loop.

ENDED: Mapping[str, tuple[object, list[float], bool]] = {
    # fault: argument, rewards of the steps, success
    "play": (3, [0, 0, 1], True),
    "play_paid": (2, [0.5, 0.5], True),
    "paid_and_solved": (None, [0.25], True),
    "outlived_by_grandchild": (None, [1], True),
    "long_line": (10_000_000, [0.25], False),
    "tiny_lines": (100_000, [0.25], False),
    "invalid_utf8": (None, [0.25], False),
    "reward_twice": ([0.75, 0.25], [0.25], False),
    "step_rewards": ([0.5, -1], [0.5, -1], False),
    "delete_own_folder": (None, [1], True),
    "locked_folder": (None, [1], True),
    "go_on_after_done": (None, [1], True),
    "send_much": (10_000_000, [0, 0.25], False),
    "send_nonsense": (None, [0.25], False),
    "wrong_key": (None, [0.25], False),
}
FAILED: Mapping[str, tuple[object, FailureCause, int, str]] = {
    # fault: argument, cause, steps, what the message says
    "crash_before": (
        None,
        FailureCause.PROGRAM_ERROR,
        0,
        "no call that was answered; its exit code",
    ),
    "crash_between": (None, FailureCause.PROGRAM_ERROR, 1, "RuntimeError: crashed between calls"),
    "crash_after": (None, FailureCause.PROGRAM_ERROR, 1, "exit code is 7"),
    "hang_after_call": (None, FailureCause.PROGRAM_TIMEOUT, 1, "waiting for what never comes"),
    "ignore_sigterm": (None, FailureCause.PROGRAM_TIMEOUT, 1, "did not end within 20 s"),
    "flood": (None, FailureCause.PROGRAM_LIMIT, 1, "max_output_bytes = 1,000,000"),
    "take_memory": (100_000_000, FailureCause.PROGRAM_LIMIT, 1, "max_memory_bytes = 80,000,000"),
    "take_processes": (10, FailureCause.PROGRAM_LIMIT, 1, "processes; max_processes = 5"),
    "contradict_itself": (
        None,
        FailureCause.PROGRAM_ERROR,
        1,
        "posted reward = 1.0, and its result",
    ),
    "step_rewards": ([1], FailureCause.PROGRAM_ERROR, 2, "1 numbers, and the episode 2 steps"),
    "call_after_done": (None, FailureCause.PROGRAM_ERROR, 1, "410 Gone"),
    "no_reward": (None, FailureCause.PROGRAM_ERROR, 1, "no reward: print a number"),
    "solved_unpaid": (None, FailureCause.PROGRAM_ERROR, 1, "no reward: print a number"),
    "not_a_number": (
        None,
        FailureCause.PROGRAM_ERROR,
        1,
        "the result must be a finite number, at most 1e+30 in size, got nan",
    ),
    "no_call": (None, FailureCause.PROGRAM_ERROR, 0, "no call that was answered"),
    "kill_keeper": (None, FailureCause.PROGRAM_ERROR, 1, "ended by signal SIGKILL"),
}
IMPATIENT = {"hang_after_call", "ignore_sigterm"}
BOUNDED = {"flood", "take_memory", "take_processes"}
LINGERING = {"call_after_done": replace(LIMITS, close_deadline_seconds=30)}
"""How long a program may go on after its end, where that is what is looked at."""


MIXED: list[tuple[str, object, FailureCause | None]] = [
    *((fault, argument, None) for fault, (argument, *_) in ENDED.items()),
    *((fault, argument, cause) for fault, (argument, cause, *_) in FAILED.items()),
    ("leave_stream", None, None),  # it may have its reply when it goes, or not
]
"""Faults, their arguments and causes."""


class _Programs:
    """The faulty program, with limits that suit a fault."""

    def __init__(self, *, impatience: float) -> None:
        self._patient = CommandProgram(COMMAND, deadline_seconds=120)
        self._impatient = CommandProgram(COMMAND, deadline_seconds=impatience)
        self._bounded = CommandProgram(
            COMMAND,
            deadline_seconds=120,
            max_memory_bytes=80_000_000,
            max_processes=5,
            max_output_bytes=1_000_000,
        )

    def of(self, fault: str) -> CommandProgram:
        if fault in IMPATIENT:
            return self._impatient
        return self._bounded if fault in BOUNDED else self._patient

    async def close(self) -> None:
        for program in (self._patient, self._impatient, self._bounded):
            await program.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    ended: Mapping[str, EpisodeOutcome]
    failed: Mapping[str, EpisodeOutcome]
    left: str
    """What was there afterwards that had not been there before."""


@pytest.fixture(scope="module")
def aftermath(house: House, tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    """Every fault at once, and what is left of them."""
    folder = tmp_path_factory.mktemp("d")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        return house.run(_all_faults(house, folder))


async def _all_faults(house: House, folder: Path) -> Aftermath:
    before = _held()
    programs = _Programs(impatience=20)  # each is to make its call before, beside all others

    async def all_of(faults: Mapping[str, tuple[Any, ...]]) -> dict[str, EpisodeOutcome]:
        outcomes = await asyncio.gather(
            *(
                house.play(
                    fault,
                    argument,
                    program=programs.of(fault),
                    sample_index=place,
                    limits=LINGERING.get(fault, LIMITS),
                )
                for place, (fault, (argument, *_)) in enumerate(faults.items())
            )
        )
        return dict(zip(faults, outcomes, strict=True))

    ended, failed = await asyncio.gather(all_of(ENDED), all_of(FAILED))
    folders = entries(folder, "*/*")
    await programs.close()
    held = await _settled(before)
    left = {
        "processes": marked(),
        "folders of episodes": folders,
        "folders": entries(folder, "*"),
        "more": [
            name
            for name, now in held.items()
            if now > before[name] and name != "megabytes"  # what is kept for the next
        ],
    }
    return Aftermath(
        ended=ended, failed=failed, left=", ".join(f"{k}: {v}" for k, v in left.items() if v)
    )


def _held() -> dict[str, int]:
    gc.collect()
    process = psutil.Process()
    return {
        "children": len(process.children(recursive=True)),
        "descriptors": process.num_fds(),
        "sockets": len(process.net_connections(kind="all")),
        "megabytes": process.memory_info().rss // 1_000_000,
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
    }


def _counted(held: Mapping[str, int]) -> dict[str, int]:
    """What is held, without the memory."""
    return {name: number for name, number in held.items() if name != "megabytes"}


async def _settled(before: Mapping[str, int]) -> dict[str, int]:
    """What is held when connections of clients that are gone have had time to end.

    That is when no more is held than before; without a `before`, when nothing changes for 1 s.
    """
    held, unchanged = _held(), 0
    for _ in range(600):
        if before and all(held[name] <= before[name] for name in _counted(held)):
            break
        if not before and unchanged == 10:
            break
        await asyncio.sleep(0.1)
        now = _held()
        unchanged = unchanged + 1 if _counted(now) == _counted(held) else 0
        held = now
    return held


@pytest.mark.slow
@pytest.mark.parametrize("fault", ENDED)
def test_a_program_that_ends_with_a_reward_leaves_a_trajectory(
    fault: str, aftermath: Aftermath
) -> None:
    _, paid, success = ENDED[fault]
    outcome = aftermath.ended[fault]

    assert isinstance(outcome, Trajectory), outcome.message
    assert rewards(outcome) == paid
    assert outcome.success == success
    assert outcome.stop_reason is (StopReason.TASK_SOLVED if success else StopReason.TASK_FAILED)
    assert outcome.steps[0].action == "north"


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAILED)
def test_a_program_that_breaks_leaves_its_cause_and_its_steps(
    fault: str, aftermath: Aftermath
) -> None:
    _, cause, num_steps, said = FAILED[fault]
    outcome = aftermath.failed[fault]

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is cause, outcome.message
    assert said in outcome.message
    assert len(outcome.steps) == num_steps


@pytest.mark.slow
def test_nothing_is_left_of_programs_that_break(aftermath: Aftermath) -> None:
    # The supervisor that was killed could not remove its folder; `close` did.
    assert re.fullmatch(r"(folders of episodes: \['[^',]*'\])?", aftermath.left), aftermath.left


@pytest.mark.slow
def test_hundreds_of_episodes_of_every_fault_leave_nothing(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    num_episodes = int(os.environ.get("LONGHAUL_EPISODES", "150"))

    async def act() -> None:
        programs = _Programs(impatience=1.0)
        slots = asyncio.Semaphore(8)

        async def one(number: int) -> None:
            fault, argument, cause = MIXED[number % len(MIXED)]
            async with slots:
                outcome = await house.play(
                    fault,
                    argument,
                    program=programs.of(fault),
                    sample_index=number,
                    limits=LINGERING.get(fault, LIMITS),
                )
            found = outcome.cause if isinstance(outcome, FailedEpisode) else None
            assert found is cause, f"{fault}: {outcome}"

        async def all_of(numbers: range) -> dict[str, int]:
            """What is held after these episodes."""
            began = time.monotonic()
            await asyncio.gather(*(one(number) for number in numbers))
            seconds = time.monotonic() - began
            held = await _settled(before)
            logger.info("%d episodes in %.0f s: %s", len(numbers), seconds, held)
            return held

        before: dict[str, int] = {}
        before = await all_of(range(len(MIXED)))
        half = await all_of(range(num_episodes // 2))
        after = await all_of(range(num_episodes // 2, num_episodes))
        more = {name: number for name, number in _counted(after).items() if number > before[name]}
        assert not more, f"before: {before}"
        # Bodies of 10 MB leave holes; what is kept of an ended episode is its key and its cause.
        assert after["megabytes"] <= half["megabytes"] + 10 + 0.02 * num_episodes
        await programs.close()

    house.run(act())
    assert marked() == []
    assert entries(tmp_path, "*") == []


# One at a time


@pytest.mark.slow
def test_a_program_whose_trainer_is_killed_is_ended_and_leaves_no_folder(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from longhaul_trainer.play.programs.command import CommandProgram\n"
        "from longhaul_trainer.play.programs.program import Endpoint\n"
        "from fakes import make_task\n"
        "async def play():\n"
        "    program = CommandProgram([sys.executable, '-c', 'import time, os, subprocess;'\n"
        f'        \'subprocess.Popen(["setsid", "sleep", "{faulty_program.MARK}"]);\'\n'
        '        \'open(os.environ["READY"], "w").close(); time.sleep(1000)\'],\n'
        "        environ={'READY': sys.argv[1]})\n"
        "    environ = {'LONGHAUL_URL': 'http://127.0.0.1:9'}\n"
        "    endpoint = Endpoint(environ=environ, report=print, report_reward=print)\n"
        "    async with program.run(make_task(), endpoint=endpoint):\n"
        "        pass\n"
        "asyncio.run(play())\n"
    )
    ready, folder = tmp_path / "ready", tmp_path / "f"
    folder.mkdir()
    trainer = subprocess.Popen(
        [sys.executable, "-c", script, str(ready)],
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    _wait_until(ready.exists)
    below = psutil.Process(trainer.pid).children(recursive=True)
    assert len(below) >= 4  # fork server, supervisor, program, what it started

    trainer.kill()
    trainer.wait()

    assert still_running(below) == []
    _wait_until(lambda: not list(folder.iterdir()))


def _wait_until(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        threading.Event().wait(0.02)


class Asked(HangingPolicy):
    """Never answers; knows when it is asked and when that is given up."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.given_up = False

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        self.asked.set()
        try:
            return await super().act(prompt, sampling, episode_id=episode_id)
        finally:
            self.given_up = True


def test_a_stop_ends_a_program_in_the_midst_of_a_call(house: House) -> None:
    policy = Asked()
    outcome = house.played("play", 1, policy=policy, stop=policy.asked)

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.STOPPED_EARLY
    assert policy.given_up


def test_a_killed_fork_server_ends_its_programs_and_is_started_anew(house: House) -> None:
    async def killed() -> tuple[EpisodeOutcome, list[psutil.Process]]:
        policy = Asked()
        playing = asyncio.create_task(house.play("play", 1, policy=policy))
        await policy.asked.wait()
        (server,) = [
            child
            for child in psutil.Process().children()
            if "longhaul_core.gym.supervised" in command_of(child)
        ]
        below = server.children(recursive=True)
        server.kill()
        return await playing, below

    outcome, below = house.run(killed())

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.PROGRAM_ERROR
    assert len(below) == 2  # supervisor and program
    assert still_running(below) == []
    assert isinstance(house.played("play", 1), Trajectory)


def test_a_program_that_fails_because_the_engine_did_is_no_failure_of_the_program(
    house: House,
) -> None:
    outcome = house.played("play", 1, policy=FailingPolicy())

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.POLICY_ERROR
    assert "engine gone" in outcome.message


class Stumbling(ScriptedPolicy):
    """Does not answer the second call."""

    def __init__(self) -> None:
        super().__init__()
        self._num_asked = 0

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        self._num_asked += 1
        if self._num_asked == 2:
            raise ConnectionError("engine gone")
        return await super().act(prompt, sampling, episode_id=episode_id)


def test_a_program_that_goes_on_without_an_answer_of_the_engine_is_not_scored(house: House) -> None:
    outcome = house.played("stumble", "two", policy=Stumbling())

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.POLICY_ERROR
    assert [step.observation.text for step in outcome.steps] == ["one", "three"]


def test_rewards_of_steps_pass_over_a_call_that_was_refused(house: House) -> None:
    outcome = house.played("stumble", "two" * 2_000)

    assert isinstance(outcome, Trajectory), outcome.message
    assert rewards(outcome) == [0.5, 2]
    assert [step.observation.text for step in outcome.steps] == ["one", "three"]


@pytest.mark.parametrize(
    ("fault", "how"),
    [
        ("play_paid", {"limits": replace(LIMITS, horizon=2)}),
        ("play_paid", {"max_calls": 2}),
    ],
)
def test_a_limit_truncates_an_episode_whose_reward_is_known(
    house: House, fault: str, how: Choices
) -> None:
    outcome = house.played(fault, 5, **how)

    assert isinstance(outcome, Trajectory), outcome.message
    assert outcome.stop_reason is StopReason.HORIZON_REACHED
    assert rewards(outcome) == [0.5, 0.5]


def test_a_limit_that_keeps_a_program_from_its_reward_is_a_failure(house: House) -> None:
    limits = replace(LIMITS, horizon=2, close_deadline_seconds=60)  # it ends by itself
    outcome = house.played("play", 5, limits=limits)

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.PROGRAM_LIMIT
    assert len(outcome.steps) == 2
    assert "left no reward; its exit code is 1" in outcome.message


def test_a_result_that_is_refused_stays_refused_where_a_limit_was_met(house: House) -> None:
    limits = replace(LIMITS, horizon=2, close_deadline_seconds=60)
    outcome = house.played("contradict_itself_at_a_limit", limits=limits)

    assert isinstance(outcome, FailedEpisode), outcome
    assert outcome.cause is FailureCause.PROGRAM_ERROR
    assert "posted reward = 1.0, and its result says 0.5" in outcome.message


# Graders


def by_exit_code(graded: Graded) -> object:
    """Scores what a program printed, wherever it says something else."""
    assert graded.leavings.folder is not None
    assert graded.leavings.folder.is_dir()
    assert graded.data["fault"] == "play"
    return {"reward": len(graded.trajectory.steps) / 4, "success": False}


def by_folder(graded: Graded) -> object:
    """Scores whether the working folder is there for as long as it is looked at."""
    folder = graded.leavings.folder
    time.sleep(0.5)
    return 1.0 if folder is not None and folder.is_dir() else -1.0


async def nothing(graded: Graded) -> object:
    await asyncio.sleep(0)
    return None


def alone(graded: Graded) -> object:
    """Scores whether a program's folder is looked at by nobody else."""
    return 0.0 if marked() else 1.0


def raising(graded: Graded) -> object:
    raise KeyError("no such test")


async def waiting(graded: Graded) -> object:
    await asyncio.Event().wait()


def test_a_grader_scores_in_place_of_the_program(house: House) -> None:
    outcome = house.played("play", 2, grader=Grader(f"{__name__}:{by_exit_code.__name__}"))

    assert isinstance(outcome, Trajectory), outcome.message
    assert rewards(outcome) == [0, 0.5]
    assert not outcome.success


def test_a_grader_is_called_when_all_that_a_program_started_has_ended(house: House) -> None:
    outcome = house.played("outlived_by_grandchild", grader=Grader(f"{__name__}:{alone.__name__}"))

    assert isinstance(outcome, Trajectory), outcome.message
    assert rewards(outcome) == [1]


def test_the_folder_of_a_command_that_was_ended_is_there_until_it_is_graded(house: House) -> None:
    grader = Grader(f"{__name__}:{by_folder.__name__}")
    outcome = house.played("go_on_after_done", grader=grader)

    assert isinstance(outcome, Trajectory), outcome.message
    assert rewards(outcome) == [1.0 + 1.0]  # of the program's step, and of the grader


@pytest.mark.parametrize(
    ("name", "seconds", "said"),
    [
        ("nothing", 60, "returned None, which is no reward"),
        ("raising", 60, "no such test"),
        ("waiting", 0.2, "no answer within 0.2 s"),
    ],
)
def test_a_grader_that_fails_leaves_no_reward(
    house: House, name: str, seconds: float, said: str
) -> None:
    grader = Grader(f"{__name__}:{name}", deadline_seconds=seconds)
    outcome = house.played("play", 1, grader=grader)

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.GRADER_ERROR
    assert said in outcome.message


@pytest.mark.parametrize("name", ["no_such", "COMMAND", "spec_of_nothing"])
def test_a_grader_that_cannot_be_called_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"agent\.grader"):
        Grader(f"{__name__}:{name}")


# Functions


async def plays(task: dict[str, object], endpoint: Endpoint) -> object:
    """Plays by an asynchronous client, and reports its steps without HTTP."""
    async with AsyncOpenAI(**endpoint.openai) as client:
        for number in range(2):
            reply = await client.chat.completions.create(
                model="auto", messages=[{"role": "user", "content": f"{task['fault']} {number}"}]
            )
            assert reply.choices[0].message.content
            endpoint.step(reward=number, anchor_state=f"state {number + 1}")
    return {"reward": 2.0, "success": True}


BEGUN: set[object] = set()
CANCELLED: list[object] = []
"""Tasks of functions that waited, and of those that were cancelled."""


async def hangs(task: dict[str, object], endpoint: Endpoint) -> object:
    BEGUN.add(task["fault"])
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        CANCELLED.append(task["fault"])
        raise


async def raises(task: dict[str, object], endpoint: Endpoint) -> object:
    raise KeyError(f"no {task['fault']}")


async def cancels_itself(task: dict[str, object], endpoint: Endpoint) -> object:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(0)


async def will_not_end(task: dict[str, object], endpoint: Endpoint) -> object:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return 1.0


def blocks(task: dict[str, object], endpoint: Endpoint) -> object:
    return 1.0


async def takes_one(task: dict[str, object]) -> object:
    return 1.0


def function(name: str, *, deadline_seconds: float = 60.0) -> FunctionProgram:
    return FunctionProgram(f"{__name__}:{name}", deadline_seconds=deadline_seconds)


def test_a_function_plays_with_an_unmodified_client(house: House) -> None:
    outcome = house.played("go", program=function("plays"))

    assert isinstance(outcome, Trajectory), outcome.message
    assert rewards(outcome) == [0, 3]
    assert [step.observation.text for step in outcome.steps] == ["go 0", "go 1"]
    assert outcome.steps[1].observation.anchor_state == "state 1"


def test_a_function_reaches_the_gateway_where_a_proxy_is_set(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "a.example")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens

    outcome = house.played("go", program=function("plays"))

    assert isinstance(outcome, Trajectory), outcome.message


@pytest.mark.parametrize(
    ("name", "seconds", "cause", "said"),
    [
        ("hangs", 0.2, FailureCause.PROGRAM_TIMEOUT, "did not end within 0.2 s"),
        ("raises", 60, FailureCause.PROGRAM_ERROR, "KeyError: 'no go'"),
        ("cancels_itself", 60, FailureCause.PROGRAM_ERROR, "cancelled itself"),
        ("will_not_end", 0.2, FailureCause.PROGRAM_TIMEOUT, "did not end within 0.2 s"),
    ],
)
def test_a_function_that_breaks_leaves_its_cause(
    house: House, name: str, seconds: float, cause: FailureCause, said: str
) -> None:
    outcome = house.played("go", program=function(name, deadline_seconds=seconds))

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is cause
    assert said in outcome.message


def test_a_function_that_is_late_or_not_waited_for_is_cancelled(house: House) -> None:
    async def stopped() -> None:
        stop = asyncio.Event()
        playing = asyncio.create_task(house.play("stopped", program=function("hangs"), stop=stop))
        async with asyncio.timeout(60):
            while "stopped" not in BEGUN:  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.01)
        stop.set()
        await playing

    house.played("late", program=function("hangs", deadline_seconds=0.2))
    house.run(stopped())

    assert CANCELLED[-2:] == ["late", "stopped"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("blocks", "must be asynchronous"),
        ("takes_one", "is called as takes_one"),
        ("no_such", "has no no_such"),
    ],
)
def test_a_function_that_cannot_play_is_refused_before_the_run(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        function(name)
