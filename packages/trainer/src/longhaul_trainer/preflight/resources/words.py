"""What a run takes, for people."""

from longhaul_trainer.config import RunConfig
from longhaul_trainer.preflight.resources.needs import Needs
from longhaul_trainer.preflight.resources.step_time import Range, StepTime

GIB = 2**30


def needs_in_words(run: RunConfig, needs: Needs) -> dict[str, str]:
    """A line for each kind, by its name; estimates say `about`."""
    composed, disk = needs.composed, needs.disk
    words: dict[str, str] = {}
    if composed.device == "gpu":
        words["GPUs"] = _gpus_in_words(needs)
    words["memory"] = f"about {needs.host.total / GIB:.0f} GiB"
    if composed.num_nodes > 1:
        words["memory"] += " on each node"
    words["processors"] = f"{needs.ray.total} by Ray's count"
    words["disk"] = (
        f"about {disk.folder / GIB:.0f} GiB: {disk.num_checkpoints} checkpoints of "
        f"{_size(disk.checkpoint)} and the models; the store up to {_size(disk.most_stored)}"
    )
    words["limits"] = (
        f"/dev/shm of {needs.shared_memory / GIB:.1f} GiB, {needs.open_files} open files"
    )
    if needs.time is not None:
        words["time"] = time_in_words(needs.time, num_gpus=_num_gpus(needs))
        whole = (
            needs.time.seconds[0] * run.num_training_steps,
            (needs.time.seconds[1] * run.num_training_steps),
        )
        words["whole run"] = f"{span_in_words(whole)}, without validation and checkpoints"
    return words


def needs_in_a_line(needs: Needs) -> str:
    """The sizes that decide whether a run starts, and how long a training step takes."""
    parts = [
        f"about {needs.host.total / GIB:.0f} GiB of memory",
        f"{needs.disk.folder / GIB:.0f} GiB of disk",
    ]
    if needs.gpu is not None:
        count = _num_gpus(needs)
        parts.insert(0, f"{count} GPU{'s' * (count > 1)} of {needs.gpu.smallest / GIB:.0f} GiB")
    if needs.time is not None:
        parts.append(f"{span_in_words(needs.time.seconds)} a training step")
    if needs.unknown:
        parts.append(f"and what {' and '.join(name for name, _ in needs.unknown)} adds")
    return ", ".join(parts)


def time_in_words(time: StepTime, *, num_gpus: int) -> str:
    """Of one training step."""
    low, high = time.learned_tokens
    how = "then" if time.in_turns else "beside it"
    gpu = f"{num_gpus} × {time.gpu}" + (" (assumed)" if time.assumed else "")
    return (
        f"a training step about {span_in_words(time.seconds)} on {gpu}: play "
        f"{span_in_words(time.play_seconds)}, {how} learn {low / 1e6:.2g} to {high / 1e6:.2g} "
        f"million tokens in {span_in_words(time.learn_seconds)}"
    )


def span_in_words(seconds: Range) -> str:
    """A range in the unit of its upper end, to two digits."""
    low, high = seconds
    for unit, length in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if high >= 2 * length or length == 1.0:
            return f"{_two_digits(low / length)} to {_two_digits(high / length)} {unit}"
    raise AssertionError(f"unreachable: {seconds}")


def _size(num_bytes: float) -> str:
    """In GiB, or below a tenth of one in MiB."""
    if num_bytes < 0.1 * GIB:
        return f"{num_bytes / 2**20:.0f} MiB"
    return f"{num_bytes / GIB:.1f} GiB"


def _two_digits(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{float(f'{number:.2g}'):.0f}"


def _num_gpus(needs: Needs) -> int:
    return needs.composed.num_workers + needs.composed.num_engine_workers


def _gpus_in_words(needs: Needs) -> str:
    memory, count = needs.gpu, _num_gpus(needs)
    if memory is None:
        return f"{count}"
    shared = ""
    if memory.engine_share:
        shared = (
            f"; {memory.resident / GIB:.0f} GiB stay while episodes are played, beside the "
            f"engine's {memory.engine_share:.0%}"
        )
    return (
        f"{count} of about {memory.smallest / GIB:.0f} GiB or more: {memory.learning / GIB:.0f} "
        f"GiB to learn{shared}"
    )
