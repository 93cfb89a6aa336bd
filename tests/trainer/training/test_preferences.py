"""Pairs of episodes: the gradient of advantages times likelihoods is that of DPO's loss."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import log
from random import Random
from statistics import fmean
from typing import Literal, Self

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid
from torch.nn.utils.rnn import pad_sequence

from audited_run import credited, make_config, play
from longhaul_core.advantages import loss_weights
from longhaul_core.advantages.dpo import dpo_credit
from longhaul_core.advantages.estimator import Group
from longhaul_core.advantages.preferences import Choice, Preferences, PreferenceSettings, paired
from longhaul_trainer.losses import ActionTokens, nll_loss
from longhaul_trainer.training.preferences import gains_over_reference, preference_metrics


@dataclass(frozen=True)
class Drawn:
    """Random episodes of random groups: logits of each token are what is learned."""

    settings: PreferenceSettings
    sizes: list[int]
    """Episodes of each group."""
    lengths: list[list[int]]
    """Tokens of each step of each episode."""
    choices: list[list[Choice]]
    """Of each step of each episode: one of three states, and of three actions."""
    returns: list[float]
    logits: list[torch.Tensor]
    policy: list[torch.Tensor]
    """Natural log of each token of each episode."""
    reference: list[torch.Tensor]

    @classmethod
    def of(cls, seed: int, pairs: Literal["episodes", "steps"] = "episodes") -> Self:
        draw, random = Random(seed), torch.Generator().manual_seed(seed)
        sizes = [draw.randint(2, 4) for _ in range(draw.randint(1, 4))]
        lengths = [
            [draw.randint(1, 9) for _ in range(draw.randint(1, 4))] for _ in range(sum(sizes))
        ]
        logits = [
            torch.randn(sum(steps), 5, generator=random, dtype=torch.float64, requires_grad=True)
            for steps in lengths
        ]
        policy = [each.log_softmax(-1)[:, 0] for each in logits]
        return cls(
            settings=PreferenceSettings(
                beta=draw.uniform(0.02, 1), pairs_per_task=draw.randint(1, 3), pairs=pairs
            ),
            choices=[
                [Choice(draw.choice(["x", "y", ""]), draw.choice("abc")) for _ in steps]
                for steps in lengths
            ],
            sizes=sizes,
            lengths=lengths,
            returns=[0.0, 1.0, *(draw.choice([0.0, 0.5, 1.0]) for _ in lengths[2:])],
            logits=logits,
            policy=policy,
            reference=[
                each.detach() + 0.3 * torch.randn(each.shape, generator=random).double()
                for each in policy
            ],
        )

    def groups(self) -> list[range]:
        """Episodes of each group."""
        ends = [*accumulate(self.sizes)]
        return [range(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]

    def written_out(self) -> torch.Tensor:
        """DPO's loss as its paper has it, over episodes that are one long reply each."""
        gains = [
            policy.sum() - reference.sum()
            for policy, reference in zip(self.policy, self.reference, strict=True)
        ]
        losses = [
            -logsigmoid(self.settings.beta * (gains[members[a]] - gains[members[b]]))
            for members in self.groups()
            for a, b in paired([self.returns[k] for k in members], self.settings)
        ]
        return torch.stack(losses).mean() + 0 * torch.stack(gains).sum()

    def of_steps(self) -> torch.Tensor:
        """The same over steps: the mean over pairs, by the definition of what an action is worth.

        All that is paid comes at the end, so each step of an episode is worth its return.
        """
        losses: list[torch.Tensor] = []
        for members in self.groups():
            for state in ("x", "y"):
                taken = [
                    (choice.action, episode, step)
                    for episode in members
                    for step, choice in enumerate(self.choices[episode])
                    if choice.state == state
                ]
                worth = {
                    action: fmean(self.returns[e] for other, e, _ in taken if other == action)
                    for action, _, _ in taken
                }
                first = {action: (e, s) for action, e, s in reversed(taken)}
                ranked = sorted(worth, key=lambda action: -worth[action])
                worse = [a for a in reversed(ranked) if worth[ranked[0]] - worth[a] > 1e-7]
                ties = [a for a in worth if ranked and worth[a] == worth[ranked[0]]]
                worse = sorted(worse, key=lambda a: (worth[a], [*worth].index(a)))
                losses += [
                    -logsigmoid(
                        self.settings.beta
                        * (self._step_gain(*first[ties[0]]) - self._step_gain(*first[a]))
                    )
                    for a in worse[: self.settings.pairs_per_task]
                ]
        nothing = 0 * torch.stack([each.sum() for each in self.policy]).sum()
        return torch.stack(losses).mean() + nothing if losses else nothing

    def _step_gain(self, episode: int, step: int) -> torch.Tensor:
        difference = self.policy[episode] - self.reference[episode]
        return torch.split(difference, self.lengths[episode])[step].sum()

    def by_advantages(self) -> torch.Tensor:
        """The likelihood times the advantages and weights that training gives."""
        groups = [
            Group(
                name=str(members.start),
                step_rewards=[
                    np.array([0.0] * (len(self.lengths[k]) - 1) + [self.returns[k]])
                    for k in members
                ],
                anchor_states=[[""] * len(self.lengths[k]) for k in members],
                final_states=[None] * len(members),
                num_action_tokens=[self.lengths[k] for k in members],
                preferences=Preferences(
                    settings=self.settings,
                    gains=[self._gains(k) for k in members],
                    choices=[self.choices[k] for k in members],
                ),
            )
            for members in self.groups()
        ]
        credits = [credit for of_group in dpo_credit(groups) for credit in of_group]
        weights = loss_weights(self.lengths, loss_unit="fixed_token", tokens_per_episode=1)
        return nll_loss(
            ActionTokens(
                policy_logprobs_BT=padded(self.policy),
                old_logprobs_BT=padded([each.detach() for each in self.policy]),
                advantages_BT=self._by_token([credit.advantages for credit in credits]),
                loss_weights_BT=self._by_token(weights),
                actions_BT=torch.zeros(len(self.lengths), max(map(sum, self.lengths))).long(),
            )
        ).loss

    def _gains(self, episode: int) -> list[float]:
        """Of each step."""
        difference = self.policy[episode].detach() - self.reference[episode]
        parts = torch.split(difference, self.lengths[episode])
        return [part.sum().item() for part in parts]

    def _by_token(self, of_steps: Sequence[Sequence[float]]) -> torch.Tensor:
        return padded(
            [
                torch.tensor(steps, dtype=torch.float64).repeat_interleave(torch.tensor(counts))
                for steps, counts in zip(of_steps, self.lengths, strict=True)
            ]
        )


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(rows, batch_first=True)


