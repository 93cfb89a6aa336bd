"""Chance in the place of a policy, or of an expert in a share of its steps."""

from random import Random

from longhaul_core.actions import Parser
from longhaul_core.errors import MemoryFailure, PolicyFailure, attributed_to
from longhaul_core.policy import Shortenable
from longhaul_core.rollout.expert import ExpertActing, reply_for
from longhaul_core.rollout.seeds import step_seed
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.types import Call

__all__ = ["CHANCE", "ChanceActing", "NoisyExpert"]

CHANCE = "random"
"""The model that its calls name."""


class ChanceActing:
    """Draws one of the admissible actions by the episode's seed and the step. An `Acting`."""

    def __init__(self, *, parser: Parser, seed: int) -> None:
        """Chance for one episode.

        Args:
            parser: Says in what form actions are written.
            seed: The episode's.
        """
        self._parser = parser
        self._seed = seed

    async def act(self, session: EpisodeSession, prompt: Shortenable) -> Call:
        """See `Acting.act`. The call has no tokens, and is not trained.

        Raises:
            PolicyFailure: The environment names no admissible actions, or the one that was drawn
                cannot be written in the run's form.
        """
        admissible = session.observation.admissible_actions
        if not admissible:
            raise PolicyFailure(
                f"{session.task.environment} names no admissible actions to draw from"
            )
        with attributed_to(MemoryFailure, "memory.compose"):
            messages, recalled = prompt.compose(0), prompt.recalled(0)
        action = Random(step_seed(self._seed, step_index=session.num_steps)).choice(admissible)
        reply = reply_for(action, self._parser, admissible=admissible)
        return session.record(
            Call(
                messages=messages,
                reply=reply,
                sampled=None,
                model=CHANCE,
                trained=False,
                recalled_steps=recalled,
            )
        )


class NoisyExpert:
    """An expert that acts by chance in a share of its steps. An `Acting`.

    Who imitates it learns to act from more states than the expert's own, and is less sure, so
    that reinforcement learning finds something to choose from.
    """

    def __init__(
        self, *, expert: ExpertActing, chance: ChanceActing, noise: float, seed: int
    ) -> None:
        """Both for one episode.

        Args:
            expert: Acts in the other steps.
            chance: Acts in the noisy ones.
            noise: Probability that a step is noisy, in [0, 1].
            seed: The episode's.
        """
        self._expert = expert
        self._chance = chance
        self._noise = noise
        self._seed = seed

    async def act(self, session: EpisodeSession, prompt: Shortenable) -> Call:
        """See `Acting.act`. The call has no tokens, and is not trained.

        Raises:
            EpisodeError: As the one that acts.
        """
        drawn = Random(f"noise {self._seed} {session.num_steps}").random()
        acting = self._chance if drawn < self._noise else self._expert
        return await acting.act(session, prompt)
