"""What a training step's episodes came to, what its rows cost, and how far the engine is off.

Nothing here knows about verl.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from longhaul_trainer.training.credit import StepCredit, TrainedStep
from longhaul_trainer.training.spans import of_action
from longhaul_trainer.training.step_metadata import RowKey, RowMetadata, StepMetadata, last_steps


def episode_metrics(credit: StepCredit, notes: RowMetadata) -> dict[str, float]:
    """What the episodes of a training step came to.

    Args:
        credit: Of the training step.
        notes: Of all its rows, padding rows not among them.
    """
    last = list(last_steps(notes))
    steps = [note for row in notes.values() for note in row]
    groups = {(note.training_step, note.group_index) for note in last}
    return _of_each_environment(last) | {
        "episodes/mean_return": float(np.mean([note.episode_return for note in last])),
        "episodes/success_rate": float(np.mean([note.success for note in last])),
        "episodes/mean_steps": float(np.mean([note.num_steps for note in last])),
        "episodes/horizon": float(np.mean([note.horizon for note in last])),
        "episodes/count": len(last),
        "episodes/invalid_action_rate": float(np.mean([not note.action_valid for note in steps])),
        "episodes/prompt_tokens_mean": float(np.mean([note.prompt_tokens for note in steps])),
        "episodes/action_tokens_mean": float(np.mean([note.action_tokens for note in steps])),
        "groups/count": len(groups),
        "groups/without_signal": credit.groups_without_signal,
        "groups/left_out": credit.num_groups
        - len({RowKey.parse(e.row_keys[0]).group for e in credit.episodes}),
    }


def _of_each_environment(last: Sequence[StepMetadata]) -> dict[str, float]:
    """Return and success rate of each environment, where the training step played several."""
    played: dict[str, list[StepMetadata]] = defaultdict(list)
    for note in last:
        played[note.environment].append(note)
    if len(played) == 1:
        return {}
    return {
        f"episodes/{environment}/{name}": float(np.mean(values))
        for environment, notes in played.items()
        for name, values in (
            ("mean_return", [note.episode_return for note in notes]),
            ("success_rate", [note.success for note in notes]),
        )
    }


def baseline_metrics(greedy: Mapping[str, Sequence[StepMetadata]]) -> dict[str, float]:
    """What greedy episodes came to, and cost: their tokens are in no other count."""
    steps = [note for episode in greedy.values() for note in episode]
    return {
        "baseline/count": len(greedy),
        "baseline/mean_return": float(np.mean([e[0].episode_return for e in greedy.values()])),
        "baseline/prompt_tokens": sum(note.prompt_tokens for note in steps),
        "baseline/action_tokens": sum(note.action_tokens for note in steps),
    }


def row_metrics(credit: StepCredit, *, num_rows: int) -> dict[str, float]:
    """Counts over the rows of the episodes that are trained.

    Args:
        credit: Of the training step, with an episode at least.
        num_rows: Rows of all its optimizer steps, those that only fill up counted.
    """
    rows = credit.steps_by_row()
    trained = sum(step.note.action_tokens for steps in rows.values() for step in steps)
    prompts = sum(steps[0].note.prompt_tokens for steps in rows.values())
    responses = sum(steps[-1].note.stop for steps in rows.values())
    return {
        "rows/count": len(rows),
        "rows/per_episode": len(rows) / len(credit.episodes),
        "rows/padding": num_rows - len(rows),
        "rows/longest": max(map(_num_tokens, rows.values())),
        "rows/prompt_tokens": prompts,
        "rows/gap_tokens": responses - trained,
        "rows/trained_tokens": trained,
    }


def _num_tokens(steps: list[TrainedStep]) -> int:
    return steps[0].note.prompt_tokens + steps[-1].note.stop


def agreement(
    policy: dict[str, torch.Tensor],
    behavior: dict[str, torch.Tensor],
    *,
    steps: Sequence[TrainedStep],
) -> dict[str, float]:
    """How far sampler and learner are apart on the tokens that were sampled.

    `steps` were sampled by the learner's weights, so what is left is arithmetic:
    different kernels, in the precision of `model.engine_dtype`.
    """
    difference = torch.cat(
        [
            of_action(step.note, policy[step.row]).float()
            - of_action(step.note, behavior[step.row]).float()
            for step in steps
        ]
    )
    return {
        "agreement/logprob_difference_mean": difference.abs().mean().item(),
        "agreement/logprob_difference_max": difference.abs().max().item(),
        "agreement/probability_ratio_mean": difference.exp().mean().item(),
    }