@pytest.mark.parametrize("seed", range(20))
def test_the_likelihood_times_advantages_has_the_gradient_of_the_written_out_loss(
    seed: int,
) -> None:
    drawn = Drawn.of(seed)

    ours = torch.autograd.grad(drawn.by_advantages(), drawn.logits, retain_graph=True)
    theirs = torch.autograd.grad(drawn.written_out(), drawn.logits)

    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert max(each.abs().max().item() for each in ours) > 1e-4


@pytest.mark.parametrize("seed", range(20))
def test_pairs_of_steps_have_the_gradient_of_the_written_out_loss(seed: int) -> None:
    drawn = Drawn.of(seed, "steps")

    ours = torch.autograd.grad(drawn.by_advantages(), drawn.logits, retain_graph=True)
    theirs = torch.autograd.grad(drawn.of_steps(), drawn.logits)

    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    found = max(each.abs().max().item() for each in ours)
    assert found > 1e-4 or seed in (2, 8)  # whose states have no two actions of other worth


def test_a_training_step_measures_its_pairs_before_the_update() -> None:
    settings = PreferenceSettings(beta=0.2, pairs_per_task=2)
    config = make_config(algorithm__name="grpo", optimizer__optimizer_steps_per_training_step=1)
    step = credited(config, play(config, 1))
    random = torch.Generator().manual_seed(0)
    rows = {key for one in step.credit for key in (call.row for call in one.calls)}
    lengths = {key: max(c.span.stop for c in step.calls_of([key])[0]) for key in sorted(rows)}
    policy = {key: -torch.rand(number, generator=random) for key, number in lengths.items()}
    reference = {key: logprobs - 0.25 for key, logprobs in policy.items()}
    played = {one.name: one.played for one in step.selection.episodes}

    gains = gains_over_reference(played, policy=policy, reference=reference)
    same = gains_over_reference(played, policy=policy, reference=policy)
    found = preference_metrics(step.credit, gains=gains, settings=settings)
    before = preference_metrics(step.credit, gains=same, settings=settings)

    # each token is likelier by a quarter, so a gain counts tokens
    counted = {name: 0.25 * sum(one.trained_tokens) for name, one in played.items()}
    for name, one in played.items():
        assert gains[name] == pytest.approx([0.25 * n for n in one.trained_tokens], abs=1e-5)
    assert len(set(counted.values())) > 3
    margins: list[float] = []
    for group in sorted({name.group for name in gains}):
        members = [one for one in step.credit if one.name.group == group]
        for a, b in paired([sum(one.shaped_rewards) for one in members], settings):
            margins.append(0.2 * (counted[members[a].name] - counted[members[b].name]))
    assert found == pytest.approx(
        {
            "dpo/pairs": 8.0,
            "dpo/loss": float(np.mean(np.log1p(np.exp(-np.array(margins))))),
            "dpo/accuracy": np.mean([margin > 0 for margin in margins]),
            "dpo/margin": float(np.mean(margins)),
        },
        abs=1e-5,
    )
    assert 0 < found["dpo/accuracy"] < 1
    assert before == {
        "dpo/pairs": 8.0,
        "dpo/loss": pytest.approx(log(2)),
        "dpo/accuracy": 0.0,
        "dpo/margin": 0.0,
    }
    equal = [replace(one, shaped_rewards=(0.0,) * len(one.shaped_rewards)) for one in step.credit]
    assert preference_metrics(equal, gains=gains, settings=settings) == {"dpo/pairs": 0.0}
