"""Every exception the framework raises on purpose.

    LonghaulError
    ├── ConfigError            the run cannot start as described     fix the config
    ├── MachineError           the machine cannot carry the run      see `trainer doctor`
    ├── GroupError             a group cannot be trained on          drop the group
    │   └── AllFailedError         … since every episode failed      see why they failed
    ├── ComparisonError        two results have no common tasks      compare others
    ├── StoreError             the store refused a read or a write   stop the run
    ├── FormatError            a file is not as its format says      mend the file
    ├── QueryError             SQL that someone typed is wrong       change the statement
    ├── LimitReached           a limit of the episode was reached    end it: truncated
    │   ├── HorizonReached         … its steps
    │   ├── TokensSpent            … its tokens, or those of a prompt
    │   └── Abandoned              … the patience of the person who played it
    └── EpisodeError           one episode failed                    record, carry on
        ├── EnvironmentFailure     the environment's code or server
        │   └── EnvironmentTimeout     … missed its deadline
        ├── PolicyFailure          sampling: transport, bad output
        │   └── PolicyTimeout          … missed its deadline
        ├── MemoryFailure          a memory's write or compose
        ├── RendererFailure        messages that no template renders
        ├── ProgramFailure         a program that plays by itself
        │   ├── ProgramTimeout         … missed its deadline
        │   ├── ProgramLimit           … took more than it may
        │   └── RunnerLost             … was on a machine that is gone
        ├── GraderFailure          the run's own function for rewards
        └── EpisodeStopped         nothing broke: it was not waited for

The right-hand column is what a caller should do. Two rules keep the tree useful:
an `EpisodeError` is data about one episode and never reaches the training loop
(`rollout` records it), and every class takes one message argument so that it
survives pickling between processes.

A `LimitReached` is no failure: the episode ends truncated, and stays in every baseline.
"""

from collections.abc import Generator
from contextlib import contextmanager
from traceback import TracebackException

from longhaul_core.text import shortened, well_formed
from longhaul_core.types import FailureCause, StopReason

MAX_MESSAGE_CHARACTERS = 4_000
"""What of another's message is kept: it goes through a channel, into the store and into logs."""


class LonghaulError(Exception):
    """Base of the tree; catch it to catch anything of ours and nothing else."""


class ConfigError(LonghaulError, ValueError):
    """A run's configuration is missing, contradictory or out of range."""


class MachineError(LonghaulError):
    """The machine lacks what the run needs: memory, processors, disk, a free port."""


class GroupError(LonghaulError, ValueError):
    """A group carries no usable comparison, e.g. fewer than two trajectories."""


class AllFailedError(GroupError):
    """Every episode that was to be learned from, or scored, failed."""


class ComparisonError(LonghaulError, ValueError):
    """Two results cannot be compared, e.g. since they are of different panels."""


class StoreError(LonghaulError):
    """The trajectory store refused a read or a write."""


class FormatError(LonghaulError, ValueError):
    """A file of trajectories is not what its format says: names file, line and field."""


class QueryError(LonghaulError, ValueError):
    """SQL that a person or a program typed is wrong, may not be run, or took too much."""

    def __init__(
        self, message: str, *, fence: str | None = None, position: int | None = None
    ) -> None:
        super().__init__(message)
        self.fence = fence
        """The `sql_box.limits.Fence` that stopped it; None where the statement is wrong."""
        self.position = position
        """0-based place of the mistake in the statement, in characters; None if nobody knows."""


class LimitReached(LonghaulError):
    """An episode cannot go on within its limits; it ends, truncated, and has not failed."""

    stop_reason: StopReason


class HorizonReached(LimitReached):
    """The episode has as many steps as its horizon allows."""

    stop_reason = StopReason.HORIZON_REACHED


class TokensSpent(LimitReached):
    """A prompt is longer than it may be, or the episode has no tokens left for it and a reply."""

    stop_reason = StopReason.TOKEN_BUDGET_SPENT


class Abandoned(LimitReached):
    """The person who played the episode left it."""

    stop_reason = StopReason.ABANDONED


class EpisodeError(LonghaulError):
    """One episode failed; its siblings are unaffected."""

    cause: FailureCause


class EnvironmentFailure(EpisodeError):
    """`reset` or `step` raised, or the environment server could not be reached."""

    cause = FailureCause.ENVIRONMENT_ERROR


class EnvironmentTimeout(EnvironmentFailure):
    """`reset` or `step` did not return within its deadline."""

    cause = FailureCause.ENVIRONMENT_TIMEOUT


class PolicyFailure(EpisodeError):
    """The policy returned no usable reply."""

    cause = FailureCause.POLICY_ERROR


class PolicyTimeout(PolicyFailure):
    """The engine did not answer within its deadline."""

    cause = FailureCause.POLICY_TIMEOUT


class MemoryFailure(EpisodeError):
    """A memory's write or compose raised."""

    cause = FailureCause.MEMORY_ERROR


class RendererFailure(EpisodeError):
    """Messages could not be turned into prompt tokens."""

    cause = FailureCause.RENDERER_ERROR


class ProgramFailure(EpisodeError):
    """A program that plays by itself crashed, or gave no reward."""

    cause = FailureCause.PROGRAM_ERROR


class ProgramTimeout(ProgramFailure):
    """It did not end within its deadline."""

    cause = FailureCause.PROGRAM_TIMEOUT


class ProgramLimit(ProgramFailure):
    """It went beyond its memory, processes, output or number of calls."""

    cause = FailureCause.PROGRAM_LIMIT


class RunnerLost(ProgramFailure):
    """The runner that played it on another machine was not heard of any more, or was stopped."""

    cause = FailureCause.RUNNER_LOST


class GraderFailure(EpisodeError):
    """The run's own function for rewards raised, or returned no reward."""

    cause = FailureCause.GRADER_ERROR


class EpisodeStopped(EpisodeError):
    """The episode was stopped before its end, since what it was played for had enough others."""

    cause = FailureCause.STOPPED_EARLY


def message_of(error: BaseException, *, limit: int = MAX_MESSAGE_CHARACTERS) -> str:
    """The text of an exception whose class may be anyone's.

    At most `limit` characters of it, then how many there were; where its `__str__` raises, a note
    of that.
    """
    text = str(TracebackException(type(error), error, None))  # the standard library's safe `str`
    return shortened(well_formed(text), limit)


@contextmanager
def attributed_to(
    failure: type[EpisodeError], action: str, *, exits: bool = False
) -> Generator[None]:
    """Turn anything that escapes the block into `failure`, keeping the cause.

    An `EpisodeError` raised further in already names its side and passes
    unchanged. A `LimitReached` is no failure, and passes. Cancellation is not an
    `Exception`, and passes too.

    Args:
        failure: The side of the boundary the block runs on.
        action: What was being done, for the message, e.g. `"environment.step"`.
        exits: Whether to turn every `BaseException` into `failure`. For a block that runs in a
            process or a thread of its own, where a `SystemExit` is an error like others.
    """
    try:
        yield
    except EpisodeError:
        raise
    except BaseException as error:
        if not exits and (isinstance(error, LimitReached) or not isinstance(error, Exception)):
            raise
        raise failure(f"{action}: {type(error).__name__}: {message_of(error)}") from error
