"""Each question of the cookbook, on both databases, against a computation over the records."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import pytest

from core.sql_box.conftest import Box
from core.sql_box.varied_store import ACTIONS, World, act
from longhaul_core.errors import QueryError
from longhaul_core.sql_box.box import run_query
from longhaul_core.sql_box.cookbook import Question, question, questions
from longhaul_core.sql_box.cookbook.asking import ask_question
from longhaul_core.sql_box.cookbook.guide import PART, questions_markdown
from longhaul_core.sql_box.limits import QueryLimits
from longhaul_core.store import EpisodeRecord, StoreWriter, open_store
from longhaul_core.store.packing import content_hash
from longhaul_core.types import FailedEpisode, FinishReason, StopReason, Task, Trajectory
from steps import with_call
from store_samples import make_record, make_trajectory, run_started

pytestmark = pytest.mark.usefixtures("without_processes")
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "sql.md"
Row = tuple[Any, ...]
Answer = tuple[list[Row], Callable[[Row], Any]]
"""Rows, and what they are sorted by."""


def played(episodes: Iterable[EpisodeRecord]) -> list[tuple[EpisodeRecord, Trajectory]]:
    return [(one, one.outcome) for one in episodes if isinstance(one.outcome, Trajectory)]


def by_task(
    episodes: Iterable[EpisodeRecord],
) -> dict[Task, list[tuple[EpisodeRecord, Trajectory]]]:
    found: dict[Task, list[tuple[EpisodeRecord, Trajectory]]] = defaultdict(list)
    for one, outcome in played(episodes):
        found[outcome.task].append((one, outcome))
    return found


def rate(episodes: Iterable[tuple[EpisodeRecord, Trajectory]]) -> float:
    return fmean(float(outcome.success) for _, outcome in episodes)


def first_id(episodes: Iterable[EpisodeRecord]) -> str:
    return min(one.episode_id for one in episodes)


def flipped_tasks(world: World, run: str, before: int, after: int) -> Answer:
    at = {
        step: by_task(one for one in world.of(run, "validation") if one.training_step == step)
        for step in (before, after)
    }
    rows = [
        (
            task.environment,
            task.task_id,
            task.goal,
            rate(at[before][task]),
            rate(at[after][task]),
            first_id(one for one, _ in at[before][task]),
            first_id(one for one, _ in at[after][task]),
        )
        for task in at[before]
        if task in at[after] and rate(at[before][task]) != rate(at[after][task])
    ]
    return rows, lambda row: row[4] - row[3]


def solved_by_one_run(world: World, run: str, other: str) -> Answer:
    at: dict[str, dict[Task, list[tuple[EpisodeRecord, Trajectory]]]] = {}
    for name in (run, other):
        panel = world.of(name, "validation")
        newest = max(one.training_step for one in panel)
        at[name] = by_task(one for one in panel if one.training_step == newest)
    rows = [
        (
            task.environment,
            task.task_id,
            rate(mine),
            rate(at[other][task]),
            first_id(one for one, _ in mine),
            first_id(one for one, _ in at[other][task]),
        )
        for task, mine in at[run].items()
        if task in at[other] and rate(mine) != rate(at[other][task])
    ]
    return rows, lambda row: row[3] - row[2]


def repeated_actions(world: World, run: str) -> Answer:
    rows: list[Row] = []
    for one in world.of(run):
        for action, same in groupby(one.outcome.steps, key=lambda step: step.action):
            steps = list(same)
            if len(steps) >= 3:
                rows.append((one.episode_id, steps[0].index, action, len(steps)))
    return rows, lambda row: -row[3]


def groups_without_signal(world: World, run: str) -> Answer:
    rows: list[Row] = []
    for (step, index), group in groups(world, run).items():
        advantages = [
            advantage
            for one in group
            if one.episode_id in world.credits
            for advantage in world.credits[one.episode_id].advantages
        ]
        reason = world.discarded.get((run, step, index))
        if reason != "no_signal" and (not advantages or any(advantages)):
            continue
        returns = [outcome.episode_return for _, outcome in played(group)]
        task = group[0].outcome.task
        rows.append(
            (
                step,
                index,
                task.environment,
                task.task_id,
                len(group),
                min(returns),
                max(returns),
                reason,
                first_id(group),
            )
        )
    return rows, lambda row: (row[0], row[1])


def groups(world: World, run: str) -> dict[tuple[int, int], list[EpisodeRecord]]:
    found: dict[tuple[int, int], list[EpisodeRecord]] = defaultdict(list)
    for one in world.of(run, "train"):
        found[one.training_step, one.group_index].append(one)
    return found


def largest_token_gaps(world: World, run: str, training_step: int, most: int) -> Answer:
    rows: list[Row] = []
    for one in world.of(run, "train"):
        credit = world.credits.get(one.episode_id)
        if one.training_step != training_step or credit is None:
            continue
        for given in credit.calls:
            call = one.outcome.steps[given.step_index].calls[given.call_index]
            assert call.sampled is not None
            assert given.policy_logprobs is not None
            pairs = zip(call.sampled.behavior_logprobs or (), given.policy_logprobs, strict=True)
            for place, (sampler, learner) in enumerate(pairs):
                rows.append(
                    (
                        one.episode_id,
                        given.step_index,
                        given.call_index,
                        place,
                        sampler,
                        learner,
                        learner - sampler,
                        len(call.sampled.action_tokens),
                        call.sampled.policy_version,
                        call.reply,
                    )
                )
    rows.sort(key=lambda row: -abs(row[6]))
    return rows[:most], lambda row: -abs(row[6])


def dropped_by_memory(world: World, episode: str) -> Answer:
    (one,) = (one for one in world.episodes if one.episode_id == episode)
    shown: dict[tuple[str, str], list[int]] = defaultdict(list)
    for step in one.outcome.steps:
        for message in act(step).messages:
            shown[message.role, message.text].append(step.index)
    last = one.outcome.steps[-1].index
    rows = [
        (role, content, steps[0], steps[-1])
        for (role, content), steps in shown.items()
        if last not in steps
    ]
    return rows, lambda row: (-row[3], -row[2])


def memory_drops(world: World, run: str) -> Answer:
    halves: dict[str, list[tuple[EpisodeRecord, Trajectory]]] = defaultdict(list)
    for one, outcome in played(world.of(run)):
        dropped = any(call.dropped_exchanges for step in outcome.steps for call in step.calls)
        halves["something" if dropped else "nothing"].append((one, outcome))
    rows = [
        (
            name,
            len(half),
            rate(half),
            fmean(outcome.episode_return for _, outcome in half),
            fmean(len(outcome.steps) for _, outcome in half),
        )
        for name, half in halves.items()
    ]
    return rows, lambda row: row[0]


def worst_episodes(world: World, run: str, most: int) -> Answer:
    train = world.of(run, "train")
    last = max(one.training_step for one in train)
    rows: list[Row] = []
    for one in (one for one in train if one.training_step == last):
        outcome = one.outcome
        failed = isinstance(outcome, FailedEpisode)
        rows.append(
            (
                one.episode_id,
                outcome.task.environment,
                outcome.task.task_id,
                None if failed else outcome.episode_return,
                None if failed else outcome.stop_reason.value,
                outcome.cause.value if failed else None,
                outcome.message if failed else None,
                len(outcome.steps),
                outcome.horizon,
                sum(not step.action_valid for step in outcome.steps),
            )
        )

    def order(row: Row) -> tuple[bool, float, str]:
        return row[3] is not None, row[3] or 0.0, row[0]

    return sorted(rows, key=order)[:most], order


def first_solved(world: World, run: str) -> Answer:
    rows: list[Row] = []
    for task, tried in by_task(world.of(run, "train")).items():
        solved = [one for one, outcome in tried if outcome.success]
        if solved:
            first = min(one.training_step for one in solved)
            rows.append(
                (task.environment, task.task_id, task.goal, first, len(solved), first_id(solved))
            )
    return rows, lambda row: row[3]


def never_solved(world: World, run: str, times: int) -> Answer:
    rows = [
        (
            task.environment,
            task.task_id,
            task.goal,
            len(tried),
            max(outcome.episode_return for _, outcome in tried),
            sum(not outcome.stop_reason.terminated for _, outcome in tried),
            max(one.training_step for one, _ in tried),
        )
        for task, tried in by_task(world.of(run, "train", "validation")).items()
        if len(tried) >= times and not any(outcome.success for _, outcome in tried)
    ]
    return rows, lambda row: -row[4]


def forgotten_tasks(world: World, run: str) -> Answer:
    panel = world.of(run, "validation")
    newest = max(one.training_step for one in panel)
    rows: list[Row] = []
    for task, tried in by_task(panel).items():
        solved = [one.training_step for one, outcome in tried if outcome.success]
        now = [
            one.episode_id
            for one in panel
            if one.training_step == newest and one.outcome.task == task
        ]
        if solved and max(solved) < newest and now:
            rows.append((task.environment, task.task_id, task.goal, max(solved), max(now)))
    return rows, lambda row: row[3]


def failure_causes(world: World, run: str) -> Answer:
    failed: dict[tuple[str, str], list[EpisodeRecord]] = defaultdict(list)
    for one in world.of(run):
        if isinstance(one.outcome, FailedEpisode):
            failed[one.outcome.cause.value, one.outcome.task.environment].append(one)
    rows = [
        (
            cause,
            environment,
            len(same),
            min(one.training_step for one in same),
            max(one.training_step for one in same),
            f"{cause}: no answer",
            first_id(same),
        )
        for (cause, environment), same in failed.items()
    ]
    return rows, lambda row: -row[2]


def invalid_actions(world: World, run: str) -> Answer:
    rows: list[Row] = []
    for action in ACTIONS:
        given = [(one, step) for one, step in world.steps(run) if step.action == action]
        refused = [one for one, step in given if not step.action_valid]
        if refused:
            share = len(refused) / len(given)
            rows.append((action, len(refused), len(given), share, first_id(refused)))
    return rows, lambda row: (-row[1], row[2])


def time_by_part(world: World, run: str) -> Answer:
    sums: dict[int, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for one, step in world.steps(run, "train"):
        total = sums[one.training_step]
        total[0] += 1
        total[1] += sum(call.queue_seconds for call in step.calls)
        total[2] += sum(call.generate_seconds for call in step.calls)
        total[3] += step.environment_seconds
    return [(step, *total) for step, total in sums.items()], lambda row: row[0]


def slowest_steps(world: World, run: str, most: int) -> Answer:
    rows: list[Row] = []
    for one, step in world.steps(run):
        queue = sum(call.queue_seconds for call in step.calls)
        generate = sum(call.generate_seconds for call in step.calls)
        tokens = sum(len(call.sampled.action_tokens) for call in step.calls if call.sampled)
        rows.append(
            (
                one.episode_id,
                step.index,
                one.training_step,
                one.outcome.task.environment,
                queue + generate + step.environment_seconds,
                queue,
                generate,
                step.environment_seconds,
                tokens,
            )
        )
    rows.sort(key=lambda row: -row[4])
    return rows[:most], lambda row: -row[4]


def cut_replies(world: World, run: str) -> Answer:
    calls: dict[tuple[int, str], list[tuple[EpisodeRecord, bool]]] = defaultdict(list)
    for one, step in world.steps(run):
        for call in step.calls:
            cut = call.finish_reason is FinishReason.LENGTH
            calls[one.training_step, call.purpose].append((one, cut))
    rows: list[Row] = []
    for (training_step, purpose), made in calls.items():
        cut = [one for one, was_cut in made if was_cut]
        rows.append(
            (
                training_step,
                purpose,
                len(made),
                len(cut),
                len(cut) / len(made),
                first_id(cut) if cut else None,
            )
        )
    return rows, lambda row: (row[0], row[1])


def rewards_by_step(world: World, run: str) -> Answer:
    steps: dict[int, list[Row]] = defaultdict(list)
    for one, step in world.steps(run, "train"):
        credit = world.credits.get(one.episode_id)
        steps[step.index].append(
            (
                step.reward,
                None if credit is None else credit.shaped_rewards[step.index],
                None if credit is None else credit.advantages[step.index],
                float(not step.action_valid),
            )
        )
    rows = [
        (index, len(same), *(mean(row[part] for row in same) for part in range(4)))
        for index, same in steps.items()
    ]
    return rows, lambda row: row[0]


def mean(numbers: Iterable[float | None]) -> float | None:
    """Of those that are there, as SQL has it."""
    there = [number for number in numbers if number is not None]
    return fmean(there) if there else None


def best_steps(world: World, run: str, training_step: int, most: int) -> Answer:
    rows: list[Row] = []
    for one, step in world.steps(run, "train"):
        credit = world.credits.get(one.episode_id)
        if one.training_step == training_step and credit is not None:
            rows.append(
                (
                    one.episode_id,
                    step.index,
                    step.action,
                    step.action_valid,
                    step.reward,
                    credit.episode_advantage,
                    credit.step_advantages[step.index],
                    credit.advantages[step.index],
                    credit.loss_weights[step.index],
                )
            )
    rows.sort(key=lambda row: (-row[7], row[0], row[1]))
    return rows[:most], lambda row: -row[7]


def shared_states(world: World, run: str, training_step: int) -> Answer:
    states: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for one, step in world.steps(run, "train"):
        if one.training_step == training_step:
            credit = world.credits.get(one.episode_id)
            advantage = None if credit is None else credit.step_advantages[step.index]
            anchor = content_hash(step.observation.anchor)
            states[one.group_index, anchor].append((one.episode_id, step.action, advantage))
    rows: list[Row] = []
    for (group_index, anchor), same in states.items():
        episodes = {row[0] for row in same}
        advantages = [row[2] for row in same if row[2] is not None]
        if len(episodes) > 1:
            rows.append(
                (
                    group_index,
                    anchor,
                    len(same),
                    len(episodes),
                    len({row[1] for row in same}),
                    min(advantages, default=None),
                    max(advantages, default=None),
                    min(episodes),
                )
            )
    return rows, lambda row: (-row[2], row[0])


def prompt_growth(world: World, run: str) -> Answer:
    sizes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for _, step in world.steps(run):
        sampled = act(step).sampled
        assert sampled is not None
        sizes[step.index].append((len(sampled.prompt_tokens), len(sampled.action_tokens)))
    rows = [
        (
            index,
            len(same),
            fmean(prompt for prompt, _ in same),
            max(prompt for prompt, _ in same),
            fmean(reply for _, reply in same),
        )
        for index, same in sizes.items()
    ]
    return rows, lambda row: row[0]


def tokens_read_again(world: World, run: str) -> Answer:
    counts: dict[tuple[int, str], list[tuple[int, int, int]]] = defaultdict(list)
    for one in world.of(run):
        latest: dict[tuple[str, ...], tuple[int, ...]] = {}
        for call in (call for step in one.outcome.steps for call in step.calls):
            if call.sampled is None:
                continue
            prompt = call.sampled.prompt_tokens
            of_agent = (call.agent, call.purpose)
            stream = (*of_agent, str(call.conversation))
            before = latest.get(stream, latest.get(of_agent, ()))
            shared = 0
            while before[: shared + 1] == prompt[: shared + 1] and shared < len(prompt):
                shared += 1
            counts[one.training_step, one.phase].append(
                (len(prompt), shared, min(len(before), len(prompt)) - shared)
            )
            latest[stream] = latest[of_agent] = prompt
    rows: list[Row] = []
    for (training_step, phase), same in counts.items():
        read, shared, repeated = (sum(column) for column in zip(*same, strict=True))
        rows.append((training_step, phase, len(same), read, shared, repeated, repeated / read))
    return rows, lambda row: (row[0], row[1])


def horizon_hits(world: World, run: str) -> Answer:
    ends: dict[tuple[int, str], list[Trajectory]] = defaultdict(list)
    for one, outcome in played(world.of(run)):
        ends[one.training_step, one.phase].append(outcome)
    rows: list[Row] = []
    for (training_step, phase), same in ends.items():
        hits = sum(outcome.stop_reason is StopReason.HORIZON_REACHED for outcome in same)
        rows.append((training_step, phase, 7, len(same), hits, hits / len(same)))
    return rows, lambda row: (row[0], row[1])


def action_diversity(world: World, run: str) -> Answer:
    used: dict[int, Counter[str]] = defaultdict(Counter)
    for one, step in world.steps(run, "train"):
        used[one.training_step][step.action] += 1
    rows = [
        (step, times.total(), len(times), max(times.values()) / times.total())
        for step, times in used.items()
    ]
    return rows, lambda row: row[0]


def unread_calls(world: World, run: str) -> Answer:
    read: Counter[tuple[int, int, int, int, int]] = Counter()
    for inputs in world.loss_inputs:
        if inputs.run_id == run:
            for row in inputs.rows:
                read[
                    row.training_step,
                    row.group_index,
                    row.sample_index,
                    row.step_index,
                    row.call_index,
                ] += 1
    rows: list[Row] = []
    for one in world.of(run, "train"):
        credit = world.credits.get(one.episode_id)
        for call in credit.calls if credit else ():
            place = (one.training_step, one.group_index, one.outcome.sample_index)
            times = read[*place, call.step_index, call.call_index]
            if call.advantage != 0 and times != 1:
                tokens = len(call.policy_logprobs or ())
                rows.append(
                    (
                        one.episode_id,
                        call.step_index,
                        call.call_index,
                        call.advantage,
                        times,
                        tokens if times else None,
                        tokens,
                    )
                )
    return rows, lambda row: ()


def observations_with(world: World, run: str, words: str) -> Answer:
    rows = [
        (one.episode_id, step.index, one.training_step, step.observation.text, step.action)
        for one, step in world.steps(run)
        if words.lower() in step.observation.text.lower()
    ]
    return rows, lambda row: -row[2]


def metric_of_two_runs(world: World, run: str, other: str) -> Answer:
    rows = [
        (step, value, world.metrics[other, step], world.metrics[other, step] - value)
        for (name, step), value in world.metrics.items()
        if name == run
    ]
    return rows, lambda row: row[0]


RUN: dict[str, str | int] = {"run": "first"}
ASKED: dict[str, tuple[Callable[..., Answer], dict[str, str | int], dict[str, str | int]]] = {
    # name: the computation, what both are given, what the question alone is given
    "flipped_tasks": (flipped_tasks, RUN | {"before": 0, "after": 3}, {}),
    "solved_by_one_run": (solved_by_one_run, RUN | {"other": "second"}, {}),
    "repeated_actions": (repeated_actions, RUN, {}),
    "groups_without_signal": (groups_without_signal, RUN, {}),
    "largest_token_gaps": (largest_token_gaps, RUN | {"training_step": 3, "most": 10}, {}),
    "dropped_by_memory": (dropped_by_memory, {"episode": ""}, {}),
    "memory_drops": (memory_drops, RUN, {}),
    "worst_episodes": (worst_episodes, RUN | {"most": 5}, {}),
    "first_solved": (first_solved, RUN, {}),
    "never_solved": (never_solved, RUN | {"times": 2}, {}),
    "forgotten_tasks": (forgotten_tasks, RUN, {}),
    "failure_causes": (failure_causes, RUN, {}),
    "invalid_actions": (invalid_actions, RUN, {}),
    "time_by_part": (time_by_part, RUN, {}),
    "slowest_steps": (slowest_steps, RUN | {"most": 7}, {}),
    "cut_replies": (cut_replies, RUN, {}),
    "rewards_by_step": (rewards_by_step, RUN, {}),
    "best_steps": (best_steps, RUN | {"training_step": 1, "most": 6}, {}),
    "shared_states": (shared_states, RUN | {"training_step": 3}, {}),
    "prompt_growth": (prompt_growth, RUN, {}),
    "tokens_read_again": (tokens_read_again, RUN, {}),
    "horizon_hits": (horizon_hits, RUN, {}),
    "action_diversity": (action_diversity, RUN, {}),
    "unread_calls": (unread_calls, RUN, {}),
    "observations_with": (observations_with, RUN | {"words": "kitchen with 5% less"}, {}),
    "metric_of_two_runs": (
        metric_of_two_runs,
        RUN | {"other": "second"},
        {"metric": "actor/entropy"},
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_question_answers_what_the_records_say(box: Box, name: str) -> None:
    naive, values, more = ASKED[name]
    if "episode" in values:  # one of the longest, whose memory dropped most
        longest = max(box.world.of("first"), key=lambda one: len(one.outcome.steps))
        values = {"episode": longest.episode_id}
    expected, order = naive(box.world, **values)

    found = run_query(box.url, question(name).filled(values | more))

    assert expected, "the store varies too little to ask this"
    assert found.truncated is None
    assert sorted(map(comparable, found.rows)) == sorted(map(comparable, expected))
    keys = [rounded(order(row)) for row in found.rows]
    assert keys == sorted(keys)


def test_tokens_are_read_again_behind_what_changed(tmp_path: Path) -> None:
    """The second prompt has three tokens of the first again, behind a new one."""
    outcome = make_trajectory(rewards=(0.0, 0.0, 1.0))
    prompts = ((1, 2, 3, 4, 5), (1, 2, 9, 3, 4, 5), (1, 2, 9, 3, 4, 5, 6, 7))
    steps = tuple(
        with_call(step, prompt_tokens=prompt)
        for step, prompt in zip(outcome.steps, prompts, strict=True)
    )
    open_store(tmp_path / "store.db").dispose()
    with StoreWriter(tmp_path / "store.db") as writer:
        writer.write([run_started(), make_record(replace(outcome, steps=steps))])

    found = run_query(
        str(tmp_path / "store.db"), question("tokens_read_again").filled({"run": "run"})
    )

    assert [row[2:] for row in found.rows] == [
        (3, 5 + 6 + 8, 0 + 2 + 6, 0 + 3 + 0, pytest.approx(3 / 19))
    ]


@pytest.mark.parametrize("words", ["kitchen with 5_ less", "kitchen%less", "5! less", "a_hall"])
def test_no_letter_of_the_words_stands_for_another(box: Box, words: str) -> None:
    asked = question("observations_with")
    assert ask_question(box.url, asked, RUN | {"words": "a hall"}, limits=QueryLimits()).rows
    assert ask_question(box.url, asked, RUN | {"words": words}, limits=QueryLimits()).rows == ()


def test_a_run_is_named_as_people_name_it(box: Box) -> None:
    asked = question("worst_episodes")
    by_id = {
        run: ask_question(box.url, asked, {"run": run}, limits=QueryLimits()).rows
        for run in ("first", "second")
    }
    assert by_id["first"] != by_id["second"]
    for said, run in (("fir", "first"), ("last", "second")):
        found = ask_question(box.url, asked, {"run": said}, limits=QueryLimits()).rows
        assert found == by_id[run]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"run": "third"}, "no run 'third' in the store; it holds second, first"),
        ({"run": "first", "other": "nope"}, "no run 'nope'"),
        ({"run": "third", "other": "first", "metric": "a", "more": 1}, "no parameter 'more'"),
        (
            {"run": "first", "other": "last", "metric": "actor/entropi"},
            r"no metric 'actor/entropi' in the run first; did you mean actor/entropy\?",
        ),
        (
            {"run": "first", "other": "last", "metric": "it's"},
            'no metric "it\'s" in the run first$',
        ),
        ({"episode": "first/9"}, "no episode 'first/9' in the store"),
        ({"episode": "it's"}, 'no episode "it\'s" in the store'),
    ],
)
def test_what_is_named_and_is_not_there_is_said(
    box: Box, values: dict[str, str | int], message: str
) -> None:
    name = "metric_of_two_runs" if "other" in values else "worst_episodes"
    given = {"metric": "a"} | values if "other" in values else values
    with pytest.raises(QueryError, match=message):
        ask_question(
            box.url,
            question("dropped_by_memory" if "episode" in values else name),
            given,
            limits=QueryLimits(),
        )


def test_an_episode_and_a_metric_that_are_there_are_asked_about(box: Box) -> None:
    longest = max(box.world.of("first"), key=lambda one: len(one.outcome.steps))
    given = {
        "dropped_by_memory": {"episode": longest.episode_id},
        "metric_of_two_runs": {"run": "first", "other": "last", "metric": "actor/entropy"},
    }
    for name, values in given.items():
        assert ask_question(box.url, question(name), values, limits=QueryLimits()).rows


def comparable(row: Row) -> str:
    """Numbers of one value alike, whatever a database's types are."""
    return repr(tuple(rounded(value) for value in row))


