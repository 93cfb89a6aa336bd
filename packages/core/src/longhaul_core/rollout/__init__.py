"""Rollout: a policy meets environments, and every meeting leaves a record."""

from longhaul_core.rollout.acting import ACTINGS, PlanThenAct, SingleCall, build_acting
from longhaul_core.rollout.agent import Acting, Agent
from longhaul_core.rollout.branch import require_branchable
from longhaul_core.rollout.chance import ChanceActing, NoisyExpert
from longhaul_core.rollout.conversations import ChatPrompt
from longhaul_core.rollout.expert import ExpertActing
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.loop import EpisodeOutcome, run_episode
from longhaul_core.rollout.recorded import (
    RecordedEnvironment,
    RecordedReplies,
    replies_of,
    without_memory_calls,
)
from longhaul_core.rollout.responder import Responder
from longhaul_core.rollout.runner import EpisodeResult, EpisodeRunner
from longhaul_core.rollout.seeds import (
    call_seed,
    continuation_seed,
    episode_seed,
    retry_seed,
    step_seed,
)
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.rollout.spec import Branch, EpisodeSpec

__all__ = [
    "ACTINGS",
    "Acting",
    "Agent",
    "Branch",
    "ChanceActing",
    "ChatPrompt",
    "EpisodeLimits",
    "EpisodeOutcome",
    "EpisodeResult",
    "EpisodeRunner",
    "EpisodeSession",
    "EpisodeSpec",
    "ExpertActing",
    "NoisyExpert",
    "PlanThenAct",
    "RecordedEnvironment",
    "RecordedReplies",
    "Responder",
    "SingleCall",
    "build_acting",
    "call_seed",
    "continuation_seed",
    "episode_seed",
    "replies_of",
    "require_branchable",
    "retry_seed",
    "run_episode",
    "step_seed",
    "without_memory_calls",
]
