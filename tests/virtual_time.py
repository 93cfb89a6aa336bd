"""An event loop whose time passes only while it has nothing else to do, and then at once.

The event loop is the clock of asynchronous code: what sleeps, expires, retries or gives up asks it
for the time and sets its alarms there. In this loop the next alarm rings as soon as everything else
has come to rest, so that hours take no time, and what is due first happens first.

The loop waits in real time for its own threads. It does not see other processes: a test of those
runs in a loop of real time (`local_workers.in_event_loop`).
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack

_MOST_TURNS = 50_000
"""Of the loop while its time stands still; more are an endless loop."""

Arguments = ParamSpec("Arguments")
Given = TypeVarTuple("Given")
Result = TypeVar("Result")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See above."""

    def __init__(self) -> None:
        self._now = 1000.0  # not 0, which code might take for no time at all
        self._num_in_threads = 0
        super().__init__(_Selector(self._pass))

    def time(self) -> float:
        """Seconds since an arbitrary moment."""
        return self._now

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Given]], Result],
        *args: *Given,
    ) -> "asyncio.Future[Result]":
        """As asyncio's; time stands still until it has returned."""
        future = super().run_in_executor(executor, func, *args)
        self._num_in_threads += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, future: "asyncio.Future[Any]") -> None:
        self._num_in_threads -= 1

    def _pass(self, seconds: float) -> bool:
        if self._num_in_threads:
            return False
        self._now += seconds
        return True


class _Selector(selectors.DefaultSelector):
    """Waits for what is there already, and lets time pass instead of waiting for more."""

    def __init__(self, let_pass: Callable[[float], bool]) -> None:
        super().__init__()
        self._let_pass = let_pass
        self._num_turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._num_turns += 1
        assert self._num_turns < _MOST_TURNS, "the code under test goes on and on at one moment"
        found = super().select(0)
        if found or timeout == 0:
            return found
        self._num_turns = 0
        if timeout is not None and self._let_pass(timeout):
            return []
        return super().select(None)


def in_virtual_time(
    test: Callable[Arguments, Coroutine[None, None, None]],
) -> Callable[Arguments, None]:
    """The test, run in such a loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*arguments, **named))

    return run