def rounded(value: object) -> Any:  # noqa: ANN401 - what is given, with numbers alike
    if isinstance(value, tuple):
        return tuple(rounded(each) for each in cast("Row", value))
    return round(float(value), 6) + 0.0 if isinstance(value, bool | int | float) else value


def test_every_question_is_asked_here() -> None:
    assert [each.name for each in questions()] == sorted(
        ASKED, key=[each.name for each in questions()].index
    )
    assert len(questions()) == len({each.question for each in questions()}) == 26


def test_groups_of_equal_returns_are_not_taken_for_groups_without_signal(box: Box) -> None:
    """Credit is given for shaped rewards and by steps: the question must not go by returns."""
    found = run_query(box.url, question("groups_without_signal").filled(RUN))
    named = {(row[0], row[1]) for row in found.rows}
    by_returns = {
        key
        for key, group in groups(box.world, "first").items()
        if len({outcome.episode_return for _, outcome in played(group)}) == 1
    }
    assert named
    assert named != by_returns


QUESTION = question("best_steps")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"run": "x"}, "'training_step' is missing"),
        ({"run": "x", "training_step": "two"}, "must be a whole number, got 'two'"),
        ({"run": "x", "training_step": 1, "step": 2}, "no parameter 'step'"),
    ],
)
def test_what_a_question_cannot_be_asked_with_is_said(
    values: Mapping[str, str | int], message: str
) -> None:
    with pytest.raises(QueryError, match=message):
        QUESTION.filled(values)


def test_a_question_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(QueryError, match="no question 'flips'; it has worst_episodes, "):
        question("flips")


def test_a_value_stays_a_value(box: Box) -> None:
    found = run_query(box.url, QUESTION.filled({"run": "x' OR '1'='1", "training_step": 1}))
    assert found.rows == ()


@pytest.mark.parametrize("each", questions(), ids=lambda each: each.name)
def test_the_guide_has_the_question(each: Question) -> None:
    guide = GUIDE.read_text("utf-8")
    assert f"### {each.question}" in guide
    assert f"```sql\n{each.sql}\n```" in guide
    assert f"`{each.name}`" in guide


def test_the_guide_is_as_the_cookbook_has_it_now() -> None:
    assert PART.read(GUIDE) == questions_markdown()
