"""Credit by the definitions, one loop each: what the trainer's numbers are compared with.

Nothing here is shared with the code that trains, and nothing is clever: every mean is a sum
over a list divided by its length. Returns are in the environment's units, less penalties. A
penalty on the action is taken off R_i and R_{i,t} where they are compared for the step of that
action, and nowhere else.

    A^E_i = (R_i - mean) / (std + 1e-6)                            GRPO, over a group's episodes
    R_{i,t} = r_{i,t} + discount * R_{i,t+1}
    A_{i,t} = A^E_i + omega * A^S_{i,t}                            GiGPO (arXiv:2505.10978)
    A_{i,t} = sum_k w_k A^(k)_{i,t} / sum_k w_k                    HGPO (arXiv:2602.22817)
    R_{i,t} = 10 * decay^d(s'), or 10 * decay^(d(s') - d(s) + 1)   GraphGPO (arXiv:2605.26684)
    A_i = R_i - mean of the others                                 RLOO (arXiv:2402.14740)
    A_i = R_i - R of the group's greedy episode                     ReMax (arXiv:2310.10505)
    A_i = mean over k - 1 others of max(0, R_i - best of them)     pass@k (arXiv:2505.15201)
    delta_k = r_k + g_k V_{k+1} - V_k                              GAE (arXiv:1506.02438)
    A_k = delta_k + g_k l_k A_{k+1}
    A = (v - mean) / sqrt(variance + 1e-8)                         REINFORCE++ (arXiv:2501.03262)
    A_i = 1                                                        imitation
    A_i = N/P (sum of beta s(-m) it won - sum of beta s(-m) it lost)  DPO (arXiv:2305.18290)

With a baseline per agent the means of GRPO and GiGPO are over the steps of one agent (Dr. MAS,
arXiv:2602.08847).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb, exp, fsum, sqrt
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "DEFINITIONS",
    "Credit",
    "Definition",
    "EpisodeFacts",
    "Settings",
    "action_penalties",
    "credit_of",
    "gae",
    "penalised_rewards",
    "purpose_weights_of",
    "returns_to_go",
    "value_weights_of",
    "weights_of",
]

Settings = Mapping[str, Any]
"""The `[algorithm]` section of a run's stored configuration; where pairs of episodes are compared,
with the settings of `[imitation]` that say which."""

STD_EPSILON = 1e-6
VARIANCE_EPSILON = 1e-8


class EpisodeFacts(NamedTuple):
    """What credit follows from. The sequences have one entry per step."""

    group: int
    rewards: Sequence[float]
    """Less the penalties that lower returns."""
    anchors: Sequence[str]
    num_action_tokens: Sequence[int]
    greedy_rewards: Sequence[float] | None = None
    """Of the greedy episode of its group, less penalties; None without one."""
    values: Sequence[Sequence[float]] = ()
    """The critic's value before each token of each action; the first alone where it credits
    steps."""
    final_anchor: str | None = None
    """State seen after its last step; None for the goal, after an episode that succeeded."""
    final_value: float = 0.0
    """The critic's value of a truncated episode's last observation; 0 after a terminated one, and
    after one that was scored at its end."""
    agents: Sequence[str | None] = ()
    """Name of the agent of each step's trained calls; None for a step without one."""
    action_penalties: Sequence[float] = ()
    """What is taken off what the step alone is compared by; empty for nothing."""
    gains: Sequence[float] = ()
    """log pi - log pi_ref of each step's trained tokens, where pairs are compared."""
    choices: Sequence[tuple[Hashable, str]] = ()
    """Of each step its state, prompt included, and its action, where pairs are of steps; None for
    the state of a step that nobody trained."""

    @property
    def own_penalties(self) -> list[float]:
        """One for each step."""
        return list(self.action_penalties) or [0.0] * len(self.rewards)


class Credit(NamedTuple):
    """Credit of one episode. The lists have one entry per step."""

    episode_part: float
    step_parts: list[float]
    advantages: list[float]
    token_advantages: list[list[float]] | None = None
    """Of each action token; None where all tokens of a step have the step's."""
    value_targets: list[float] | None = None
    """Lambda-return at each step's prompt; None without a critic."""


