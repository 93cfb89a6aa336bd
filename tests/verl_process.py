"""verl in a test, as a process of a CPU run has it; the environment is put back afterwards."""

import gc
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest

from longhaul_trainer.config import RunConfig
from longhaul_trainer.models.vision import FAMILIES
from longhaul_trainer.verl.variables import prepare_environment
from ports import free_port

IMPORTS_VERL = [
    pytest.mark.usefixtures("cpu_run"),
    pytest.mark.slow,  # importing verl takes about ten seconds
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of verl's and Ray's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of verl's, Ray's and torch.distributed
    pytest.mark.filterwarnings("ignore::UserWarning"),  # hydra, transformers, PEFT, nested tensors
]
"""Marks of a module whose tests import verl."""


@pytest.fixture(scope="module")
def cpu_run(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """The variables of a CPU run, set before verl is imported.

    verl is imported here, and all that is there by then is frozen: around each update verl has the
    collector search through everything else.
    """
    with process_variables():
        prepare_environment("cpu", scratch=tmp_path_factory.mktemp("scratch"))
        if "verl" not in sys.modules:
            import_module("longhaul_trainer.verl.cpu.worker")
            gc.collect()
            gc.freeze()
        yield


@contextmanager
def process_variables() -> Generator[None]:
    """The environment and the path of imports are put back at the end of the block."""
    variables, path = dict(os.environ), list(sys.path)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(variables)
        sys.path[:] = path


@contextmanager
def one_worker(
    run: RunConfig,
    model: Path,
    *,
    role: str = "actor",
    device: Literal["cpu", "gpu"] = "cpu",
    rank: int = 0,
    num_ranks: int = 1,
    port: int | None = None,
) -> Generator[Any]:
    """One rank of the learner, in this process and on a gloo group.

    Needs the variables of `cpu_run`.

    Args:
        run: What the learner is made for.
        model: Hugging Face folder of the weights.
        role: verl's name of what the worker is: `"actor"` or `"ref"`.
        device: Whose settings and engine it has; those of GPUs compute on the CPU here, and
            attention by its definition where they have torch's FlashAttention.
        rank: Of this process.
        num_ranks: Processes of the group.
        port: Where they meet; a free one if there is only this process.
    """
    # Importing it registers the engine of GPUs, as in a worker there.
    from longhaul_trainer.verl import policy_worker  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from longhaul_trainer.verl.cpu.worker import CpuActorRolloutRefWorker
    from longhaul_trainer.verl.settings import verl_settings

    config = verl_settings(run, paths=_paths(model), device=device)
    with _process_of(rank=rank, num_ranks=num_ranks, port=port, device=device):
        made = CpuActorRolloutRefWorker(config=config.actor_rollout_ref, role=role)
        made.init_model()
        yield made


@contextmanager
def one_critic(
    run: RunConfig, model: Path, *, device: Literal["cpu", "gpu"] = "cpu"
) -> Generator[Any]:
    """The critic's worker, in this process and on a gloo group of one.

    Needs the variables of `cpu_run`. It is made as verl's trainer makes it. Beside a worker of the
    policy it is on that one's group.

    Args:
        run: What the critic is made for.
        model: Hugging Face folder of the weights.
        device: Whose settings and engine it has; those of GPUs compute on the CPU here.
    """
    from verl.utils import config as verl_config
    from verl.workers.config import TrainingWorkerConfig

    # Importing it registers the engine of GPUs, as in a worker there.
    from longhaul_trainer.verl import critic_worker  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from longhaul_trainer.verl.cpu.worker import CpuTrainingWorker
    from longhaul_trainer.verl.settings import verl_settings

    made_of: Any = verl_config
    settings = verl_settings(run, paths=_paths(model), device=device)
    critic = made_of.omega_conf_to_dataclass(settings.critic)
    engine = critic.engine
    engine.infer_max_token_len_per_gpu = critic.ppo_infer_max_token_len_per_gpu
    engine.max_token_len_per_gpu = critic.ppo_infer_max_token_len_per_gpu
    with _process_of(rank=0, num_ranks=1, port=None, device=device):
        made = CpuTrainingWorker(
            TrainingWorkerConfig(
                model_type="value_model",
                model_config=critic.model,
                engine_config=critic.engine,
                optimizer_config=critic.optim,
                checkpoint_config=critic.checkpoint,
            )
        )
        made.reset()
        yield made


def _paths(model: Path) -> Any:  # noqa: ANN401  verl is imported with it
    from longhaul_trainer.verl.settings import Paths

    folder = model.parent
    return Paths(
        model=model, checkpoints=folder / "ck", agent_loops=folder / "loops.yaml", critic=model
    )


@contextmanager
def _process_of(*, rank: int, num_ranks: int, port: int | None, device: str) -> Generator[None]:
    import torch

    from naive_attention import naive_varlen_attention

    if torch.distributed.is_initialized():  # the other worker's, who ends it
        yield
        return
    group = {
        "RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port or free_port()),
    }
    if device == "gpu":
        # verl's own variables: the engine of another device than this one.
        group |= {"VERL_ENGINE_DEVICE": "cuda", "VERL_ENGINE_VENDOR": "nvidia"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in group.items():
            patch.setenv(name, value)
        patch.setattr("longhaul_trainer.verl.torch_flash.varlen_attn", naive_varlen_attention)
        # It makes a worker ask Ray for its logical GPU, and there is no Ray here.
        patch.delenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES")
        keep_models(patch)
        try:
            yield
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()


def keep_models(patch: pytest.MonkeyPatch) -> None:
    """Let `patch` put back what verl replaces in the classes of transformers' models."""
    for name in ("llama", "qwen2", *FAMILIES):
        module = import_module(f"transformers.models.{name}.modeling_{name}")
        for kind in vars(module).values():
            for method in ("forward", "fast_pos_embed_interpolate"):
                if isinstance(kind, type) and method in vars(kind):
                    patch.setattr(kind, method, vars(kind)[method])
