"""A branch: a stored episode is taken up again at one of its steps, and played on.

The task is made again in its environment and the stored actions are played. Each thing that comes
back (text, admissible actions, anchor state, pictures, reward, end) must equal what was stored; so
the state is that of the stored step, whatever the environment keeps to itself. The memory takes in
the stored exchanges with the stored replies: no model is asked before that step.

The one decision to know: a branch replays, and copies no state. What is replayed stands in the
record of the continuation too, without tokens and untrained, so a continuation reads as a whole
episode whose first steps are those of another.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from longhaul_core.actions import Parser
from longhaul_core.environment import Determinism, EnvironmentDescription, StepResult
from longhaul_core.errors import ConfigError, EnvironmentFailure, MemoryFailure, PolicyFailure
from longhaul_core.memory.base import Complete
from longhaul_core.policy import Shortenable
from longhaul_core.rollout.driver import EnvironmentDriver
from longhaul_core.rollout.expert import reply_for
from longhaul_core.rollout.recorded import recorded_result
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.rollout.spec import Branch
from longhaul_core.text import shortened, storable_text
from longhaul_core.types import Call, CreditedBy, Message, Observation, Step, StopReason

__all__ = ["require_branchable", "take_up"]

_SAME_MEMORY = "take it up with the memory that the episode was played with"
_LONGEST_SHOWN = 200
"""Characters of either side of a difference."""


def require_branchable(
    branch: Branch, *, description: EnvironmentDescription, parser: Parser
) -> None:
    """Refuse what could not be taken up, before anything is played.

    Args:
        branch: Where.
        description: Of the environment as it is now.
        parser: Of who goes on.

    Raises:
        ConfigError: The environment does not claim to be exact, or is of another version than the
            stored task; or the action cannot be written in the action form.
    """
    task, place = branch.recorded.task, f"step {branch.step_index} of {branch.episode_id}"
    if description.determinism is not Determinism.EXACT:
        raise ConfigError(
            f"{place} cannot be taken up: {description.id} says determinism = "
            f'"{description.determinism.value}", and only an environment that repeats a whole '
            f'episode under the same actions ("{Determinism.EXACT.value}") can stand there again'
        )
    if description.version != task.version:
        raise ConfigError(
            f"{place} cannot be taken up: it was played in version {task.version!r} of "
            f"{task.environment}, and {description.version!r} is here; install that version, or "
            "give the environment the options that the run had"
        )
    if branch.action is not None and not branch.takes_stored_action:
        try:
            reply_for(
                branch.action, parser, admissible=branch.stored.observation.admissible_actions
            )
        except PolicyFailure as failure:
            raise ConfigError(
                f"{place} cannot be taken up with another action: {failure}"
            ) from failure


async def take_up(
    branch: Branch, driver: EnvironmentDriver, *, parser: Parser
) -> StopReason | None:
    """Bring a driver whose session has just observed the beginning to the branch's step.

    Args:
        branch: Where; its action, if it has one, is played too.
        driver: Of the same task.
        parser: Of who goes on: stored replies that it reads otherwise are written in its form.

    Returns:
        Why the episode ended, where the given action ended it. Otherwise the session stands where
        an action is to be chosen, and the memory holds the stored exchanges.

    Raises:
        EnvironmentFailure: The environment showed something else than was stored; names the step.
        MemoryFailure: The memory failed, or asks for a reply that was not stored.
    """
    episode_id = branch.episode_id
    first = branch.recorded.steps[0].observation
    seen = driver.session.observation
    _require_equal(_differences(first, seen), f"at the beginning of {episode_id}")
    for stored in branch.replayed:
        await _replay(branch, stored, driver, parser)
    return None if branch.action is None else await _act(branch, branch.action, driver, parser)


async def _replay(branch: Branch, stored: Step, driver: EnvironmentDriver, parser: Parser) -> None:
    session, place = driver.session, f"step {stored.index} of {branch.episode_id}"
    expected = recorded_result(branch.recorded, stored.index)

    def expect(result: StepResult) -> None:
        _require_equal(
            _differences(expected.observation, result.observation)
            + _other_differences(expected, result),
            f"after {place}",
        )

    _record_calls(session, stored)
    complete, left = _stored_replies(session, stored, place)
    try:
        await driver.play(
            stored.action,
            reply=_reply(stored, parser),
            valid=stored.action_valid,
            expect=expect,
            complete=complete,
        )
    except _Differs:
        raise
    except EnvironmentFailure as failure:
        raise type(failure)(f"{place} could not be played again: {failure}") from failure
    if left:
        raise MemoryFailure(
            f"the memory asks after {place} for fewer replies than were stored; {_SAME_MEMORY}"
        )


async def _act(
    branch: Branch, action: str, driver: EnvironmentDriver, parser: Parser
) -> StopReason | None:
    """Play the given action; the memory's questions go to who goes on."""
    stored = branch.stored
    if branch.takes_stored_action:
        _record_calls(driver.session, stored)
        return await driver.play(action, reply=_reply(stored, parser), valid=stored.action_valid)
    reply = reply_for(action, parser, admissible=stored.observation.admissible_actions)
    return await driver.play(action, reply=reply, valid=True)


