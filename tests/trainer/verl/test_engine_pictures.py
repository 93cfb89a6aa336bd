"""A vLLM engine on the CPU that reads pictures, before and after new weights.

What the learner computes is compared with transformers in
`test_picture_update.py`.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from trainer.verl.pythons import Pythons

pytestmark = pytest.mark.slow  # starts a vLLM engine

PROGRAM = Path(__file__).with_name("engine_pictures.py")
FAMILIES = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
TIME_LIMIT_SECONDS = 800
Distances = dict[str, list[dict[str, float]]]


@pytest.fixture(scope="module")
def of_families(pythons: Pythons, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Distances]:
    """Nats between engine and transformers: by when, for each prompt, by what is shown."""
    folder = tmp_path_factory.mktemp("pictures")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(PROGRAM.parent), str(PROGRAM.parents[2]))),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    process = subprocess.run(
        [pythons.engine, str(PROGRAM), str(folder), *FAMILIES],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


@pytest.fixture(params=FAMILIES)
def found(of_families: dict[str, Distances], request: pytest.FixtureRequest) -> Distances:
    return of_families[request.param]


@pytest.mark.timeout(TIME_LIMIT_SECONDS + 100)
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_engine_reads_the_pictures_that_it_is_shown(found: Distances, when: str) -> None:
    text, *pictures = found[when]

    assert text["own"] < 1e-5
    assert all(prompt["own"] < 1e-5 < 1e-4 < prompt["other"] for prompt in pictures), found


def test_new_weights_need_new_features_of_pictures(found: Distances) -> None:
    """Why an update must empty the engine's cache of them, as verl's server does."""
    text, *pictures = found["new weights, old features"]

    assert text["own"] < 1e-5
    assert any(prompt["own"] > 1e-3 for prompt in pictures)
