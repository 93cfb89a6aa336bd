"""Anchor groups: which steps of a group share a state, and how each of them went on from there."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, stdev

from sqlalchemy.orm import Session

from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.errors import GroupError
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.episode_lists import GroupId
from longhaul_core.store.queries.group_steps import (
    ComparedGroup,
    ComparedStep,
    read_compared,
)
from longhaul_core.store.queries.recomputed_credit import rewards_of_credit

__all__ = ["AnchorGroup", "AnchorStep", "anchor_groups"]


@dataclass(frozen=True, slots=True)
class AnchorStep(Answer):
    """A step that was taken in the state."""

    episode_id: str
    sample_index: int
    step_index: int
    action: str
    action_valid: bool
    return_to_go: float | None
    """Discounted sum of the shaped rewards from this step on; None where these are not known."""
    step_advantage: float | None
    """What it was credited with, of its two parts and combined; None without credit."""
    advantage: float | None


@dataclass(frozen=True, slots=True)
class AnchorGroup(Answer):
    """The steps of a group that share a state: GiGPO compares them with each other."""

    number: int
    """Of the state in the group's graph, from 1 on in the order of first appearance."""
    anchor_hash: str
    """Of the first of the states, where similar ones count as one."""
    text: str | None
    """The beginning of what its first step observed; None where it was removed."""
    num_episodes: int
    mean_return_to_go: float | None
    """What GiGPO's step part is measured from."""
    std_return_to_go: float | None
    """Sample standard deviation; None for a single step."""
    steps: tuple[AnchorStep, ...]
    """By episode and step."""


def anchor_groups(
    session: Session,
    group: GroupId,
) -> tuple[AnchorGroup, ...]:
    """The states that the steps of a group were taken in, the most visited first.

    Failed episodes are compared with nothing, and are left out. States are taken together as the
    run's `algorithm.anchor_similarity` says.

    Args:
        session: Only read from.
        group: Which.

    Raises:
        LookupError: There is no such group.
    """
    compared = read_compared(session, group)
    try:
        rewards, _ = rewards_of_credit(session, compared)
        returns = returns_to_go(rewards, discount=compared.settings.discount)
        known: list[float | None] = [value for each in returns for value in each.tolist()]
    except GroupError:
        known = [None] * len(compared.steps)
    by_node: dict[int, list[tuple[ComparedStep, float | None]]] = defaultdict(list)
    for step, to_go in zip(compared.steps, known, strict=True):
        by_node[step.node].append((step, to_go))
    found = [_anchor_group(compared, node, steps) for node, steps in by_node.items()]
    return tuple(sorted(found, key=lambda each: (-len(each.steps), each.number)))


def _anchor_group(
    compared: ComparedGroup, node: int, steps: list[tuple[ComparedStep, float | None]]
) -> AnchorGroup:
    returns = [to_go for _, to_go in steps if to_go is not None]
    return AnchorGroup(
        number=node,
        anchor_hash=compared.hash_of_node[node] or "",
        text=compared.text_of_node(node),
        num_episodes=len({each.episode.summary.episode_id for each, _ in steps}),
        mean_return_to_go=fmean(returns) if returns else None,
        std_return_to_go=stdev(returns) if len(returns) > 1 else None,
        steps=tuple(
            AnchorStep(
                episode_id=each.episode.summary.episode_id,
                sample_index=each.episode.summary.sample_index,
                step_index=each.step.step_index,
                action=each.step.action,
                action_valid=each.step.action_valid,
                return_to_go=to_go,
                step_advantage=each.step.step_advantage,
                advantage=each.step.advantage,
            )
            for each, to_go in steps
        ),
    )
