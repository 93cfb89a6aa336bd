"""verl is imported as a CPU run imports it; all tests read one tiny model, and fork two Pythons."""

from pathlib import Path

import pytest

from longhaul_trainer.models import prepare_model
from trainer.verl.pythons import pythons
from verl_process import cpu_run

__all__ = ["cpu_run", "pythons"]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hugging Face folder of the model `tiny`, which nothing may write into."""
    return prepare_model("tiny", tmp_path_factory.mktemp("models"))
