"""GraphGPO: credits an action by how much nearer to success it leads, on the group's graph.

The episodes of a group are laid over each other as one directed graph: its nodes are the
anchor states, its edges the steps, from the state a step was taken in to the state seen next.
The last step of an episode that succeeded leads to the goal. The length of the shortest way
from a state to the goal is the measure of the state, whichever episode took that way, so a
good step of an episode that failed is rewarded, and a detour of one that succeeded is not.

Shapes: G episodes of the group, N steps of all of them, K nodes of the graph.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from longhaul_core.advantages.arguments import check_choice, check_weight
from longhaul_core.advantages.comparisons import episode_part, number_by_first, step_advantages
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    IntArray,
    Statistics,
    check_group,
    check_one_per_step,
    joined_penalties,
    two_part_credit,
)
from longhaul_core.advantages.estimator import (
    Anchored,
    Estimator,
    Group,
    GroupCredit,
    Scaled,
    WithStatistics,
    per_group,
)
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.advantages.similarity import merge_similar

DistanceForm = Literal["proximity", "progress"]
"""What a step is paid for.

`"proximity"`: how near the goal is from the state it led to, the paper's form.
`"progress"`: how much nearer that state is than the one it was taken in, `normalize_distance`
in the released code.
"""

SUCCESS_REWARD = 10.0
"""What a step to the goal is worth, as in the released code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """How the graph of a group is made, and what its distances count for."""

    distance_decay: float = 0.1
    """The paper's omega, in (0, 1), both excluded: by what each step further from the goal
    multiplies the worth of a state."""
    distance_form: DistanceForm = "proximity"
    """What a step is paid for; see `DistanceForm`."""
    step_advantage_weight: float = 1.0
    """The paper's beta^G, finite and at least 0."""
    episode_advantage_weight: float = 1.0
    """The paper's beta^E, finite and at least 0."""
    similarity: float | None = None
    """Anchor states at least this alike, in (0, 1), are one state, as `merge_similar` joins
    them; None compares for equality, by hash."""

    def __post_init__(self) -> None:
        check_choice(self.distance_form, DistanceForm, name="distance_form")
        if not 0.0 < self.distance_decay < 1.0:
            raise ValueError(
                f"distance_decay must lie in (0, 1), both excluded, got {self.distance_decay}"
            )
        for name in ("step_advantage_weight", "episode_advantage_weight"):
            check_weight(getattr(self, name), name=name)


