"""Environments in worker processes: same episodes, and no harm from the broken ones."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from fakes import (
    DAEMON_SECONDS,
    FAILING_CALLS,
    ReplyingPolicy,
    SharedCountingGym,
    make_agent,
    make_task,
)
from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.errors import ConfigError, EnvironmentFailure
from longhaul_core.gym import GymEnvironmentSpec, ProcessEnvironment, ProcessPool
from longhaul_core.gym.output import MAX_CHARACTERS_OF_A_CALL
from longhaul_core.policy import Completion
from longhaul_core.rollout import EpisodeLimits, EpisodeRunner, EpisodeSpec, run_episode
from longhaul_core.types import FailedEpisode, FailureCause, Trajectory
from other_processes import alive, wait_until


def counting(**options: object) -> GymEnvironmentSpec:
    return GymEnvironmentSpec(
        environment_id="fakes/Counting-v0", options=options, import_modules=("fakes",)
    )


OTHERS: set[int] = set()
"""Servers of other tests, which may be alive in this process for as long as the session."""


@pytest.fixture(autouse=True)
def _without_others() -> None:
    OTHERS.clear()
    OTHERS.update(descendants(os.getpid()))


def descendants(pid: int) -> set[int]:
    """Every process below `pid` but those below one of `OTHERS`."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8")
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = set(children.get(waiting.pop(), [])) - OTHERS
        found |= below
        waiting += below
    return found


async def until(claim: Callable[[], bool], *, seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.01)):
        if claim():
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"not so within {seconds} s")


@asynccontextmanager
async def opened(pool: ProcessPool) -> AsyncGenerator[ProcessEnvironment]:
    environment = pool(make_task())
    await environment.open()
    try:
        yield environment
    finally:
        await environment.close()


def in_pool(
    spec: GymEnvironmentSpec,
    body: Callable[[ProcessPool], Awaitable[None]],
    *,
    num_workers: int = 2,
) -> None:
    """Run `body` on a fresh pool and make sure that no process, thread or file is left."""
    processes, threads, files = descendants(os.getpid()), threading.active_count(), num_files()

    async def main() -> None:
        async with ProcessPool(spec, num_workers=num_workers) as pool:
            await body(pool)

    asyncio.run(main())
    wait_until(lambda: descendants(os.getpid()) <= processes)
    # threads of other libraries may hold a connection for a moment
    wait_until(lambda: threading.active_count() <= threads and num_files() <= files)


def num_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_an_episode_in_a_process_is_what_gymnasium_would_give() -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            first = await environment.reset(make_task(40))
            assert first.text == "train/00040: 40"
            assert first.admissible_actions == ("count", "stop")
            assert first.anchor_state == "0"
            refused = await environment.step("jump")
            assert not refused.action_accepted
            counted = [await environment.step("count") for _ in range(3)][-1]
            assert (counted.observation.text, counted.observation.anchor) == ("43", "3")
            assert not counted.terminated
            end = await environment.step("stop")
            assert (end.reward, end.terminated, end.truncated, end.success) == (
                1.0,
                True,
                False,
                True,
            )

    in_pool(counting(), body)


def test_a_worker_plays_one_episode_after_the_other() -> None:
    async def body(pool: ProcessPool) -> None:
        workers: set[frozenset[int]] = set()
        for number in range(3):
            async with opened(pool) as environment:
                assert (await environment.reset(make_task(number))).text.endswith(str(number))
                await environment.step("count")
                workers.add(frozenset(descendants(os.getpid())))
        assert len(workers) == 1

    in_pool(counting(), body)


def test_texts_of_any_script_and_length_pass_unharmed() -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
            for action in ("深い森 🧭 שלום\n\x00", "x" * 3_000_000):
                assert not (await environment.step(action)).action_accepted

    in_pool(counting(), body)


WHATEVER = (
    '{"action": "wave \\ud83d"}',
    '{"action": "wave \\u0000"}',
    '{"action": "wave", "weight": NaN, "size": ' + "9" * 5000 + "}",
    '{"action": "look", "action": "wave"}',
    '{"action": "' + "\\u0001" * 10_000_000 + '"}',
    '{"action": ' * 50_000,
    "wave \ud83d",
)


