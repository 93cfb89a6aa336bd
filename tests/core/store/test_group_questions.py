"""Tests for a group's steps, anchor groups, state graph and estimators, as the store answers.

The group worked by hand, with discount 1/2:

    sample 0   a n   b n   goal        reward 1     returns-to-go 0.5, 1
    sample 1   a n   c s   c s   d     reward 0     returns-to-go 0, 0, 0
    sample 2   a e   b n   goal        reward 1     returns-to-go 0.5, 1
"""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from longhaul_core.advantages.estimators import ESTIMATORS, EstimatorSettings
from longhaul_core.advantages.gae_credit import GaeLevel
from longhaul_core.audit.formulas import EpisodeFacts, credit_of
from longhaul_core.store import StoreWriter, queries, read_only_engine
from longhaul_core.store.queries import EstimatedAdvantages, GroupOutcomes
from longhaul_core.types import FailedEpisode, Trajectory
from store_samples import make_decisions, make_failure, make_record
from variation import assert_both_signs, assert_several
from walks import Walk, credited, drawn, records, settings, started, with_critic

BY_HAND = [
    Walk(states="ab", actions="nn", reward=1.0),
    Walk(states="acc", actions="nss", final="d"),
    Walk(states="ab", actions="en", reward=1.0),
]
GROUP = queries.GroupId("run", "train", training_step=1, group_index=0)


def write(
    writer: StoreWriter,
    *groups: Sequence[Walk],
    chosen: EstimatorSettings | None = None,
    greedy: Sequence[Walk] = (),
    credit: bool = True,
) -> None:
    """One training step of these groups, credited by the run's estimator."""
    chosen = chosen or settings()
    stored = [records(walks, group_index=place) for place, walks in enumerate(groups)]
    everything = [record for group in stored for record in group]
    beside = [
        record
        for place, walk in enumerate(greedy)
        for record in records([walk], phase="baseline", group_index=place)
    ]
    writer.write([started(chosen), *everything, *beside])
    if credit:
        credits = credited(groups, stored, chosen, greedy=greedy)
        writer.write([*make_decisions(everything), *credits])


def by_name(session: Session, *names: str) -> dict[str, EstimatedAdvantages]:
    found = queries.advantages_by_estimator(session, GROUP, names=names or None)
    return {each.estimator: each for each in found.estimators}


def test_the_episodes_part_where_the_first_does_something_else(
    writer: StoreWriter, session: Session
) -> None:
    same = [replace(BY_HAND[0], states="aab", actions="nnn") for _ in range(2)]
    later = replace(BY_HAND[0], states="aac", actions="nnn")
    shorter = replace(BY_HAND[0], states="aa", actions="nn")
    write(writer, BY_HAND, [*same, later], same, [*same, shorter])

    found = [
        queries.group_steps(session, replace(GROUP, group_index=place)).parting_step
        for place in range(4)
    ]

    assert found == [0, 2, None, 2]


def test_a_group_has_each_step_with_its_credit_and_failed_tries_without(
    writer: StoreWriter, session: Session
) -> None:
    write(writer, BY_HAND)
    writer.write([make_record(make_failure(sample_index=2), group_index=0, retry=1)])

    group = queries.group_steps(session, GROUP)

    assert [e.summary.sample_index for e in group.episodes] == [0, 1, 2, 2]
    assert [[s.action for s in e.steps] for e in group.episodes[:3]] == [
        ["n", "n"],
        ["n", "s", "s"],
        ["e", "n"],
    ]
    assert [s.return_to_go for s in group.episodes[0].steps] == [0.5, 1.0]
    assert group.episodes[3].summary.failed
    assert group.episodes[3].steps[0].advantage is None


