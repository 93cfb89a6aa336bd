"""The rule of anchor states: equal exactly when the state of the world is.

Steps of a group that were taken in equal anchors are compared with each other (GiGPO, HGPO,
GraphGPO), as if one stood where the other did. Time is no part of the state, here as there:
where a limit on steps cuts an episode, the comparison ends, and of a reward the sign is compared.
"""

from collections.abc import Iterator, Sequence
from random import Random

from longhaul_core.environment import StepResult
from longhaul_core.types import Observation, Task
from longhaul_envs.contract.recording import NONSENSE
from longhaul_envs.contract.subject import Subject
from longhaul_envs.players import Player, opened

__all__ = ["anchors_name_the_state"]

_NUM_WALKS, _WALK_STEPS, _FOLLOWING_STEPS, _MAX_PAIRS = 4, 8, 3, 6
_REFUSED = [NONSENSE[name] for name in ("unknown words", "nothing", "imitated tags")]

Way = tuple[str, ...]
"""Actions from the start of a task on."""


def anchors_name_the_state(subject: Subject) -> Iterator[str]:
    """Equal anchors behave equally, and refused actions leave the anchor as it was."""
    if not subject.repeats_episodes:
        return
    with opened(subject.spec) as player:
        for task in subject.sample:
            draw = Random(task.task_id)
            ways: dict[str, list[Way]] = {}
            for walk in _walks(player, task, draw):
                for anchor, way in walk:
                    if way not in ways.setdefault(anchor, []):
                        ways[anchor].append(way)
            pairs = [(met[0], met[-1]) for met in ways.values() if len(met) > 1]
            for one, other in draw.sample(pairs, min(_MAX_PAIRS, len(pairs))):
                yield from _behave_equally(player, task, one, other, draw)
            longest = max((way for met in ways.values() for way in met), key=len)
            yield from _survives_refusals(player, task, longest)


def _walks(player: Player, task: Task, draw: Random) -> Iterator[list[tuple[str, Way]]]:
    """Random walks, and after each the same one with two actions in the other order."""
    for _ in range(_NUM_WALKS):
        walk = _walk(player, task, (), draw)
        yield walk
        actions = list(walk[-1][1])
        if len(actions) > 1:
            place = draw.randrange(len(actions) - 1)
            actions[place : place + 2] = actions[place : place + 2][::-1]
            yield _walk(player, task, actions, draw)


def _walk(
    player: Player, task: Task, actions: Sequence[str], draw: Random
) -> list[tuple[str, Way]]:
    """The anchors on a way of listed actions: those given while they are listed, then others."""
    observation, way = player.start(task), ()
    walk: list[tuple[str, Way]] = [(observation.anchor, way)]
    for step in range(_WALK_STEPS):
        listed = observation.admissible_actions
        if not listed:
            break
        wanted = actions[step] if step < len(actions) else None
        action = wanted if wanted in listed else draw.choice(listed)
        result = player.act(action)
        if result.terminated or result.truncated:
            break
        observation, way = result.observation, (*way, action)
        walk.append((observation.anchor, way))
    return walk


def _behave_equally(
    player: Player, task: Task, one: Way, other: Way, draw: Random
) -> Iterator[str]:
    """Whether the same actions bring the same after either way."""
    following: list[str] = []
    first: list[tuple[object, ...]] = []
    observation = _after(player, task, one)
    starts = [_listed(observation)]
    for _ in range(_FOLLOWING_STEPS):
        listed = observation.admissible_actions
        if not listed:
            break
        following.append(draw.choice(listed))
        result = player.act(following[-1])
        first.append(_effect(result))
        if result.terminated or result.truncated:
            break
        observation = result.observation
    starts.append(_listed(_after(player, task, other)))
    where = (
        f"task {task.task_id!r} has one anchor state after {len(one)} and after {len(other)} "
        f"actions ({' | '.join(one)} against {' | '.join(other)})"
    )
    hint = "let `anchor_state` name all that decides what happens next"
    if starts[0] != starts[1]:
        yield f"{where}, and lists other actions there; {hint}"
        return
    for action, effect in zip(following, first, strict=True):
        result = player.act(action)
        if result.truncated or effect[-1]:  # time is no part of the state
            return
        if _effect(result) != effect:
            yield f"{where}, and {action!r} then has another effect; {hint}"
            return


def _after(player: Player, task: Task, way: Way) -> Observation:
    observation = player.start(task)
    for action in way:
        observation = player.act(action).observation
    return observation


def _listed(observation: Observation) -> list[str] | None:
    listed = observation.admissible_actions
    return None if listed is None else sorted(listed)


def _effect(result: StepResult) -> tuple[object, ...]:
    sign = (result.reward > 0) - (result.reward < 0)
    flags = (result.success, result.action_accepted, result.terminated, result.truncated)
    return (result.observation.anchor, _listed(result.observation), sign, *flags)


def _is_refused(result: StepResult) -> bool:
    return not (result.action_accepted or result.terminated or result.truncated)


def _survives_refusals(player: Player, task: Task, way: Way) -> Iterator[str]:
    """Whether the way leads to the same anchor where refused actions stand between its own."""
    expected = _after(player, task, way)
    if expected.anchor_state is None:  # the text is the anchor, and it may report the refusal
        return
    player.start(task)
    result = player.act(_REFUSED[0])
    for place, action in enumerate(way, start=1):
        if not _is_refused(result):
            return
        player.act(action)
        result = player.act(_REFUSED[place % len(_REFUSED)])
    if not _is_refused(result):
        return
    if result.observation.anchor != expected.anchor:
        yield (
            f"task {task.task_id!r} has another anchor state after actions that it refused; "
            "`anchor_state` must not count steps or tell what was tried"
        )