def test_whatever_the_policy_writes_is_no_failure_of_the_environment() -> None:
    async def body(pool: ProcessPool) -> None:
        for reply, form in product(WHATEVER, (ActionFormat.JSON, ActionFormat.PLAIN)):
            completion = Completion(
                text=reply, action_tokens=(1,), behavior_logprobs=(-0.5,), policy_version=0
            )
            agent = make_agent(ReplyingPolicy(completion))
            outcome = await run_episode(
                EpisodeSpec(task=make_task(), seed=0),
                agent=replace(agent, parser=ActionParser(format=form)),
                make_environment=pool,
                limits=EpisodeLimits(horizon=2, max_prompt_tokens=1000),
            )
            assert isinstance(outcome, Trajectory), outcome
            valid = [step.action_valid for step in outcome.steps]
            assert valid == [False, False], ascii(reply[:30])

    in_pool(counting(), body)


def test_more_episodes_than_workers_wait_their_turn_and_miss_no_deadline() -> None:
    async def body(pool: ProcessPool) -> None:
        runner = EpisodeRunner(concurrency=20)
        limits = EpisodeLimits(horizon=3, max_prompt_tokens=1000, reset_deadline_seconds=30)
        by = partial(run_episode, agent=make_agent(), make_environment=pool, limits=limits)
        specs = [EpisodeSpec(task=make_task(number), seed=number) for number in range(20)]
        playing = (runner.play(spec, by) for spec in specs)
        outcomes = [result.outcome for result in await asyncio.gather(*playing)]
        assert all(isinstance(outcome, Trajectory) for outcome in outcomes)
        assert len(outcomes) == 20

    in_pool(counting(), body, num_workers=2)


@pytest.mark.parametrize(
    ("misbehave", "message"),
    [
        *((how, f"environment.step: {message}") for how, message in FAILING_CALLS),
        ("foreign", "of its own"),
        ("exit-hard", "the worker process exited with status 3"),
        ("abort", "the worker process was ended by signal SIGABRT"),
        ("reset-raise", "environment.reset: KeyError: 'broken rule'"),
        ("reset-interrupt", "environment.reset: KeyboardInterrupt: of its own"),
        (
            "long-observation",
            "environment.step: ValueError: message of 20000188 bytes exceeds the limit of 16777216",
        ),
        ("reset-abort", "the worker process was ended by signal SIGABRT"),
    ],
)
def test_what_an_environment_does_to_its_process_is_told(misbehave: str, message: str) -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            with pytest.raises(EnvironmentFailure) as caught:
                await environment.reset(make_task())
                await environment.step("count")
            assert str(caught.value) == message

    in_pool(counting(misbehave=misbehave), body)


def test_a_process_that_failed_is_not_played_on() -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
            before = descendants(os.getpid())
            with pytest.raises(EnvironmentFailure):
                await environment.step("count")
        async with opened(pool) as environment:
            await environment.reset(make_task())
            await until(lambda: len(descendants(os.getpid())) == len(before))
            assert descendants(os.getpid()) != before

    in_pool(counting(misbehave="raise"), body)


def shared(**options: object) -> GymEnvironmentSpec:
    return replace(counting(**options), environment_id="fakes/SharedCounting-v0")


async def begun(pool: ProcessPool, number: int) -> ProcessEnvironment:
    """An episode that has been reset."""
    environment = pool(make_task(number))
    await environment.open()
    await environment.reset(make_task(number))
    return environment


def test_an_environment_that_says_so_is_played_by_several_episodes_in_a_process() -> None:
    async def body(pool: ProcessPool) -> None:
        environments = await asyncio.gather(*(begun(pool, number) for number in range(10)))
        assert pool.num_processes == len(youngest(os.getpid())) == 3  # of 4 episodes each
        for count in (1, 2, 3):
            results = await asyncio.gather(*(each.step("count") for each in environments))
            texts = [result.observation.text for result in results]
            assert texts == [str(number + count) for number in range(10)]
        for environment in environments:
            await environment.close()
        again = [await begun(pool, number) for number in range(10)]
        assert pool.num_processes == 3
        for environment in again:
            await environment.close()

    in_pool(shared(), body, num_workers=10)


@pytest.mark.parametrize(("most", "num_processes"), [(1, 6), (2, 3), (99, 2)])
def test_a_pool_may_have_fewer_episodes_in_a_process_than_the_class_declares(
    most: int, num_processes: int
) -> None:
    async def body() -> None:
        async with ProcessPool(shared(), num_workers=6, most_in_one=most) as pool:
            environments = [await begun(pool, number) for number in range(6)]
            assert pool.num_processes == num_processes
            for environment in environments:
                await environment.close()

    asyncio.run(body())


