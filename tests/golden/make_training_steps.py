"""Writes `training_steps/*.json.gz`: six training steps, and what today's code makes of them.

    uv run python tests/golden/make_training_steps.py

Run it before a change that is to change no number, on the code of before. A step whose file
exists is left as it is: what was recorded is what later code is held to. Where numbers change on
purpose, delete the step's file first, and say why in the same change.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from trainer.verl.golden_steps import (
    Inputs,
    RecordedEpisode,
    RecordedGroup,
    RecordedStep,
    names,
    replayed,
    write,
)

TRAINING_STEP = 3
HORIZON = 6
GROUP_SIZE = 4
MOST_REPLY_TOKENS = 6
VOCABULARY = 4096
END = 2
"""Token that ends a reply."""
USUAL_LOGPROB = -8.34
"""Of any token: the tiny model takes all of its 4,096 tokens for about as likely."""
REWARDS = (0.0, 0.0, 0.0, 0.25, 1.0, -0.1, -0.5)

Places = tuple[tuple[str, ...], ...]
"""How each try at each place of a group ends."""

ORDINARY: Places = (("solved",), ("limit",), ("lost",), ("horizon",))
RETRIED: Places = (("failed", "solved"), ("failed", "failed"), ("budget",), ("lost",))
"""One place failed and was played again, one failed for good."""
ALONE: Places = (("failed", "failed"), ("horizon",), ("failed", "failed"), ("failed", "failed"))
"""One episode is left: nothing to compare it with."""
LOST: Places = (("failed", "failed"),) * GROUP_SIZE
FLAT: Places = (("flat",),) * GROUP_SIZE
"""All episodes have the same rewards: no advantage."""

STOP_REASONS = {
    "solved": "task_solved",
    "lost": "task_failed",
    "limit": "environment_limit",
    "horizon": "horizon_reached",
    "budget": "token_budget_spent",
    "flat": "task_failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A step to record."""

    what: str
    settings: dict[str, dict[str, Any]]
    fifth_group: Places = ORDINARY
    num_ranks: int = 1

    @property
    def grows(self) -> bool:
        """Whether a prompt goes on from the one before."""
        return self.settings["memory"]["kind"] == "full"


WINDOW = {"kind": "window", "size": 2}
FULL = {"kind": "full"}
KINDS = {
    "grpo_unmerged": Kind(
        what="GRPO with a penalty for invalid actions, a row for each step, DAPO's clip range",
        settings={
            "algorithm": {
                "name": "grpo",
                "invalid_action_penalty": 0.1,
                "invalid_action_penalty_on": "return",
            },
            "loss": {"clip_high": 0.28},
            "memory": WINDOW,
        },
        fifth_group=FLAT,
    ),
    "gigpo_unmerged": Kind(
        what="GiGPO with an overlong penalty, a row for each step, two optimizer steps",
        settings={
            "algorithm": {
                "name": "gigpo",
                "step_advantage_weight": 0.5,
                "loss_unit": "episode",
                "overlong_penalty": 0.5,
                "overlong_start_tokens": 2,
                "overlong_end_tokens": 5,
            },
            "loss": {"importance_sampling": "sequence", "importance_cap": 1.5},
            "optimizer": {"optimizer_steps_per_training_step": 2},
            "memory": WINDOW,
        },
    ),
    "gigpo_merged": Kind(
        what="GiGPO over rows of merged steps of limited length, with GSPO's loss",
        settings={
            "algorithm": {
                "name": "gigpo",
                "statistics": "row",
                "scale_by_std": False,
                "loss_unit": "step",
            },
            "loss": {"kind": "gspo", "clip_low": 0.1, "clip_high": 0.15},
            "optimizer": {"rows": "merged", "max_row_tokens": 32},
            "memory": FULL,
        },
    ),
    "reinforce_plus_plus_merged": Kind(
        what="REINFORCE++ over merged rows, the divergence in the reward, importance by token",
        settings={
            "algorithm": {
                "name": "reinforce_plus_plus",
                "discount": 1.0,
                "reward_kl_coefficient": 0.05,
            },
            "loss": {"importance_sampling": "token", "importance_cap": 1.5},
            "optimizer": {"rows": "merged", "optimizer_steps_per_training_step": 2},
            "memory": FULL,
        },
        num_ranks=2,
    ),
    "hgpo_fixed_token": Kind(
        what="HGPO with a fixed weight for each token, CISPO's loss, divergence and entropy",
        settings={
            "algorithm": {
                "name": "hgpo",
                "history_length": 1,
                "loss_unit": "fixed_token",
                "tokens_per_episode": HORIZON * MOST_REPLY_TOKENS,
            },
            "loss": {
                "kind": "cispo",
                "clip_low": 0.3,
                "clip_high": 0.3,
                "kl_coefficient": 0.1,
                "entropy_coefficient": 0.01,
            },
            "memory": WINDOW,
        },
        fifth_group=FLAT,
    ),
    "gae_critic": Kind(
        what="GAE by steps with a critic over merged rows, two optimizer steps, clipped values",
        settings={
            "algorithm": {"name": "gae", "discount": 0.9, "gae_lambda": 0.8},
            "critic": {"clip_range": 0.3},
            "optimizer": {"rows": "merged", "optimizer_steps_per_training_step": 2},
            "memory": FULL,
        },
        num_ranks=4,
    ),
}


