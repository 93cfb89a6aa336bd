"""Rooms and games of our own: real floor plans, filled and given a goal by a seed.

The alfworld wheel carries what an initial state is made of, but no game: which receptacles
stand in each of 120 rooms of AI2-THOR, which kinds of objects lie there, what fits into what,
what can be heated, cooled and cleaned, and the goals in PDDL. A game is one of those rooms with
its objects put down anew. Only `Random.random` is drawn from, the one method whose values Python
promises never to change.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, TypeVar

from longhaul_core.types import Split
from longhaul_envs.extras import required
from longhaul_envs.task_lists import HELD_OUT_SHARE, content_hash, stable_seed

__all__ = ["FAMILIES", "Room", "Start", "make_start", "room", "room_numbers", "split_of_start"]

FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The authors' six, in the order of their `task_types`: number 1 is the first."""

_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin", "clean"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave", "heat"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge", "cool"),
}
"""Family to what the object must allow, where it is done, and how it is called."""

_UNPLACED = ("CoffeeMachine", "GarbageCan", "StoveBurner", "Toaster")
"""Receptacles that a room's list of objects names and its list of places leaves out."""

_LAMPS = ("DeskLamp", "FloorLamp")
_LAMP_STANDS = ("Desk", "SideTable", "Dresser", "DiningTable", "CoffeeTable", "Shelf")
_ABILITIES = ("Heatable", "Coolable", "Cleanable", "Sliceable")
_MAX_COPIES = 2
_FOLDER = "gen/layouts"

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Room:
    """One floor plan."""

    number: int
    receptacles: tuple[tuple[str, str], ...]
    """Id in PDDL and kind, e.g. `("Fridge_bar__minus_02_dot_10…", "Fridge")`; sorted."""
    objects: tuple[str, ...]
    """Kinds of objects that can be taken from a receptacle and put into another; sorted."""
    lamps: tuple[str, ...]
    is_unseen: bool
    """Whether it is one of the authors' test rooms, in which nobody trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The initial state of a game."""

    family: str
    room: Room
    target: str
    """Kind of the object."""
    destination: str
    """Kind of the receptacle, or of the lamp."""
    places: tuple[tuple[str, str, str], ...]
    """Object id, its kind and the id of the receptacle that holds it."""

    @property
    def goal(self) -> str:
        """In words, by the authors' templates."""
        templates = _knowledge().goals[self.family]["templates"]
        words = templates[stable_seed(self.content) % len(templates)]
        return str(words).format(
            obj=self.target.lower(), recep=self.destination.lower(), toggle=self.destination.lower()
        )

    @property
    def content(self) -> str:
        """Room, places and goal: equal for equal games."""
        held = "\n".join(f"{item} {receptacle}" for item, _, receptacle in self.places)
        return f"{self.room.number} {self.family} {self.target} {self.destination}\n{held}"

    def problem(self) -> str:
        """The game as a PDDL problem of the wheel's domain."""
        return _problem(self)

    def solution(self) -> tuple[tuple[str, str, str], ...]:
        """The visits that solve it: what is done, to which object, at which receptacle.

        A witness that the game can be won: each visit is a walk, the opening of what is closed, and
        one action whose preconditions the visits before it have made true.
        """
        return _solution(self)


def room_numbers() -> tuple[int, ...]:
    """All 120, in order."""
    return tuple(sorted((*_knowledge().seen_rooms, *_knowledge().unseen_rooms)))


@cache
def room(number: int) -> Room:
    """The floor plan of a number.

    Raises:
        ValueError: There is none.
    """
    known = _knowledge()
    if number not in known.seen_rooms and number not in known.unseen_rooms:
        raise ValueError(f"there is no room {number}; AI2-THOR's are {room_numbers()}")
    folder = files("alfworld") / _FOLDER
    placed: Mapping[str, object] = json.loads(
        (folder / f"FloorPlan{number}-openable.json").read_text(encoding="utf-8")
    )
    named: list[str] = json.loads(
        (folder / f"FloorPlan{number}-objects.json").read_text(encoding="utf-8")
    )
    receptacles = [(_pddl_id(name), _receptacle_kind(name)) for name in placed]
    kinds = {kind for _, kind in receptacles}
    receptacles += [
        (f"{kind}_bar_1", kind) for kind in _UNPLACED if kind in named and kind not in kinds
    ]
    kinds = {kind for _, kind in receptacles}
    fits = {item for kind in kinds for item in known.fits.get(kind, ())}
    return Room(
        number=number,
        receptacles=tuple(sorted(receptacles)),
        objects=tuple(sorted(fits.intersection(named) - kinds)),
        lamps=tuple(lamp for lamp in _LAMPS if lamp in named),
        is_unseen=number in known.unseen_rooms,
    )