@pytest.mark.parametrize("declared", [0, 65_537, "many"])
def test_a_class_that_declares_nonsense_is_refused_by_its_name(
    declared: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedCountingGym, "episodes_per_process", declared)
    with pytest.raises(
        ConfigError, match=rf"'fakes/SharedCounting-v0' must be .* 1 to 65536, got {declared!r}"
    ):
        shared().episodes_per_process()


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("abort", "was ended by signal SIGABRT"),
        ("exit-hard", "exited with status 3"),
    ],
)
def test_episodes_beside_one_that_broke_their_process_fail_and_say_that_it_was_a_neighbour(
    how: str, cause: str
) -> None:
    async def body(pool: ProcessPool) -> None:
        culprit, idle, queued, *_, elsewhere = [await begun(pool, number) for number in range(5)]
        steps = [culprit.step(f"do {how}"), queued.step("count")]
        broken, behind = await asyncio.gather(*steps, return_exceptions=True)
        assert isinstance(broken, EnvironmentFailure)
        assert str(broken) == f"the worker process {cause}"
        with pytest.raises(EnvironmentFailure) as caught:
            await idle.step("count")
        wanted = f"a neighbour broke the worker process: it {cause} during a request of another"
        assert str(behind) == str(caught.value) == f"{wanted} episode"
        assert (await elsewhere.step("count")).observation.text == "5"

    in_pool(shared(), body, num_workers=5)


def test_an_episode_that_hangs_misses_its_deadline_and_its_neighbours_do_not() -> None:
    async def body(pool: ProcessPool) -> None:
        async def step(environment: ProcessEnvironment, action: str, seconds: float) -> None:
            try:
                async with asyncio.timeout(seconds):
                    await environment.step(action)
            finally:
                await environment.close()

        culprit, *others = [await begun(pool, number) for number in range(4)]
        hung = asyncio.create_task(step(culprit, "do hang", 1.5))
        await asyncio.sleep(0.3)
        beside = [asyncio.create_task(step(each, "count", 60)) for each in others]
        await asyncio.wait([hung, *beside])
        assert isinstance(hung.exception(), TimeoutError)
        for each in beside:
            failure = each.exception()
            assert isinstance(failure, EnvironmentFailure)
            assert str(failure).startswith("a neighbour broke the worker process: it was killed")
        async with opened(pool) as environment:
            assert (await environment.reset(make_task(5))).text.endswith("5")

    in_pool(shared(), body, num_workers=4)


def test_an_error_in_one_episode_leaves_its_neighbours_and_ends_the_process_after_them() -> None:
    async def body(pool: ProcessPool) -> None:
        culprit, neighbour = [await begun(pool, number) for number in range(2)]
        (first,) = youngest(os.getpid())
        with pytest.raises(EnvironmentFailure, match="KeyError: 'broken rule'"):
            await culprit.step("do raise")
        await culprit.close()
        newcomer = await begun(pool, 7)
        assert len(youngest(os.getpid())) == 2  # a process that failed is not played on
        assert (await neighbour.step("count")).observation.text == "2"
        await neighbour.close()
        await until(lambda: first not in descendants(os.getpid()))
        assert (await newcomer.step("count")).observation.text == "8"
        await newcomer.close()

    in_pool(shared(), body, num_workers=4)


def test_an_episode_that_is_given_up_in_a_call_costs_its_neighbours_nothing() -> None:
    async def body(pool: ProcessPool) -> None:
        given_up, neighbour = [await begun(pool, number) for number in range(2)]
        pause = asyncio.create_task(given_up.step("pause"))
        await asyncio.sleep(0.01)
        behind = asyncio.create_task(neighbour.step("count"))
        pause.cancel()
        await asyncio.wait([pause])
        await given_up.close()
        assert (await behind).observation.text == "2"
        await neighbour.close()

    in_pool(shared(), body, num_workers=4)


