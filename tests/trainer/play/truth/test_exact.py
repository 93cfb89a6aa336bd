"""Exact values of stored steps: by every reply's probability, against draws and what is stored."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy.orm import Session
from state_policies import continuations as on_graph
from state_policies import sampled_value

from longhaul_core.actions import ParsedAction
from longhaul_core.errors import ConfigError
from longhaul_core.store import queries
from longhaul_core.store.session import read_only_engine
from longhaul_core.truth import INVALID, exact_values, explored, tabulated
from longhaul_envs.players import opened
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.environments import environment_spec
from longhaul_trainer.play.imitation.player import unasked_player
from longhaul_trainer.play.small_policy import SmallModel, token_shares
from longhaul_trainer.play.truth.exact import (
    LEFT_OUT,
    ReplyShares,
    action_shares,
    exact_steps,
    require_exact,
)
from longhaul_trainer.play.truth.logprobs import check_against_engine, logprob_credit
from longhaul_trainer.play.truth.selection import Selection, select_steps
from trainer.play.truth.conftest import played, small_model

__all__ = ["played", "small_model"]  # fixtures

PROMPT = (5, 9, 31, 17)


@pytest.fixture(scope="module")
def model(small_model: Path) -> SmallModel:
    return SmallModel(small_model)


@pytest.fixture(scope="module")
def selection(played: RunConfig) -> Selection:
    """All steps of the store."""
    engine = read_only_engine(played.store)
    with Session(engine) as session:
        (run,) = queries.list_runs(session)
        found = select_steps(
            session, run.run_id, training_steps=None, num_groups=4, num_steps=10**6, seed=0
        )
    engine.dispose()
    return found


def test_replies_of_two_tokens_by_every_pair(model: SmallModel) -> None:
    shares = ReplyShares(model, temperature=0.3, top_p=1.0, max_tokens=2)

    (found,) = shares.of([PROMPT])

    (first,) = model.next_logits([PROMPT])
    first_V = token_shares(first, temperature=0.3, top_p=1.0)
    second = model.next_logits([(*PROMPT, token) for token in range(len(first_V))])
    pairs: dict[tuple[int, ...], float] = {}
    for one, logits_V in enumerate(second):
        if one in model.end_tokens:
            pairs[(one,)] = first_V[one]
            continue
        second_V = token_shares(logits_V, temperature=0.3, top_p=1.0)
        pairs |= {(one, two): first_V[one] * second_V[two] for two in range(len(second_V))}
    assert sum(pairs.values()) == pytest.approx(1.0)
    assert len(pairs) > len(found) > 100
    assert found == pytest.approx({reply: pairs[reply] for reply in found})
    assert 1 - LEFT_OUT <= sum(found.values()) <= 1 + 1e-9


def test_too_many_replies_are_refused(model: SmallModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longhaul_trainer.play.truth.exact._MOST_TEXTS", 50)
    with pytest.raises(ConfigError, match=r"and exact values need .* at most 50 and .* = 3, or"):
        ReplyShares(model, temperature=0.4, top_p=1.0, max_tokens=3).of([PROMPT])
    monkeypatch.setattr("longhaul_trainer.play.truth.exact._MOST_TEXTS", 10**6)
    monkeypatch.setattr("longhaul_trainer.play.truth.exact._MOST_OF_ALL", 60)
    with pytest.raises(ConfigError, match=r"of at most 1,000,000 and 60; lower"):
        ReplyShares(model, temperature=0.4, top_p=1.0, max_tokens=3).of([PROMPT])


def test_stored_actions_are_as_frequent_as_they_are_likely(
    played: RunConfig, selection: Selection, model: SmallModel
) -> None:
    agent = unasked_player(played).agent("longhaul/KeyDoor-v0", "branch")
    replies = ReplyShares(model, temperature=0.4, top_p=0.97, max_tokens=1)
    seen: Counter[str] = Counter()
    expected: defaultdict[str, float] = defaultdict(float)
    variance: defaultdict[str, float] = defaultdict(float)
    stored = [step.choice.stored for step in selection.steps]
    shares = action_shares([step.observation for step in stored], agent, replies)
    for step, actions in zip(stored, shares, strict=True):
        assert sum(actions.values()) == pytest.approx(1.0)
        seen[step.action if step.action_valid else INVALID] += 1
        for action, share in actions.items():
            expected[action] += share
            variance[action] += share * (1 - share)
    assert len(stored) > 300
    assert {*seen} >= {"north", "south", "west", "east", "take", INVALID}
    for action, number in expected.items():
        assert abs(seen[action] - number) < 4 * variance[action] ** 0.5 + 1e-3


def test_exact_values_hold_draws_of_the_policy(
    played: RunConfig, selection: Selection, model: SmallModel
) -> None:
    (entry,) = played.played_environments
    player = unasked_player(played)
    found = exact_steps(played, selection.steps, player=player, model=model)

    assert len(found.steps) == len(selection.steps)
    assert (found.num_tasks, found.left_out <= LEFT_OUT) == (4, True)
    advantages = np.array([step.advantage.estimate for step in found.steps.values()])
    assert advantages.std() > 1e-4
    assert min(advantages) < 0.0 < max(advantages)
    agent = player.agent(entry.id, "branch")
    replies = ReplyShares(model, temperature=0.4, top_p=0.97, max_tokens=1)
    held: list[bool] = []
    with opened(environment_spec(entry)) as world:
        for place, step in enumerate(selection.steps[:: len(selection.steps) // 40]):
            recorded = step.choice.recorded
            graph = explored(world, recorded.task, horizon=recorded.horizon)
            shares = action_shares(graph.states, agent, replies)
            probabilities_E = tabulated(
                graph, dict(zip(graph.states, shares, strict=True)).__getitem__
            )
            draw = on_graph(
                graph,
                probabilities_E,
                state=graph.state(step.choice.stored.observation),
                steps_left=recorded.horizon - step.step_index,
                discount=played.algorithm.discount,
                random=np.random.default_rng(place),
            )
            exact = found.steps[step.episode_id, step.step_index].value.estimate
            interval = sampled_value(draw, half_width=0.02)
            held.append(interval.low <= exact <= interval.high)
            assert exact_values(graph, probabilities_E, discount=0.95).value(
                step.choice.stored.observation, steps_left=recorded.horizon - step.step_index
            ) == pytest.approx(exact)
    assert sum(held) >= 0.9 * len(held) >= 36


def test_the_words_of_an_invalid_reply_are_played_as_they_are(
    played: RunConfig, selection: Selection, model: SmallModel
) -> None:
    """The loop gives them to the environment, which may know them."""
    (entry,) = played.played_environments
    agent = unasked_player(played).agent(entry.id, "branch")
    seen = selection.steps[0].choice.stored.observation
    replies = ReplyShares(model, temperature=0.4, top_p=0.97, max_tokens=1)
    known = action_shares([seen], agent, replies)[0]

    class Unread:
        instruction = agent.parser.instruction

        def parse(self, reply: str, admissible: Sequence[str] | None = None) -> ParsedAction:
            return replace(agent.parser.parse(reply, admissible), valid=False)

    unread = action_shares([seen], replace(agent, parser=Unread()), replies)[0]

    assert len(known) > 2
    assert unread == known


def test_chance_needs_no_model(played: RunConfig, selection: Selection) -> None:
    found = exact_steps(played, selection.steps[:50], player=unasked_player(played), model=None)
    assert found.left_out == 0.0
    assert len({step.value.estimate for step in found.steps.values()}) > 10


def test_a_prompt_that_the_run_does_not_compose_is_refused(
    played: RunConfig, selection: Selection, model: SmallModel
) -> None:
    prompt = played.prompt.model_copy(update={"list_actions": True})
    other = played.model_copy(update={"prompt": prompt})
    with pytest.raises(ConfigError, match=r"the prompt of step .* is not the one"):
        exact_steps(other, selection.steps, player=unasked_player(other), model=model)


@pytest.mark.parametrize(
    ("section", "changes", "words"),
    [
        ("memory", {"kind": "window"}, r'memory.kind = "window" of .* more than the state'),
        ("agent", {"kind": "plan_then_act"}, r'agent.kind = "plan_then_act" asks'),
        ("rollout", {"max_episode_tokens": 999}, r"max_episode_tokens = 999 may end"),
        ("actions", {"format": "tool_call"}, r'actions.format = "tool_call" of .* tools'),
    ],
)
def test_a_policy_that_reads_more_than_the_state_is_refused(
    played: RunConfig, section: str, changes: dict[str, object], words: str
) -> None:
    require_exact(played, by_chance=False)
    changed = played.model_copy(
        update={section: getattr(played, section).model_copy(update=changes)}
    )
    require_exact(changed, by_chance=True)
    with pytest.raises(ConfigError, match=words):
        require_exact(changed, by_chance=False)


def test_stored_logprobs_are_compared(played: RunConfig, model: SmallModel) -> None:
    engine = read_only_engine(played.store)
    with Session(engine) as session:
        (run,) = queries.list_runs(session)
        check = check_against_engine(session, run.run_id, played, model, policy_version=0)
        assert check is not None
        assert 128 <= check.num_calls <= 256
        assert 0.0 < check.largest < check.tolerance == 1e-3
        hotter = played.rollout.model_copy(update={"temperature": 1.1})
        other = played.model_copy(update={"rollout": hotter})
        with pytest.raises(ConfigError, match=r"other logprobs here than in its engine: .* nats"):
            check_against_engine(session, run.run_id, other, model, policy_version=0)
        later = check_against_engine(session, run.run_id, played, model, policy_version=7)
        assert later is None
    engine.dispose()


def test_credit_by_logprobs(
    played: RunConfig, selection: Selection, model: SmallModel, tmp_path: Path
) -> None:
    other = SmallModel(Path(played.model.path))
    credit = logprob_credit(selection.steps, played, model=model, start=other)

    assert {name: len(each) for name, each in credit.items()} == dict.fromkeys(
        ("*confidence*", "*log-ratio to the sampler*", "*log-ratio to the start*"),
        len(selection.steps),
    )
    step = selection.steps[5]
    act = step.choice.stored.act
    assert act is not None
    assert act.sampled is not None
    place = step.episode_id, step.step_index
    assert credit["*confidence*"][place] == sum(act.sampled.behavior_logprobs or ())
    # The weights that go on are those that sampled, and those of the start.
    assert set(credit["*log-ratio to the sampler*"].values()) == {0.0}
    assert set(credit["*log-ratio to the start*"].values()) == {0.0}
    assert np.std([*credit["*confidence*"].values()]) > 0.1
