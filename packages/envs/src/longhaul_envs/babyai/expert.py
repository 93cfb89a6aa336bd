"""BabyAI's expert: MiniGrid's own bot, its moves put into the agent's words.

The bot follows the episode in a world of its own, made from the same seed and given the same
moves, because it must know what it has done so far. Asked for advice, a copy of it plays on
until it first touches something or ends the episode. If one high-level action does the same,
that is the advice; otherwise its first move is. It sees what the agent sees.
"""

import copy
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from longhaul_envs.babyai.actions import PRIMITIVE_ACTIONS
from longhaul_envs.babyai.world import Cell, Move, Place, World

__all__ = ["Expert"]

_MOST_SEARCHES = 200
"""Of the bot for one move; it makes a few. In some worlds, such as `GoToImpUnlock/00014`, its plan
undoes itself, and it would search without end."""


class _Lost(Exception):
    """The bot does not come to a move."""


class _Bot(BabyAIBot):
    """The bot, which gives up where it would not return."""

    _num_searches = 0

    def replan(self, action_taken: int | None = None) -> Any:  # noqa: ANN401
        self._num_searches = 0
        untyped: Any = super()
        return untyped.replan(action_taken)

    def _breadth_first_search(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        self._num_searches += 1
        if self._num_searches > _MOST_SEARCHES:
            raise _Lost
        untyped: Any = super()
        return untyped._breadth_first_search(*arguments, **named)


class Expert:
    """Gives advice in one episode. Costs nothing until it is asked."""

    def __init__(self, level: str, seed: int) -> None:
        self._rehearsal = World(level)
        self._rehearsal.reset(seed)
        self._rehearsal.minigrid.gen_obs = dict  # takes a third of a step, and the bot reads none
        self._bot: Any = _Bot(self._rehearsal.minigrid)
        self._num_followed = 0
        self._last_move: int | None = None
        self._advised_in: set[str] = set()
        self._step_by_step = False
        """Set once the agent comes back to where it was: shortcuts do not lead on here."""

    def next_action(self, world: World, admissible: Mapping[str, Sequence[Move]]) -> str | None:
        """An admissible action on the bot's way, or None where the bot gives up.

        The bot cannot solve `PutNext…Carrying` and `KeyInBox`, nor go on after a box was
        opened.

        Args:
            world: The episode as it stands.
            admissible: What the agent may do now, with the moves that each action makes.
        """
        state = world.snapshot()
        self._step_by_step |= state in self._advised_in
        self._advised_in.add(state)
        try:
            self._follow(world.moves)
            plan = self._plan()
            for action in _candidates(world, plan, admissible):
                if action in admissible and self._agrees(admissible[action], plan):
                    return action
        except (AssertionError, DisappearedBoxError, _Lost):
            pass  # the bot's ways of giving up
        return None

    def _follow(self, moves: Sequence[Move]) -> None:
        """Show the bot every move of the agent that it has not seen."""
        for move in moves[self._num_followed :]:
            self._bot.replan(self._last_move)
            self._rehearsal.minigrid.step(int(move))
            self._last_move = int(move)
        self._num_followed = len(moves)

    def _plan(self) -> list[Move]:
        """The bot's moves up to the first that is not a step or a turn, or to the end."""
        bot = copy.deepcopy(self._bot)
        last_move = self._last_move
        plan: list[Move] = []
        while True:
            last_move = int(bot.replan(last_move))
            if last_move not in list(Move):
                return plan
            plan.append(Move(last_move))
            _, _, terminated, truncated, _ = bot.mission.step(last_move)
            if terminated or truncated or last_move > Move.FORWARD:
                return plan

    def _agrees(self, moves: Sequence[Move], plan: Sequence[Move]) -> bool:
        """Whether these are the bot's own moves, or others that serve it as well.

        Others do if they end the episode well, or if the bot would make the last of them too.
        A walk of the agent's own may miss what the bot would have seen on its way and needs
        to know; the bot would then undo what the walk was for.
        """
        if list(moves) == list(plan[: len(moves)]):
            return True
        if self._step_by_step:
            return False
        bot = copy.deepcopy(self._bot)
        last_move, advice, reward = self._last_move, -1, 0.0
        for move in moves:
            advice = int(bot.replan(last_move))
            last_move = int(move)
            _, reward, terminated, truncated, _ = bot.mission.step(last_move)
            if terminated or truncated:
                break
        return reward > 0 or advice == last_move


def _candidates(
    world: World, plan: Sequence[Move], admissible: Mapping[str, Sequence[Move]]
) -> list[str]:
    """What to try, the longest first: the end of the plan, a door on its way, its first move."""
    place = world.place
    doors: list[str] = []
    for move in plan:
        if move is Move.FORWARD:
            door = world.name_at(place.front)
            if door is not None and door.split()[1] == "door":
                doors.append(f"go through {door}")
        place = place.after(move)
    ending = _end(world.place, plan)
    alike = [name for name, moves in admissible.items() if _end(world.place, moves) == ending]
    touching = alike if world.name_at(place.front) else []
    return [*touching, *doors[:1], *(PRIMITIVE_ACTIONS[move] for move in plan[:1])]


def _end(place: Place, moves: Sequence[Move]) -> tuple[Cell, Move | None] | None:
    """The cell that is faced after `moves`, and what they last do to it; None without a move."""
    if not moves:
        return None
    *_, last = accumulate(moves, Place.after, initial=place)
    return last.front, moves[-1] if moves[-1] > Move.FORWARD else None
