"""AgentGym-RL's table of round limits, read as our own settings.

Its users write `algorithm.rounds_ctrl.type`, `.rounds` and `.steps_scaling_inter`, in a file
or as overrides. They become `rollout.horizon` and `horizon_schedule` before anything is
checked, so a run that is written out names its settings in one way only.
"""

from collections.abc import Mapping
from typing import cast

ROUNDS_CTRL = "algorithm.rounds_ctrl"
KEYS = ("type", "rounds", "steps_scaling_inter")
TYPES = ("fixed", "scaling_inter_stepwise")


def is_rounds_ctrl(key: str) -> bool:
    """Whether a dotted key is one of the table's."""
    return key in {f"{ROUNDS_CTRL}.{name}" for name in KEYS}


def adopt_rounds_ctrl(table: dict[str, object]) -> list[str]:
    """Replace `algorithm.rounds_ctrl` in a run's table; what is wrong with it comes back.

    `fixed` sets `rollout.horizon`; `scaling_inter_stepwise` sets `horizon_schedule`, and
    `rollout.horizon` to the last of the rounds if the table leaves it out.
    """
    algorithm = table.get("algorithm")
    if not isinstance(algorithm, dict) or "rounds_ctrl" not in algorithm:
        return []
    given = cast("dict[str, object]", algorithm).pop("rounds_ctrl")
    if not isinstance(given, dict):
        return [f"{ROUNDS_CTRL}: must be a table with {', '.join(KEYS)}, got {given!r}"]
    given = cast("dict[str, object]", given)
    problems = _problems_of(given)
    if "horizon_schedule" in table:
        problems.append(f"{ROUNDS_CTRL}: says the same as horizon_schedule; give one of them")
    empty: dict[str, object] = {}
    rollout = table.setdefault("rollout", empty)
    if problems or not isinstance(rollout, dict):
        return problems
    rollout = cast("dict[str, object]", rollout)
    rounds = given["rounds"]
    if isinstance(rounds, list):
        rounds = cast("list[object]", rounds)
        schedule: dict[str, object] = {"kind": "stepwise", "stages": rounds}
        if "steps_scaling_inter" in given:
            schedule["training_steps_per_stage"] = given["steps_scaling_inter"]
        table["horizon_schedule"] = schedule
        rollout.setdefault("horizon", rounds[-1])
    elif rollout.setdefault("horizon", rounds) != rounds:
        return [
            f"{ROUNDS_CTRL}.rounds = {rounds!r} and rollout.horizon = {rollout['horizon']!r} "
            "say the same; give one of them"
        ]
    return []


def _problems_of(given: Mapping[str, object]) -> list[str]:
    problems = [
        f"{ROUNDS_CTRL}.{key}: unknown key; there are {', '.join(KEYS)}"
        for key in given
        if key not in KEYS
    ]
    problems += [f"{ROUNDS_CTRL}.{key}: missing" for key in KEYS[:2] if key not in given]
    if problems:
        return problems
    kind, rounds = given["type"], given["rounds"]
    if kind not in TYPES:
        return [f"{ROUNDS_CTRL}.type = {kind!r}: must be {TYPES[0]!r} or {TYPES[1]!r}"]
    if kind == "fixed" and isinstance(rounds, list):
        return [f"{ROUNDS_CTRL}.rounds = {rounds!r}: must be one number for type 'fixed'"]
    if kind != "fixed" and (not isinstance(rounds, list) or not rounds):
        return [
            f"{ROUNDS_CTRL}.rounds = {rounds!r}: must be a list of at least 1 number for type "
            f"{kind!r}"
        ]
    return []
