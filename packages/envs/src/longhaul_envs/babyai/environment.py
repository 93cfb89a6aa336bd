"""BabyAI as a Gymnasium environment of text. The worlds and goals are MiniGrid's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.babyai import tasks as task_list
from longhaul_envs.babyai.actions import high_level_actions, primitive_actions
from longhaul_envs.babyai.agentgym import AgentGymEpisode
from longhaul_envs.babyai.expert import Expert
from longhaul_envs.babyai.world import Move, Sight, World
from longhaul_envs.packaged import PackagedEnv

__all__ = ["BabyAI"]


class BabyAI(PackagedEnv[str, task_list.BabyAIOptions]):
    """Carry out an instruction among keys, balls, boxes and doors.

    Task:
        The observation names the instruction, what the agent knows of and where that is
        from its point of view, and what it carries. It sees 7 by 7 cells in front of it.
    Action:
        `high_level`: `go to X`, `pick up X`, `put down next to X`, `open X`, `close X`,
        `go through X` for a known X that can be reached over known cells, `drop`,
        `move forward`, `turn left`, `turn right`. `primitive`: MiniGrid's six moves.
        Anything else changes nothing and costs none of MiniGrid's moves.
    Form:
        `agentgym`: observations, actions, answers, rewards and ends are those of AgentGym's
        server, see `longhaul_envs.babyai.agentgym`; what is said of them below is not.
    Reward:
        1.0 for success, or MiniGrid's own if `time_penalty`.
    Episode end:
        Terminated by success, and by breaking the order that some instructions demand.
        Truncated by MiniGrid's limit on moves (64 for a room of 8 by 8), of which a
        high-level action takes several.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a world of the first level, of whatever split.
    Info:
        `admissible_actions`: all that would change something. `anchor_state`: a hash of the
        world and of what the agent knows of it. `success`. `action_accepted`.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._worlds: dict[str, World] = {}
        self._world: World | None = None
        self._expert: Expert | None = None
        self._agentgym: AgentGymEpisode | None = None
        self._admissible: Mapping[str, Sequence[Move]] = {}
        self._text = ""
        self._anchor_state = ""
        self._over = True

    def expert_action(self) -> str | None:
        """What MiniGrid's bot would do; None where it gives up."""
        world = self._playing()
        if self._expert is None:
            self._expert = Expert(world.level, world.seed)
        return self._expert.next_action(world, self._admissible)

    def goal_parts(self) -> tuple[str, ...]:
        """The object that the mission begins with."""
        return ("object",)

    def mistaken_action(self, part: str) -> str | None:
        """The mission's first verb, done to a kind of thing that the mission does not name."""
        world = self._playing()
        words = world.mission.split()
        if world.moves or "object" in words:
            return None
        verb = " ".join(words[:2])  # go to, pick up; "open the" is no action
        if self.options.form == "agentgym":
            verb = verb.replace("pick up", "pickup")
        kinds = {"ball", "box", "door", "key"}.intersection(words)
        others = (
            action
            for action, moves in self._admissible.items()
            if action.startswith(f"{verb} ")
            and not any(kinds & set(name.split()) for name in world.names_faced(moves))
        )
        return next(others, None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            level, world_seed = task_list.parse_task_id(str(options["task_id"]))
        else:
            level, world_seed = self.options.levels[0], int(self.np_random.integers(2**31))
        if level not in self._worlds:
            self._worlds[level] = World(level)
        self._world = self._worlds[level]
        self._world.reset(world_seed)
        self._expert = None
        self._over = False
        if self.options.form == "agentgym":
            self._agentgym = AgentGymEpisode(self._world)
            self._read(self._agentgym)
        else:
            self._look_at(self._world)
        return self._text, self._info(success=False, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        world = self._playing()
        if self._over:
            raise ResetNeeded("the episode is over; reset before the next step")
        if self._agentgym is not None:
            accepted = self._agentgym.act(action)
            self._read(self._agentgym)
            info = self._info(success=self._over, accepted=accepted)
            return self._text, self._agentgym.reward, self._over, False, info
        words = " ".join(action.lower().split())
        if words not in self._admissible:
            info = self._info(success=False, accepted=False)
            return f"{self._text}\nThat is not possible.", 0.0, False, False, info
        outcome = world.carry_out(self._admissible[words])
        if not self.options.remember:
            world.forget()
        success = outcome.terminated and outcome.reward > 0
        reward = outcome.reward if self.options.time_penalty else float(success)
        self._over = outcome.terminated or outcome.truncated
        self._look_at(world)
        info = self._info(success=success, accepted=True)
        return self._text, reward, outcome.terminated, outcome.truncated, info

    def render(self) -> NDArray[np.uint8]:
        """MiniGrid's picture of the whole world; what is in view is lit."""
        return self._playing().picture()

    def _playing(self) -> World:
        if self._world is None:
            raise ResetNeeded("reset before the first step")
        return self._world

    def _look_at(self, world: World) -> None:
        """Work out all that an observation says; only an accepted action changes it."""
        listing = primitive_actions if self.options.actions == "primitive" else high_level_actions
        self._admissible = {} if self._over else listing(world)
        self._anchor_state = world.snapshot()
        seen = "; ".join(_describe(sight) for sight in world.sights())
        self._text = (
            f"Goal: {world.mission}\n"
            f"You know: {seen or 'nothing'}\n"
            f"Ahead: {world.free_ahead()} free\n"
            f"Carrying: {world.carried or 'nothing'}"
        )

    def _read(self, episode: AgentGymEpisode) -> None:
        self._text, self._admissible = episode.text, episode.actions
        self._anchor_state, self._over = episode.anchor_state, episode.is_solved

    def _info(self, *, success: bool, accepted: bool) -> dict[str, Any]:
        return {
            "admissible_actions": list(self._admissible),
            "anchor_state": self._anchor_state,
            "success": success,
            "action_accepted": accepted,
        }


def _describe(sight: Sight) -> str:
    words = [f"{abs(sight.ahead)} {'ahead' if sight.ahead > 0 else 'behind'}"] * bool(sight.ahead)
    words += [f"{abs(sight.right)} {'right' if sight.right > 0 else 'left'}"] * bool(sight.right)
    state = f"{sight.state} " if sight.state else ""
    return f"{state}{sight.name} ({' '.join(words)})"