@cache
def make_start(families: tuple[str, ...], seed: int) -> Start:
    """The game of a seed: its family is the seed's place in `families`, and all else is drawn.

    Args:
        families: At least one of `FAMILIES`.
        seed: Any integer from 0.
    """
    family = families[seed % len(families)]
    random = Random(stable_seed(f"alfworld {family} {seed}"))
    numbers = _rooms_of(family)
    while True:
        chosen = room(_draw(numbers, random))
        goals = _goals(chosen, family)
        if goals:
            break
    target, destination = _draw(goals, random)
    return Start(
        family=family,
        room=chosen,
        target=target,
        destination=destination,
        places=_put_down(chosen, family, target, destination, random),
    )


def split_of_start(start: Start) -> Split:
    """Test games are those of rooms in which nobody trains; the rest is divided by content."""
    if start.room.is_unseen:
        return Split.TEST
    share = int(content_hash(start.content)[:12], 16) / 16**12
    return Split.VALIDATION if share < HELD_OUT_SHARE else Split.TRAIN


@dataclass(frozen=True, slots=True)
class _Knowledge:
    """What the wheel knows of things."""

    fits: Mapping[str, frozenset[str]]
    """Receptacle kind to the kinds of objects that it can hold."""
    abilities: Mapping[str, frozenset[str]]
    openable: frozenset[str]
    containers: frozenset[str]
    """Objects that hold others."""
    goals: Mapping[str, Mapping[str, Any]]
    seen_rooms: frozenset[int]
    unseen_rooms: frozenset[int]


@cache
def _knowledge() -> _Knowledge:
    constants: Any = required("alfworld.gen.constants", "alfworld")
    goals: Any = required("alfworld.gen.goal_library", "alfworld")
    return _Knowledge(
        fits={
            str(kind): frozenset(map(str, items))
            for kind, items in constants.VAL_RECEPTACLE_OBJECTS.items()
        },
        abilities={
            str(name): frozenset(map(str, kinds))
            for name, kinds in constants.VAL_ACTION_OBJECTS.items()
        },
        openable=frozenset(map(str, constants.OPENABLE_CLASS_LIST)),
        containers=frozenset(map(str, constants.MOVABLE_RECEPTACLES)),
        goals={family: goals.gdict[family] for family in FAMILIES},
        seen_rooms=frozenset(map(int, constants.TRAIN_SCENE_NUMBERS)),
        unseen_rooms=frozenset(map(int, constants.TEST_SCENE_NUMBERS)),
    )


@cache
def _rooms_of(family: str) -> tuple[int, ...]:
    return tuple(number for number in room_numbers() if _goals(room(number), family))


@cache
def _goals(chosen: Room, family: str) -> tuple[tuple[str, str], ...]:
    """Every pair of target and destination that the room allows."""
    known = _knowledge()
    kinds = sorted({kind for _, kind in chosen.receptacles})
    if family == "look_at_obj_in_light":
        stands = [kind for kind in kinds if kind in _LAMP_STANDS]
        return tuple((item, lamp) for lamp in chosen.lamps for item in chosen.objects if stands)
    ability, appliance, _ = _TREATMENTS.get(family, ("", "", ""))
    if appliance and appliance not in kinds:
        return ()
    return tuple(
        (item, kind)
        for item in chosen.objects
        if not ability or item in known.abilities[ability]
        for kind in kinds
        if kind != appliance and item in known.fits.get(kind, ()) and _elsewhere(chosen, item, kind)
    )


def _elsewhere(chosen: Room, item: str, kind: str) -> list[str]:
    """The receptacles that can hold `item` and are not of `kind`."""
    fits = _knowledge().fits
    return [
        name for name, other in chosen.receptacles if other != kind and item in fits.get(other, ())
    ]


