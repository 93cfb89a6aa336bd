"""Exact V and Q of stored steps: the policy's probabilities in every state that it can reach.

A policy whose memory is `none` reads the state alone, so each state has one prompt. All replies to
it that are likely enough are followed to their ends, and what they ask for is added up by action.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.errors import ConfigError
from longhaul_core.evaluation import Interval
from longhaul_core.rollout.agent import Agent
from longhaul_core.truth import (
    INVALID,
    Policy,
    SampledAdvantage,
    StateGraph,
    exact_values,
    explored,
    tabulated,
    true_advantages,
)
from longhaul_core.types import Observation, Trajectory
from longhaul_envs.players import opened
from longhaul_trainer.config import MixedEnvironmentConfig, RunConfig
from longhaul_trainer.play.environments import environment_spec
from longhaul_trainer.play.players import EnvironmentPlayer, temperature_of, top_p_of
from longhaul_trainer.play.small_policy import SmallModel, Tokens, token_shares
from longhaul_trainer.play.truth.selection import MeasuredStep, Place

__all__ = [
    "LEFT_OUT",
    "ExactSteps",
    "ReplyShares",
    "action_shares",
    "exact_steps",
    "require_exact",
]

LEFT_OUT = 1e-5
"""Most probability of a state's replies that is not followed to an end; it counts as invalid."""
_MOST_TEXTS = 4096
"""Beginnings of replies to one prompt."""
_MOST_OF_ALL = 2**20
"""Beginnings of replies to all prompts of a task."""
_ROUNDING = 1e-9
"""Of the largest reward, by which equal values of backward induction may differ."""


def require_exact(config: RunConfig, *, by_chance: bool) -> None:
    """Refuse a run whose policy reads more than the state, before anything is explored.

    Args:
        config: Of the run.
        by_chance: Whether actions are drawn evenly, and no prompt is read.

    Raises:
        ConfigError: Names the setting.
    """
    for entry in config.played_environments:
        if entry.server is not None:
            _refuse(f"environment.server of {entry.id}", "plays on another machine")
    if by_chance:
        return
    if config.agent.kind != "single_call":
        _refuse(f'agent.kind = "{config.agent.kind}"', "asks the policy more than once a step")
    if config.rollout.max_episode_tokens is not None:
        limit = config.rollout.max_episode_tokens
        _refuse(f"rollout.max_episode_tokens = {limit}", "may end an episode by its past")
    for entry in config.played_environments:
        if entry.memory.kind != "none":
            kind = f'memory.kind = "{entry.memory.kind}" of {entry.id}'
            _refuse(kind, "shows the policy more than the state")
        if entry.actions.format == "tool_call":
            _refuse(f'actions.format = "tool_call" of {entry.id}', "has prompts with tools")