def _record_calls(session: EpisodeSession, stored: Step) -> None:
    """Record the calls up to the action; those of the memory come as it asks for them."""
    for call in stored.calls[: stored.num_acting_calls]:
        session.record(replace(call, sampled=None, trained=False))


def _stored_replies(
    session: EpisodeSession, stored: Step, place: str
) -> tuple[Complete, deque[Call]]:
    """Answers a memory by the replies that one got at this step; and those that are left."""
    left = deque(stored.calls[stored.num_acting_calls :])

    async def complete(
        prompt: Sequence[Message] | Shortenable,
        *,
        purpose: str = "remember",
        trained: bool = True,
        credit_share: float = 1.0,
        credited_by: CreditedBy = CreditedBy.NEXT_STEP,
        max_reply_tokens: int | None = None,
    ) -> Call:
        if not left or not _asks(prompt, left[0].messages):
            raise MemoryFailure(
                f"the memory asks after {place} for a reply that was not stored; {_SAME_MEMORY}"
            )
        return session.record(replace(left.popleft(), sampled=None, trained=False))

    return complete, left


def _asks(prompt: Sequence[Message] | Shortenable, stored: Sequence[Message]) -> bool:
    """Whether a prompt is the stored one, perhaps without what had been left out of it."""
    if not isinstance(prompt, Shortenable):
        return _said(prompt) == _said(stored)
    return any(
        _said(prompt.compose(drop)) == _said(stored) for drop in range(prompt.num_droppable() + 1)
    )


def _said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [
        (one.role, storable_text(one.content) if isinstance(one.content, str) else "")
        for one in messages
    ]


def _reply(stored: Step, parser: Parser) -> str:
    """The stored reply; where `parser` reads another action from it, one in its form if there is.

    A hosted model writes no prefix, and a person no reply.
    """
    act, admissible = stored.act, stored.observation.admissible_actions
    if act is not None and parser.parse(act.reply, admissible).text == stored.action:
        return act.reply
    try:
        return reply_for(stored.action, parser, admissible=admissible)
    except PolicyFailure:
        return stored.action if act is None else act.reply


class _Differs(EnvironmentFailure):
    """The environment showed something else than was stored."""


def _require_equal(differences: Sequence[str], place: str) -> None:
    if differences:
        raise _Differs(
            f"{place} the environment differs from the stored episode: {'; '.join(differences)}. "
            "Its rules, its data or its options have changed, or it is not deterministic"
        )


def _differences(stored: Observation, now: Observation) -> list[str]:
    found: list[str] = []
    text = storable_text(now.text)
    if text != stored.text:
        found.append(f"text {_first_difference(stored.text.splitlines(), text.splitlines())}")
    if _storable(now.admissible_actions) != stored.admissible_actions:
        before, after = stored.admissible_actions, now.admissible_actions
        found.append(
            f"admissible actions {_first_difference(before, after)}"
            if before and after
            else f"admissible actions {_listed(before)}, now {_listed(after)}"
        )
    anchor = None if now.anchor_state is None else storable_text(now.anchor_state)
    if anchor != stored.anchor_state:
        found.append(f"anchor state {_shown(stored.anchor_state)}, now {_shown(anchor)}")
    if now.pictures != stored.pictures:
        before = [picture.content_hash for picture in stored.pictures]
        after = [picture.content_hash for picture in now.pictures]
        found.append(f"pictures {_first_difference(before, after)}")
    return found


def _storable(actions: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if actions is None else tuple(map(storable_text, actions))


def _other_differences(stored: StepResult, now: StepResult) -> list[str]:
    found: list[str] = []
    if now.reward != stored.reward:
        found.append(f"reward {stored.reward!r}, now {now.reward!r}")
    if now.terminated or now.truncated:
        found.append("the episode went on, and now it ends")
    if stored.action_accepted and not now.action_accepted:
        found.append("the action was accepted, and now it is not")
    return found


def _first_difference(stored: Sequence[str], now: Sequence[str]) -> str:
    """The first place at which two lists differ, with both sides."""
    for before, after in zip_longest(stored, now):
        if before != after:
            return f"{_shown(before)}, now {_shown(after)}"
    return "in its line ends alone"


def _listed(actions: tuple[str, ...] | None) -> str:
    return "unnamed" if actions is None else shortened(str(list(actions)), _LONGEST_SHOWN)


def _shown(text: str | None) -> str:
    return "nothing" if text is None else repr(shortened(text, _LONGEST_SHOWN))