def _put_down(
    chosen: Room, family: str, target: str, destination: str, random: Random
) -> tuple[tuple[str, str, str], ...]:
    """One or two of each kind of object, each in a receptacle that can hold it.

    The target lies in no receptacle of the destination's kind, so that no game begins won.
    """
    num_targets = 2 if family == "pick_two_obj_and_place" else 1
    places: list[tuple[str, str, str]] = []
    for kind in chosen.objects:
        fewest = num_targets if kind == target else 1
        copies = fewest + int(random.random() * (_MAX_COPIES + 1 - fewest))
        homes = _elsewhere(chosen, kind, destination if kind == target else "")
        places += [(f"{kind}_bar_{n + 1}", kind, _draw(homes, random)) for n in range(copies)]
    stands = [name for name, kind in chosen.receptacles if kind in _LAMP_STANDS]
    places += [(f"{lamp}_bar_1", lamp, _draw(stands, random)) for lamp in chosen.lamps if stands]
    return tuple(places)


def _solution(start: Start) -> tuple[tuple[str, str, str], ...]:
    targets = [(item, home) for item, kind, home in start.places if kind == start.target]
    if start.family == "look_at_obj_in_light":
        (lamp, stand), *_ = (
            (item, home) for item, kind, home in start.places if kind == start.destination
        )
        item, home = targets[0]
        return (("take", item, home), ("use", lamp, stand))
    by_kind = {kind: name for name, kind in reversed(start.room.receptacles)}
    destination = by_kind[start.destination]
    _, appliance, treat = _TREATMENTS.get(start.family, ("", "", ""))
    visits: list[tuple[str, str, str]] = []
    for item, home in targets[: 2 if start.family == "pick_two_obj_and_place" else 1]:
        visits.append(("take", item, home))
        if treat:
            visits.append((treat, item, by_kind[appliance]))
        visits.append(("move", item, destination))
    return tuple(visits)


def _problem(start: Start) -> str:
    known = _knowledge()
    kinds = sorted({kind for _, kind in start.room.receptacles})
    items = sorted({kind for _, kind, _ in start.places})
    where = {name: f"loc_bar_{n + 1}" for n, (name, _) in enumerate(start.room.receptacles)}
    objects = [
        "agent1 - agent",
        "loc_bar_0 - location",
        *(f"{location} - location" for location in where.values()),
        *(f"{name} - receptacle" for name in where),
        *(f"{kind}Type - rtype" for kind in kinds),
        *(f"{name} - object" for name, _, _ in start.places),
        *(f"{kind}Type - otype" for kind in items),
    ]
    facts = ["atLocation agent1 loc_bar_0"]
    for name, kind in start.room.receptacles:
        facts += [f"receptacleAtLocation {name} {where[name]}", f"receptacleType {name} {kind}Type"]
        facts += [f"openable {name}"] * (kind in known.openable)
    facts += [
        f"canContain {kind}Type {item}Type"
        for kind in kinds
        for item in items
        if item in known.fits.get(kind, ())
    ]
    for name, kind, home in start.places:
        facts += [
            f"objectType {name} {kind}Type",
            f"inReceptacle {name} {home}",
            f"objectAtLocation {name} {where[home]}",
            f"toggleable {name}" if kind in _LAMPS else f"pickupable {name}",
        ]
        facts += [f"{a.lower()} {name}" for a in _ABILITIES if kind in known.abilities[a]]
        facts += [f"isReceptacleObject {name}"] * (kind in known.containers)
    goal = (
        str(known.goals[start.family]["pddl"])
        .replace("#", "-")
        .format(obj=start.target, recep=start.destination, toggle=start.destination)
    )
    return "\n".join(
        [
            "(define (problem longhaul)",
            "(:domain alfred)",
            "(:objects",
            *objects,
            ")",
            "(:init",
            *(f"({fact})" for fact in facts),
            "(= (total-cost) 0)",
            ")",
            goal.strip().removesuffix(")").rstrip(),
            "(:metric minimize (total-cost))",
            ")",
        ]
    )


def _receptacle_kind(name: str) -> str:
    """`Sink|-01.90|+00.97|-01.50|SinkBasin` is a SinkBasin."""
    first, *_, last = name.split("|")
    return last if last.endswith("Basin") else first


def _pddl_id(name: str) -> str:
    for sign, word in (("|", "bar"), ("+", "plus"), ("-", "minus"), (".", "dot"), (",", "comma")):
        name = name.replace(sign, f"_{word}_")
    return name


def _draw(items: Sequence[_Item], random: Random) -> _Item:
    return items[int(random.random() * len(items))]
