"""What verl's own extras pin, for a GPU, is what ours install."""

import importlib.metadata
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

LEFT_OUT = {"flash-attn", "liger-kernel", "trl", "flash-linear-attention"}
"""Of verl's `fsdp`: the learner runs on SDPA without them, and flash-attn is source alone."""


def pins_of(name: str, extra: str) -> dict[str, str]:
    """`name==version` of a distribution's extra, those of the extras that it includes too."""
    pins: dict[str, str] = {}
    for line in importlib.metadata.requires(name) or []:
        requirement = Requirement(line)
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == name:
            for included in requirement.extras:
                pins |= pins_of(name, included)
        elif str(requirement.specifier).startswith("=="):
            pins[requirement.name] = str(requirement.specifier).removeprefix("==")
    return pins


def test_a_gpu_installs_what_verl_pins_for_fsdp_and_vllm() -> None:
    table = tomllib.loads((ROOT / "packages/trainer/pyproject.toml").read_text(encoding="utf-8"))
    project = table["project"]
    ours = {
        requirement.name: str(requirement.specifier).removeprefix("==")
        for requirement in map(
            Requirement, [*project["dependencies"], *project["optional-dependencies"]["gpu"]]
        )
    }
    wanted = pins_of("verl", "vllm") | pins_of("verl", "fsdp")

    assert wanted["cupy-cuda13x"]
    assert wanted["flash-attn"]
    shared = wanted.keys() & ours.keys()
    assert shared >= {"torch", "transformers", "vllm", "cupy-cuda13x"}
    assert {name: ours[name] for name in shared} == {name: wanted[name] for name in shared}
    # torchvision and torchaudio are the workspace's overrides
    assert wanted.keys() - shared - LEFT_OUT == {"torchvision", "torchaudio"}
