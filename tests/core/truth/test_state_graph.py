"""All states of a task, and where each action leads."""

from collections.abc import Generator

import pytest

from longhaul_core.environment import StepResult
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.truth import INVALID, explored
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.key_door.tasks import KeyDoorOptions
from longhaul_envs.key_door.tasks import tasks as key_door_tasks
from longhaul_envs.number_line.tasks import NumberLineOptions
from longhaul_envs.number_line.tasks import tasks as number_line_tasks
from longhaul_envs.players import Player, opened
from table_world import TASK, TableWorld

FORK = {
    "a": {"left": ("b", 0.0), "right": ("c", 0.5)},
    "b": {"on": ("a", -1.0)},
    "c": {"out": (None, 1.0)},
}


def test_every_state_and_edge_of_a_small_world_is_found() -> None:
    graph = explored(TableWorld(FORK), TASK, horizon=3)

    assert [state.text for state in graph.states] == ["a", "b", "c"]
    assert graph.depths_S.tolist() == [0, 1, 1]
    edges = zip(graph.sources_E, graph.actions, graph.targets_E, graph.rewards_E, strict=True)
    assert [(int(s), a, int(t), float(r)) for s, a, t, r in edges] == [
        (0, "left", 1, 0.0),
        (0, "right", 2, 0.5),
        (0, INVALID, 0, 0.0),
        (1, "on", 0, -1.0),
        (1, INVALID, 1, 0.0),
        (2, "out", -1, 1.0),
        (2, INVALID, 2, 0.0),
    ]


def test_states_beyond_the_horizon_are_left_out() -> None:
    chain = {f"{n}": {"on": (f"{n + 1}", 0.0)} for n in range(9)}

    graph = explored(TableWorld(chain), TASK, horizon=2)

    assert [state.text for state in graph.states] == ["0", "1", "2"]
    assert set(graph.sources_E.tolist()) == {0, 1}


class CountingWorld(TableWorld):
    """Pays for the third step, which no observation tells."""

    def act(self, action: str) -> StepResult:
        result = super().act(action)
        return StepResult(observation=result.observation, reward=float(self.num_steps == 3))


def test_an_observation_that_hides_a_part_of_the_state_is_refused() -> None:
    loop = {"a": {"on": ("b", 0.0)}, "b": {"on": ("a", 0.0)}}

    with pytest.raises(ConfigError, match="does not name the whole state"):
        explored(CountingWorld(loop), TASK, horizon=6)


class RestlessWorld(TableWorld):
    """Begins elsewhere from the third start on."""

    num_starts = 0

    def start(self, task: Task) -> Observation:
        super().start(task)
        self.num_starts += 1
        self.state = "a" if self.num_starts < 3 else "b"
        return self.observed(self.state)


def test_a_task_that_begins_in_several_states_is_refused() -> None:
    loop = {"a": {"on": ("b", 0.0)}, "b": {"on": ("a", 0.0)}}

    with pytest.raises(ConfigError, match="began in state 'a' and later in state 'b'"):
        explored(RestlessWorld(loop), TASK, horizon=6)


class ImpatientWorld(TableWorld):
    """Ends every episode after four steps by itself."""

    def act(self, action: str) -> StepResult:
        result = super().act(action)
        return StepResult(observation=result.observation, reward=0.0, truncated=self.num_steps == 4)


def test_a_limit_of_the_environment_is_refused() -> None:
    loop = {"a": {"on": ("b", 0.0)}, "b": {"on": ("a", 0.0)}}

    with pytest.raises(ConfigError, match=r"after 4 steps .* choose a horizon below 4"):
        explored(ImpatientWorld(loop), TASK, horizon=6)
    assert len(explored(ImpatientWorld(loop), TASK, horizon=3).states) == 2


class SilentWorld(TableWorld):
    """Lists no actions."""

    def observed(self, state: str) -> Observation:
        return Observation(text=state)


def test_what_cannot_be_counted_is_refused() -> None:
    chain = {f"{n}": {"on": (f"{n + 1}", 0.0)} for n in range(9)}

    with pytest.raises(ConfigError, match="lists no admissible actions"):
        explored(SilentWorld(FORK), TASK, horizon=3)
    with pytest.raises(ConfigError, match="more than 4 states within 9 steps"):
        explored(TableWorld(chain), TASK, horizon=9, max_states=4)
    with pytest.raises(ConfigError, match="horizon must be at least 1, got 0"):
        explored(TableWorld(chain), TASK, horizon=0)


def test_an_unknown_state_or_action_is_named() -> None:
    graph = explored(TableWorld(FORK), TASK, horizon=3)

    with pytest.raises(ConfigError, match="state 'z' is no state of task '0' within 3 steps"):
        graph.state(Observation(text="z"))
    with pytest.raises(ConfigError, match="'jump' is no action in state 'a'"):
        graph.edge(graph.states[0], "jump")


@pytest.fixture
def key_door() -> Generator[Player]:
    spec = GymEnvironmentSpec(environment_id="longhaul/KeyDoor-v0", options={"room_size": 7})
    with opened(spec) as player:
        yield player


def test_a_layout_of_two_rooms_has_the_states_that_can_be_counted_by_hand(
    key_door: Player,
) -> None:
    (task,) = key_door_tasks(Split.TRAIN, KeyDoorOptions(room_size=7), 1)
    advised: dict[Observation, str | None] = {}

    def ask(seen: Observation) -> None:
        advised[seen] = key_door.expert_action()

    graph = explored(key_door, task, horizon=60, arrived=ask)

    # West room with the key, without it, with the door open; the door; the east room but its goal.
    assert len(graph.states) == 49 + 49 + 49 + 1 + 48
    assert list(advised) == list(graph.states)
    assert None not in advised.values()
    assert set(advised.values()) == {"north", "south", "west", "east", "take", "unlock"}


def number_line(limit: int) -> tuple[Task, ...]:
    return number_line_tasks(Split.TRAIN, NumberLineOptions(max_position=5), limit)


def test_a_world_that_tells_of_an_invalid_action_has_states_for_it() -> None:
    (task,) = number_line(1)
    spec = GymEnvironmentSpec(environment_id="longhaul/NumberLine-v0", options={"max_position": 5})
    with opened(spec) as player:
        graph = explored(player, task, horizon=10)

    told = {state.anchor for state in graph.states if "That is no action" in state.text}
    assert told
    assert told < {state.anchor for state in graph.states} or len(told) * 2 == len(graph.states)
