"""Tests for `longhaul_trainer.models.shards`; `test_two_ranks` reads what two ranks wrote."""

import json
import os
from pathlib import Path

import pytest
import torch

from longhaul_trainer.models.shards import whole_weights


class Stranger:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.file),)


def test_a_shard_that_would_run_code_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "made"
    (tmp_path / "fsdp_config.json").write_text(json.dumps({"world_size": 1}), encoding="utf-8")
    shard = tmp_path / "model_world_size_1_rank_0.pt"

    torch.save({"a": torch.ones(2), "b": Stranger(made)}, shard)
    with pytest.raises(ValueError, match=f"{shard} is refused, since it holds more than weights"):
        whole_weights(tmp_path)
    assert not made.exists()

    torch.save({"a": torch.ones(2)}, shard)
    assert torch.equal(whole_weights(tmp_path)["a"], torch.ones(2))
