"""What measures `scale.py`: time by function, and processor time and memory by process."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# psutil is typed in part.

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psutil

SAMPLE_SECONDS = 0.5


class Spent(NamedTuple):
    """What calls of a function took, without what they called that is watched too."""

    calls: int
    processor_seconds: float
    wall_seconds: float


@dataclass
class Stopwatch:
    """Times functions where they stand, whoever calls them."""

    clock: Callable[[], float] = time.thread_time
    """Of processor time; `time.process_time` where other threads work for a call."""
    spent: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Label → calls, processor seconds, wall seconds."""
    _running: threading.local = field(default_factory=threading.local)

    def watch(self, owner: Any, name: str, label: str) -> None:  # noqa: ANN401  class or module
        """Replace function `name` of `owner`, a class or a module, by one that is timed."""
        found = inspect.getattr_static(owner, name)
        timed = self._timed(getattr(found, "__func__", found), label)
        setattr(owner, name, classmethod(timed) if isinstance(found, classmethod) else timed)

    def result(self) -> dict[str, Spent]:
        """What was spent so far, by label."""
        return {
            label: Spent(int(calls), processor, wall)
            for label, (calls, processor, wall) in self.spent.items()
        }

    def _timed(self, function: Callable[..., Any], label: str) -> Callable[..., Any]:
        total = self.spent.setdefault(label, [0, 0.0, 0.0])
        running = self._running

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            outer, running.inner = getattr(running, "inner", None), [0.0, 0.0]
            processor, wall = self.clock(), time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                processor, wall = self.clock() - processor, time.perf_counter() - wall
                total[0] += 1
                total[1] += processor - running.inner[0]
                total[2] += wall - running.inner[1]
                running.inner = outer
                if outer is not None:
                    outer[0] += processor
                    outer[1] += wall

        return timed


ROLES = {
    "longhaul_core.gym.supervised": "environment workers",
    "raylet": "Ray",
    "gcs_server": "Ray",
}
"""What stands in the command line of a process, and what it is. Of Ray's actors `Meter` is told."""

DRIVER, OTHERS = "driver", "others"


class Use(NamedTuple):
    """What the processes of a role took."""

    num_processes: int
    processor_seconds: float
    peak_bytes: int
    """Of all of them together, memory of their own: what is shared is left out."""


class Meter:
    """Reads processor time and memory of this process and all below it, twice a second."""

    def __init__(self) -> None:
        self._processor: dict[tuple[str, int], float] = {}
        """Role and process id → seconds, also of those that have ended."""
        self._known: dict[int, str] = {os.getpid(): DRIVER}
        self._before: Counter[str] = Counter()
        self._own_seconds = 0.0
        """Of the thread that reads; it is no part of the driver."""
        self._peaks: defaultdict[str, int] = defaultdict(int)
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._go, name="meter", daemon=True)

    def know(self, role: str, process_ids: Iterable[int]) -> None:
        """Say what some processes are."""
        with self._lock:
            self._known |= dict.fromkeys(process_ids, role)

    def __enter__(self) -> Meter:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def since_last(self) -> dict[str, Use]:
        """What each role took since the last call, and the most memory it has held so far."""
        self._sample()
        with self._lock:
            now = Counter[str]()
            now[DRIVER] -= self._own_seconds  # pyright: ignore[reportArgumentType] as below
            for (role, _), seconds in self._processor.items():
                now[role] += seconds  # pyright: ignore[reportArgumentType] a counter of floats
            use = {
                role: Use(self._numbers[role], now[role] - self._before[role], self._peaks[role])
                for role in now
            }
            self._before = now
        return use

    def _go(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._sample()
            self._own_seconds = time.thread_time()

    def _sample(self) -> None:
        held, numbers = Counter[str](), Counter[str]()
        with self._lock:
            for process in self._processes():
                try:
                    with process.oneshot():
                        role = self._known.get(process.pid) or _role(process.cmdline())
                        times, memory = process.cpu_times(), process.memory_info()
                except psutil.Error:  # it has ended
                    continue
                self._processor[role, process.pid] = times.user + times.system
                held[role] += memory.rss - memory.shared
                numbers[role] += 1
            for role, size in held.items():
                self._peaks[role] = max(self._peaks[role], size)
                self._numbers[role] = max(self._numbers[role], numbers[role])

    def _processes(self) -> set[psutil.Process]:
        """Those that are known, and all below them: forks of a zygote are not below this one."""
        found: set[psutil.Process] = set()
        for process_id in self._known:
            try:
                process = psutil.Process(process_id)
                found |= {process, *process.children(recursive=True)}
            except psutil.Error:  # it has ended
                continue
        return found


def _role(command: Sequence[str]) -> str:
    line = " ".join(command)
    return next((role for word, role in ROLES.items() if word in line), OTHERS)