def test_anchor_groups_are_the_hand_worked_ones(writer: StoreWriter, session: Session) -> None:
    write(writer, BY_HAND)

    a, b, c = queries.anchor_groups(session, GROUP)

    assert (a.text, b.text, c.text) == ("You are in a.", "You are in b.", "You are in c.")
    assert [(s.sample_index, s.step_index) for s in a.steps] == [(0, 0), (1, 0), (2, 0)]
    assert [s.return_to_go for s in a.steps] == [0.5, 0.0, 0.5]
    assert a.mean_return_to_go == pytest.approx(1 / 3)
    assert a.std_return_to_go == pytest.approx(3**-0.5 / 2)  # deviations 1/6, -1/3, 1/6
    assert [(s.sample_index, s.step_index) for s in c.steps] == [(1, 1), (1, 2)]
    assert (a.num_episodes, b.num_episodes, c.num_episodes) == (3, 2, 1)
    # (0.5 - 1/3) / (0.288675 + 1e-6), and the episode part is (1 - 2/3) / 0.577350
    assert a.steps[0].step_advantage == pytest.approx(0.577348, abs=1e-6)
    assert a.steps[0].advantage == pytest.approx(0.577348 + 0.577349, abs=2e-6)


def test_the_state_graph_is_the_hand_worked_one(writer: StoreWriter, session: Session) -> None:
    write(writer, BY_HAND)

    graph = queries.state_graph(session, GROUP)

    goal, a, b, c, d = graph.nodes
    assert [node.number for node in graph.nodes] == [0, 1, 2, 3, 4]
    assert [node.distance for node in graph.nodes] == [0, 2, 1, None, None]
    assert [node.text for node in graph.nodes] == [
        None,
        *(f"You are in {state}." for state in "abcd"),
    ]
    assert (goal.num_ends, goal.num_steps, a.num_starts, d.num_ends) == (2, 0, 3, 1)
    assert (a.num_steps, b.num_episodes, c.num_steps) == (3, 2, 2)
    assert [(edge.source, edge.target) for edge in graph.edges] == [
        (1, 2),
        (2, 0),
        (1, 3),
        (3, 3),
        (3, 4),
    ]
    assert [(s.sample_index, s.action) for s in graph.edges[0].steps] == [(0, "n"), (2, "e")]
    assert graph.edges[0].num_episodes == 2


@pytest.mark.parametrize("seed", range(4))
def test_distances_and_anchor_groups_follow_their_definitions(
    writer: StoreWriter, session: Session, seed: int
) -> None:
    """By relaxing every edge until nothing changes, and by a list for each state."""
    walks = drawn(seed)
    write(writer, walks)

    graph = queries.state_graph(session, GROUP)
    anchors = queries.anchor_groups(session, GROUP)

    ways = [pair for walk in walks for pair in pairwise((*walk.states, walk.final or "goal"))]
    distance = {"goal": 0}
    for _ in ways:
        for source, target in ways:
            if target in distance:
                distance[source] = min(distance.get(source, 99), distance[target] + 1)
    names = {n.number: "goal" if n.text is None else n.text[-2] for n in graph.nodes}
    assert {names[n.number]: n.distance for n in graph.nodes if n.distance is not None} == distance
    assert_several(distance.values(), at_least=3)
    assert sorted((names[e.source], names[e.target]) for e in graph.edges for _ in e.steps) == (
        sorted(ways)
    )
    returns: dict[str, list[float]] = {}
    for walk in walks:
        for place, state in enumerate(walk.states):
            to_go = sum(reward * 0.5**k for k, reward in enumerate(walk.shaped[place:]))
            returns.setdefault(state, []).append(to_go)
    for each in anchors:
        state = (each.text or "")[-2]
        assert [s.return_to_go for s in each.steps] == pytest.approx(returns[state])
        assert each.mean_return_to_go == pytest.approx(fmean(returns[state]))
        if len(returns[state]) > 1:
            assert each.std_return_to_go == pytest.approx(stdev(returns[state]))
    assert [len(each.steps) for each in anchors] == sorted(map(len, returns.values()), reverse=True)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "gae"])
def test_the_trained_estimator_gives_what_is_stored(
    writer: StoreWriter, session: Session, name: str
) -> None:
    walks, greedy = drawn(1), Walk(states="ab", actions="nn", reward=0.5)
    write(writer, walks, drawn(2), chosen=settings(name=name), greedy=(greedy, greedy))

    found = queries.advantages_by_estimator(session, GROUP)

    assert found.reward_source == "stored"
    first, *others = found.estimators
    assert (first.estimator, first.trained, first.missing) == (name, True, None)
    assert not any(each.trained for each in others)
    group = queries.group_steps(session, GROUP)
    assert advantages_of(first) == [s.advantage for e in group.episodes for s in e.steps]
    assert_both_signs(advantages_of(first)) if name != "pass_at_k" else assert_several(
        advantages_of(first)
    )


