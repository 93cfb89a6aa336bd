"""What an update pays for the reports of its loss, awaited one by one and written behind it.

    uv run python benchmarks/loss_reports.py [--commit-milliseconds N] [--micro-batches N]

verl's worker with the tiny model updates in this process; the store has a writer in a process of
its own, as a run's has, whose commits take so many milliseconds more than SQLite's. Updates that
report to nobody, that wait for each micro-batch's report, and that wait once take turns, so that
whatever else the machine does meets all three. On a CPU the model is busy all the while; a GPU is
idle while its process waits.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from store_writer import describe_machine

from longhaul_core.store import Record, StoreWriter
from longhaul_trainer.models import prepare_model
from longhaul_trainer.verl.variables import prepare_environment
from store_samples import make_record, make_trajectory, run_started
from trainer.verl.updates import LENGTHS, LOSSES, Reports, make_rows, still_run, update
from verl_process import one_worker

if TYPE_CHECKING:
    from longhaul_trainer.verl.loss_inputs import RecordWriter
    from longhaul_trainer.verl.run_recorder import RunRecorder

ROUNDS = 15
PROMPT_TOKENS, REPLY_TOKENS = 400, 20


class Awaited:
    """Waits for each report, as before they were written behind the update."""

    def __init__(self, recorder: "RunRecorder") -> None:
        self._recorder = recorder

    def put(self, records: Sequence[Record]) -> None:
        """Return when `records` are committed."""
        self._recorder.write(records)

    def settle(self) -> None:
        """Nothing is left to wait for."""


class Timed:
    """Hands records to a writer, and adds up how long that keeps the update from going on."""

    def __init__(self, writer: "RecordWriter") -> None:
        self._writer = writer
        self.seconds = 0.0

    def put(self, records: Sequence[Record]) -> None:
        """As the writer's."""
        began = time.perf_counter()
        self._writer.put(records)
        self.seconds += time.perf_counter() - began

    def settle(self) -> None:
        """As the writer's."""
        began = time.perf_counter()
        self._writer.settle()
        self.seconds += time.perf_counter() - began


def main() -> None:
    """Print the seconds of an update for each way."""
    parser = argparse.ArgumentParser(description="Measure what reports of the loss cost an update.")
    parser.add_argument("--commit-milliseconds", type=float, default=10.0)
    parser.add_argument("--micro-batches", type=int, default=16)
    arguments = parser.parse_args()
    print(f"machine: {describe_machine()}")
    with tempfile.TemporaryDirectory() as folder:
        prepare_environment("cpu", scratch=Path(folder) / "scratch")
        from trainer.verl.local_ray import ray_here

        with ray_here(python=sys.executable):
            recorder = slow_recorder(
                Path(folder) / "store.db",
                commit_seconds=arguments.commit_milliseconds / 1000,
                num_steps=arguments.micro_batches,
            )
            measure(recorder, Path(folder), num_micro_batches=arguments.micro_batches)
            recorder.close()


def slow_recorder(store: Path, *, commit_seconds: float, num_steps: int) -> "RunRecorder":
    """A run's recorder before a store whose commits take `commit_seconds` more.

    The store has the two episodes whose `num_steps` steps are the rows of an update.
    """
    import ray

    from longhaul_trainer.verl.run_recorder import RunRecorder

    class SlowWriter:
        def __init__(self, store: str) -> None:
            self._writer = StoreWriter(store)

        def write(self, records: Iterable[Record]) -> None:
            self._writer.write(records)
            time.sleep(commit_seconds)

        def flush(self) -> None:
            self._writer.flush()

        def close(self, patience_seconds: float) -> None:
            self._writer.close(patience_seconds=patience_seconds)

    actor: Any = ray.remote(SlowWriter).options(max_concurrency=1)
    recorder = RunRecorder(actor.remote(str(store)))
    episodes = [
        make_record(make_trajectory(sample_index=sample_index, rewards=(0.0,) * number))
        for sample_index, number in enumerate((LENGTHS[0], num_steps - LENGTHS[0]))
    ]
    recorder.write([run_started(), *episodes])
    return recorder


def measure(recorder: "RunRecorder", folder: Path, *, num_micro_batches: int) -> None:
    """Print the median update of each way, and how long it stood still for its reports."""
    import torch
    from transformers import AutoModelForCausalLM

    models: Any = AutoModelForCausalLM  # typed in part
    torch.set_num_threads(1)
    model = prepare_model("tiny", folder / "models")
    plain = models.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa")
    rows = make_rows(plain, lengths=[(PROMPT_TOKENS, REPLY_TOKENS)] * num_micro_batches)
    ways: dict[str, RecordWriter] = {
        "reported nowhere": Reports(),
        "each awaited": Awaited(recorder),
        "behind": recorder,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    waited: dict[str, list[float]] = {name: [] for name in ways}
    with one_worker(still_run(), model) as worker:
        for number in range(ROUNDS + 1):
            for name, writer in ways.items():
                timed = Timed(writer)
                began = time.perf_counter()
                update(
                    worker,
                    rows,
                    LOSSES["clipped"],
                    micro_batch_tokens=PROMPT_TOKENS + REPLY_TOKENS,
                    writer=timed,
                    optimizer_step=number * len(ways) + list(ways).index(name),
                )
                if number:  # the first one warms up
                    seconds[name].append(time.perf_counter() - began)
                    waited[name].append(timed.seconds)
    updates = {name: statistics.median(of) for name, of in seconds.items()}
    waits = {name: statistics.median(of) for name, of in waited.items()}
    print(f"an update of {num_micro_batches} micro-batches, medians of {ROUNDS}:")
    for name, median in updates.items():
        print(f"  {name:17} {median:7.3f} s, of that waiting {1000 * waits[name]:6.1f} ms")
    print(
        f"awaited over behind: update {updates['each awaited'] / updates['behind']:.2f}, "
        f"waiting {waits['each awaited'] / waits['behind']:.1f}"
    )


if __name__ == "__main__":
    main()
