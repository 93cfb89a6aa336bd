"""A file in its folder is all that the configuration needs of a new estimator, or a new loss."""

import subprocess
import sys
from pathlib import Path

ESTIMATOR = '''
from longhaul_core.advantages.estimator import Estimator, Scaled, per_group
from longhaul_core.advantages.grpo import grpo_credit
from pydantic import Field


class ShareSettings(Scaled):
    share: float = Field(default=0.5, gt=0)
    """Of what the group gets."""


ESTIMATORS = {
    "shared": Estimator(
        compute=per_group(lambda group, settings: grpo_credit(
            [settings.share * rewards for rewards in group.step_rewards],
            scale_by_std=settings.scale_by_std,
        )),
        settings=ShareSettings,
        summary="the group's mean, shared",
        penalises_actions=True,
    ),
}
'''

LOSS = '''
from longhaul_trainer.losses.kind import ClipHigh, LossKind, LossSettings
from longhaul_trainer.losses.tokens import weighted_sums


class OneSidedSettings(LossSettings):
    clip_high: ClipHigh = 0.7
    temper: float = 1.5
    """Of the ratio."""


def one_sided_loss(tokens, *, clip_high, temper):
    ratio_BT = (temper * tokens.log_ratio_BT()).exp()
    kept_BT = ratio_BT <= 1 + clip_high
    return weighted_sums(
        tokens,
        token_loss_BT=-ratio_BT * kept_BT * tokens.advantages_BT,
        clipped_BT=~kept_BT,
        ratio_BT=ratio_BT,
    )


LOSS = LossKind(compute=one_sided_loss, settings=OneSidedSettings, summary="one-sided")
'''

RUN = """
import sys
import longhaul_core.advantages, longhaul_trainer.losses
longhaul_core.advantages.__path__.append(sys.argv[1] + "/advantages")
longhaul_trainer.losses.__path__.append(sys.argv[1] + "/losses")

import numpy as np
from longhaul_core.advantages.estimators import Group
from longhaul_trainer.config.load import parse_config, read_text
from longhaul_trainer.config.reference import reference_markdown
from longhaul_trainer.training.estimate import estimate

FILE = '''
num_training_steps = 1
tasks_per_training_step = 1
[algorithm]
name = "shared"
share = 2.0
scale_by_std = false
invalid_action_penalty = 0.1
[loss]
kind = "one_sided"
temper = 2.5
'''
run = parse_config(FILE)
rewards = [np.array([0.0, 1.0]), np.array([3.0, 0.0])]
group = Group(name="a", step_rewards=rewards, anchor_states=[], final_states=[],
              num_action_tokens=[])
[credits] = estimate([group], run.algorithm)
print([credit.advantages for credit in credits])
print(run.loss.clip_high, run.loss.temper, run.loss.clip_low, run.loss.dual_clip)
others = read_text(FILE.replace('"shared"', '"grpo"').replace('"one_sided"', '"ppo"'))
print(*others.remarks, sep="\\n")
print("".join(line for line in reference_markdown().splitlines() if "shared`" in line))
print(sorted({"torch", "verl"} & set(sys.modules)))

import torch
from longhaul_trainer.losses import ActionTokens
from longhaul_trainer.training.losses import compute_loss

one = torch.ones(1, 1)
tokens = ActionTokens(policy_logprobs_BT=0.1 * one, old_logprobs_BT=0 * one, advantages_BT=one,
                      loss_weights_BT=one, actions_BT=one.long() - 1)
print(round(float(compute_loss(tokens, run.loss).ratio), 4))
"""


def test_a_new_estimator_and_a_new_loss_are_one_file_each(tmp_path: Path) -> None:
    for folder, name, text in (("advantages", "shared", ESTIMATOR), ("losses", "one_sided", LOSS)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(text, encoding="utf-8")

    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    credit, loss, *remarks, reference, loaded, ratio = ran.stdout.splitlines()
    assert credit == "[(-2.0, -2.0), (2.0, 2.0)]"
    assert loss == "0.7 2.5 None None"
    assert any(
        'algorithm.share = 2.0 means nothing to algorithm.name = "grpo"; it is for shared' in line
        for line in remarks
    )
    assert any(
        'loss.temper = 2.5 means nothing to loss.kind = "ppo"; it is for one_sided' in line
        for line in remarks
    )
    assert "Of what the group gets. Read by `shared`." in reference
    assert "`shared`: the group's mean, shared" in reference
    assert loaded == "[]"
    assert ratio == "1.284"  # e^(2.5 · 0.1)
