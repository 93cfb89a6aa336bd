"""Which horizon each training step was to be played at, by the definitions of the schedules."""

from collections import defaultdict
from collections.abc import Iterable

from longhaul_core.audit.intent import Horizons
from longhaul_core.store.queries import HorizonOutcomes

__all__ = ["scheduled_horizons"]


def scheduled_horizons(
    horizons: Horizons, outcomes: Iterable[HorizonOutcomes], *, num_training_steps: int
) -> list[int]:
    """Horizons of the training steps 1, 2 … `num_training_steps`, in steps.

    Args:
        horizons: The schedule.
        outcomes: Outcomes of the training steps' episodes; only `success_gated` reads it.
        num_training_steps: At least 0.

    Raises:
        ValueError: If the schedule is none that is known here.
    """
    if horizons.kind == "success_gated":
        return _success_gated(horizons, outcomes, num_training_steps)
    return [_of_training_step(number, horizons) for number in range(1, num_training_steps + 1)]


def _of_training_step(training_step: int, horizons: Horizons) -> int:
    match horizons.kind:
        case "fixed":
            return horizons.final
        case "stepwise":
            stage = (training_step - 1) // horizons.training_steps_per_stage
            return horizons.stages[min(stage, len(horizons.stages) - 1)]
        case "linear":
            intervals = horizons.end_training_step - 1
            passed = min(training_step - 1, intervals)
            growth = horizons.final - horizons.start
            return horizons.start + growth * passed // intervals
        case kind:
            raise ValueError(f"no horizon schedule is called {kind!r}")


def _success_gated(
    horizons: Horizons, outcomes: Iterable[HorizonOutcomes], num_training_steps: int
) -> list[int]:
    """The next stage begins after a full window of this stage's training steps went well.

    A training step counts by those of its episodes that were begun at the stage's horizon, and
    not at all if there are none.
    """
    by_place = {(one.training_step, one.horizon): one for one in outcomes}
    counted: dict[int, list[HorizonOutcomes]] = defaultdict(list)
    found: list[int] = []
    stage = 0
    for training_step in range(1, num_training_steps + 1):
        horizon = horizons.stages[stage]
        found.append(horizon)
        outcome = by_place.get((training_step, horizon))
        if outcome is None or horizon == horizons.stages[-1]:
            continue
        counted[stage].append(outcome)
        window = counted[stage][-horizons.success_window :]
        solved = sum(one.num_successes for one in window)
        played = sum(one.num_episodes for one in window)
        if len(window) == horizons.success_window and solved / played >= horizons.success_threshold:
            stage += 1
    return found
