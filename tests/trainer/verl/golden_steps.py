"""Recorded training steps: what went in, what today's code must still make of it.

A file of `tests/golden/training_steps/` is gzipped JSON of numbers, texts and lists alone. Its
`inputs` are the episodes of a training step with everything that a model computed for them; its
`outputs` are what the trainer made of them when the file was recorded. `golden_replay.py` turns
inputs into outputs, in a process of its own, and is the one place that knows the trainer's
classes. Importing this imports neither verl nor any class of the project.

Where a machine's float32 sums differ from the recording one's, gradients are compared up to
rounding. To compare them bit by bit there, delete the files, record them anew on the old commit,
and replay them on the new one.
"""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

FOLDER = Path(__file__).parents[2] / "golden" / "training_steps"
PROGRAM = Path(__file__).with_name("golden_replay.py")
TIME_LIMIT_SECONDS = 600

SAME_ARITHMETIC = {
    "OMP_NUM_THREADS": "1",
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}
"""Variables under which torch adds in the same order whatever the processor is: one thread, and
of each kernel the plain one. They are read when torch is loaded."""

MAX_ERROR = 1e-5
"""Of losses and gradients, relative, on a machine whose float32 arithmetic differs from the
recording one's all the same (see `probe`). Everything else is compared bit by bit anywhere."""


class RecordedStep(TypedDict):
    """One step of an episode. The lists of numbers have one for each token of the reply."""

    observation: str
    anchor_state: str | None
    """None: the observation's text is the anchor."""
    prompt: list[int]
    reply: list[int]
    finish_reason: Literal["stop", "length"]
    behavior_logprobs: list[float]
    """The engine's."""
    old_logprobs: list[float]
    """The learner's before the update."""
    reference_logprobs: list[float]
    """The starting model's."""
    values: list[float]
    """The critic's, before each token."""
    reward: float
    action_valid: bool
    policy_version: int


class RecordedEpisode(TypedDict):
    """One try at an episode; a failed one has the steps before the failure."""

    steps: list[RecordedStep]
    failure: str | None
    stop_reason: NotRequired[str]
    success: NotRequired[bool]
    final_prompt: NotRequired[list[int]]
    """Of the final observation of a truncated episode."""
    final_value: NotRequired[float]
    """The critic's, of that prompt."""


class RecordedGroup(TypedDict):
    """The episodes of one task: for each place in the group its tries, in order."""

    task_id: str
    places: list[list[RecordedEpisode]]


class Inputs(TypedDict):
    """What goes into a training step."""

    what: str
    """For people."""
    settings: dict[str, Any]
    """Of the run, as its configuration file would have them."""
    training_step: int
    horizon: int
    num_ranks: int
    """Rows of an optimizer step are filled up to a multiple of it."""
    groups: list[RecordedGroup]


Outputs = dict[str, Any]
"""What comes out, as nested lists and tables: `credit`, an episode at a time; `rows` of each
update as the worker reads them; `metrics`, losses among them; `gradients` before each step of an
optimizer; and `arithmetic`, the `probe` of the machine."""


class GoldenStep(TypedDict):
    """A file: one training step."""

    inputs: Inputs
    outputs: Outputs
    elsewhere: NotRequired[list[Outputs]]
    """Metrics and gradients of other machines, whose `probe` did not tell them from this one."""


def names() -> list[str]:
    """Names of the recorded steps."""
    return sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))


def read(name: str) -> GoldenStep:
    """The step with that name."""
    content = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return cast("GoldenStep", content)


def write(name: str, step: GoldenStep) -> None:
    """Write a step's file; the same step gives the same bytes."""
    FOLDER.mkdir(exist_ok=True)
    content = json.dumps(step, separators=(",", ":"), allow_nan=False).encode()
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(content, mtime=0))


def replayed(steps: Mapping[str, Inputs], *, folder: Path) -> dict[str, Outputs]:
    """What the code of today makes of each training step, from the same weights.

    Args:
        steps: Inputs by name.
        folder: For files of the process that does it.

    Raises:
        AssertionError: With the end of that process's log, if it failed.
    """
    (folder / "inputs.json").write_text(json.dumps(steps), encoding="utf-8")
    tests = str(Path(__file__).parents[2])
    environment = os.environ | SAME_ARITHMETIC | {"PYTHONPATH": tests}
    log = folder / "replay.log"
    with log.open("wb") as file:
        code = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder)],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT_SECONDS,
            check=False,
        ).returncode
    assert code == 0, log.read_text(encoding="utf-8")[-4000:]
    return json.loads((folder / "outputs.json").read_text(encoding="utf-8"))


def differences(expected: object, found: object, *, place: str = "") -> Iterator[str]:
    """Where two trees of JSON differ, floats bit by bit; the place and both values of each."""
    if isinstance(expected, dict) and isinstance(found, dict):
        of, to = cast("dict[str, object]", expected), cast("dict[str, object]", found)
        for name in sorted(of.keys() | to.keys()):
            yield from differences(of.get(name), to.get(name), place=f"{place}.{name}")
    elif isinstance(expected, list) and isinstance(found, list):
        ones, others = cast("list[object]", expected), cast("list[object]", found)
        if len(ones) != len(others):
            yield f"{place}: {len(ones)} entries were recorded, now {len(others)}"
        for number, (one, other) in enumerate(zip(ones, others, strict=False)):
            yield from differences(one, other, place=f"{place}[{number}]")
    elif expected != found or type(expected) is not type(found):
        yield f"{place}: {expected!r} was recorded, now {found!r}"


def distances(expected: Outputs, found: Outputs) -> Iterator[tuple[str, float]]:
    """How far metrics and gradients are from those recorded, relative, with the place of each.

    A gradient is compared by its sketch, signed sums of all its entries: where gradients differ
    by a vector, sketches differ by about its norm.
    """
    for name, value in expected["metrics"].items():
        yield name, _relative(value, found["metrics"][name])
    for place, parameters in expected["gradients"].items():
        for name, gradient in parameters.items():
            now = found["gradients"][place][name]["sketch"]
            largest = max(abs(a - b) for a, b in zip(gradient["sketch"], now, strict=True))
            yield f"gradient {place} of {name}", largest / (gradient["norm"] or 1.0)


def _relative(expected: float, found: float) -> float:
    """A number near 0 is a difference of larger ones, whose rounding it has."""
    return abs(found - expected) / max(abs(expected), 0.1)


def first_of(found: Sequence[str], *, most: int = 12) -> list[str]:
    """The first of the differences, and how many more there are."""
    more = [f"and {len(found) - most} more"] if len(found) > most else []
    return [*found[:most], *more]
