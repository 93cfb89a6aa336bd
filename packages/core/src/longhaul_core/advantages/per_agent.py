"""GRPO and GiGPO with a baseline for each agent of a program (Dr.MAS).

A searcher that is asked ten times in an episode and a writer that is asked once differ in how
often, and in which episodes, they take part. Against one mean and one deviation of the group the
advantages of either are off centre, and off scale. So the steps of an agent are compared with
steps of the same agent alone; what an episode is worth is still its whole return.

The episode part of a step depends on whose step it is, so all of the credit is a step part.

Shapes: G episodes of the group, N steps of all of them.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from longhaul_core.advantages.arguments import check_choice, check_weight
from longhaul_core.advantages.comparisons import (
    episode_advantages,
    number_by_first,
    step_advantages,
)
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    Statistics,
    check_group,
    check_one_per_step,
    step_credit,
)
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.advantages.similarity import merge_similar

Agents = Sequence[Sequence[str | None]]
"""For each step of each episode the name of its agent; None where no call of it is trained."""


def grpo_per_agent_credit(
    step_rewards: Sequence[FloatArray],
    agents: Agents,
    *,
    discount: float = 1.0,
    scale_by_std: bool = True,
    statistics: Statistics = "row",
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group; an agent's steps of an episode get the same.

        A_{i,t} = (R_i - mean_k(R)) / (std_k(R) + 1e-6)        k: the agent of step t

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        agents: Of each step.
        discount: Per step, in [0, 1]; for `returns_to_go` only.
        scale_by_std: False leaves the division out.
        statistics: What an agent's mean and deviation are taken over: its steps, as the paper's
            code has it, or the episodes that it took part in, each once.

    Returns:
        One credit per episode, in the order given. A step without an agent has the advantage 0,
        and so have the steps of an agent that took part in one episode alone.

    Raises:
        GroupError: If there are fewer than 2 episodes.
        ValueError: If agents and rewards differ in number, a reward is not finite, an episode is
            empty, `discount` is out of range or `statistics` is no `Statistics`.

    Source:
        Dr. MAS: Stable Reinforcement Learning for Multi-Agent LLM Systems, arXiv:2602.08847;
        `group_by_agent_id` in its code.
    """
    check_group(step_rewards)
    check_one_per_step(step_rewards, agents, of="agent")
    advantages_N = _agent_advantages(
        step_rewards, agents, scale_by_std=scale_by_std, statistics=statistics
    )
    return step_credit(advantages_N, returns_to_go(step_rewards, discount=discount))


def gigpo_per_agent_credit(  # noqa: PLR0913  what an estimator reads
    step_rewards: Sequence[FloatArray],
    anchor_states: Sequence[Sequence[str]],
    agents: Agents,
    *,
    discount: float,
    step_advantage_weight: float = 1.0,
    scale_by_std: bool = True,
    statistics: Statistics = "row",
    similarity: float | None = None,
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group, both parts of GiGPO's among an agent's own steps.

        A_{i,t} = A^k_i + step_advantage_weight * A^S_{i,t}

    `A^k` is that of `grpo_per_agent_credit`. `A^S` compares the steps that one agent took in one
    anchor state, by the discounted return of the whole episode from there on.

    Args:
        step_rewards: See `grpo_per_agent_credit`.
        anchor_states: For each step the state it was taken in; equal strings are one state.
        agents: See `grpo_per_agent_credit`.
        discount: Per step, in [0, 1].
        step_advantage_weight: At least 0.
        scale_by_std: Divide both parts by their sample standard deviation.
        statistics: See `grpo_per_agent_credit`.
        similarity: See `gigpo_credit`.

    Returns:
        See `grpo_per_agent_credit`.

    Raises:
        GroupError: If there are fewer than 2 episodes.
        ValueError: See `grpo_per_agent_credit` and `gigpo_credit`.
    """
    check_group(step_rewards)
    check_one_per_step(step_rewards, anchor_states, of="anchor state")
    check_one_per_step(step_rewards, agents, of="agent")
    check_weight(step_advantage_weight, name="step_advantage_weight")
    to_go = returns_to_go(step_rewards, discount=discount)
    anchors = [state for states in anchor_states for state in states]
    if similarity is not None:
        anchors = merge_similar(anchors, threshold=similarity)
    names = [agent for steps in agents for agent in steps]
    met: list[Hashable] = [
        place if agent is None else (agent, anchor)
        for place, (agent, anchor) in enumerate(zip(names, anchors, strict=True))
    ]
    steps_N = step_advantages(
        np.concatenate(to_go), number_by_first(met), scale_by_std=scale_by_std
    )
    episodes_N = _agent_advantages(
        step_rewards, agents, scale_by_std=scale_by_std, statistics=statistics
    )
    return step_credit(episodes_N + step_advantage_weight * steps_N, to_go)


def _agent_advantages(
    step_rewards: Sequence[FloatArray],
    agents: Agents,
    *,
    scale_by_std: bool,
    statistics: Statistics,
) -> FloatArray:
    """How much better each step's episode did than its agent's others, shape (N,)."""
    check_choice(statistics, Statistics, name="statistics")
    returns_G = np.array([rewards.sum() for rewards in step_rewards])
    names = [agent for steps in agents for agent in steps]
    episode_N = np.repeat(np.arange(len(agents)), [len(steps) for steps in agents])
    advantages_N = np.zeros(len(names))
    for agent in dict.fromkeys(names):
        own_N = np.array([name == agent for name in names])
        counts_G = np.bincount(episode_N[own_N], minlength=len(agents))
        took_part_G = counts_G > 0
        if agent is None or took_part_G.sum() < 2:
            continue
        advantages_G = np.zeros(len(agents))
        advantages_G[took_part_G] = episode_advantages(
            returns_G[took_part_G],
            counts_G[took_part_G],
            scale_by_std=scale_by_std,
            statistics=statistics,
        )
        advantages_N[own_N] = advantages_G[episode_N[own_N]]
    return advantages_N