def _refuse(setting: str, why: str) -> None:
    raise ConfigError(
        f"exact values need a policy that reads the state alone, and {setting} {why}; leave "
        "--exact out, and the values are sampled"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSteps:
    """The truth of measured steps, without intervals."""

    steps: Mapping[Place, SampledAdvantage]
    """Both ends of each interval are the value itself. Q is V where they differ by no more than
    rounding and replies that were not followed may make them differ."""
    num_tasks: int
    num_states: int
    """Of all tasks."""
    left_out: float
    """Most probability of a state's replies that was not followed to an end."""


@dataclass(slots=True)
class ReplyShares:
    """The probability of each reply to a prompt; each prompt is looked at once."""

    model: SmallModel
    temperature: float
    """Above 0."""
    top_p: float
    max_tokens: int
    _known: dict[Tokens, dict[Tokens, float]] = field(
        default_factory=dict[Tokens, dict[Tokens, float]]
    )

    def of(self, prompts: Sequence[Tokens]) -> list[Mapping[Tokens, float]]:
        """The replies to each prompt, together at least 1 - `LEFT_OUT` likely.

        Raises:
            ConfigError: There are too many of them.
        """
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._known]
        self._known |= {prompt: {} for prompt in new}
        begun: list[tuple[Tokens, Tokens, float]] = [(prompt, (), 1.0) for prompt in new]
        for length in range(1, self.max_tokens + 1):
            begun = self._longer(begun, length)
        return [self._known[prompt] for prompt in prompts]

    @property
    def left_out(self) -> float:
        """Most probability of a prompt's replies that was not followed to an end."""
        return max((1.0 - sum(found.values()) for found in self._known.values()), default=0.0)

    def _longer(
        self, begun: Sequence[tuple[Tokens, Tokens, float]], length: int
    ) -> list[tuple[Tokens, Tokens, float]]:
        """Each beginning with one more token; those that end are kept as replies."""
        longer: list[tuple[Tokens, Tokens, float]] = []
        numbers: defaultdict[Tokens, int] = defaultdict(int)
        for (prompt, start, share), logits_V in self._with_logits(begun):
            shares_V = token_shares(logits_V, temperature=self.temperature, top_p=self.top_p)
            order_V = np.argsort(shares_V)
            followed_V = order_V[np.cumsum(shares_V[order_V]) > LEFT_OUT / self.max_tokens]
            for token in followed_V.tolist():
                text, of_text = (*start, token), share * float(shares_V[token])
                if token in self.model.end_tokens or length == self.max_tokens:
                    self._known[prompt][text] = of_text
                else:
                    longer.append((prompt, text, of_text))
                    numbers[prompt] += 1
        if numbers and (max(numbers.values()) > _MOST_TEXTS or len(longer) > _MOST_OF_ALL):
            raise ConfigError(
                f"after {length} tokens the policy may write {max(numbers.values()):,} texts to "
                f"one prompt and {len(longer):,} in all, and exact values need the probability of "
                f"each of at most {_MOST_TEXTS:,} and {_MOST_OF_ALL:,}; lower "
                f"rollout.max_reply_tokens = {self.max_tokens}, or leave --exact out"
            )
        return longer

    def _with_logits(
        self, begun: Sequence[tuple[Tokens, Tokens, float]]
    ) -> Iterator[tuple[tuple[Tokens, Tokens, float], FloatArray]]:
        for start in range(0, len(begun), self.model.most_kept):
            part = begun[start : start + self.model.most_kept]
            logits = self.model.next_logits([prompt + text for prompt, text, _ in part])
            yield from zip(part, logits, strict=True)


def exact_steps(
    config: RunConfig,
    steps: Sequence[MeasuredStep],
    *,
    player: EnvironmentPlayer,
    model: SmallModel | None,
) -> ExactSteps:
    """V and Q of stored steps by backward induction over all states of their tasks.

    Args:
        config: Of the run that goes on; `require_exact` has nothing against it.
        steps: Which.
        player: Has the run's agents.
        model: Chooses the actions; None is chance, evenly among the admissible ones.

    Raises:
        ConfigError: States cannot be counted, replies are too many, or an episode is not of these
            environments; see `explored`.
    """
    found: dict[Place, SampledAdvantage] = {}
    num_states = 0
    shares = model and ReplyShares(
        model,
        temperature_of(config, "branch"),
        top_p_of(config, "branch"),
        config.rollout.max_reply_tokens,
    )
    entries = {entry.id: entry for entry in config.played_environments}
    tasks = _by_task(steps)
    for of_task in tasks:
        recorded = of_task[0].choice.recorded
        entry = entries[recorded.task.environment]
        graph = _graph(entry, recorded)
        num_states += len(graph.states)
        policy: Policy = _by_chance
        if shares is not None:
            agent = player.agent(entry.id, "branch")
            _require_stored_prompts(of_task, agent)
            policy = _policy(graph, agent, shares, config).__getitem__
        values = exact_values(graph, tabulated(graph, policy), discount=config.algorithm.discount)
        episodes = {step.episode_id: step.choice.recorded for step in of_task}
        advantages = {name: true_advantages(values, one) for name, one in episodes.items()}
        for step in of_task:
            name, at = step.episode_id, step.step_index
            left = step.choice.recorded.horizon - at
            value = values.value(step.choice.stored.observation, steps_left=left)
            effect = float(advantages[name][at])
            left_out = 0.0 if shares is None else shares.left_out
            if abs(effect) <= (_ROUNDING + left_out * left) * np.abs(graph.rewards_E).max():
                effect = 0.0  # so small a one may be an error
            action_value = value + effect
            found[name, at] = SampledAdvantage(
                value=_point(value), action_value=_point(action_value)
            )
    return ExactSteps(
        steps=found,
        num_tasks=len(tasks),
        num_states=num_states,
        left_out=0.0 if shares is None else shares.left_out,
    )