LEVELS: tuple[GaeLevel, ...] = get_args(GaeLevel)
CRITIC_BY_HAND = [
    Walk(states="ab", actions="nn", reward=1.0, values=[[0.5, 0.25], [0.5, 0.5, 0.5]]),
    Walk(states="a", actions="n", final="c", values=[[0.25, 0.5]], final_value=1.0),
]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        # discount and lambda 1/2. Of actions: 1 - 0.5 = 0.5; 0.5 * 0.5 - 0.5 + 0.25 * 0.5 = -0.125;
        # 0.5 * 1 - 0.25 = 0.25. They have 3, 2 and 2 tokens: mean 1.75 / 7, variance 0.46875 / 6
        ("step", [-0.375 / 0.078125**0.5, 0.25 / 0.078125**0.5, 0.0]),
        # Targets 0.375, 1 and 0.5 less the value of each token: -0.125 0.125 | 0.5 0.5 0.5 |
        # 0.25 0, mean 1.75 / 7, variance 0.40625 / 6; of a step the mean of its tokens
        (
            "token",
            [-0.25 * (6 / 0.40625) ** 0.5, *(s * (6 / 0.40625) ** 0.5 for s in (0.25, -0.125))],
        ),
    ],
)
def test_gae_is_recomputed_as_worked_by_hand(
    writer: StoreWriter, session: Session, level: GaeLevel, expected: list[float]
) -> None:
    chosen = settings(name="gae", gae_level=level, gae_lambda=0.5)
    write(writer, CRITIC_BY_HAND, chosen=chosen)

    [found] = queries.advantages_by_estimator(session, GROUP, names=["gae"]).estimators

    assert found.missing is None
    assert advantages_of(found) == pytest.approx(expected, abs=1e-6)
    assert [each.episode_advantage for each in found.episodes] == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("whiten", ["token", "episode"])
@pytest.mark.parametrize("level", LEVELS)
def test_gae_is_recomputed_as_it_was_trained_and_as_the_audit_defines_it(
    writer: StoreWriter, session: Session, level: GaeLevel, whiten: str, seed: int
) -> None:
    """Over all groups of the update, of which the page shows one."""
    groups = [with_critic(drawn(10 * seed + place), seed) for place in range(2)]
    chosen = settings(name="gae", gae_level=level, gae_lambda=0.75, whiten=whiten)
    write(writer, *groups, chosen=chosen)
    facts = [
        EpisodeFacts(
            group=place,
            rewards=walk.shaped,
            anchors=list(walk.states),
            num_action_tokens=[len(of_step) for of_step in walk.values],
            values=walk.values if level == "token" else [of_step[:1] for of_step in walk.values],
            final_value=walk.final_value or 0.0,
        )
        for place, walks in enumerate(groups)
        for walk in walks
    ]

    [found] = queries.advantages_by_estimator(session, GROUP, names=["gae"]).estimators

    assert (found.trained, found.missing) == (True, None)
    group = queries.group_steps(session, GROUP)
    stored = [step.advantage for e in group.episodes for step in e.steps]
    assert advantages_of(found) == stored
    naive = credit_of(facts, chosen.model_dump())[: len(groups[0])]
    expected = [advantage for credit in naive for advantage in credit.advantages]
    assert advantages_of(found) == pytest.approx(expected, abs=1e-9)
    assert_both_signs(expected)


def test_gae_without_a_value_that_it_needs_says_which(
    writer: StoreWriter, session: Session
) -> None:
    cut_short = replace(CRITIC_BY_HAND[1], final_value=None)
    write(writer, [CRITIC_BY_HAND[0], cut_short], chosen=settings(name="grpo"))

    [found] = queries.advantages_by_estimator(session, GROUP, names=["gae"]).estimators

    assert found.episodes == ()
    assert "one of a last observation is missing" in (found.missing or "")


def advantages_of(estimated: EstimatedAdvantages) -> list[float]:
    return [advantage for episode in estimated.episodes for advantage in episode.advantages]


