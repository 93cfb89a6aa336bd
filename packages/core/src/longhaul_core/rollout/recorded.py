"""An episode that was played before, played again by the loop: nothing is asked of anybody.

`RecordedEnvironment` shows what was seen and `RecordedReplies` says what was replied, while memory,
renderer and parser are those of the run that imitates. Its prompts are therefore the ones that the
run would compose at each step, and their tokens those that its model would read.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

from longhaul_core.actions import Parser
from longhaul_core.environment import StepResult
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout.expert import EXPERT, reply_for
from longhaul_core.types import Call, Message, Observation, Step, Task, Trajectory

__all__ = [
    "RecordedEnvironment",
    "RecordedReplies",
    "prompt_hash",
    "recorded_result",
    "replies_of",
    "without_memory_calls",
]


class RecordedEnvironment:
    """Shows the observations and pays the rewards of one recorded episode. An `Environment`."""

    def __init__(self, recorded: Trajectory, *, actions_are_replies: bool = False) -> None:
        """Stand before its first step.

        Args:
            recorded: The episode.
            actions_are_replies: Its actions may be whole replies, as those of files that do not
                tell the two apart.
        """
        self._recorded = recorded
        self._actions_are_replies = actions_are_replies
        self._num_done = 0

    async def open(self) -> None:
        """Nothing."""

    async def reset(self, task: Task) -> Observation:
        """What was seen first."""
        return self._recorded.steps[0].observation

    async def step(self, action: str) -> StepResult:
        """What was seen after the recorded step.

        Raises:
            ValueError: Another action was recorded: the run reads the reply otherwise.
        """
        recorded, place = self._recorded, self._num_done
        done = recorded.steps[place]
        act = done.act
        is_reply = self._actions_are_replies and act is not None and done.action == act.reply
        if action != done.action and not is_reply:
            raise ValueError(
                f"the reply of step {place} reads as the action {action!r} in this run, and as "
                f"{done.action!r} where it was recorded; set actions.format and "
                "prompt.reply_prefix as that run had them"
            )
        self._num_done += 1
        return recorded_result(recorded, place)

    async def close(self) -> None:
        """Nothing."""


def recorded_result(recorded: Trajectory, place: int) -> StepResult:
    """What the environment answered to the action of a recorded step, by its 0-based place."""
    done, ends = recorded.steps[place], place == len(recorded.steps) - 1
    return StepResult(
        observation=recorded.final_observation if ends else recorded.steps[place + 1].observation,
        reward=done.reward,
        terminated=ends and recorded.stop_reason.terminated,
        truncated=ends and recorded.stop_reason.truncated,
        success=ends and recorded.success,
        action_accepted=done.action_valid,
    )


def replies_of(recorded: Trajectory, parser: Parser, *, purposes: bool) -> list[Call]:
    """What the policy replied in each call of a recorded episode, in order.

    Args:
        recorded: The episode.
        parser: Of the run that imitates: an expert's action, or one without a call, such as a
            person's, is written in its form.
        purposes: Whether calls for other purposes than to act were replied to by the policy too,
            as an agent that plans or a memory that summarizes makes them.

    Raises:
        PolicyFailure: An action cannot be written in that form.
    """
    found: list[Call] = []
    for step in recorded.steps:
        if step.act is None:
            found.append(_written(step, parser, messages=()))
        for call in step.calls:
            if call is step.act:
                by_expert = call.model == EXPERT
                found.append(_written(step, parser, messages=call.messages) if by_expert else call)
            elif purposes and not call.model:
                found.append(call)
    return found


def prompt_hash(step: Step) -> str:
    """Of the tokens that the step's first trained call read; empty without one."""
    read = [call.sampled.prompt_tokens for call in step.calls if call.trained and call.sampled]
    return blake2b(array("q", read[0]).tobytes(), digest_size=16).hexdigest() if read else ""


def without_memory_calls(recorded: Trajectory) -> Trajectory:
    """The episode without what its memory asked: another memory asks something else, or nothing."""
    return replace(
        recorded,
        steps=tuple(
            replace(step, calls=step.calls[: step.num_acting_calls]) for step in recorded.steps
        ),
    )


def _written(step: Step, parser: Parser, *, messages: tuple[Message, ...]) -> Call:
    reply = reply_for(step.action, parser, admissible=step.observation.admissible_actions)
    return Call(messages=messages, reply=reply, sampled=None, trained=False)


class RecordedReplies:
    """Gives the replies of one recorded episode, one after the other. A `Policy`."""

    def __init__(
        self,
        replies: Sequence[Call],
        *,
        tokens_of: Callable[[Call], tuple[int, ...]],
        policy_version: int,
    ) -> None:
        """Begin with the first.

        Args:
            replies: See `replies_of`.
            tokens_of: The reply as the run's model would write it, its end token included.
            policy_version: Of the weights that will imitate it.
        """
        self._replies = deque(replies)
        self._tokens_of = tokens_of
        self._policy_version = policy_version

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """See `Policy.act`; nothing is drawn.

        Raises:
            ValueError: There is no further reply, or it is longer than replies may be.
        """
        if not self._replies:
            raise ValueError(
                "the recorded episode has no further reply: this run's agent or memory asks the "
                "policy more often than the one that was recorded"
            )
        reply = self._replies.popleft()
        tokens = self._tokens_of(reply)
        if len(tokens) > sampling.max_tokens:
            raise ValueError(
                f"the recorded reply has {len(tokens)} tokens; rollout.max_reply_tokens = "
                f"{sampling.max_tokens}"
            )
        return Completion(
            text=reply.reply,
            action_tokens=tokens,
            behavior_logprobs=None,
            policy_version=self._policy_version,
            finish_reason=reply.finish_reason,
        )
