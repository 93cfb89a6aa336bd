"""What an agent can be asked to do in BabyAI, in words, and the moves that carry it out.

High-level actions walk by themselves over known ground (`go to red ball 1`); primitive ones
are MiniGrid's. In both forms an action is listed only if it would change something.
"""

from collections.abc import Iterator, Sequence

from longhaul_envs.babyai.world import Move, Sight, World

__all__ = ["PRIMITIVE_ACTIONS", "high_level_actions", "primitive_actions"]

PRIMITIVE_ACTIONS = {
    Move.LEFT: "turn left",
    Move.RIGHT: "turn right",
    Move.FORWARD: "move forward",
    Move.PICKUP: "pick up",
    Move.DROP: "drop",
    Move.TOGGLE: "toggle",
}


def primitive_actions(world: World) -> dict[str, Sequence[Move]]:
    """The primitive actions that would change something now."""
    possible = [Move.LEFT, Move.RIGHT]
    front = world.place.front
    if world.is_walkable(front):
        possible.append(Move.FORWARD)
    in_front = next((sight for sight in world.sights() if sight.cell == front), None)
    if in_front is not None and in_front.kind != "door" and world.carried is None:
        possible.append(Move.PICKUP)
    if in_front is None and world.carried is not None and world.is_empty(front):
        possible.append(Move.DROP)
    if in_front is not None and (in_front.kind == "box" or _opens(in_front, world)):
        possible.append(Move.TOGGLE)
    return {PRIMITIVE_ACTIONS[move]: [move] for move in possible}


def high_level_actions(world: World) -> dict[str, Sequence[Move]]:
    """The high-level actions that are possible now, each with its moves, in a fixed order."""
    actions: dict[str, Sequence[Move]] = {}
    for sight in sorted(world.sights(), key=lambda sight: sight.name):
        actions.update(_actions_on(sight, world))
    moves = primitive_actions(world)
    for name in ("drop", "move forward", "turn left", "turn right"):
        if name in moves:
            actions[name] = moves[name]
    return actions


def _actions_on(sight: Sight, world: World) -> Iterator[tuple[str, Sequence[Move]]]:
    column, row = sight.cell
    if world.carried is not None and sight.kind != "door":
        around = [(column - 1, row), (column + 1, row), (column, row - 1), (column, row + 1)]
        beside = world.way_to_face(cell for cell in around if world.is_empty(cell))
        if beside is not None:
            yield f"put down next to {sight.name}", [*beside, Move.DROP]
    way = world.way_to_face([sight.cell])
    if way is None:
        return
    if way:
        yield f"go to {sight.name}", way
    if sight.kind != "door":
        if world.carried is None:
            yield f"pick up {sight.name}", [*way, Move.PICKUP]
        if sight.kind == "box":
            yield f"open {sight.name}", [*way, Move.TOGGLE]
    elif sight.state == "open":
        yield f"close {sight.name}", [*way, Move.TOGGLE]
        yield f"go through {sight.name}", [*way, Move.FORWARD, Move.FORWARD]
    elif _opens(sight, world):
        yield f"open {sight.name}", [*way, Move.TOGGLE]
        yield f"go through {sight.name}", [*way, Move.TOGGLE, Move.FORWARD, Move.FORWARD]


def _opens(sight: Sight, world: World) -> bool:
    """Whether toggling this door would move it."""
    if sight.kind != "door":
        return False
    return sight.state != "locked" or sight.name.split()[0] == world.carried_key_color
