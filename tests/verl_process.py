"""verl in a test, as a process of a CPU run has it; the environment is put back afterwards."""

import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longhaul_trainer.config import RunConfig
from longhaul_trainer.verl.variables import prepare_environment


@pytest.fixture(scope="module")
def cpu_run(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """The variables of a CPU run, set before verl is imported."""
    variables, path = dict(os.environ), list(sys.path)
    prepare_environment("cpu", scratch=tmp_path_factory.mktemp("scratch"))
    yield
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def one_worker(
    run: RunConfig, model: Path, *, rank: int = 0, num_ranks: int = 1, port: int | None = None
) -> Generator[Any]:
    """One rank of the learner of a CPU run, in this process and on a gloo group.

    Needs the variables of `cpu_run`.

    Args:
        run: What the learner is made for.
        model: Hugging Face folder of the weights.
        rank: Of this process.
        num_ranks: Processes of the group.
        port: Where they meet; a free one if there is only this process.
    """
    import torch

    from longhaul_trainer.verl.cpu.worker import CpuActorRolloutRefWorker
    from longhaul_trainer.verl.settings import Paths, verl_settings

    folder = model.parent
    paths = Paths(model=model, checkpoints=folder / "ck", agent_loops=folder / "loops.yaml")
    config = verl_settings(run, paths=paths, device="cpu")
    group = {
        "RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port or free_port()),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in group.items():
            patch.setenv(name, value)
        # It makes a worker ask Ray for its logical GPU, and there is no Ray here.
        patch.delenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES")
        made = CpuActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
        made.init_model()
        yield made
        torch.distributed.destroy_process_group()
