"""How long a worker of verl takes to cut its rows into micro-batches, at once and in our parts.

verl cuts all rows of a call before it computes the first (`rearrange_micro_batches`), and unpacks
all of them for each micro-batch (`index_select_tensor_dict`): a GPU waits for it. Rows have 2,000
tokens of prompt and 150 of reply, and a micro-batch 16,384 tokens. A few micro-batches are cut and
multiplied.

    uv run python benchmarks/micro_batches.py
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# verl and tensordict are typed in part.

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from longhaul_trainer.verl.variables import prepare_environment

NUM_ROWS = (256, 512, 1600, 6400)
"""Of a worker: of the last number eight have 1,024 episodes of 50 steps."""
PROMPT, REPLY, MICRO_BATCH = 2000, 150, 16_384
WHOLE = ("input_ids", "position_ids", "log_probs")
REPLIES = (
    *("responses", "response_mask", "loss_mask", "rollout_log_probs", "rm_scores"),
    *("old_log_probs", "entropy", "advantages", "returns", "loss_weights"),
)
REPEATS = 3


def rows_of(num_rows: int) -> Any:  # noqa: ANN401
    """As many rows as a worker gets them for an update."""
    import torch
    from tensordict import TensorDict

    def column(length: int) -> torch.Tensor:
        offsets = torch.arange(0, num_rows * length + 1, length)
        return torch.nested.nested_tensor_from_jagged(torch.zeros(num_rows * length), offsets)

    lengths = dict.fromkeys(REPLIES, REPLY) | dict.fromkeys(WHOLE, PROMPT + REPLY)
    return TensorDict(
        {name: column(length) for name, length in (lengths | {"prompts": PROMPT}).items()},
        batch_size=num_rows,
    )


def seconds_per_micro_batch(num_rows: int) -> float:
    """Processor seconds in which verl picks one micro-batch out of so many rows."""
    from verl.utils.tensordict_utils import index_select_tensor_dict

    rows = rows_of(num_rows)
    places = list(range(MICRO_BATCH // (PROMPT + REPLY)))
    index_select_tensor_dict(rows, places)
    began = time.process_time()
    for _ in range(REPEATS):
        index_select_tensor_dict(rows, places)
    return (time.process_time() - began) / REPEATS


def seconds_in_parts(num_rows: int) -> float:
    """Processor seconds in which our engine makes parts of so many rows."""
    from longhaul_trainer.verl.parts import ROWS_AT_ONCE, parts_of

    rows = rows_of(num_rows)
    began = time.process_time()
    parts_of(rows, rows_at_once=ROWS_AT_ONCE)
    return time.process_time() - began


def main() -> None:
    """Print a line for each number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        prepare_environment("cpu", scratch=Path(folder))
        most = max(NUM_ROWS)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; processor seconds")
        of_parts = seconds_in_parts(most)
        print(f"parts of {NUM_ROWS[0]} made of {most} rows: {of_parts:.1f} s")
        for num_rows in NUM_ROWS:
            of_one = seconds_per_micro_batch(num_rows)
            of_rows = of_one * -(-num_rows // (MICRO_BATCH // (PROMPT + REPLY)))
            print(
                f"{num_rows:5} rows at once: {of_one * 1e3:6.1f} ms a micro-batch, "
                f"{of_rows:6.1f} s for these rows, {of_rows * most / num_rows:6.1f} s for {most}"
            )


if __name__ == "__main__":
    main()