def sleepers(*seconds: str) -> set[int]:
    """Every process that sleeps for as long as one of these, wherever it belongs."""
    wanted = {f"sleep\0{each}\0".encode() for each in seconds}
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes() in wanted and alive(int(entry.name)):
                found.add(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_half_of_a_surrogate_pair_in_an_observation_is_replaced() -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
            observation = (await environment.step("count")).observation
            assert (observation.text, observation.anchor_state) == ("\ufffd", "\ufffd")

    in_pool(counting(misbehave="half-pair-observation"), body)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("raise SystemExit('no license')", "environment.reset: SystemExit: no license"),
        ("import subprocess; child = subprocess.Popen(['true'])", ""),  # it dies before a worker
        ("import subprocess; child = subprocess.Popen(['sleep', '3604'])", ""),
    ],
)
def test_what_importing_an_environment_does_costs_no_more_than_its_episodes(
    content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_environment.py").write_text(content, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    spec = replace(counting(), import_modules=("fakes", "imported_environment"))
    before = sleepers("3604")

    async def body(pool: ProcessPool) -> None:
        for _ in range(2):
            async with opened(pool) as environment:
                if message:
                    with pytest.raises(EnvironmentFailure, match=message):
                        await environment.reset(make_task())
                else:
                    assert (await environment.reset(make_task(5))).text.endswith("5")
        assert len(sleepers("3604") - before) == ("3604" in content)  # it may be of use

    in_pool(spec, body)
    assert not sleepers("3604") - before


@pytest.mark.parametrize("misbehave", ["daemon-hang", "daemon-abort"])
def test_what_a_worker_started_in_sessions_of_its_own_is_killed_with_it(misbehave: str) -> None:
    before = sleepers(*DAEMON_SECONDS)

    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
            step = asyncio.create_task(environment.step("count"))
            if misbehave == "daemon-hang":
                await until(lambda: len(sleepers(*DAEMON_SECONDS) - before) == 2)
                step.cancel()
            await asyncio.wait([step])
        await until(lambda: not sleepers(*DAEMON_SECONDS) - before)
        async with opened(pool) as environment:  # and the server goes on
            await environment.reset(make_task())

    in_pool(counting(misbehave=misbehave), body)


def test_what_an_idle_worker_started_is_gone_when_its_pool_is_closed() -> None:
    before = sleepers(*DAEMON_SECONDS)

    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
            await environment.step("count")
        # The shell that starts one of them may end before that one has become `sleep`.
        await until(lambda: len(sleepers(*DAEMON_SECONDS) - before) == 2)

    in_pool(counting(misbehave="daemon"), body)
    assert not sleepers(*DAEMON_SECONDS) - before


def test_what_a_crashed_environment_started_is_killed_too() -> None:
    before = sleepers("3601")

    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
            with pytest.raises(EnvironmentFailure, match="SIGABRT"):
                await environment.step("count")
        await until(lambda: not sleepers("3601") - before)

    in_pool(counting(misbehave="orphan"), body)


def test_an_environment_that_prints_disturbs_nobody_and_fills_no_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
            await environment.step("count")

    in_pool(counting(misbehave="print"), body)
    printed = capfd.readouterr().err
    assert "the rest that this call prints is left out" in printed
    assert len(printed) < 3 * MAX_CHARACTERS_OF_A_CALL


@pytest.mark.parametrize("misbehave", ["reset-hang", "hang", "spin"])
def test_an_environment_that_never_returns_costs_its_own_episode(misbehave: str) -> None:
    async def body(pool: ProcessPool) -> None:
        outcome = await run_episode(
            EpisodeSpec(task=make_task(), seed=0),
            agent=make_agent(),
            make_environment=pool,
            limits=EpisodeLimits(
                horizon=3,
                max_prompt_tokens=1000,
                reset_deadline_seconds=0.5,
                step_deadline_seconds=0.1,
            ),
        )
        assert isinstance(outcome, FailedEpisode)
        assert outcome.cause is FailureCause.ENVIRONMENT_TIMEOUT

    in_pool(counting(misbehave=misbehave), body)


def test_an_idle_worker_that_died_is_replaced_unnoticed() -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
        workers = youngest(os.getpid())
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(alive(worker) for worker in workers))
        await asyncio.sleep(0.1)
        async with opened(pool) as environment:
            assert (await environment.reset(make_task(5))).text.endswith("5")

    in_pool(counting(), body)


def test_a_fork_server_that_died_is_replaced() -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            await environment.reset(make_task())
            workers = set(youngest(os.getpid()))
            (server,) = descendants(os.getpid()) - workers
            os.kill(server, signal.SIGKILL)
            await until(lambda: not any(alive(worker) for worker in workers))
            with pytest.raises(EnvironmentFailure, match="gone"):
                await environment.step("count")
        async with opened(pool) as environment:
            assert (await environment.reset(make_task(5))).text.endswith("5")

    in_pool(counting(), body)


def youngest(pid: int) -> list[int]:
    """Processes below `pid` that have no children: the workers."""
    return [child for child in descendants(pid) if not descendants(child)]