@pytest.mark.parametrize("seed", range(3))
def test_every_estimator_follows_the_definition_that_the_audit_has(
    writer: StoreWriter, session: Session, seed: int
) -> None:
    """The audit's formulas share no code with those that train."""
    groups = [drawn(10 * seed), drawn(10 * seed + 1)]
    greedy = [Walk(states="ab", actions="n?", reward=0.5) for _ in groups]
    write(writer, *groups, greedy=greedy)
    facts = [
        EpisodeFacts(
            group=place,
            rewards=walk.shaped,
            anchors=list(walk.states),
            num_action_tokens=[t + 2 for t in range(len(walk.states))],
            greedy_rewards=greedy[place].shaped,
            final_anchor=walk.final or None,
        )
        for place, walks in enumerate(groups)
        for walk in walks
    ]

    found = by_name(session)

    assert found["gae"].missing is not None
    for name in set(ESTIMATORS) - {"gae"}:
        naive = credit_of(facts, settings(name=name).model_dump())[: len(groups[0])]
        expected = [advantage for credit in naive for advantage in credit.advantages]
        assert advantages_of(found[name]) == pytest.approx(expected, abs=1e-9), name
        assert_several(expected)


def test_a_group_without_credit_is_estimated_from_its_rewards_less_penalties(
    writer: StoreWriter, session: Session
) -> None:
    walks = [replace(BY_HAND[0], actions="?n"), *BY_HAND[1:]]
    write(writer, walks, credit=False)

    found = queries.advantages_by_estimator(session, GROUP, names=["grpo", "reinforce_plus_plus"])

    assert found.reward_source == "recomputed"
    grpo, reinforce = found.estimators
    # returns 0.9, 0, 1: mean 0.6333, sample deviation 0.5508
    assert grpo.episodes[0].episode_advantage == pytest.approx(0.484180, abs=1e-5)
    assert reinforce.episodes == ()
    assert "no update of the lineage took this one" in (reinforce.missing or "")


def test_a_penalty_on_the_action_is_on_it_for_every_estimator_that_tells_steps_apart(
    writer: StoreWriter, session: Session
) -> None:
    start = started(settings())
    config = json.loads(start.config_json)
    config["algorithm"]["invalid_action_penalty_on"] = "action"
    walks = [replace(BY_HAND[0], actions="?n"), *BY_HAND[1:]]
    writer.write([replace(start, config_json=json.dumps(config)), *records(walks)])

    found = by_name(session, "drgrpo", "rloo")

    # copies of the returns: 0.9 and 1, 0, 1; each episode counts once, so the mean is 1.95 / 3
    assert advantages_of(found["drgrpo"]) == pytest.approx([0.25, 0.35, *[-0.65] * 3, 0.35, 0.35])
    assert found["drgrpo"].episodes[0].episode_advantage == pytest.approx(0.35)
    assert "no penalty of an invalid action alone" in (found["rloo"].missing or "")


def test_what_an_estimator_lacks_is_said(writer: StoreWriter, session: Session) -> None:
    write(writer, BY_HAND)

    found = by_name(session, "remax", "gae", "grpo")

    assert "no greedy episode" in (found["remax"].missing or "")
    assert "critic's values" in (found["gae"].missing or "")
    assert found["grpo"].missing is None
    with pytest.raises(LookupError, match="no estimator 'ppo'"):
        by_name(session, "ppo")


def test_rewards_of_ones_own_are_not_made_up(writer: StoreWriter, session: Session) -> None:
    start = started(settings())
    config = json.loads(start.config_json)
    config["algorithm"]["reward_shaping"] = "mine:reward"
    writer.write([replace(start, config_json=json.dumps(config)), *records(BY_HAND)])

    found = queries.advantages_by_estimator(session, GROUP, names=["grpo"])

    assert found.reward_source is None
    assert "mine:reward" in (found.estimators[0].missing or "")
    [first, *_] = queries.anchor_groups(session, GROUP)
    assert [step.return_to_go for step in first.steps] == [None, None, None]


