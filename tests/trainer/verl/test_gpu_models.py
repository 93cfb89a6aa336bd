"""The models of each recipe, built by verl as on a GPU machine without flash-attn.

The settings are the composed ones of a GPU run; the worker, the model's classes, FSDP2, the engine
but for its parts, and the optimizer are verl's own, for the device they call `cuda`. They compute
on a gloo group of one here. The model has Qwen2.5's architecture, and few and small layers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from longhaul_trainer.config import RunConfig, load_config
from longhaul_trainer.models import prepare_model
from verl_process import IMPORTS_VERL, one_critic, one_worker

pytestmark = IMPORTS_VERL

CONFIGS = Path(__file__).parents[3] / "configs"
RECIPES = sorted((CONFIGS / "recipes").glob("*.toml"))
MACHINES = sorted((CONFIGS / "machines").glob("*.toml"))
LAYERS = sorted((CONFIGS / "algorithms").glob("*.toml")) + sorted(
    (CONFIGS / "modes").glob("*.toml")
)
GIGPO = CONFIGS / "recipes" / "gigpo.toml"
TWO_GPUS = CONFIGS / "machines" / "qwen2.5-1.5b-2x80gb.toml"
RUNS = [
    (CONFIGS / "smoke.toml", []),
    *((GIGPO, [machine]) for machine in MACHINES),
    *((recipe, [TWO_GPUS]) for recipe in RECIPES if recipe != GIGPO),
    *((GIGPO, [TWO_GPUS, layer]) for layer in LAYERS),
]
"""What the models follow from: each machine, recipe and layer, and not every one with each."""


@pytest.fixture(autouse=True)
def no_flash_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """As this project's lock installs it, whatever this machine has."""
    monkeypatch.setattr("longhaul_trainer.verl.attention.flash_attention_version", lambda: None)


@pytest.fixture(autouse=True)
def no_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's weights wait in memory that a GPU's driver has pinned; there is none here."""

    def same(self: torch.Tensor) -> torch.Tensor:
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", same)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Qwen2.5 in small, by the size that it stands for."""
    sizes: dict[str, Path] = {}
    for size, tied in (("1.5B", True), ("7B", False)):  # reads and writes with the same matrix
        folder = tmp_path_factory.mktemp("models") / size
        AutoTokenizer.from_pretrained(prepare_model("tiny")).save_pretrained(folder)
        config = Qwen2Config(
            vocab_size=4096,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=tied,
        )
        Qwen2ForCausalLM(config).save_pretrained(folder)
        sizes[size] = folder
    return sizes


Built = tuple[str, str, set[torch.dtype]]
"""A role's engine, its model's attention, and what its weights are kept in."""


def built(engine: Any) -> Built:  # noqa: ANN401
    """What verl has built."""
    config: Any = engine.module.config
    dtypes = {weight.dtype for weight in engine.module.parameters()}
    return type(engine).__name__, config._attn_implementation, dtypes


@pytest.fixture(scope="module")
def built_of(models: dict[str, Path]) -> Callable[[RunConfig], dict[str, Built]]:
    """What verl builds for a run, by role; once for all runs whose models follow from the same."""
    known: dict[str, dict[str, Built]] = {}

    def build(run: RunConfig) -> dict[str, Built]:
        keeps_reference = run.loss.kl_coefficient > 0 or run.algorithm.reward_kl_coefficient > 0
        roles = (keeps_reference, run.algorithm.uses_critic)
        made_of = (run.model, run.optimizer, run.critic, run.resources, run.verl, roles)
        if str(made_of) in known:
            return known[str(made_of)]
        folder = models["7B" if "7B" in run.model.path else "1.5B"]
        found: dict[str, Built] = {}
        with one_worker(run, folder, device="gpu") as made:
            assert made.actor.engine.use_remove_padding
            found["actor"] = built(made.actor.engine)
        if keeps_reference:
            with one_worker(run, folder, role="ref", device="gpu") as made:
                found["reference"] = built(made.ref.engine)
        if run.algorithm.uses_critic:
            with one_critic(run, folder, device="gpu") as made:
                found["critic"] = built(made.engine)
        return known.setdefault(str(made_of), found)

    return build


def names(run: tuple[Path, list[Path]]) -> str:
    file, layers = run
    return "+".join(path.stem for path in (file, *layers))


@pytest.mark.parametrize("files", RUNS, ids=names)
def test_every_recipe_s_models_are_built(
    files: tuple[Path, list[Path]], built_of: Callable[[RunConfig], dict[str, Built]]
) -> None:
    run = load_config(files[0], layers=files[1])

    found = {**built_of(run)}

    dtype, engine_dtype = (
        getattr(torch, kind) for kind in (run.model.dtype, run.model.engine_dtype)
    )
    attention = "flash_attention_torch" if engine_dtype == torch.bfloat16 else "sdpa"
    assert found.pop("actor") == ("GpuPolicyEngine", attention, {dtype})
    if run.loss.kl_coefficient > 0 or run.algorithm.reward_kl_coefficient > 0:
        assert found.pop("reference")[1:] == (attention, {engine_dtype})
    if run.algorithm.uses_critic:
        assert found.pop("critic") == ("GpuValueEngine", attention, {torch.float32})
    assert not found


def test_the_trainer_gives_gpus_our_workers(tmp_path: Path) -> None:
    """They have imported the engines that the test above has built."""
    from verl.trainer.ppo.utils import Role

    from longhaul_trainer.verl.critic_worker import GpuCriticWorker
    from longhaul_trainer.verl.policy_worker import GpuActorRolloutRefWorker
    from longhaul_trainer.verl.settings import Paths, verl_settings
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    run = RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "algorithm": {"name": "gae"},
        }
    )
    trainer = object.__new__(LonghaulTrainer)
    trainer.config = verl_settings(
        run,
        paths=Paths(model=tmp_path, checkpoints=tmp_path, agent_loops=tmp_path, critic=tmp_path),
        device="gpu",
    )
    trainer._init_resource_pool_mgr()

    workers: dict[Role, Any] = trainer.role_worker_mapping
    classes = {role: worker.__ray_actor_class__ for role, worker in workers.items()}
    assert classes.pop(Role.Critic) is GpuCriticWorker
    assert set(classes.values()) == {GpuActorRolloutRefWorker}
