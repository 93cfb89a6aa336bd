"""The proof of sight on rows that lie where verl keeps them, by a learner made up for it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longhaul_core.health import MIN_SIGHT, warnings_of
from longhaul_trainer.training.sight import GRIDS, PATCHES
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

KEYS = [f"train-1-0_{number}_0" for number in range(18)]
PICTURES = [
    {PATCHES: torch.full((4, 2), number), GRIDS: torch.tensor([[1, 2, 2]])} for number in (1.0, 3.0)
]
SHOWN = dict(zip(KEYS, [PICTURES[0], {}, PICTURES[1], PICTURES[0]], strict=False))
PROMPTS = [2, 3, 4, 2]
MASK = torch.tensor([1, 0, 1])


class Queue:
    """Holds fields of rows as TransferQueue does, in this process."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {
            key: {"multi_modal_inputs": shown, "response_mask": MASK}
            for key, shown in SHOWN.items()
        }

    def kv_batch_get(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:  # noqa: ANN401
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        assert partition_id == "train"
        rows = [{name: self.rows[key][name] for name in select_fields} for key in keys]
        found = list_of_dict_to_tensordict(rows)
        for name in {"response_mask", "log_probs"} & set(select_fields):
            column = [row[name] for row in rows]
            found[name] = torch.nested.as_nested_tensor(column, layout=torch.jagged)
        return found

    def kv_batch_put(self, *, keys: list[str], partition_id: str, fields: Any) -> None:  # noqa: ANN401
        assert partition_id == "train"
        for name in list(fields.keys()):
            for key, value in zip(keys, fields.pop(name).tolist(), strict=True):
                self.rows[key][name] = value


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    from longhaul_trainer.verl import sight

    made = Queue()
    monkeypatch.setattr(sight, "tq", made)
    return made


def learner(queue: Queue, *, weight: float) -> Callable[[Any], object]:
    """Whose log-probability of every token falls by `weight` times the picture's number."""

    def compute(rows: Any) -> object:  # noqa: ANN401
        assert rows.extra_info["temperature"] == 0.7
        for key, num_prompt in zip(rows.keys, PROMPTS, strict=True):
            shown = queue.rows[key]["multi_modal_inputs"]
            seen = float(shown[PATCHES][0, 0]) if shown else 0.0
            logprobs = torch.full((num_prompt + len(MASK),), -1.0 - weight * seen)
            logprobs[num_prompt] = -90.0  # predicts the second token of the reply: not sampled
            queue.rows[key]["log_probs"] = logprobs
        return SimpleNamespace()

    return compute


def proof(queue: Queue, *, weight: float, fields: tuple[str, ...] = ("multi_modal_inputs",)) -> Any:  # noqa: ANN401
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.sight import proof_of_sight

    keys = list(SHOWN)
    rows = KVBatchMeta(keys=keys, tags=[{}] * 4, partition_id="train", fields=list(fields))
    return proof_of_sight(rows, compute=learner(queue, weight=weight), temperature=0.7)


def test_a_policy_that_sees_is_told_from_a_blind_one(queue: Queue) -> None:
    """1 and 3 change places: 2 of each sampled token; the row without a picture is not counted."""
    sees = proof(queue, weight=0.01)
    blind = proof(queue, weight=0.0)

    assert sees == {"sight/logprob_change_mean": pytest.approx(0.02, rel=1e-4)}
    assert blind == {"sight/logprob_change_mean": 0.0}
    assert warnings_of(sees) == []
    (alarm,) = warnings_of(blind)
    assert (alarm.metric, alarm.limit) == ("sight/logprob_change_mean", MIN_SIGHT)


def test_rows_have_their_own_pictures_again_even_after_a_failure(queue: Queue) -> None:
    proof(queue, weight=0.01)
    assert {key: row["multi_modal_inputs"] for key, row in queue.rows.items()} == SHOWN

    calls: list[object] = []
    compute = learner(queue, weight=0.01)

    def fails(rows: object) -> object:
        calls.append(rows)
        if len(calls) == 2:
            raise RuntimeError("a worker died")
        return compute(rows)

    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.sight import proof_of_sight

    rows = KVBatchMeta(
        keys=list(SHOWN), tags=[{}] * 4, partition_id="train", fields=["multi_modal_inputs"]
    )
    with pytest.raises(RuntimeError, match="a worker died"):
        proof_of_sight(rows, compute=fails, temperature=0.7)
    assert {key: row["multi_modal_inputs"] for key, row in queue.rows.items()} == SHOWN


def test_nothing_is_computed_where_no_picture_has_another(queue: Queue) -> None:
    assert proof(queue, weight=0.01, fields=("input_ids",)) == {}
    for row in queue.rows.values():
        row["multi_modal_inputs"] = PICTURES[0]

    assert proof(queue, weight=0.01) == {}
    assert not any("log_probs" in row for row in queue.rows.values())


@pytest.mark.parametrize(
    ("num_rows", "num_ranks", "places"),
    [
        (18, 1, [0, 2, 4, 6, 8, 10, 12, 14]),
        (3, 1, [0, 1, 2]),
        (12, 3, [*range(9)]),
        (12, 12, [*range(12)]),
    ],
)
def test_a_few_rows_from_all_over_the_batch_are_tried(
    num_rows: int, num_ranks: int, places: list[int]
) -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.sight import rows_to_try

    batch = KVBatchMeta(keys=KEYS[:num_rows], tags=[{}] * num_rows, partition_id="train")

    tried = rows_to_try(batch, num_ranks=num_ranks)

    assert tried.keys == [KEYS[place] for place in places]
