"""TransferQueue in memory, and the workers that fill it, for tests of what reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longhaul_trainer.training.step_metadata import EpisodeMetadata, GroupName, RowMetadata, Rows
from longhaul_trainer.training.stopping import Stopped
from row_metadata import MadeUpStep, rows_of

PARTITION = "train"
GOOD, FLAT = (0.0, 1.0), (1.0, 1.0)


@dataclass
class World:
    """A TransferQueue in memory, and the workers that fill it.

    A group has the returns that `returns` says of it; one of `slow` stays in flight until it is
    stopped, with one of its episodes ended.
    """

    returns: Callable[[GroupName], tuple[float, ...]]
    slow: frozenset[GroupName] = frozenset()
    training_step: int = 0
    num_started: int = 0
    tags: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    panel: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Tags of validation episodes."""
    rows: dict[str, RowMetadata] = field(default_factory=dict[str, RowMetadata])
    told_to_stop: list[str] = field(default_factory=list[str])
    num_ended_requests: int = 0

    # what verl's buffer asks of TransferQueue

    def kv_list(self) -> dict[str, dict[str, dict[str, Any]]]:
        partitions = {PARTITION: self.tags, "val": self.panel}
        return {name: {key: dict(tags[key]) for key in tags} for name, tags in partitions.items()}

    def kv_clear(self, *, partition_id: str, keys: Sequence[str]) -> None:
        for key in keys:
            (self.tags if partition_id == PARTITION else self.panel).pop(key, None)
            self.rows.pop(key, None)

    # what the trainer does

    def require_agent_loops(self) -> None:
        """They are in this process."""

    def begin(self, training_step: int, num_tasks: int) -> None:
        self.training_step, self.num_started = training_step, 0
        self.start(num_tasks)

    def start(self, num_tasks: int) -> None:
        for place in range(self.num_started, self.num_started + num_tasks):
            name = GroupName(self.training_step, place)
            whole = name not in self.slow
            self.tags[str(name)] = {
                "is_prompt": True,
                "status": "finished" if whole else "running",
                "global_steps": self.training_step,
            }
            returns = self.returns(name)
            for sample_index, value in enumerate(returns if whole else returns[:1]):
                played = episode(name, sample_index, value)
                self.tags |= {key: {"status": "success"} for key in played}
                self.rows |= played
        self.num_started += num_tasks

    def read_rows(self, keys: Sequence[str]) -> Rows:
        return {key: self.rows[key] for key in keys}

    def stop(self, groups: Sequence[str]) -> Mapping[str, Stopped]:
        for group in groups:
            self.told_to_stop.append(group)
            self.tags[group]["status"] = "finished"
        return dict.fromkeys(groups, Stopped(num_episodes=1, num_tokens=7))

    def end_requests(self) -> None:
        self.num_ended_requests += 1


def episode(name: GroupName, sample_index: int, value: float) -> dict[str, RowMetadata]:
    """Two steps of three tokens, a row each, which are paid `value` together."""
    steps: list[MadeUpStep] = [{"reward": value / 2, "tokens": 3}] * 2
    return rows_of(name, sample_index, steps, horizon=9, prompt_tokens=10)


GROUP_TOKENS = 2 * 2 * (10 + 3)


def groups_of(keys: Sequence[str]) -> list[str]:
    return sorted({key.split("_")[0] for key in keys})


def groups_in(episodes: Sequence[EpisodeMetadata]) -> list[str]:
    """Names of the groups that episodes are of."""
    return sorted({str(GroupName(e.training_step, e.group_index)) for e in episodes})