def test_an_unknown_environment_is_named_with_what_to_do() -> None:
    async def body(pool: ProcessPool) -> None:
        async with opened(pool) as environment:
            with pytest.raises(
                EnvironmentFailure, match=r"no environment 'fakes/Nowhere-v0'.*import_modules"
            ):
                await environment.reset(make_task())

    in_pool(GymEnvironmentSpec(environment_id="fakes/Nowhere-v0"), body)


def test_options_that_are_not_json_and_pools_without_workers_are_refused() -> None:
    with pytest.raises(ConfigError, match="plain JSON"):
        counting(target=object())
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        ProcessPool(counting(), num_workers=0)


def test_a_pool_that_was_never_used_starts_nothing() -> None:
    async def body(pool: ProcessPool) -> None:
        assert not descendants(os.getpid())

    in_pool(counting(), body)


OWNER = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from fakes import make_task
from longhaul_core.gym import GymEnvironmentSpec, ProcessPool

async def main() -> None:
    spec = GymEnvironmentSpec(
        environment_id="fakes/Counting-v0",
        options={{"misbehave": {misbehave!r}}},
        import_modules=("fakes",),
    )
    pool = ProcessPool(spec, num_workers=2)
    environments = [pool(make_task()) for _ in range(2)]
    for environment in environments:
        await environment.open()
        await environment.reset(make_task())
    hung = asyncio.create_task(environments[0].step("count"))
    await asyncio.sleep(0.5)
    sys.stdout.write("hanging\\n")
    sys.stdout.flush()
    await hung

asyncio.run(main())
"""


@pytest.mark.parametrize(("misbehave", "num_started"), [("child", 1), ("daemon-hang", 2)])
def test_workers_die_with_their_owner_even_if_it_is_killed(
    misbehave: str, num_started: int
) -> None:
    script = OWNER.format(tests=str(Path(__file__).parents[2]), misbehave=misbehave)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"hanging\n"
        # The fork server, two workers, and what one of them starts sooner or later.
        wait_until(lambda: len(descendants(owner.pid)) == 3 + num_started)
        family = descendants(owner.pid)
        owner.kill()
    wait_until(lambda: not any(alive(pid) for pid in family))


def test_what_a_hung_environment_started_is_killed_with_it() -> None:
    async def body(pool: ProcessPool) -> None:
        environment = pool(make_task())
        await environment.open()
        await environment.reset(make_task())
        before = descendants(os.getpid())
        hung = asyncio.create_task(environment.step("count"))
        await until(lambda: descendants(os.getpid()) > before)
        family = descendants(os.getpid())
        hung.cancel()
        await asyncio.wait([hung])
        await environment.close()
        await until(lambda: sum(alive(pid) for pid in family) == 1)  # the fork server

    in_pool(counting(misbehave="child"), body)


NUM_HUNG = 300


@pytest.mark.slow
def test_hundreds_of_hung_episodes_leave_no_thread_process_or_file_behind() -> None:
    # other tests of this process may have left some, such as a progress bar's thread
    before = {thread.name for thread in threading.enumerate()}
    processes = descendants(os.getpid())

    async def body(pool: ProcessPool) -> None:
        runner = EpisodeRunner(concurrency=8)
        limits = EpisodeLimits(
            horizon=3,
            max_prompt_tokens=1000,
            reset_deadline_seconds=5,
            step_deadline_seconds=0.02,
        )
        by = partial(run_episode, agent=make_agent(), make_environment=pool, limits=limits)
        specs = (EpisodeSpec(task=make_task(number), seed=number) for number in range(NUM_HUNG))
        num_failed = 0
        threads: set[str] = set()
        playing = (runner.play(spec, by) for spec in specs)
        for ended in asyncio.as_completed([*playing]):
            result = await ended
            assert isinstance(result.outcome, FailedEpisode)
            assert result.outcome.cause is FailureCause.ENVIRONMENT_TIMEOUT, result.outcome
            num_failed += 1
            threads |= {thread.name for thread in threading.enumerate()}
        assert num_failed == NUM_HUNG
        # Prompts are rendered by the loop's own executor, which ends with it.
        assert {name for name in threads - before if not name.startswith("asyncio_")} == set()
        # the server alone is left: every worker was killed and reaped
        await until(lambda: len(descendants(os.getpid()) - processes) == 1)

    in_pool(counting(misbehave="hang"), body, num_workers=8)