class Drawn:
    """Draws the episodes of one training step."""

    def __init__(self, name: str, kind: Kind) -> None:
        self._draw = Random(name)
        self._kind = kind
        updates = kind.settings.get("optimizer", {}).get("optimizer_steps_per_training_step", 1)
        self._version = (TRAINING_STEP - 1) * int(updates)
        self._header = self._tokens(4)

    def group(self, number: int, places: Places) -> RecordedGroup:
        """The episodes of one task."""
        rewards = self._draw.choices(REWARDS, k=3)
        return {
            "task_id": f"train/{number:05}",
            "places": [[self._episode(end, rewards) for end in tries] for tries in places],
        }

    def _episode(self, end: str, flat_rewards: list[float]) -> RecordedEpisode:
        num_steps = self._draw.randint(2, HORIZON - 1)
        if end == "flat":
            num_steps = len(flat_rewards)
        if end == "horizon":
            num_steps = HORIZON
        steps = self._steps(num_steps)
        if end == "failed":
            return {"steps": steps, "failure": "environment_error"}
        if end == "flat":
            for step, reward in zip(steps, flat_rewards, strict=True):
                step["reward"], step["action_valid"] = reward, True
        episode: RecordedEpisode = {
            "steps": steps,
            "failure": None,
            "stop_reason": STOP_REASONS[end],
            "success": end == "solved",
        }
        if end in ("limit", "horizon", "budget"):
            episode["final_prompt"] = self._prompt(steps)
            episode["final_value"] = self._number(-1, 1)
        return episode

    def _steps(self, number: int) -> list[RecordedStep]:
        steps: list[RecordedStep] = []
        room, version = 0, self._version
        for index in range(number):
            room = max(0, room + self._draw.choice((-1, 0, 1)))
            if index and self._kind.grows and self._draw.random() < 0.1:
                version += 1  # the rest was sampled by newer weights
            steps.append(self._step(steps, room, version))
        return steps

    def _step(self, before: list[RecordedStep], room: int, version: int) -> RecordedStep:
        reply = self._tokens(self._draw.randint(1, MOST_REPLY_TOKENS))
        cut = len(reply) == MOST_REPLY_TOKENS
        if not cut:
            reply[-1] = END
        # ratios of up to 4.5: past every clip range, and past the dual clip
        old = [self._number(-1.5, 0.7, around=USUAL_LOGPROB) for _ in reply]
        return {
            "observation": f"You are in room {room}.",
            "anchor_state": f"room {room}" if self._kind.grows else None,
            "prompt": self._prompt(before),
            "reply": reply,
            "finish_reason": "length" if cut else "stop",
            "behavior_logprobs": [self._number(-0.8, 0.8, around=logprob) for logprob in old],
            "old_logprobs": old,
            "reference_logprobs": [self._number(-0.5, 0.5, around=logprob) for logprob in old],
            "values": [self._number(-1, 1) for _ in reply],
            "reward": self._draw.choice(REWARDS),
            "action_valid": self._draw.random() < 0.8,
            "policy_version": version,
        }

    def _prompt(self, before: list[RecordedStep]) -> list[int]:
        """Of the step that comes after these."""
        if not self._kind.grows or not before or self._draw.random() < 0.12:
            return [*self._header, *self._tokens(self._draw.randint(3, 12))]
        known = [*before[-1]["prompt"], *before[-1]["reply"]]
        return [*known, *self._tokens(self._draw.randint(0, 5))]

    def _tokens(self, number: int) -> list[int]:
        return [self._draw.randrange(17, VOCABULARY) for _ in range(number)]

    def _number(self, low: float, high: float, *, around: float = 0.0) -> float:
        return round(around + self._draw.uniform(low, high), 4)


def make_inputs(name: str, kind: Kind) -> Inputs:
    """A training step of six groups, some of whose episodes failed."""
    drawn = Drawn(name, kind)
    groups = (ORDINARY, ALONE, RETRIED, LOST, kind.fifth_group, ORDINARY)
    return {
        "what": kind.what,
        "settings": {
            "tasks_per_training_step": len(groups),
            "rollout": {
                "group_size": GROUP_SIZE,
                "horizon": HORIZON,
                "max_reply_tokens": MOST_REPLY_TOKENS,
                "temperature": 0.7,
            },
            **kind.settings,
        },
        "training_step": TRAINING_STEP,
        "horizon": HORIZON,
        "num_ranks": kind.num_ranks,
        "groups": [drawn.group(number, places) for number, places in enumerate(groups)],
    }


def main() -> None:
    known = names()
    missing = {n: make_inputs(n, kind) for n, kind in KINDS.items() if n not in known}
    if not missing:
        raise SystemExit("every step is recorded; what was recorded is never made anew")
    with tempfile.TemporaryDirectory() as folder:
        outputs = replayed(missing, folder=Path(folder))
    for name, inputs in missing.items():
        write(name, {"inputs": inputs, "outputs": outputs[name]})


if __name__ == "__main__":
    main()
