"""BabyAI as AgentGym's server tells, answers and pays it.

    Xi et al. 2024, arXiv:2406.04151; `agentenv-babyai` of github.com/WooooDyy/AgentGym at 3ef9235.

Sentences and rules are the authors' in all that looks like a slip too: episodes that their server
recorded are repeated word for word (`tests/golden/make_agentgym_babyai.py`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from longhaul_envs.agentgym.actions import plain_words
from longhaul_envs.babyai.world import Cell, InView, Move, Outcome, Place, World
from longhaul_envs.task_lists import content_hash

__all__ = ["AgentGymEpisode"]

_UNKNOWN = "The action is not recognized. Please check valid actions."
_UNCHANGED = "No change in state."
_MOST_UNSOLVED = 0.5
"""A success that is worth no more does not end an episode."""


class AgentGymEpisode:
    """One episode of a world that was just reset."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scene = _Scene(world)
        mission = world.mission.replace("then", "and").replace("after you", "and")
        self.text = f"Your goal: {mission}\n{self._scene.told()}"
        """What is said now."""
        self.reward = 0.0
        """MiniGrid's for the last action that was carried out; paid again for one that is not."""
        self.is_solved = False

    @property
    def actions(self) -> Mapping[str, Sequence[Move]]:
        """What is listed now, each with the moves that it tries."""
        return self._scene.actions

    @property
    def anchor_state(self) -> str:
        """A hash of the world, and of whether the next refused action pays, gains or costs.

        Moves made are no part of it, though a success is worth less and may end nothing late on.
        """
        state = self._world.snapshot()
        return content_hash(f"{state} {self.reward > 0}") if self.reward else state

    def act(self, action: str) -> bool:
        """Answer an action; False if it is none that is listed."""
        words = plain_words(action).lower()
        if "check" in words:
            self.text = f"You can take the following actions: {', '.join(self.actions)}"
            return True
        if words not in self.actions:
            self.text = self._scene.refusals.get(words, _UNKNOWN) if words else _UNCHANGED
            return False
        if not self.actions[words]:
            self.text = _UNCHANGED
            return True
        self._carry_out(self.actions[words])
        return True

    def _carry_out(self, moves: Sequence[Move]) -> None:
        """Make the moves up to the first that changes nothing in view; a success stops none."""
        world = self._world
        outcome = Outcome(0.0, terminated=False, truncated=False)
        for move in moves:
            before = world.view_UVC
            outcome = world.carry_out([move])
            if (world.view_UVC == before).all():
                break
        world.forget()
        self._scene = _Scene(world)
        self.text = self._scene.told()
        if outcome.terminated:
            self.text += "\n The task is completed."
        self.reward = outcome.reward
        self.is_solved = outcome.terminated and outcome.reward > _MOST_UNSOLVED


