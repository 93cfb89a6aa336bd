"""Rules of episodes: what repeats, what is accepted, how one ends, and what it draws."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from random import Random

import numpy as np
from PIL import Image

from longhaul_core.types import Task
from longhaul_envs.contract.elsewhere import Elsewhere, played_elsewhere
from longhaul_envs.contract.recording import (
    NONSENSE,
    Facts,
    Recorded,
    reactions,
    recorded,
    returned,
    shown,
)
from longhaul_envs.contract.subject import Subject
from longhaul_envs.players import Player, opened

__all__ = [
    "admissible_actions_are_accepted",
    "expert_solves",
    "nonsense_is_handled",
    "pictures_are_as_described",
    "pictures_show_the_state",
    "same_episode_beside_another",
    "same_episode_twice",
    "same_in_another_process_which_close_frees",
]

_NUM_STEPS = 12
_MOST_TRIED = 96
"""Admissible actions of starts that are tried, in all."""
_ECHO_CHARACTERS = 10_000
"""By which an answer to 100 kB of nonsense may be longer than the first observation."""
_ROUNDS = 3


def _record(subject: Subject, player: Player, task: Task) -> Recorded:
    """The beginning of an episode, which is played for the first check that asks for it."""
    known = subject.recorded.get(task.task_id)
    if known is None:
        num_steps = min(subject.horizon, _NUM_STEPS)
        known = recorded(player, task, num_steps=num_steps, draw=Random(task.task_id))
        subject.recorded[task.task_id] = known
    return known


def same_in_another_process_which_close_frees(subject: Subject) -> Iterator[str]:
    """What is declared to repeat does so in another process, in another order.

    And that process holds no more after its third instance than after its first.
    """
    sample = subject.sample if subject.repeats_starts else ()
    here: list[Recorded] = []
    if sample:
        with opened(subject.spec) as player:
            here = [
                _record(subject, player, task)
                if subject.repeats_episodes
                else Recorded([], [shown(player.start(task))])
                for task in sample
            ]
    elsewhere = played_elsewhere(
        subject.spec,
        [(task, first.actions) for task, first in zip(sample, here, strict=True)][::-1],
        rounds_of=subject.sample[0],
        rounds=_ROUNDS,
        settle_seconds=subject.settle_seconds,
    )
    yield from _other_episodes(sample, here, elsewhere.facts[::-1])
    yield from _left_behind(elsewhere)


def _other_episodes(
    sample: Sequence[Task], here: list[Recorded], there: list[list[Facts]]
) -> Iterator[str]:
    for task, first, facts in zip(sample, here, there, strict=True):
        if first.facts[0] != facts[0]:
            yield f"the start of task {task.task_id!r} is another one in another process"
        elif first.facts != facts:
            place = next(n for n, (a, b) in enumerate(_paired(first.facts, facts)) if a != b)
            yield (
                f"task {task.task_id!r} and the same actions give another episode in another "
                f"process, from step {place} on"
            )


def _paired(first: list[list[object]], second: list[list[object]]) -> Iterator[tuple[object, ...]]:
    longest = max(len(first), len(second))
    for n in range(longest):
        yield tuple(facts[n] if n < len(facts) else None for facts in (first, second))


def same_episode_twice(subject: Subject) -> Iterator[str]:
    """The same actions bring the same episode, after others and right after itself."""
    if not subject.repeats_episodes:
        return
    with opened(subject.spec) as player:
        for task in subject.sample:
            first = _record(subject, player, task)
            again = [reactions(player, task, first.actions) for _ in range(2)]
            if again != [first.facts] * 2:
                yield f"task {task.task_id!r} and the same actions give another episode"


def same_episode_beside_another(subject: Subject) -> Iterator[str]:
    """Episodes that share a process do not meet, where several are declared to share one."""
    if subject.description.episodes_per_process == 1 or not subject.repeats_episodes:
        return
    with opened(subject.spec) as player, opened(subject.spec) as neighbour:
        for task, other in zip(subject.sample, subject.sample[::-1], strict=True):
            alone = _record(subject, player, task)
            facts = [alone.facts[0]]
            player.start(task)
            for number, action in enumerate(alone.actions):
                if number % 3 == 0:  # a start may take a second
                    draw = Random(other.task_id)
                    recorded(neighbour, other, num_steps=1 + number % 2, draw=draw)
                facts.append(returned(player.act(action)))
            if facts != alone.facts:
                yield (
                    f"task {task.task_id!r} is another episode where task {other.task_id!r} is "
                    "played in the same process at once; episodes_per_process must be 1"
                )


def admissible_actions_are_accepted(subject: Subject) -> Iterator[str]:
    """What an observation lists is accepted: at the start each, then one after the other."""
    tried = max(2, _MOST_TRIED // len(subject.sample))
    with opened(subject.spec) as player:
        for task in subject.sample:
            draw = Random(task.task_id)
            listed = player.start(task).admissible_actions or ()
            alone = draw.sample(listed, min(tried, len(listed))) if subject.repeats_starts else ()
            refused = {a for a in alone if not _accepts_first(player, task, a)}
            refused |= set(_refused_on_a_walk(player, task, draw, subject.horizon))
            for action in sorted(refused):
                yield f"task {task.task_id!r} calls {action!r} admissible and does not accept it"


def _accepts_first(player: Player, task: Task, action: str) -> bool:
    player.start(task)
    return player.act(action).action_accepted


def _refused_on_a_walk(player: Player, task: Task, draw: Random, horizon: int) -> Iterator[str]:
    observation = player.start(task)
    for _ in range(min(horizon, 2 * _NUM_STEPS)):
        if not observation.admissible_actions:
            return
        action = draw.choice(observation.admissible_actions)
        result = player.act(action)
        if not result.action_accepted:
            yield action
        if result.terminated or result.truncated:
            return
        observation = result.observation


def nonsense_is_handled(subject: Subject) -> Iterator[str]:
    """What no environment understands is answered in words, refused and pays nothing."""
    with opened(subject.spec) as player:
        for task in subject.sample:
            observation = first = player.start(task)
            for name, action in NONSENSE.items():
                lists_actions = observation.admissible_actions is not None
                result = player.act(action)
                text = result.observation.text
                problem = ""
                if lists_actions and result.action_accepted:
                    problem = f"accepts {action[:20]!r}, which it did not list"
                elif result.success:
                    problem = f"is solved by {action[:20]!r}"
                elif not text.strip() and not result.observation.pictures:
                    problem = f"shows nothing after {name}"
                elif len(text) > len(first.text) + _ECHO_CHARACTERS:
                    problem = f"answers {name} with {len(text):,} characters"
                if problem:
                    yield f"task {task.task_id!r} {problem}"
                ended = result.terminated or result.truncated
                observation = player.start(task) if ended else result.observation


def expert_solves(subject: Subject) -> Iterator[str]:
    """An expert, where there is one, solves what is played, by admissible actions.

    One that `ExpertMayLose` declares has to bring the task to an end.
    """
    may_lose = subject.is_gym and hasattr(subject.spec.load(), "expert_may_lose")
    with opened(subject.spec) as player:
        for task in subject.sample:
            observation, num_steps, solved = player.start(task), 0, False
            advice = player.expert_action()
            if advice is None:
                continue
            while advice is not None and num_steps < subject.horizon:
                listed = observation.admissible_actions
                if listed is not None and advice not in listed:
                    yield f"the expert's {advice!r} in task {task.task_id!r} is not admissible"
                    break
                result = player.act(advice)
                num_steps += 1
                if result.terminated or result.truncated:
                    solved = (result.success or may_lose) and result.terminated
                    break
                observation, advice = result.observation, player.expert_action()
            if not solved:
                yield f"the expert does not solve task {task.task_id!r} in {num_steps} steps"


def pictures_are_as_described(subject: Subject) -> Iterator[str]:
    """No observation shows more pixels than the environment says."""
    most = subject.description.picture_pixels
    if most is None or not subject.description.shows_pictures:
        return
    with opened(subject.spec) as player:
        for task in subject.sample:
            pixels = 0
            for picture in player.start(task).pictures:
                with Image.open(BytesIO(picture.data or b"")) as image:
                    pixels += image.width * image.height
            if pixels > most:
                yield f"task {task.task_id!r} shows {pixels:,} pixels, more than {most:,}"


def pictures_show_the_state(subject: Subject) -> Iterator[str]:
    """Pictures are images of several colours that change with the state, and change nothing."""
    with opened(subject.spec) as player:
        seen: set[bytes] = set()
        num_drawn = 0
        for task in subject.sample:
            episode = _record(subject, player, task)
            player.start(task)
            facts = [episode.facts[0]]
            for action in episode.actions:
                pixels = player.render()
                if pixels is None:
                    return
                if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
                    yield (
                        "render gives no uint8 array of shape (height, width, 3), but "
                        f"{pixels.dtype} of shape {pixels.shape}"
                    )
                    return
                if (pixels == pixels[0, 0]).all():
                    yield f"the picture of task {task.task_id!r} has one colour"
                seen.add(pixels.tobytes())
                num_drawn += 1
                facts.append(returned(player.act(action)))
            if subject.repeats_episodes and facts != episode.facts:
                yield f"task {task.task_id!r} is another episode where its pictures are drawn"
        if num_drawn > 1 and len(seen) == 1:
            yield f"{num_drawn} states have the same picture"


def _left_behind(elsewhere: Elsewhere) -> Iterator[str]:
    held = elsewhere.held
    if held[-1].exceeds(held[0]):
        yield (
            f"close leaves something behind: {held[0]} after 1 instance, {held[-1]} after "
            f"{len(held)}"
        )
