"""The nouns of the framework: tasks, messages, calls, steps and trajectories.

An *episode* is one run of an environment from reset to its end. The record it
leaves is a `Trajectory` if it ended (by itself or at a limit of ours) or a
`FailedEpisode` if something broke; a failure has a cause and never a return.

Everything here is immutable, picklable and free of I/O, so it can cross a process
boundary or be built by hand in a test. Token ids are what the engine read and
wrote; text is for people and is never tokenised again.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal, NamedTuple, Self

from longhaul_core.described import Described

__all__ = [
    "Call",
    "Continuation",
    "CreditedBy",
    "FailedEpisode",
    "FailureCause",
    "FinishReason",
    "GroupOutcome",
    "MediaType",
    "Message",
    "Observation",
    "Picture",
    "SampledTokens",
    "Sampling",
    "Split",
    "SplitReason",
    "Step",
    "StopReason",
    "Task",
    "TaskKey",
    "Tool",
    "ToolCall",
    "Trajectory",
]

Role = Literal["system", "user", "assistant", "tool"]

MediaType = Literal["image/png", "image/jpeg", "image/webp"]


class Split(StrEnum):
    """Which part of a task list a task belongs to; the parts are disjoint by content."""

    TRAIN = "train"
    VALIDATION = "validation"
    """Chooses the best checkpoint."""
    TEST = "test"
    """Held out; read by `trainer evaluate` only."""


class SplitReason(StrEnum):
    """Why a call begins a new row of the learner instead of continuing its stream's last one.

    A stream is the calls of one agent for one purpose in one conversation of an episode.
    """

    FIRST_STEP = "first_step"
    """It is the first call of its stream in the episode."""
    ONE_ROW_PER_STEP = "one_row_per_step"
    """Rows are not merged in this run."""
    PROMPT_CHANGED = "prompt_changed"
    """Its prompt does not begin with the tokens of the previous call, prompt and reply."""
    POLICY_CHANGED = "policy_changed"
    """It was sampled by other weights than the previous call."""
    ROW_FULL = "row_full"
    """The row would have become longer than it may be."""
    NEW_CONVERSATION = "new_conversation"
    """It is the first call of a conversation that began after the episode's first."""
    FORKED = "forked"
    """It goes on from a call that another one has gone on from already, or from a part of a
    conversation only."""


class StopReason(StrEnum):
    """Why an episode ended. `terminated` decides whether the tail is bootstrapped."""

    TASK_SOLVED = "task_solved"
    TASK_FAILED = "task_failed"
    """The environment ended the episode without success."""
    ENVIRONMENT_LIMIT = "environment_limit"
    """The environment's own time limit (Gymnasium's `truncated`)."""
    HORIZON_REACHED = "horizon_reached"
    """The step limit in force for this episode, which a horizon schedule may move."""
    TOKEN_BUDGET_SPENT = "token_budget_spent"
    """The token limit of the episode, or a prompt that no shortening made fit."""
    ABANDONED = "abandoned"
    """The person who played it left."""

    @property
    def terminated(self) -> bool:
        """True if the task itself ended, False if a limit cut it short."""
        return self in (StopReason.TASK_SOLVED, StopReason.TASK_FAILED)

    @property
    def truncated(self) -> bool:
        """True if a limit cut the episode short."""
        return not self.terminated


class FinishReason(StrEnum):
    """Why a model stopped writing, in the words of OpenAI's chat completions."""

    STOP = "stop"
    """An end token, or a stop word."""
    LENGTH = "length"
    """A limit on tokens: the reply carries no end token."""
    TOOL_CALLS = "tool_calls"
    """It asks for tools."""
    ABORTED = "aborted"
    """It was interrupted: by a client that went away, or by an engine that stopped."""


class Continuation(StrEnum):
    """How a program's prompt relates to the calls of its episode before it."""

    START = "start"
    """It goes on from none: a conversation begins."""
    EXACT = "exact"
    """It goes on from a call, whose prompt and reply it repeats as they were."""
    REWRITTEN = "rewritten"
    """It goes on from a call, and repeats prompt or reply with changes that mean nothing, such as
    the spaces in a tool's arguments. The engine read the tokens as they were."""
    FORKED = "forked"
    """It goes on from a call that another one has gone on from already, or that cannot be gone on
    from token by token: a conversation of its own begins."""
    CHANGED = "changed"
    """It has a call's reply in it, and does not repeat what the call had read and written: a clock
    in the system message, a reply sent back as other text, a window that slides. A conversation
    begins."""