class _Scene:
    """What is in view at one moment, and what can be done about it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._place = world.place
        self._in_view = sorted(world.in_view(), key=lambda one: abs(one.ahead) + abs(one.right))
        self._things = [one for one in self._in_view if one.kind != "wall"]
        self._blocked = {one.cell for one in self._in_view if one.kind != "door"}
        columns, rows = world.window()
        self._walked = {(column, row) for column in columns for row in rows} - self._blocked
        barriers = [one for one in self._in_view if one.kind in ("wall", "box") and not one.right]
        self._barrier = min(barriers, key=lambda one: one.ahead, default=None)
        self.actions: dict[str, Sequence[Move]] = {}
        self.refusals: dict[str, str] = {}
        """Answers to actions that are not listed."""
        self._list_actions()

    def told(self) -> str:
        """The description of the scene."""
        text = "You cannot see any objects within sight."
        if self._in_view:
            text = "In front of you in this room, you can see several objects: "
            counts = Counter[str]()
            for one in self._things:
                counts[one.look] += 1
                text += f"There is a {one.look} {counts[one.look]} {_whereabouts(one)}.  "
        text += "The room has walls around you. "
        if self._barrier is not None:
            text += f"You are facing a {self._barrier.kind} {self._barrier.ahead} steps away. "
        carried = self._world.carried
        if carried is None:
            return f"{text}You are not carrying anything."
        return f"{text}You are carrying a {carried.rpartition(' ')[0]}."

    def _list_actions(self) -> None:
        self.actions |= {"turn left": [Move.LEFT], "turn right": [Move.RIGHT]}
        if self._barrier is None or self._barrier.ahead > 1:
            self.actions["move forward"] = [Move.FORWARD]
        else:
            self.refusals["move forward"] = (
                "There is a barrier in front of you, you can't move forward."
            )
        if self._world.carried is None:
            self._list_walks("pickup", [o for o in self._things if o.kind != "door"], Move.PICKUP)
            self.refusals["drop"] = "You cannot drop the object, as you are not carrying anything."
        elif self._place.front in self._blocked:
            self.refusals["drop"] = (
                "You cannot drop the object, as there is already an object in front of you."
            )
        else:
            self.actions["drop"] = [Move.DROP]
        self._list_doors()
        self._list_walks("go to", self._things)
        self.actions["check available actions"] = []

    def _list_walks(self, verb: str, things: Sequence[InView], *then: Move) -> None:
        """Walk up to each thing; those that no way leads to are not counted."""
        counts = Counter[str]()
        for one in things:
            action = f"{verb} {one.look} {counts[one.look] + 1}"
            way = self._way_to_face(one.cell)
            if way is None:
                self.refusals[action] = f"You cannot {action}, as there is no path leading to it."
            else:
                counts[one.look] += 1
                self.actions[action] = [*way, *then]

    def _list_doors(self) -> None:
        counts: dict[str, int] = {}
        for one in self._things:
            if one.kind != "door":
                continue
            counts[one.look] = counts.get(one.look, 0) + 1
            name = f"{one.look} {counts[one.look]}"
            through, toggle = f"go through {name}", f"toggle and go through {name}"
            key = self._world.carried_key_color
            if one.state == "open":
                way = self._way(lambda place, cell=one.cell: place.cell == cell)
                if way is None:
                    self.refusals[through] = (
                        f"You cannot {through}, as there is no path leading to it."
                    )
                else:
                    self.actions[through] = way
                continue
            if one.state == "closed":
                self.refusals[through] = (
                    f"You cannot {through}, as it is closed. You should toggle it first."
                )
            elif key is None:
                self.refusals[toggle] = f"You cannot {toggle}, as you are not carrying a key."
                continue
            elif key != one.color:
                self.refusals[toggle] = (
                    f"You cannot {toggle}, as the color of the key you are carrying does not "
                    "match the color of door."
                )
                continue
            way = self._way_to_face(one.cell)
            if way is None:  # theirs writes the counts of all doors so far
                self.refusals[toggle] = (
                    f"You cannot toggle and go through {one.look} {counts}, as there is no path "
                    "leading to it."
                )
            else:
                self.actions[toggle] = [*way, Move.TOGGLE, Move.FORWARD]
                if not way:
                    self.actions["toggle"] = [Move.TOGGLE]

    def _way_to_face(self, cell: Cell) -> list[Move] | None:
        return self._way(lambda place: place.front == cell)

    def _way(self, is_there: Callable[[Place], bool]) -> list[Move] | None:
        """A way over the window's cells that hold no wall, box, ball or key, seen or not.

        Of the ways to a place the one found last counts, as long as the place was not left; it may
        be a move longer than the shortest.
        """
        left: set[Place] = set()
        reached_by: dict[Place, tuple[Place, Move]] = {}
        queue = [self._place]
        for place in queue:  # grows as it is walked through
            left.add(place)
            if is_there(place):
                moves: list[Move] = []
                while place != self._place:
                    place, move = reached_by[place]
                    moves.append(move)
                return moves[::-1]
            for move in (Move.FORWARD, Move.LEFT, Move.RIGHT):
                reached = place.after(move)
                if reached.cell in self._walked and reached not in left:
                    reached_by[reached] = place, move
                    queue.append(reached)
        return None


def _whereabouts(one: InView) -> str:
    if not one.right:
        return f"right in front of you {one.ahead} steps away"
    side = "right" if one.right > 0 else "left"
    return f"{one.ahead} steps in front of you and {abs(one.right)} steps to your {side}"
