"""Worlds written down as a table, for the truth of small cases."""

from collections.abc import Mapping
from random import Random

from longhaul_core.environment import StepResult
from longhaul_core.truth import INVALID, Policy
from longhaul_core.types import Observation, Split, Task

Outcome = tuple[str | None, float]
"""The state that an action leads to, None for an end; and what it is paid."""
Table = Mapping[str, Mapping[str, Outcome]]
"""By state and action; a state that is missing cannot be left but by the horizon."""

TASK = Task(environment="table", version="1", data_hash="", task_id="0", seed=0, split=Split.TRAIN)


class TableWorld:
    """Begins in the first state by name; an invalid action pays 0 and changes nothing."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.state = ""
        self.num_steps = 0

    def observed(self, state: str) -> Observation:
        """What a state shows."""
        actions = tuple(self.table[state]) if state in self.table else ()
        return Observation(text=state, admissible_actions=actions)

    def start(self, task: Task) -> Observation:
        """See `World.start`."""
        self.state, self.num_steps = min(self.table), 0
        return self.observed(self.state)

    def act(self, action: str) -> StepResult:
        """See `World.act`."""
        self.num_steps += 1
        known = self.table.get(self.state, {})
        target, reward = known.get(action, (self.state, 0.0))
        ended = target is None
        self.state = self.state if target is None else target
        return StepResult(
            observation=self.observed(self.state),
            reward=reward,
            terminated=ended,
            success=ended and reward > 0,
        )


def fixed(shares: Mapping[str, Mapping[str, float]]) -> Policy:
    """The policy with these probabilities, by state."""
    return lambda seen: shares[seen.text]


def uneven(seen: Observation) -> dict[str, float]:
    """Every action with a probability of its own, the same for equal states."""
    draw = Random(seen.anchor)
    weights = {
        action: 0.1 + draw.random() for action in (*(seen.admissible_actions or ()), INVALID)
    }
    total = sum(weights.values())
    return {action: weight / total for action, weight in weights.items()}