class FailureCause(StrEnum):
    """Which side of the episode broke, and how."""

    ENVIRONMENT_ERROR = "environment_error"
    ENVIRONMENT_TIMEOUT = "environment_timeout"
    POLICY_ERROR = "policy_error"
    POLICY_TIMEOUT = "policy_timeout"
    MEMORY_ERROR = "memory_error"
    RENDERER_ERROR = "renderer_error"
    PROGRAM_ERROR = "program_error"
    """A program that plays by itself crashed, or gave no reward."""
    PROGRAM_TIMEOUT = "program_timeout"
    PROGRAM_LIMIT = "program_limit"
    """It went beyond its memory, processes, output or number of calls."""
    GRADER_ERROR = "grader_error"
    """The run's own function for rewards failed."""
    RUNNER_LOST = "runner_lost"
    """The machine that played it gave no sign of life."""
    STOPPED_EARLY = "stopped_early"
    """Nothing broke: the training step had enough other groups, and did not wait for this one; or
    an evaluation was cancelled."""


class CreditedBy(StrEnum):
    """The step whose advantage the tokens of a call are trained with, times its credit share."""

    STEP = "step"
    """The call's own."""
    NEXT_STEP = "next_step"
    """The one after it, whose prompt shows what the call wrote: a memory's calls follow an action,
    and change nothing that their own step was paid for. It is the call's own step where none comes
    after it, and with a critic: the advantage of a step holds the value of the next prompt, which
    shows what the call wrote, and that of a token the values of all tokens after it."""