def penalised_rewards(
    rewards: Sequence[float],
    valid: Sequence[bool],
    num_action_tokens: Sequence[int],
    settings: Settings,
) -> list[float]:
    """Rewards of an episode's steps as credit sees them, but for a divergence in the reward."""
    found = list(rewards)
    if _lowers_returns(settings):
        found = [
            reward - (0.0 if is_valid else settings["invalid_action_penalty"])
            for reward, is_valid in zip(rewards, valid, strict=True)
        ]
    start, end = settings["overlong_start_tokens"], settings["overlong_end_tokens"]
    if start is None or end is None:
        return found

    def penalty(num_tokens: int) -> float:
        if num_tokens <= start:
            return 0.0
        return settings["overlong_penalty"] * min(1.0, (num_tokens - start) / (end - start))

    if settings["overlong_unit"] == "episode":
        found[-1] -= penalty(sum(num_action_tokens))
        return found
    return [reward - penalty(n) for reward, n in zip(found, num_action_tokens, strict=True)]


def action_penalties(valid: Sequence[bool], settings: Settings) -> list[float]:
    """What each step is lowered by where it is compared with others; no return is lower for it."""
    if _lowers_returns(settings):
        return [0.0] * len(valid)
    return [0.0 if is_valid else settings["invalid_action_penalty"] for is_valid in valid]


def _lowers_returns(settings: Settings) -> bool:
    """Runs that were stored before there was a choice have no such setting."""
    return settings.get("invalid_action_penalty_on", "return") == "return"


def returns_to_go(rewards: Sequence[float], discount: float) -> list[float]:
    """Discounted sum of the rewards from each step on."""
    found: list[float] = []
    rest = 0.0
    for reward in reversed(rewards):
        rest = reward + discount * rest
        found.append(rest)
    return found[::-1]