def _by_task(steps: Sequence[MeasuredStep]) -> list[list[MeasuredStep]]:
    """Steps of one task and one horizon together."""
    found: defaultdict[tuple[object, int], list[MeasuredStep]] = defaultdict(list)
    for step in steps:
        recorded = step.choice.recorded
        found[recorded.task.key, recorded.horizon].append(step)
    return list(found.values())


def _graph(entry: MixedEnvironmentConfig, recorded: Trajectory) -> StateGraph:
    with opened(environment_spec(entry)) as world:
        return explored(world, recorded.task, horizon=recorded.horizon)


def _by_chance(seen: Observation) -> Mapping[str, float]:
    numbers = Counter(seen.admissible_actions or ())
    if not numbers:
        raise ConfigError(
            f"a state of the environment admits no action, {seen.text[:80]!r}, and chance draws "
            "one of those that are; name another policy"
        )
    return {action: number / numbers.total() for action, number in numbers.items()}


def _policy(
    graph: StateGraph, agent: Agent, replies: ReplyShares, config: RunConfig
) -> dict[Observation, Mapping[str, float]]:
    """The probability of each action in each state."""
    longest = max(len(_prompt(agent, seen)) for seen in graph.states)
    if longest > config.rollout.max_prompt_tokens:
        raise ConfigError(
            f"a state of task {graph.task.task_id!r} has a prompt of {longest} tokens, and "
            f"rollout.max_prompt_tokens = {config.rollout.max_prompt_tokens} ends the episode "
            "there; raise it, or leave --exact out"
        )
    return dict(zip(graph.states, action_shares(graph.states, agent, replies), strict=True))


def action_shares(
    states: Sequence[Observation], agent: Agent, replies: ReplyShares
) -> list[Mapping[str, float]]:
    """The probability of each action in each state, 1 together; see `Policy`.

    Args:
        states: What is seen.
        agent: Its memory is `none`.
        replies: Of its model.
    """
    found: list[Mapping[str, float]] = []
    shares = replies.of([_prompt(agent, seen) for seen in states])
    for seen, of_prompt in zip(states, shares, strict=True):
        actions: defaultdict[str, float] = defaultdict(float)
        for tokens, share in of_prompt.items():
            read = agent.parser.parse(agent.renderer.decode(tokens), seen.admissible_actions)
            # The environment is given the words of an invalid reply too.
            known = read.text in (seen.admissible_actions or ())
            actions[read.text if known else INVALID] += share
        actions[INVALID] += max(0.0, 1.0 - sum(of_prompt.values()))
        found.append(actions)
    return found


def _prompt(agent: Agent, seen: Observation) -> Tokens:
    return agent.renderer.render(agent.build_memory().compose(seen))


def _require_stored_prompts(steps: Sequence[MeasuredStep], agent: Agent) -> None:
    """Refuse prompts that are not those which the engine read."""
    for step in steps:
        stored = step.choice.stored
        sampled = None if stored.act is None else stored.act.sampled
        if sampled is not None and _prompt(agent, stored.observation) != sampled.prompt_tokens:
            raise ConfigError(
                f"the prompt of step {step.step_index} of {step.episode_id} is not the one that "
                "this run composes in its state: model, memory, prompt or list of actions differ; "
                "give it the settings that the run had"
            )


def _point(value: float) -> Interval:
    return Interval(value, value, value, 1.0, 0)