class TaskKey(NamedTuple):
    """What tells a task from the other tasks of a run: task ids repeat between environments."""

    environment: str
    """Gymnasium id."""
    task_id: str

    def __str__(self) -> str:
        """For messages, e.g. `longhaul/TextCraft-v0 2/oak_sign/3`."""
        return f"{self.environment} {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be done. Equal tasks give equal first observations on every machine."""

    environment: str
    """Gymnasium id, e.g. `"longhaul/TextCraft-v0"`."""
    version: str
    """Version of the environment's rules; a change that alters an episode raises it."""
    data_hash: str
    """Hash of the data the task is drawn from; empty for procedural environments."""
    task_id: str
    """Unique within the environment, e.g. `"train/00012"`."""
    seed: int
    """Seeds `Environment.reset`."""
    split: Split
    goal: str = ""
    """One line for people."""
    data: str = ""
    """What a program is given to work on, a JSON object as text; empty where the environment knows
    the task by its id and seed. Part of the content that `data_hash` is of."""

    @property
    def key(self) -> TaskKey:
        """What tells it from the run's other tasks."""
        return TaskKey(self.environment, self.task_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image, known by its content: equal bytes of one type are one picture."""

    __pydantic_config__: ClassVar = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}
    """How pydantic writes the bytes as JSON, which has text alone."""

    media_type: MediaType
    content_hash: str
    """SHA-256 of the bytes, 64 hexadecimal digits."""
    data: bytes | None = field(default=None, compare=False, repr=False)
    """The encoded image; None where only the hash is at hand, e.g. read back from the store."""

    @classmethod
    def of(cls, data: bytes, *, media_type: MediaType = "image/png") -> Self:
        """The picture that `data` encodes.

        Raises:
            ValueError: There are no bytes.
        """
        if not data:
            raise ValueError("a picture needs at least one byte")
        return cls(media_type=media_type, content_hash=hashlib.sha256(data).hexdigest(), data=data)


Part = str | Picture
"""A piece of a message's content: text, or a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Described):
    """A function that a model may ask for."""

    name: str
    description: str = ""
    parameters: str = "{}"
    """JSON Schema of its arguments, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Described):
    """A model's request to run a tool."""

    id: str
    """Names the call; the message that answers it repeats it."""
    name: str
    arguments: str
    """A JSON object, as the model wrote it; it may be malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message of a prompt."""

    role: Role
    content: str | tuple[Part, ...]
    """Text, or several parts in their order."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant's message asks for."""
    tool_call_id: str | None = None
    """The `ToolCall` that a tool's message answers."""
    reasoning: str = ""
    """An assistant's thoughts, where they are sent apart from its content."""

    def __post_init__(self) -> None:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a message of role {self.role!r} cannot ask for tools")
        if self.reasoning and self.role != "assistant":
            raise ValueError(f"a message of role {self.role!r} cannot carry reasoning")
        if (self.tool_call_id is not None) != (self.role == "tool"):
            raise ValueError(
                "a tool's message, and no other, names the call that it answers: role "
                f"{self.role!r}, tool_call_id {self.tool_call_id!r}"
            )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts."""
        return (self.content,) if isinstance(self.content, str) else self.content

    @property
    def text(self) -> str:
        """The parts that are text, one below the other."""
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The parts that are pictures, in order."""
        return tuple(part for part in self.parts if isinstance(part, Picture))


def pictures_of(messages: Iterable[Message]) -> tuple[Picture, ...]:
    """The pictures of messages, in order."""
    return tuple(picture for message in messages for picture in message.pictures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the environment shows before an action is chosen."""

    text: str
    pictures: tuple[Picture, ...] = ()
    """Shown beside the text."""
    admissible_actions: tuple[str, ...] | None = None
    """Every action that the environment accepts now; None if it does not say."""
    anchor_state: str | None = None
    """Identifies the state for step groups (GiGPO). None: what is shown is the anchor."""

    @property
    def anchor(self) -> str:
        """The anchor state; where the environment names none, the text and its pictures' hashes."""
        if self.anchor_state is not None:
            return self.anchor_state
        return "\n".join((self.text, *(picture.content_hash for picture in self.pictures)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(Described):
    """How one reply is drawn."""

    seed: int
    """Fixes the draw together with the prompt and the weights, where the policy draws by it."""
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    max_tokens: int = 64
    """Longest reply."""
    stop: tuple[str, ...] = ()
    """Words that end the reply; the one that did is the end of its tokens, not of its text."""
    altered: tuple[tuple[str, str], ...] = ()
    """Settings under which the logprobs are not those of the policy (`top_k`, penalties,
    `logit_bias`, guided decoding): vLLM's name of each and its value as JSON, in order of name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """A call as the engine read and wrote it, or as the model would: what is trained on."""

    prompt_tokens: tuple[int, ...]
    """The prompt as the engine read it, templates included."""
    action_tokens: tuple[int, ...]
    """The reply as the engine wrote it; ends with an end token only if one was sampled."""
    behavior_logprobs: tuple[float, ...] | None
    """Natural log, one per action token, under the weights that sampled them; None where nobody
    sampled them, and the reply is imitated."""
    policy_version: int
    """Optimizer steps behind the weights that sampled the reply, or that imitate it."""

    def __post_init__(self) -> None:
        if self.behavior_logprobs is None:
            return
        if len(self.action_tokens) != len(self.behavior_logprobs):
            raise ValueError(
                f"{len(self.action_tokens)} action tokens but "
                f"{len(self.behavior_logprobs)} logprobs; one logprob per token is required"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a model: a prompt was read, a reply was written."""

    messages: tuple[Message, ...]
    """The prompt."""
    reply: str
    """As text."""
    sampled: SampledTokens | None
    """Its tokens. None where no engine of ours wrote the reply (a hosted model, an expert, a
    person): such a call is stored, replayed and imitated, and never trained on by reinforcement."""
    purpose: str = "act"
    """What the call is for: `act` chooses the step's action; `plan`, `remember`, `judge` or a word
    of one's own."""
    agent: str = ""
    """Which agent of a program with several made the call; empty where there is one."""
    model: str = ""
    """Which model answered; empty for the policy that is trained."""
    finish_reason: FinishReason = FinishReason.STOP
    tools: tuple[Tool, ...] = ()
    """What the reply could ask for; the prompt's tokens tell the model of them."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the reply asks for."""
    conversation: int = 0
    """Which conversation of the episode, from 0 in the order of their first calls. Calls of one
    conversation go on from each other; an episode loop has one."""
    continuation: Continuation | None = None
    """How its prompt relates to the calls before; None where an episode loop composed it."""
    sampling: Sampling | None = None
    """How the reply was drawn, where that was not as the run says."""
    overridden: tuple[str, ...] = ()
    """What its program asked for and did not get, by the names that the gateway's answer has."""
    cost_usd: float | None = None
    """What a hosted model charged for it, in US dollars; None where nobody knows."""
    trained: bool = True
    """Whether the reply's tokens are in the loss."""
    credit_share: float = 1.0
    """What the advantage is multiplied by for this call's tokens; finite."""
    credited_by: CreditedBy = CreditedBy.STEP
    """Which step's advantage that is."""
    dropped_exchanges: int = 0
    """Remembered exchanges that the memory left out to make the prompt fit."""
    recalled_steps: tuple[int, ...] = ()
    """Steps, by their indices, whose exchanges the memory chose from before the last ones and the
    prompt shows; empty where it chooses none."""
    num_cached_tokens: int | None = None
    """Leading prompt tokens from the engine's prefix cache, which it did not compute again; None
    where it does not report them."""
    queue_seconds: float = 0.0
    """Seconds until the engine began with the request; 0 where it does not report it."""
    generate_seconds: float = 0.0
    """Seconds from then until the reply was complete."""

    def __post_init__(self) -> None:
        if self.trained and self.sampled is None:
            raise ValueError("a call without its tokens and logprobs cannot be trained on")
        if not math.isfinite(self.credit_share):
            raise ValueError(f"credit_share must be finite, got {self.credit_share}")
        if self.conversation < 0:
            raise ValueError(f"conversation must not be negative, got {self.conversation}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One exchange with the environment: what it showed, what was done, what was paid."""

    index: int
    """0-based place in the episode."""
    observation: Observation
    """What was acted on."""
    calls: tuple[Call, ...]
    """Calls of models that belong to the step, in the order they were made: the one that chose the
    action, and maybe others. Empty where no model chose it."""
    action: str
    """What the environment was given: the parsed action."""
    action_valid: bool
    """Whether the reply had the asked-for form and, if they are known, an admissible action."""
    reward: float
    """Paid for this step alone, in the environment's own units; never accumulated."""
    environment_seconds: float = 0.0

    @property
    def act(self) -> Call | None:
        """The call that chose the action: the last one for that purpose; None without one."""
        return next((call for call in reversed(self.calls) if call.purpose == "act"), None)

    @property
    def num_acting_calls(self) -> int:
        """Calls up to the one that chose the action; 0 without one.

        In an episode loop those after it are the memory's, which takes in what was answered.
        """
        acting = [place for place, call in enumerate(self.calls) if call.purpose == "act"]
        return acting[-1] + 1 if acting else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The record of one finished episode."""

    task: Task
    sample_index: int
    """0-based place in its group."""
    seed: int
    """Seeds the sampling of the episode's actions."""
    horizon: int
    """The step limit in force when the episode started."""
    steps: tuple[Step, ...]
    stop_reason: StopReason
    success: bool
    """Whether the environment says the task was solved."""
    final_observation: Observation
    """Seen after the last action; what a truncated episode is valued by."""
    final_prompt_tokens: tuple[int, ...] | None = None
    """The prompt that the next step would have had, or its end if it is too long. None unless it
    was requested, a limit cut the episode short, and it was not scored."""
    final_prompt_pictures: tuple[Picture, ...] = ()
    """Those of the whole of that prompt, in order."""
    scored: bool = False
    """Whether the last reward is, or includes, what a program's whole episode was worth, or the
    program said that it solved the task: no reward is to come, even where a limit cut it short."""
    started_at: float
    """Unix time, in seconds."""
    duration_seconds: float

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError(f"trajectory of task {self.task.task_id!r} has no steps")
        if [step.index for step in self.steps] != list(range(len(self.steps))):
            raise ValueError(f"steps of task {self.task.task_id!r} are not numbered 0, 1, 2, …")
        if len(self.steps) > self.horizon:
            raise ValueError(f"{len(self.steps)} steps exceed the horizon of {self.horizon}")

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of rewards."""
        return sum(step.reward for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEpisode:
    """An episode that broke: recorded, in no baseline, in no loss, never scored."""

    task: Task
    sample_index: int
    seed: int
    horizon: int
    cause: FailureCause
    message: str
    """What was being done, and the error, for people."""
    steps: tuple[Step, ...]
    """Finished before the failure."""
    started_at: float
    duration_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """How often a task was solved in one group: what schedules and task streams learn from."""

    task: TaskKey
    horizon: int
    """Longest that the group's episodes could be, in steps."""
    num_successes: int
    """Between 0 and `num_episodes`."""
    num_episodes: int
    """Episodes that did not fail, at least 1: a failure says nothing of how hard a task is."""

    def __post_init__(self) -> None:
        if not 0 <= self.num_successes <= self.num_episodes or self.num_episodes < 1:
            raise ValueError(
                f"outcome of task {self.task}: {self.num_successes} successes of "
                f"{self.num_episodes} episodes; there must be at least 1 episode, and no more "
                "successes than that"
            )