def graphgpo_credit(  # noqa: PLR0913  what an estimator reads
    step_rewards: Sequence[FloatArray],
    anchor_states: Sequence[Sequence[str]],
    final_states: Sequence[str | None],
    *,
    settings: GraphSettings,
    discount: float = 1.0,
    scale_by_std: bool = True,
    statistics: Statistics = "episode",
    action_penalties: Sequence[FloatArray] = (),
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group of attempts at one task.

        A_{i,t} = episode_advantage_weight * A^E_i + step_advantage_weight * A^S_{i,t}

    `A^E` is GRPO's, from the undiscounted return. `A^S` is `(R - mean) / (std + 1e-6)` over all
    steps of the group that were taken in the same state, of

        R_{i,t} = 10 * distance_decay^d(s')                     proximity
        R_{i,t} = 10 * distance_decay^(d(s') - d(s) + 1)        progress

    for a step from s to s', with d the fewest steps to the goal. A state from which no episode
    reached it counts as one step further than the furthest that has a way. Rewards are in `A^E`
    alone. In a group without success every state is as far as any other, and `A^S` is 0, but for
    `action_penalties`: a step's own penalty is taken off its copy of the return in `A^E`, and ten
    times it, of a success that is worth 10 there and pays 1, off `R_{i,t}`.

    Steps that are compared share d(s), so the two forms differ by a factor for each state. With
    `scale_by_std` it meets the 1e-6 alone: by `proximity` the deviation at a state d steps from
    the goal is about `10 * distance_decay^(d - 1)`, so with 0.1 `A^S` fades from 8 steps on; by
    `progress` it does not.

    Where the paper and the released code differ, and what is done here:

    * the paper's exponent is d(s') + 1, the code's d(s'): one factor for all steps, which only
      the 1e-6 and the weight of the step part can tell. It is the code's;
    * the code takes `A^E` over steps, `statistics="row"`; the default is over episodes;
    * the code takes a return above 0 for success; here the environment says what it is;
    * the code joins similar states in the graph, but compares steps of equal states only; here
      they are joined for both. The goal is no text, and is joined with nothing.

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        anchor_states: For each step the state it was taken in; equal strings are one state.
        final_states: For each episode the state seen after its last step, which another
            episode may have gone on from; None for the goal, in an episode that succeeded.
        settings: How the graph is made, and what its distances count for.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.
        scale_by_std: Divide both parts by their sample standard deviation; False divides
            neither (`mean_norm` in the released code).
        statistics: What mean and deviation of `A^E` are taken over; see `Statistics`.
        action_penalties: For each step what it alone is lowered by, where a success pays 1; empty
            for nothing. See `episode_part`.

    Returns:
        One credit per episode, in the order given. A step whose state nobody else left has
        `A^S = 0`.

    Raises:
        GroupError: If there are fewer than 2 episodes.
        ValueError: If anchors and rewards differ in number, or final states and episodes, a
            reward is not finite, an episode is empty, or `discount` or
            `settings.similarity` is out of range.

    Source:
        Cheng et al. 2026, Beyond Trajectory-Level Attribution: Graph-Based Credit Assignment
        for Agentic Reinforcement Learning, arXiv:2605.26684; code in verl-agent's
        `recipe/GraphGPO`.
    """
    check_group(step_rewards)
    check_one_per_step(step_rewards, anchor_states, of="anchor state")
    if len(final_states) != len(step_rewards):
        raise ValueError(
            f"one final state per episode is required: got {len(step_rewards)} episodes "
            f"and {len(final_states)} final states"
        )
    nodes_M = number_nodes(anchor_states, final_states, similarity=settings.similarity)
    sources_N, targets_N = _edges(nodes_M, anchor_states)
    distances_K = _distances(sources_N.tolist(), targets_N.tolist())
    exponents_N = distances_K[targets_N]
    if settings.distance_form == "progress":
        exponents_N = exponents_N - distances_K[sources_N] + 1
    worth_N = SUCCESS_REWARD * np.power(settings.distance_decay, exponents_N, dtype=np.float64)
    penalties_N = joined_penalties(action_penalties, step_rewards)
    if penalties_N is not None:
        worth_N = worth_N - SUCCESS_REWARD * penalties_N
    _, step_group_N = np.unique(sources_N, return_inverse=True)
    return two_part_credit(
        episode_part(step_rewards, penalties_N, scale_by_std=scale_by_std, statistics=statistics),
        step_advantages(worth_N, step_group_N, scale_by_std=scale_by_std),
        returns_to_go(step_rewards, discount=discount),
        episode_weight=settings.episode_advantage_weight,
        step_weight=settings.step_advantage_weight,
    )


def number_nodes(
    anchor_states: Sequence[Sequence[str]],
    final_states: Sequence[str | None],
    *,
    similarity: float | None,
) -> IntArray:
    """The node of each state that the episodes went through; the goal is node 0, shape (N + G,).

    Args:
        anchor_states: For each episode, the state that each of its steps was taken in.
        final_states: For each episode the state seen after its last step; None for the goal.
        similarity: See `GraphSettings`.

    Returns:
        For each episode in turn the nodes of its states, and of the one that it ended in. Nodes
        are numbered from 1 on in the order in which they first appear.
    """
    states = [
        state
        for of_steps, final in zip(anchor_states, final_states, strict=True)
        for state in (*of_steps, final)
    ]
    if similarity is not None:
        merged = iter(merge_similar([s for s in states if s is not None], threshold=similarity))
        states = [None if state is None else next(merged) for state in states]
    return number_by_first([None, *states])[1:]


def distances_to_goal(sources: Sequence[int], targets: Sequence[int]) -> dict[int, int]:
    """Fewest steps to node 0 from each node that has a way there, in time linear in the steps.

    Args:
        sources: The node that each step was taken in.
        targets: The one that it led to.
    """
    before: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    distances = {0: 0}
    frontier, distance = {0}, 0
    while frontier:
        distance += 1
        earlier = {source for node in frontier for source in before[node]}
        frontier = {node for node in earlier if node not in distances}
        distances |= dict.fromkeys(frontier, distance)
    return distances


def _edges(nodes_M: IntArray, anchor_states: Sequence[Sequence[str]]) -> tuple[IntArray, IntArray]:
    """The node that each step was taken in, and the one that it led to."""
    is_final_M = np.zeros(len(nodes_M), dtype=bool)
    is_final_M[np.cumsum([len(states) + 1 for states in anchor_states]) - 1] = True
    sources = np.flatnonzero(~is_final_M)
    return nodes_M[sources], nodes_M[sources + 1]


def _distances(sources: Sequence[int], targets: Sequence[int]) -> IntArray:
    """Fewest steps from each node to node 0, shape (K,).

    A node without a way there is one step further than the furthest that has one.
    """
    reached = distances_to_goal(sources, targets)
    furthest = max(reached.values())
    num_nodes = max(*sources, *targets) + 1
    return np.array([reached.get(node, furthest + 1) for node in range(num_nodes)])


class GraphgpoSettings(Scaled, WithStatistics, Anchored):
    """What GraphGPO reads."""

    episode_advantage_weight: float = Field(default=1.0, ge=0)
    """Weight of the episode part beside the step part."""
    distance_decay: float = Field(default=0.1, gt=0, lt=1)
    """Factor (omega) by which each further step from the goal multiplies a state's reward. With
    `proximity` and `scale_by_std`, 0.1 leaves next to nothing to states that are more than 8 steps
    from the goal."""
    distance_form: DistanceForm = "proximity"
    """What a step is rewarded for: how near the goal is to the state it led to, or how much
    nearer than to the state it was taken in."""


def _graphgpo(group: Group, settings: GraphgpoSettings) -> GroupCredit:
    return graphgpo_credit(
        group.step_rewards,
        group.anchor_states,
        group.final_states,
        settings=GraphSettings(
            distance_decay=settings.distance_decay,
            distance_form=settings.distance_form,
            step_advantage_weight=settings.step_advantage_weight,
            episode_advantage_weight=settings.episode_advantage_weight,
            similarity=settings.anchor_similarity,
        ),
        discount=settings.discount,
        scale_by_std=settings.scale_by_std,
        statistics=settings.statistics,
        action_penalties=group.action_penalties,
    )


ESTIMATORS = {
    "graphgpo": Estimator(
        compute=per_group(_graphgpo),
        summary="GraphGPO: as gigpo, with steps paid for their distance to success",
        settings=GraphgpoSettings,
        penalises_actions=True,
    ),
}