def credit_of(episodes: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    """Credit of the trained episodes of one training step, in the order given.

    Args:
        episodes: Of groups that are large enough; none of them failed.
        settings: The `[algorithm]` section of the run's stored configuration.

    Raises:
        KeyError: If the estimator is none that is known here.
    """
    definition = DEFINITIONS[settings["name"]]
    if definition.compares_training_step:
        return definition.credit(episodes, settings)
    credits: list[Credit | None] = [None] * len(episodes)
    places: dict[int, list[int]] = defaultdict(list)
    for place, episode in enumerate(episodes):
        places[episode.group].append(place)
    for members in places.values():
        group = [episodes[place] for place in members]
        for place, credit in zip(members, definition.credit(group, settings), strict=True):
            credits[place] = credit
    return [credit for credit in credits if credit is not None]


def weights_of(num_action_tokens: Sequence[Sequence[int]], settings: Settings) -> list[list[float]]:
    """Weight of one token of each step of the episodes of one optimizer step."""
    num_tokens = sum(sum(counts) for counts in num_action_tokens)
    num_steps = sum(count > 0 for counts in num_action_tokens for count in counts)
    num_episodes = sum(sum(counts) > 0 for counts in num_action_tokens)

    def weight(count: int, counts: Sequence[int]) -> float:
        if count == 0:
            return 0.0
        match settings["loss_unit"]:
            case "token":
                return 1 / num_tokens
            case "step":
                return 1 / num_steps / count
            case "episode":
                return 1 / num_episodes / sum(counts)
            case unit if unit == "fixed_token" and settings["tokens_per_episode"] is not None:
                return 1 / num_episodes / settings["tokens_per_episode"]
            case unit:
                raise KeyError(unit)

    return [[weight(count, counts) for count in counts] for counts in num_action_tokens]


def purpose_weights_of(
    num_action_tokens: Mapping[str, Sequence[Sequence[int]]],
    shares: Mapping[str, float],
    settings: Settings,
) -> dict[str, list[list[float]]]:
    """Weight of one token of each purpose in each step of the episodes of one optimizer step.

    Args:
        num_action_tokens: By purpose, as `weights_of` takes them.
        shares: By purpose, `[loss.purposes]`; empty where all tokens are of one.
        settings: `[algorithm]`.
    """
    found = {purpose: weights_of(counts, settings) for purpose, counts in num_action_tokens.items()}
    there = [p for p, counts in num_action_tokens.items() if sum(map(sum, counts)) > 0]
    if not shares or not there:
        return found
    whole = fsum(shares[purpose] for purpose in there)
    return {
        purpose: [[weight * shares[purpose] / whole for weight in steps] for steps in weights]
        for purpose, weights in found.items()
    }


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (ddof 1); the deviation of a lone value is 0."""
    mean = fsum(values) / len(values)
    if len(values) == 1:
        return mean, 0.0
    return mean, sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _whole(advantages: Sequence[float], group: Sequence[EpisodeFacts]) -> list[Credit]:
    """Every step of an episode gets the same."""
    return [
        Credit(value, [0.0] * len(episode.rewards), [value] * len(episode.rewards))
        for value, episode in zip(advantages, group, strict=True)
    ]


def _imitation(group: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    return _whole([1.0] * len(group), group)


def _dpo(episodes: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    """The first of the best episodes of each group won against those of the lowest returns.

    N is the number of episodes with tokens and P that of pairs, of the whole training step.
    """
    if settings["pairs"] == "steps":
        return _dpo_of_steps(episodes, settings)
    pairs: list[tuple[int, int]] = []
    for group in sorted({episode.group for episode in episodes}):
        returns = {i: fsum(e.rewards) for i, e in enumerate(episodes) if e.group == group}
        best = max(returns.values())
        winner = min(place for place, value in returns.items() if value == best)
        losers = [place for place in returns if best - returns[place] > settings["min_gap"] - 1e-9]
        losers.sort(key=lambda place: (returns[place], place))
        pairs += [(winner, loser) for loser in losers[: settings["pairs_per_task"]]]
    advantages = [0.0] * len(episodes)
    num_episodes = sum(sum(episode.num_action_tokens) > 0 for episode in episodes)
    for winner, loser in pairs:
        gains = fsum(episodes[winner].gains), fsum(episodes[loser].gains)
        margin = settings["beta"] * (gains[0] - gains[1])
        # s(-m) is 1 / (1 + e^m), which is 0 long before e^m overflows
        part = settings["beta"] / (1 + exp(min(margin, 700.0))) * num_episodes / len(pairs)
        advantages[winner] += part
        advantages[loser] -= part
    return _whole(advantages, episodes)


def _dpo_of_steps(episodes: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    """In each state the action that was followed by most won against those followed by least.

    A step of a group's first episode that took the action stands for it.
    """
    taken: dict[Hashable, list[tuple[str, int, int]]] = defaultdict(list)
    for place, episode in enumerate(episodes):
        for step, (state, action) in enumerate(episode.choices):
            if state is not None:
                taken[episode.group, state].append((action, place, step))
    pairs: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for steps in taken.values():
        means: dict[str, float] = {}
        first: dict[str, tuple[int, int]] = {}
        for action in dict.fromkeys(action for action, _, _ in steps):
            of_action = [(place, step) for other, place, step in steps if other == action]
            later = [fsum(episodes[place].rewards[step:]) for place, step in of_action]
            means[action], first[action] = fsum(later) / len(later), of_action[0]
        best = max(means, key=lambda action: means[action])
        worse = [
            action for action in means if means[best] - means[action] > settings["min_gap"] - 1e-9
        ]
        worse.sort(key=lambda action: means[action])
        pairs += [(first[best], first[one]) for one in worse[: settings["pairs_per_task"]]]
    found = [[0.0] * len(episode.rewards) for episode in episodes]
    num_episodes = sum(sum(episode.num_action_tokens) > 0 for episode in episodes)
    for (won, won_step), (lost, lost_step) in pairs:
        gains = episodes[won].gains[won_step], episodes[lost].gains[lost_step]
        margin = settings["beta"] * (gains[0] - gains[1])
        part = settings["beta"] / (1 + exp(min(margin, 700.0))) * num_episodes / len(pairs)
        found[won][won_step] += part
        found[lost][lost_step] -= part
    return [Credit(0.0, steps, steps) for steps in found]


class _EpisodeParts(NamedTuple):
    """How whole episodes did against their group."""

    whole: list[float]
    """Of each episode."""
    steps: list[list[float]]
    """Of each of its steps, less the step's own penalty."""


def _group_relative(
    group: Sequence[EpisodeFacts], *, scale_by_std: bool, over_rows: bool
) -> _EpisodeParts:
    """Every step has a copy of its episode's return, less its own penalty; those are compared.

    Over rows every copy counts once, and else every episode, whose copies share its weight.
    """
    returns = [fsum(episode.rewards) for episode in group]
    copies = [
        [value - penalty for penalty in episode.own_penalties]
        for value, episode in zip(returns, group, strict=True)
    ]
    weighted = [
        (copy, 1.0 if over_rows else 1.0 / len(of_episode))
        for of_episode in copies
        for copy in of_episode
    ]
    total = len(weighted) if over_rows else len(group)
    mean = fsum(weight * copy for copy, weight in weighted) / total
    variance = fsum(weight * (copy - mean) ** 2 for copy, weight in weighted) / (total - 1)
    divisor = sqrt(variance) + STD_EPSILON if scale_by_std else 1.0
    return _EpisodeParts(
        [(value - mean) / divisor for value in returns],
        [[(copy - mean) / divisor for copy in of_episode] for of_episode in copies],
    )


def _of_episodes(parts: _EpisodeParts) -> list[Credit]:
    """Nothing but episode parts."""
    return [Credit(whole, [0.0] * len(steps), steps) for whole, steps in zip(*parts, strict=True)]


def _grpo(group: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    if _per_agent(settings):
        return [Credit(0.0, parts, parts) for parts in _outcome_among_own(group, settings)]
    return _of_episodes(
        _group_relative(
            group, scale_by_std=settings["scale_by_std"], over_rows=settings["statistics"] == "row"
        )
    )


def _drgrpo(group: Sequence[EpisodeFacts], _settings: Settings) -> list[Credit]:
    return _of_episodes(_group_relative(group, scale_by_std=False, over_rows=False))


def _rloo(group: Sequence[EpisodeFacts], _settings: Settings) -> list[Credit]:
    returns = [fsum(episode.rewards) for episode in group]
    total = fsum(returns)
    return _whole([r - (total - r) / (len(returns) - 1) for r in returns], group)


def _remax(group: Sequence[EpisodeFacts], _settings: Settings) -> list[Credit]:
    return _whole([fsum(e.rewards) - fsum(e.greedy_rewards or ()) for e in group], group)


def _pass_at_k(group: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    returns = [fsum(episode.rewards) for episode in group]
    drawn = (len(returns) if settings["pass_k"] is None else settings["pass_k"]) - 1
    divisor = mean_and_std(returns)[1] + STD_EPSILON if settings["scale_by_std"] else 1.0
    return _whole([lead(r, returns, drawn) / divisor for r in returns], group)


def lead(value: float, returns: Sequence[float], drawn: int) -> float:
    """By how much `value` beats the best of `drawn` other returns, in the mean over such draws.

    Args:
        value: One of `returns`.
        returns: Of the whole group.
        drawn: Others in a draw, at least 1.
    """
    others = sorted(returns)
    others.remove(value)
    # The other at place j is the best of a draw in as many draws as choose the rest below it.
    return fsum(
        max(0.0, value - other) * comb(place, drawn - 1) / comb(len(others), drawn)
        for place, other in enumerate(others)
    )


def _compared_in(
    keys: Sequence[Sequence[Hashable]],
    returns: Sequence[Sequence[float]],
    *,
    scale_by_std: bool,
    over_n: bool = False,
) -> tuple[list[list[float]], Mapping[Hashable, int]]:
    """What each step did against those with its key, and how many have each key.

    By the sample's deviation, or by that over n.
    """
    met: dict[Hashable, list[float]] = defaultdict(list)
    for episode_keys, episode_returns in zip(keys, returns, strict=True):
        for key, value in zip(episode_keys, episode_returns, strict=True):
            met[key].append(value)
    scales = {key: mean_and_std(values) for key, values in met.items()}

    def against(key: Hashable, value: float) -> float:
        mean, std = scales[key]
        if over_n:
            std *= sqrt((len(met[key]) - 1) / len(met[key]))
        return (value - mean) / (std + STD_EPSILON if scale_by_std else 1.0)

    found = [
        [against(key, value) for key, value in zip(episode_keys, episode_returns, strict=True)]
        for episode_keys, episode_returns in zip(keys, returns, strict=True)
    ]
    return found, {key: len(values) for key, values in met.items()}


def _per_agent(settings: Settings) -> bool:
    return settings.get("baseline_per_agent", False)


def _outcome_among_own(group: Sequence[EpisodeFacts], settings: Settings) -> list[list[float]]:
    """For each step, its episode's return against those of its agent's steps, or episodes."""
    outcomes = [fsum(episode.rewards) for episode in group]
    of_agent: dict[str, list[float]] = defaultdict(list)
    num_episodes: Counter[str] = Counter()
    for episode, outcome in zip(group, outcomes, strict=True):
        named = [agent for agent in episode.agents if agent is not None]
        num_episodes.update(set(named))
        for agent in named if settings["statistics"] == "row" else set(named):
            of_agent[agent].append(outcome)

    def part(agent: str | None, outcome: float) -> float:
        if agent is None or num_episodes[agent] < 2:
            return 0.0
        mean, std = mean_and_std(of_agent[agent])
        return (outcome - mean) / (std + STD_EPSILON if settings["scale_by_std"] else 1.0)

    return [
        [part(agent, outcome) for agent in episode.agents]
        for episode, outcome in zip(group, outcomes, strict=True)
    ]


def _gigpo(group: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    if _per_agent(settings):
        return _gigpo_per_agent(group, settings)
    episode_parts = _group_relative(
        group, scale_by_std=settings["scale_by_std"], over_rows=settings["statistics"] == "row"
    )
    anchors: Sequence[Sequence[Hashable]] = [episode.anchors for episode in group]
    if settings["anchor_similarity"] is not None:
        stands_for = clusters(
            {state for episode in group for state in episode.anchors},
            threshold=settings["anchor_similarity"],
        )
        anchors = [[stands_for[state] for state in episode.anchors] for episode in group]
    returns = _compared_returns(group, settings)
    step_parts, _ = _compared_in(anchors, returns, scale_by_std=settings["scale_by_std"])
    return [
        Credit(
            whole,
            steps,
            [
                own + settings["step_advantage_weight"] * step
                for own, step in zip(of_episode, steps, strict=True)
            ],
        )
        for whole, of_episode, steps in zip(*episode_parts, step_parts, strict=True)
    ]


def _compared_returns(group: Sequence[EpisodeFacts], settings: Settings) -> list[list[float]]:
    """The return-to-go of each step, less the step's own penalty."""
    return [
        [
            to_go - penalty
            for to_go, penalty in zip(
                returns_to_go(episode.rewards, settings["discount"]),
                episode.own_penalties,
                strict=True,
            )
        ]
        for episode in group
    ]


def _gigpo_per_agent(group: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    keys: list[list[Hashable]] = []
    stands_for: Mapping[str, str] = {}
    if settings["anchor_similarity"] is not None:
        states = {state for episode in group for state in episode.anchors}
        stands_for = clusters(states, threshold=settings["anchor_similarity"])
    for place, episode in enumerate(group):
        keys.append(
            [
                (place, step) if agent is None else (agent, stands_for.get(state, state))
                for step, (agent, state) in enumerate(
                    zip(episode.agents, episode.anchors, strict=True)
                )
            ]
        )
    returns = [returns_to_go(episode.rewards, settings["discount"]) for episode in group]
    step_parts, _ = _compared_in(keys, returns, scale_by_std=settings["scale_by_std"])
    combined = [
        [
            whole + settings["step_advantage_weight"] * step
            for whole, step in zip(*both, strict=True)
        ]
        for both in zip(_outcome_among_own(group, settings), step_parts, strict=True)
    ]
    return [Credit(0.0, parts, parts) for parts in combined]


def _graphgpo(group: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    episode_parts = _group_relative(
        group, scale_by_std=settings["scale_by_std"], over_rows=settings["statistics"] == "row"
    )
    paths = [[*episode.anchors, episode.final_anchor] for episode in group]
    if settings["anchor_similarity"] is not None:
        states = {state for path in paths for state in path if state is not None}
        stands_for = clusters(states, threshold=settings["anchor_similarity"])
        paths = [[None if s is None else stands_for[s] for s in path] for path in paths]
    edges = {edge for path in paths for edge in pairwise(path)}
    distance = distances_to_goal(edges)
    beyond = max(distance.values()) + 1

    def worth(before: str | None, after: str | None) -> float:
        exponent = distance.get(after, beyond)
        if settings["distance_form"] == "progress":
            exponent += 1 - distance.get(before, beyond)
        return 10 * settings["distance_decay"] ** exponent

    step_parts, _ = _compared_in(
        [path[:-1] for path in paths],
        [
            [
                worth(*edge) - 10 * penalty  # a success is worth 10 here, and pays 1
                for edge, penalty in zip(pairwise(path), episode.own_penalties, strict=True)
            ]
            for path, episode in zip(paths, group, strict=True)
        ],
        scale_by_std=settings["scale_by_std"],
    )
    return [
        Credit(
            whole,
            steps,
            [
                settings["episode_advantage_weight"] * own
                + settings["step_advantage_weight"] * step
                for own, step in zip(of_episode, steps, strict=True)
            ],
        )
        for whole, of_episode, steps in zip(*episode_parts, step_parts, strict=True)
    ]


def distances_to_goal(edges: Collection[tuple[str | None, str | None]]) -> dict[str | None, int]:
    """Fewest edges to the goal, which is None, from each state that has a way to it.

    `d(goal) = 0`, `d(s) = 1 + min d(s')` over the edges that leave s, until nothing changes.
    """
    distance: dict[str | None, int] = {None: 0}
    while True:
        found = dict(distance)
        for before, after in edges:
            if after in distance:
                found[before] = min(distance[after] + 1, found.get(before, distance[after] + 1))
        if found == distance:
            return distance
        distance = found


def _hgpo(group: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    # A run that was stored before there was a choice has no such setting.
    as_code = settings.get("history_form", "paper") == "code"
    returns = _compared_returns(group, settings)
    totals = [[0.0] * len(episode.rewards) for episode in group]
    weights = [[0.0] * len(episode.rewards) for episode in group]
    for depth in range(settings["history_length"] + 1):
        pasts: list[list[Hashable]] = [
            [
                tuple(episode.anchors[step - depth : step + 1]) if step >= depth else (place, step)
                for step in range(len(episode.anchors))
            ]
            for place, episode in enumerate(group)
        ]
        parts, sizes = _compared_in(
            pasts, returns, scale_by_std=settings["scale_by_std"], over_n=as_code
        )
        centered, _ = _compared_in(pasts, returns, scale_by_std=False)
        weight = (depth + (2.0 if as_code else 1.0)) ** settings["history_weight_exponent"]
        for place, (keys, steps) in enumerate(zip(pasts, parts, strict=True)):
            for step, (key, part) in enumerate(zip(keys, steps, strict=True)):
                is_mean = abs(centered[place][step]) <= 1e-9 * (1 + abs(returns[place][step]))
                if sizes[key] > 1 and not (as_code and is_mean):
                    totals[place][step] += weight * part
                    weights[place][step] += weight
    found = [
        [total / weight if weight else 0.0 for total, weight in zip(*both, strict=True)]
        for both in zip(totals, weights, strict=True)
    ]
    return [Credit(0.0, steps, steps) for steps in found]


def _whitened(
    values: Sequence[Sequence[float]], episodes: Sequence[EpisodeFacts], settings: Settings
) -> list[list[float]]:
    """Values of all steps, less their mean and by their deviation over tokens or episodes.

    A single token, or episode, has nothing to be compared with: 0.
    """
    counts = [
        [n / sum(e.num_action_tokens) if n and settings["whiten"] == "episode" else float(n)
         for n in e.num_action_tokens]
        for e in episodes
    ]  # fmt: skip
    pairs = [
        (value, count)
        for one in zip(values, counts, strict=True)
        for value, count in zip(*one, strict=True)
    ]
    total = fsum(count for _, count in pairs)
    if total < 1 + 1e-9:
        return [[0.0] * len(steps) for steps in values]
    mean = fsum(value * count for value, count in pairs) / total
    variance = fsum(count * (value - mean) ** 2 for value, count in pairs) / (total - 1)
    return [[(v - mean) / sqrt(variance + VARIANCE_EPSILON) for v in steps] for steps in values]


def _reinforce_plus_plus(episodes: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    returns = [returns_to_go(episode.rewards, settings["discount"]) for episode in episodes]
    return [Credit(0.0, steps, steps) for steps in _whitened(returns, episodes, settings)]


def _reinforce_plus_plus_baseline(
    episodes: Sequence[EpisodeFacts], settings: Settings
) -> list[Credit]:
    of_group: dict[int, list[float]] = defaultdict(list)
    for episode in episodes:
        of_group[episode.group].append(fsum(episode.rewards))
    values = [
        [fsum(e.rewards) - fsum(of_group[e.group]) / len(of_group[e.group])] * len(e.rewards)
        for e in episodes
    ]
    found = _whitened(values, episodes, settings)
    return _whole([steps[0] for steps in found], episodes)


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    discounts: Sequence[float],
    decays: Sequence[float],
    *,
    final_value: float,
) -> list[float]:
    """Generalised advantages along one chain.

    Args:
        rewards: Paid at each place.
        values: Of each place.
        discounts: Of what comes after each place.
        decays: How much of the next place's advantage goes on to each place.
        final_value: Of what comes after the last one.
    """
    found: list[float] = []
    later_value, later_advantage = final_value, 0.0
    for reward, value, discount, decay in zip(
        reversed(rewards), reversed(values), reversed(discounts), reversed(decays), strict=True
    ):
        advantage = reward + discount * later_value - value + discount * decay * later_advantage
        found.append(advantage)
        later_value, later_advantage = value, advantage
    return found[::-1]


def _with_missing_values(episode: EpisodeFacts, discount: float) -> EpisodeFacts:
    """A step that nobody is trained in has no value: it is worth its reward and what follows."""
    found: list[Sequence[float]] = []
    following = episode.final_value
    for of_step, reward in zip(reversed(episode.values), reversed(episode.rewards), strict=True):
        found.append(of_step or [reward + discount * following])
        following = found[-1][0]
    return episode._replace(values=found[::-1])


def _gae(episodes: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    episodes = [_with_missing_values(episode, settings["discount"]) for episode in episodes]
    if settings["gae_level"] == "token":
        return _gae_over_tokens(episodes, settings)
    found: list[list[float]] = []
    for episode in episodes:
        length = len(episode.rewards)
        found.append(
            gae(
                episode.rewards,
                [of_step[0] for of_step in episode.values],
                [settings["discount"]] * length,
                [settings["gae_lambda"]] * length,
                final_value=episode.final_value,
            )
        )
    return [
        Credit(
            0.0,
            steps,
            steps,
            value_targets=[
                advantage + of_step[0]
                for advantage, of_step in zip(raw, episode.values, strict=True)
            ],
        )
        for steps, raw, episode in zip(
            _whitened(found, episodes, settings), found, episodes, strict=True
        )
    ]


def _gae_over_tokens(episodes: Sequence[EpisodeFacts], settings: Settings) -> list[Credit]:
    """The tokens of all actions as one chain: only between two actions is anything lost."""
    chains: list[list[float]] = []
    for episode in episodes:
        lengths = [len(of_step) for of_step in episode.values]
        chains.append(
            gae(
                [
                    reward if place == length - 1 else 0.0
                    for reward, length in zip(episode.rewards, lengths, strict=True)
                    for place in range(length)
                ],
                [value for of_step in episode.values for value in of_step],
                [settings["discount"] if p == n - 1 else 1.0 for n in lengths for p in range(n)],
                [settings["gae_lambda"] if p == n - 1 else 1.0 for n in lengths for p in range(n)],
                final_value=episode.final_value,
            )
        )
    as_steps = [
        episode._replace(
            num_action_tokens=[
                min(1, number)
                for number, of_step in zip(episode.num_action_tokens, episode.values, strict=True)
                for _ in of_step
            ]
        )
        for episode in episodes
    ]
    credits: list[Credit] = []
    for episode, raw, chain in zip(
        episodes, chains, _whitened(chains, as_steps, settings), strict=True
    ):
        tokens: list[list[float]] = []
        targets: list[float] = []
        start = 0
        for of_step in episode.values:
            tokens.append(chain[start : start + len(of_step)])
            targets.append(raw[start] + of_step[0])
            start += len(of_step)
        means = [fsum(of_step) / len(of_step) for of_step in tokens]
        credits.append(Credit(0.0, means, means, token_advantages=tokens, value_targets=targets))
    return credits


def value_weights_of(
    num_action_tokens: Sequence[Sequence[int]], settings: Settings
) -> list[list[float]]:
    """Weight of one value of each step of the episodes of one optimizer step.

    A step has one value, or one for each token; without a trained token it has none. They weigh as
    tokens do in the policy's loss, and always add up to 1.
    """
    counts = [
        [count if settings["gae_level"] == "token" else min(1, count) for count in counts]
        for counts in num_action_tokens
    ]
    unit = "token" if settings["loss_unit"] == "fixed_token" else settings["loss_unit"]
    return weights_of(counts, {**settings, "loss_unit": unit, "tokens_per_episode": None})


def clusters(states: set[str], *, threshold: float) -> dict[str, str]:
    """For each state the one that stands for it, taken in alphabetical order.

    Two states are alike if `2 L / (length of one + length of the other)` reaches the
    threshold, with L the length of their longest common subsequence of characters.
    """
    stands_for: dict[str, str] = {}
    representatives: list[str] = []
    for state in sorted(states):
        alike = (
            other
            for other in representatives
            if 2 * longest_common_subsequence(state, other) >= threshold * (len(state) + len(other))
        )
        stands_for[state] = next(alike, state)
        if stands_for[state] == state:
            representatives.append(state)
    return stands_for


def longest_common_subsequence(one: str, other: str) -> int:
    """Its length, by the table of all prefixes, a row at a time."""
    characters = np.array([ord(character) for character in other], dtype=np.int64)
    row = np.zeros(len(other) + 1, dtype=np.int64)
    for character in one:
        matched = row[:-1] + (characters == ord(character))
        row[1:] = np.maximum.accumulate(np.maximum(row[1:], matched))
    return int(row[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """An estimator by its definition, and what it needs of a run."""

    credit: Callable[[Sequence[EpisodeFacts], Settings], list[Credit]]
    """Of the episodes of one group; or of the training step, where it compares all of them."""
    compares_training_step: bool = False
    """Whether advantages are compared over all episodes of the training step."""
    smallest_group: int = 2
    """Fewest episodes that can be credited; pass@k has at least as many as it draws."""
    has_critic: bool = False
    needs_greedy_episode: bool = False
    reads_final_anchors: bool = False
    """Whether the state that an episode ended in decides what its last step is worth."""
    compares_pairs: bool = False
    """Whether advantages follow from how likely episodes are to the policy and the reference."""


DEFINITIONS: Mapping[str, Definition] = {
    "grpo": Definition(credit=_grpo),
    "drgrpo": Definition(credit=_drgrpo),
    "rloo": Definition(credit=_rloo),
    "pass_at_k": Definition(credit=_pass_at_k),
    "gigpo": Definition(credit=_gigpo),
    "hgpo": Definition(credit=_hgpo),
    "graphgpo": Definition(credit=_graphgpo, reads_final_anchors=True),
    "remax": Definition(credit=_remax, smallest_group=1, needs_greedy_episode=True),
    "reinforce_plus_plus": Definition(
        credit=_reinforce_plus_plus, compares_training_step=True, smallest_group=1
    ),
    "reinforce_plus_plus_baseline": Definition(
        credit=_reinforce_plus_plus_baseline, compares_training_step=True
    ),
    "imitation": Definition(credit=_imitation, smallest_group=1),
    "dpo": Definition(credit=_dpo, compares_training_step=True, compares_pairs=True),
    "gae": Definition(credit=_gae, compares_training_step=True, smallest_group=1, has_critic=True),
}
"""Estimators by `algorithm.name`."""
