"""ALFWorld's expert: sees every fact of the game, and does the next thing that its goal needs.

Fast Downward's planner, which the authors ask, searches for minutes in a large kitchen; the six
kinds of errands need no search.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from longhaul_envs.alfworld.engine import Facts
from longhaul_envs.alfworld.game import Game

__all__ = ["Move", "mistaken", "next_move", "parts_of"]

_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("isclean", "sinkbasintype", "cleanobject"),
    "pick_heat_then_place_in_recep": ("ishot", "microwavetype", "heatobject"),
    "pick_cool_then_place_in_recep": ("iscool", "fridgetype", "coolobject"),
}
"""Family to the fact that the object must have, where it gets it, and by which action."""


@dataclass(frozen=True, slots=True)
class Move:
    """An action of the domain."""

    action: str
    arguments: Mapping[str, str]
    """Parameter to the id of what it is bound to."""


def next_move(game: Game, facts: Facts) -> Move | None:
    """What to do next; None if the goal cannot be reached, as no object of its kind can be had.

    Args:
        game: Whose goal it is.
        facts: What holds now.
    """
    return _Errand(game, facts).next_move()


_ALONE = "pick_and_place_simple"


def parts_of(game: Game) -> tuple[str, ...]:
    """The parts of a game's goal: what `mistaken` can change."""
    if game.family == "look_at_obj_in_light":
        return ("object",)
    more = {"pick_two_obj_and_place": ("number",), _ALONE: ()}.get(game.family, ("treatment",))
    return ("object", "destination", *more)


def mistaken(game: Game, facts: Facts, part: str) -> Game | None:
    """The game with another `part` of its goal; None if the room has no other, or it holds."""
    errand = _Errand(game, facts)
    if part == "treatment" or (part == "number" and not errand.num_there):
        return replace(game, family=_ALONE)
    if part == "number":  # one is there, and one is all that it takes
        return None
    if part == "object":
        kinds = errand.kinds_that_go_to(game.destination)
        return next((replace(game, target=kind) for kind in kinds if kind != game.target), None)
    places = errand.kinds_that_take(game.target)
    return next((replace(game, destination=to) for to in places if to != game.destination), None)


class _Errand:
    """A goal, and the facts as questions."""

    def __init__(self, game: Game, facts: Facts) -> None:
        self._game = game
        self._facts = facts
        self._places = {name: place for name, place in facts["receptacleatlocation"]}  # noqa: C416
        self._homes = {item: home for item, home in facts.get("inreceptacle", ())}  # noqa: C416
        self._held = next((item for _, item in facts.get("holds", ())), None)
        self._here = next((place for _, place in facts["atlocation"]), "")

    def next_move(self) -> Move | None:
        targets = self._of_kind("objecttype", self._game.target)
        wanted = [item for item in targets if item in self._homes or item == self._held]
        if not wanted:
            return None
        if self._held is not None and self._held not in wanted:
            return self._put_down(self._held)
        if self._game.family == "look_at_obj_in_light":
            return self._light_up(wanted[0])
        return self._deliver(wanted)

    def _light_up(self, item: str) -> Move | None:
        if self._held is None:
            return self._take(item)
        lamps = [
            lamp
            for lamp in self._of_kind("objecttype", self._game.destination)
            if lamp in self._homes
        ]
        if not lamps:
            return None
        return self._go(self._homes[lamps[0]]) or Move("toggleobject", {"o": lamps[0]})

    def _deliver(self, wanted: list[str]) -> Move | None:
        receptacles = self._of_kind("receptacletype", self._game.destination)
        if not receptacles:
            return None
        fact, appliance_kind, action = _TREATMENTS.get(self._game.family, ("", "", ""))
        ready = {item for item in wanted if not fact or self._holds(fact, item)}
        # where most of the wanted things lie already: of two, the second joins the first
        destination = max(
            receptacles, key=lambda r: sum(self._homes.get(item) == r for item in ready)
        )
        item = self._held
        if item is None:
            open_items = [
                item
                for item in wanted
                if not (item in ready and self._homes.get(item) == destination)
            ]
            if not open_items:
                return None
            return self._take(min(open_items, key=lambda item: (item not in ready, item)))
        if item not in ready:
            appliances = self._of_kind("receptacletype", appliance_kind.removesuffix("type"))
            if not appliances:
                return None
            return self._go(appliances[0]) or Move(action, {"o": item, "r": appliances[0]})
        return self._go_and_open(destination) or Move("putobject", {"o": item, "r": destination})

    def _put_down(self, item: str) -> Move | None:
        """Where it fits: here, if possible."""
        fitting = list(self._that_hold(item))
        if not fitting:
            return None
        place = min(fitting, key=lambda r: (self._places[r] != self._here, r))
        return self._go_and_open(place) or Move("putobject", {"o": item, "r": place})

    def _take(self, item: str) -> Move:
        home = self._homes[item]
        return self._go_and_open(home) or Move("pickupobject", {"o": item, "r": home})

    def _go(self, receptacle: str) -> Move | None:
        if self._places[receptacle] == self._here:
            return None
        return Move("gotolocation", {"r": receptacle})

    def _go_and_open(self, receptacle: str) -> Move | None:
        if (move := self._go(receptacle)) is not None:
            return move
        if self._holds("openable", receptacle) and not self._holds("opened", receptacle):
            return Move("openobject", {"r": receptacle})
        return None

    def _holds(self, predicate: str, item: str) -> bool:
        return (item,) in self._facts.get(predicate, ())

    def _of_kind(self, predicate: str, kind: str) -> list[str]:
        return sorted(
            item for item, found in self._facts.get(predicate, ()) if found == f"{kind}type"
        )

    @property
    def num_there(self) -> int:
        """Wanted objects that lie in a receptacle of the goal's kind."""
        places = self._of_kind("receptacletype", self._game.destination)
        targets = self._of_kind("objecttype", self._game.target)
        return sum(self._homes.get(item) in places for item in targets)

    def kinds_that_go_to(self, destination: str) -> list[str]:
        """Kinds of objects that lie about and fit into a kind of receptacle; all, for a lamp."""
        about = {kind for item, kind in self._facts["objecttype"] if item in self._homes}
        inner = {kind for outer, kind in self._facts["cancontain"] if outer == f"{destination}type"}
        return sorted(kind.removesuffix("type") for kind in (about & inner if inner else about))

    def kinds_that_take(self, target: str) -> list[str]:
        """Kinds of receptacles of the room into which a kind of object fits."""
        there = {kind for _, kind in self._facts["receptacletype"]}
        outer = {kind for kind, inner in self._facts["cancontain"] if inner == f"{target}type"}
        return sorted(kind.removesuffix("type") for kind in there & outer)

    def _that_hold(self, item: str) -> Iterator[str]:
        kinds = {kind for one, kind in self._facts["objecttype"] if one == item}
        fits = {kind for kind, inner in self._facts["cancontain"] if inner in kinds}
        return (name for name, kind in self._facts["receptacletype"] if kind in fits)
