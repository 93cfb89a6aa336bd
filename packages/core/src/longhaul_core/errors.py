"""Every exception the framework raises on purpose.

    LonghaulError
    ├── ConfigError            the run cannot start as described     fix the config
    ├── MachineError           the machine cannot carry the run      see `trainer doctor`
    ├── GroupError             a group cannot be trained on          drop the group
    ├── StoreError             the store refused a read or a write   stop the run
    └── EpisodeError           one episode failed                    record, carry on
        ├── EnvironmentFailure     the environment's code or server
        │   └── EnvironmentTimeout     … missed its deadline
        ├── PolicyFailure          sampling: transport, bad output
        │   └── PolicyTimeout          … missed its deadline
        ├── MemoryFailure          a memory's write or compose
        ├── RendererFailure        messages that no template renders
        └── EpisodeStopped         nothing broke: it was not waited for

The right-hand column is what a caller should do. Two rules keep the tree useful:
an `EpisodeError` is data about one episode and never reaches the training loop
(`rollout` records it), and every class takes one message argument so that it
survives pickling between processes.
"""

from collections.abc import Generator
from contextlib import contextmanager

from longhaul_core.types import FailureCause


class LonghaulError(Exception):
    """Base of the tree; catch it to catch anything of ours and nothing else."""


class ConfigError(LonghaulError, ValueError):
    """A run's configuration is missing, contradictory or out of range."""


class MachineError(LonghaulError):
    """The machine lacks what the run needs: memory, processors, disk, a free port."""


class GroupError(LonghaulError, ValueError):
    """A group carries no usable comparison, e.g. fewer than two trajectories."""


class StoreError(LonghaulError):
    """The trajectory store refused a read or a write."""


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


class EpisodeStopped(EpisodeError):
    """The episode was stopped before its end, since what it was played for had enough others."""

    cause = FailureCause.STOPPED_EARLY


@contextmanager
def attributed_to(failure: type[EpisodeError], action: str) -> Generator[None]:
    """Turn anything that escapes the block into `failure`, keeping the cause.

    An `EpisodeError` raised further in already names its side and passes
    unchanged. Cancellation is not an `Exception` and is never caught.

    Args:
        failure: The side of the boundary the block runs on.
        action: What was being done, for the message, e.g. `"environment.step"`.
    """
    try:
        yield
    except EpisodeError:
        raise
    except Exception as error:
        raise failure(f"{action}: {type(error).__name__}: {error}") from error
