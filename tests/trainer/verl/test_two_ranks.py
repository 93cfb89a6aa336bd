"""Two data-parallel ranks of verl's FSDP worker make the update that one would have made."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from longhaul_trainer.models.shards import write_model
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model
from longhaul_trainer.training.rank_balance import imbalance, shared_out
from ports import free_port
from trainer.verl.picture_rows import picture_rows, plain_model
from trainer.verl.pythons import Pythons
from trainer.verl.rank_pictures import PLACES
from trainer.verl.rank_update import BALANCED, NUM_RANKS, WRONG
from trainer.verl.updates import (
    LOSSES,
    MAX_ERROR,
    SKEWED,
    Gradients,
    error,
    expected_gradients,
    make_rows,
)

pytestmark = [
    pytest.mark.slow,  # two processes import verl
    pytest.mark.filterwarnings("ignore::UserWarning"),  # transformers and nested tensors
]

TIME_LIMIT_SECONDS = 600


@pytest.fixture(scope="module")
def folder(model_folder: Path, pythons: Pythons, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the ranks left."""
    folder = tmp_path_factory.mktemp("ranks")
    run_both_ranks("rank_update.py", model_folder, folder, pythons=pythons)
    return folder


def run_both_ranks(program: str, model: Path, folder: Path, *, pythons: Pythons) -> None:
    """Run a program of this folder once for each rank, with the model; what it leaves is there."""
    tests = str(Path(__file__).parents[2])
    file, port = Path(__file__).with_name(program), str(free_port())
    ranks: list[subprocess.Popen[bytes]] = []
    for rank in range(NUM_RANKS):
        command = [pythons.verl, str(file), str(rank), port, str(model), str(folder)]
        with (folder / f"rank-{rank}.log").open("wb") as log:
            environment = os.environ | {"PYTHONPATH": tests, "OMP_NUM_THREADS": "1"}
            ranks.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            )
    try:
        codes = [process.wait(TIME_LIMIT_SECONDS) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    logs = "".join(path.read_text()[-4000:] for path in sorted(folder.glob("*.log")))
    assert codes == [0] * NUM_RANKS, logs


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Gradients]:
    """Gradients of each loss, the ranks' rows taken together."""
    return torch.load(folder / "gradients.pt")


@pytest.fixture(scope="module")
def expected(model_folder: Path) -> dict[str, Gradients]:
    """By the definition, all rows in one process."""
    plain = AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="sdpa"
    )
    rows = make_rows(plain)
    skewed = make_rows(plain, lengths=SKEWED)
    return {name: expected_gradients(plain, rows, loss) for name, loss in LOSSES.items()} | {
        BALANCED: expected_gradients(plain, skewed, LOSSES["clipped"])
    }


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_that_of_one_rank(
    found: dict[str, Gradients], expected: dict[str, Gradients], loss: str
) -> None:
    assert error(found[loss], expected[loss]) <= MAX_ERROR


def test_the_gradient_is_that_of_one_rank_where_rows_are_shared_out_by_their_tokens(
    found: dict[str, Gradients], expected: dict[str, Gradients]
) -> None:
    row_tokens = [sum(lengths) for lengths in SKEWED]
    ranks = shared_out(row_tokens, num_ranks=NUM_RANKS)
    shared = [row_tokens[place] for places in ranks for place in places]
    assert (
        imbalance([shared], num_ranks=NUM_RANKS)
        < 1.05
        < 1.7
        < imbalance([row_tokens], num_ranks=NUM_RANKS)
    )

    assert error(found[BALANCED], expected[BALANCED]) <= MAX_ERROR


@pytest.mark.parametrize("rank", range(NUM_RANKS))
def test_a_rank_waits_for_its_reports_once_and_with_its_last_micro_batch(
    folder: Path, found: dict[str, Gradients], rank: int
) -> None:
    (num_reports,) = json.loads((folder / f"settled-{rank}.json").read_text(encoding="utf-8"))

    assert num_reports == 2  # micro-batches


def test_a_wrong_weight_on_one_row_of_one_rank_would_be_seen(
    found: dict[str, Gradients], expected: dict[str, Gradients]
) -> None:
    assert error(found[WRONG], expected["clipped"]) > 100 * MAX_ERROR


def test_the_model_is_put_together_from_what_both_ranks_hold(
    folder: Path, model_folder: Path, tmp_path: Path
) -> None:
    start = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)

    write_model(folder / "actor", tmp_path / "model", start=model_folder)

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    shards = torch.load(folder / "actor/model_world_size_2_rank_1.pt", weights_only=False)
    of_rank = shards["model.embed_tokens.weight"].to_local()
    assert len(of_rank) == len(model.state_dict()["model.embed_tokens.weight"]) / 2
    # the updates of these ranks change no weight
    assert all(
        torch.equal(weight, start.state_dict()[name]) for name, weight in model.state_dict().items()
    )


def test_a_rank_without_a_picture_learns_with_one_that_has_several(
    pythons: Pythons, tmp_path: Path
) -> None:
    """Both gather the part that reads pictures, or one would wait for the other for ever."""
    model = tmp_path / "model"
    model.mkdir()
    write_tiny_vision_model(model, family="qwen3_vl")
    plain = plain_model(model)
    rows = picture_rows(model, plain)
    given = [rows[place] for places in PLACES for place in places]
    expected = expected_gradients(plain, given, LOSSES["clipped"])

    run_both_ranks("rank_pictures.py", model, tmp_path, pythons=pythons)

    found = torch.load(tmp_path / "gradients.pt")
    assert error(found, expected) <= MAX_ERROR
    assert any(".visual." in name and expected[name].abs().max() > 0 for name in expected)
