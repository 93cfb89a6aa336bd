"""The graph of a group: its states, and the steps that lead from one to the next."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from sqlalchemy.orm import Session

from longhaul_core.advantages.graphgpo import distances_to_goal
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.episode_lists import GroupId
from longhaul_core.store.queries.group_steps import (
    ComparedStep,
    read_compared,
)

__all__ = ["EdgeStep", "StateEdge", "StateGraph", "StateNode", "state_graph"]


@dataclass(frozen=True, slots=True)
class StateNode(Answer):
    """A state that an episode went through, or the goal."""

    number: int
    """0 is the goal; others from 1 on in the order of first appearance."""
    anchor_hash: str | None
    """None for the goal; of the first of the states, where similar ones count as one."""
    text: str | None
    """The beginning of what its first step observed; None for the goal, and if it was removed."""
    distance: int | None
    """Fewest steps to the goal by any way that an episode of the group took a part of; None where
    there is none."""
    num_steps: int
    """Taken in it."""
    num_episodes: int
    """That went through it."""
    num_starts: int
    """Episodes that began in it."""
    num_ends: int
    """Episodes that ended in it; in the goal, those that succeeded."""


@dataclass(frozen=True, slots=True)
class EdgeStep(Answer):
    """A step behind an edge."""

    episode_id: str
    sample_index: int
    step_index: int
    action: str
    action_valid: bool
    advantage: float | None
    """As the step was trained with; None without credit."""


@dataclass(frozen=True, slots=True)
class StateEdge(Answer):
    """All steps from one state to another."""

    source: int
    target: int
    """Numbers of nodes; equal where the step changed nothing."""
    num_episodes: int
    steps: tuple[EdgeStep, ...]
    """By episode and step."""


@dataclass(frozen=True, slots=True)
class StateGraph(Answer):
    """The episodes of a group that did not fail, laid over each other."""

    similarity: float | None
    """From which likeness on states count as one; None where only equal ones do."""
    nodes: tuple[StateNode, ...]
    """By number. Without a success there is no goal, and no node has a distance."""
    edges: tuple[StateEdge, ...]
    """In the order of their first steps."""


def state_graph(
    session: Session,
    group: GroupId,
) -> StateGraph:
    """The graph in which GraphGPO measures distances.

    Args:
        session: Only read from.
        group: Which.

    Raises:
        LookupError: There is no such group.
    """
    compared = read_compared(session, group)
    distances = distances_to_goal(
        [step.node for step in compared.steps], [step.next_node for step in compared.steps]
    )
    by_edge: dict[tuple[int, int], list[ComparedStep]] = defaultdict(list)
    visitors: dict[int, set[str]] = defaultdict(set)
    starts, ends = Counter[int](), Counter[int]()
    for step in compared.steps:
        by_edge[step.node, step.next_node].append(step)
        visitors[step.node].add(step.episode.summary.episode_id)
        visitors[step.next_node].add(step.episode.summary.episode_id)
        starts[step.node] += step.step is step.episode.steps[0]
        ends[step.next_node] += step.step is step.episode.steps[-1]
    taken = Counter(step.node for step in compared.steps)
    return StateGraph(
        similarity=compared.similarity,
        nodes=tuple(
            StateNode(
                number=node,
                anchor_hash=compared.hash_of_node[node],
                text=compared.text_of_node(node),
                distance=distances.get(node),
                num_steps=taken[node],
                num_episodes=len(visitors[node]),
                num_starts=starts[node],
                num_ends=ends[node],
            )
            for node in sorted(visitors)
        ),
        edges=tuple(
            StateEdge(
                source=source,
                target=target,
                num_episodes=len({each.episode.summary.episode_id for each in steps}),
                steps=tuple(
                    EdgeStep(
                        episode_id=each.episode.summary.episode_id,
                        sample_index=each.episode.summary.sample_index,
                        step_index=each.step.step_index,
                        action=each.step.action,
                        action_valid=each.step.action_valid,
                        advantage=each.step.advantage,
                    )
                    for each in steps
                ),
            )
            for (source, target), steps in by_edge.items()
        ),
    )
