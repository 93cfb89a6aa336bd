"""Tests for `longhaul_trainer.training.losses` and `loss_trial`: losses of the user's own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.main import app
from longhaul_trainer.config import LossConfig
from longhaul_trainer.losses import ppo_loss
from longhaul_trainer.losses.registry import LOSSES
from longhaul_trainer.training.loss_trial import try_own_loss
from longhaul_trainer.training.losses import compute_loss
from loss_tokens import one_row

GUIDE = Path(__file__).parents[3] / "docs/guides/configuration.md"

MINE = """
import torch
from longhaul_trainer.losses import PolicyLoss, weighted_sums

def sums(tokens, token_loss_BT):
    ratio_BT = tokens.log_ratio_BT().exp()
    return weighted_sums(
        tokens, token_loss_BT=token_loss_BT, clipped_BT=ratio_BT > 1e9, ratio_BT=ratio_BT
    )

def plain(tokens, settings):
    weight = settings.options.get("weight", 1.0)
    return sums(tokens, -weight * tokens.log_ratio_BT().exp() * tokens.advantages_BT)

def a_tensor(tokens, settings):
    return tokens.log_ratio_BT().sum()

def of_tokens(tokens, settings):
    found = plain(tokens, settings)
    return found._replace(loss=-tokens.log_ratio_BT() * tokens.advantages_BT)

def a_number(tokens, settings):
    return plain(tokens, settings)._replace(ratio=1.0)

def not_a_number(tokens, settings):
    ratio_BT = (tokens.policy_logprobs_BT - tokens.old_logprobs_BT).exp()
    return sums(tokens, -ratio_BT * tokens.advantages_BT)

def without_gradient(tokens, settings):
    return sums(tokens, -tokens.log_ratio_BT().exp().detach() * tokens.advantages_BT)

def flat(tokens, settings):
    return sums(tokens, 0.0 * tokens.log_ratio_BT())

def of_padding(tokens, settings):
    found = plain(tokens, settings)
    return found._replace(loss=found.loss + 0.5 * tokens.policy_logprobs_BT.exp().sum())

def nan_gradient(tokens, settings):
    ratio_BT = torch.where(
        tokens.counted_BT(), (tokens.policy_logprobs_BT - tokens.old_logprobs_BT).exp(), 0.0
    )
    return sums(tokens, -ratio_BT * tokens.advantages_BT)

def a_mean(tokens, settings):
    found = plain(tokens, settings)
    return found._replace(loss=found.loss / tokens.counted_BT().sum())

def raises(tokens, settings):
    return plain(tokens, settings) + settings.options["bound"]

def of_tokens_alone(tokens):
    return None
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "loss_of_mine.py").write_text(MINE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "loss_of_mine", raising=False)
    return "loss_of_mine"


def test_the_loss_of_the_guide_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, text = GUIDE.read_text(encoding="utf-8").partition("\n## A loss of your own\n")
    (code,) = re.findall(r"```python\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    (tmp_path / "my_losses.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    try_own_loss(LossConfig(kind="my_losses:masked", options={"bound": 2.0}))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "a_tensor",
            r"returned tensor\(.*, expected a longhaul_trainer\.losses\.PolicyLoss; return",
        ),
        ("of_tokens", r"its loss has the shape \[2, 5\], expected a tensor of shape \[\]"),
        ("a_number", r"its ratio has the shape float, expected a tensor of shape \[\]"),
        ("not_a_number", r"its loss is nan, expected a finite number: a token that is not counted"),
        ("without_gradient", r"carries no gradient, so nothing would be learned; compute it from"),
        ("flat", r"the gradient of its loss is 0 at every token"),
        (
            "of_padding",
            r"0 at the tokens that are not counted, those with tokens\.loss_weights_BT = 0",
        ),
        ("nan_gradient", r"the gradient of its loss at the tokens is .*nan.*, expected finite"),
        ("a_mean", r"the loss of two rows is .*; it must be a sum over tokens by tokens\.loss_w"),
        ("raises", r"KeyError: 'bound'"),
        (
            "of_tokens_alone",
            r"is called as of_tokens_alone\(tokens, settings\), and takes \(tokens\)",
        ),
        ("nothing", r"module loss_of_mine has no nothing"),
    ],
)
def test_what_is_no_policy_loss_is_refused_with_the_value_and_the_remedy(
    mine: str, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        try_own_loss(LossConfig(kind=f"{mine}:{name}"))

    assert str(raised.value).startswith(f"loss.kind = '{mine}:{name}': ")


@pytest.mark.parametrize("kind", LOSSES)
def test_the_trial_takes_what_every_built_in_loss_gives(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ", ".join(f"{name}={value}" for name, value in LOSSES[kind].defaults.items())
    module = f"longhaul_trainer.losses.{kind}"
    (tmp_path / f"again_{kind}.py").write_text(
        f"from {module} import {kind}_loss\n"
        f"def loss(tokens, settings):\n    return {kind}_loss(tokens, {arguments})\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    try_own_loss(LossConfig(kind=f"again_{kind}:loss"))


def test_settings_reach_the_loss_that_is_computed(mine: str) -> None:
    tokens = one_row([1.5, 0.5], [1.0, -1.0], [0.5, 0.5])
    narrow = LossConfig(clip_high=0.1, clip_low=0.3, dual_clip=2.0)

    built_in = compute_loss(tokens, narrow)
    doubled = compute_loss(tokens, LossConfig(kind=f"{mine}:plain", options={"weight": 2.0}))

    assert torch.equal(
        built_in.loss, ppo_loss(tokens, clip_high=0.1, clip_low=0.3, dual_clip=2.0).loss
    )
    assert doubled.loss.item() == pytest.approx(-2 * (0.5 * 1.5 - 0.5 * 0.5))


def test_the_kinds_are_read_without_the_training_stack() -> None:
    code = (
        "import sys, longhaul_trainer.training.losses;"
        "print(sorted({'torch', 'verl', 'ray', 'transformers'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"


def test_check_tries_the_loss_before_anything_starts(
    mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = tmp_path / "run.toml"
    description.write_text(
        f"""
num_training_steps = 1
tasks_per_training_step = 1

[model]
path = "tiny"

[loss]
kind = "{mine}:a_mean"
""",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)

    refused = CliRunner().invoke(app, ["check", str(description)])
    taken = CliRunner().invoke(app, ["check", str(description), f"loss.kind={mine}:plain"])

    assert isinstance(refused.exception, ConfigError)
    assert f"loss.kind = '{mine}:a_mean': the loss of two rows is" in str(refused.exception)
    assert taken.exit_code == 0, taken.output