def test_a_greedy_episode_whose_rewards_are_not_stored_is_named(
    writer: StoreWriter, session: Session
) -> None:
    chosen = settings(name="remax")
    write(writer, BY_HAND, chosen=chosen, greedy=BY_HAND[:1])
    start = started(chosen)
    config = json.loads(start.config_json)
    config["algorithm"]["reward_shaping"] = "mine:reward"
    writer.write([replace(start, attempt=1, config_json=json.dumps(config))])

    missing = by_name(session, "remax")["remax"].missing

    assert missing is not None
    assert missing.startswith("the greedy episode is stored without credit, and its rewards would")
    assert "mine:reward" in missing


def test_states_that_are_alike_are_one_where_the_run_says_so(
    writer: StoreWriter, session: Session
) -> None:
    alike = settings(anchor_similarity=0.9)
    long = [
        replace(record, outcome=renamed(record.outcome, f"{'hall ' * 9}{place}"))
        for place, record in enumerate(records(BY_HAND))
    ]
    writer.write([started(alike), *long])

    graph = queries.state_graph(session, GROUP)

    assert graph.similarity == 0.9
    assert graph.nodes[1].num_starts == 3


def renamed(outcome: Trajectory | FailedEpisode, name: str) -> Trajectory | FailedEpisode:
    """The episode with another first state."""
    first, *rest = outcome.steps
    seen = replace(first.observation, anchor_state=name)
    return replace(outcome, steps=(replace(first, observation=seen), *rest))


def test_a_page_of_a_large_group_asks_a_fixed_number_of_questions(
    writer: StoreWriter, engine: Engine
) -> None:
    write(writer, BY_HAND, drawn(3, size=16, longest=20))
    asked: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _(*arguments: object) -> None:
        asked.append(str(arguments[2]))

    counts: list[int] = []
    for index in (0, 1):
        place = replace(GROUP, group_index=index)
        asked.clear()
        with Session(engine) as session:
            queries.group_steps(session, place)
            queries.anchor_groups(session, place)
            queries.state_graph(session, place)
            queries.advantages_by_estimator(session, place)
        counts.append(len(asked))

    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    ("outcomes", "expected"), [("mixed", [0, 3]), ("solved", [1]), ("unsolved", [2])]
)
def test_groups_are_listed_by_their_outcomes(
    writer: StoreWriter, session: Session, outcomes: GroupOutcomes, expected: list[int]
) -> None:
    solved, lost = BY_HAND[0], BY_HAND[1]
    write(writer, BY_HAND, [solved, solved], [lost, lost], [solved, replace(solved, reward=0.5)])
    writer.write([make_record(make_failure(sample_index=0), group_index=1, retry=1)])

    where = queries.GroupFilter(outcomes=outcomes)
    found = queries.list_groups(session, run_id="run", where=where, descending=False)

    assert [row.group_index for row in found.rows] == expected


def test_no_question_about_a_group_reads_a_table_whole(
    sqlite_template: Path, tmp_path: Path
) -> None:
    """By the plans of SQLite, for a store without statistics."""
    store = str(shutil.copy(sqlite_template, tmp_path / "store.db"))
    greedy = [Walk(states="ab", actions="nn", reward=0.5)]
    engine = read_only_engine(store)
    asked: list[tuple[str, Any]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _(*arguments: object) -> None:
        asked.append((str(arguments[2]), arguments[3]))

    with StoreWriter(store) as writer, Session(engine) as session:
        # A writer that ends counts the rows, and of tables this small SQLite reads everything.
        write(writer, BY_HAND, chosen=settings(name="reinforce_plus_plus"), greedy=greedy)
        queries.group_steps(session, GROUP)
        queries.anchor_groups(session, GROUP)
        queries.state_graph(session, GROUP)
        queries.advantages_by_estimator(session, GROUP)
        queries.list_groups(session, run_id="run", where=queries.GroupFilter(outcomes="mixed"))
        plans = [
            row.detail
            for statement, parameters in list(asked)
            if statement.lstrip().startswith(("SELECT", "WITH"))
            for row in session.connection().exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", parameters
            )
        ]
    engine.dispose()

    whole = re.compile(r"SCAN (steps|episodes|calls|observations|call_tokens|groups|tasks)\b")
    assert len(plans) > 20
    assert [plan for plan in plans if whole.search(plan)] == []
