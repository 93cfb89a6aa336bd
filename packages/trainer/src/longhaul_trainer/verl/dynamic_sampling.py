"""verl's replay buffer where more groups may be played than an update takes.

`training/sampling.py` decides; this module carries the decisions out: it starts waves of tasks and
waits for them, stops episodes that are not waited for, and removes the rows of discarded groups
from TransferQueue. Groups that wait for the next training step stay in it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transfer_queue import KVBatchMeta

from longhaul_core.errors import GroupError
from longhaul_trainer.training.sampling import (
    Decision,
    PlayedGroup,
    SamplingRules,
    decide,
    first_wave,
    is_enough,
    next_wave,
    nothing_to_learn_from,
    num_tokens,
    played_group,
    still_fresh,
)
from longhaul_trainer.training.step_metadata import (
    EpisodeMetadata,
    GroupName,
    RowKey,
    Rows,
    episodes_in,
)
from longhaul_trainer.training.stopping import Stopped
from longhaul_trainer.verl.buffer import PARTITION, GroupBuffer, ReadRows


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicSampling:
    """Arguments of `DynamicSamplingBuffer` beside those that verl passes."""

    rules: SamplingRules
    read_rows: ReadRows
    start: Callable[[int], object]
    """Starts so many further tasks."""
    stop: Callable[[Sequence[str]], Mapping[str, Stopped]]
    """Stops groups by their names; see `EpisodesInFlight.stop`."""
    end_requests: Callable[[], None]
    """Ends what the engine still does for episodes that were stopped."""


class DynamicSamplingBuffer(GroupBuffer):
    """Takes groups that can be learned from, and plays on until there are enough."""

    def __init__(self, choosing: DynamicSampling, verls: Mapping[str, Any]) -> None:
        """Begin with nothing played.

        Args:
            choosing: Ours.
            verls: What `ReplayBuffer` takes, by its names there.
        """
        super().__init__(**verls)
        self.waiting: tuple[GroupName, ...] = ()
        """Usable groups that the newest update had no place for."""
        self._reported: tuple[EpisodeMetadata, ...] = ()
        self._choosing = choosing
        self._rules = choosing.rules
        self._tokens: dict[GroupName, int] = {}

    def reported(self, taken: Sequence[EpisodeMetadata]) -> Sequence[EpisodeMetadata]:
        """Those of the whole groups that the newest training step played, in order."""
        return self._reported

    def first_wave(self, training_step: int) -> int:
        """Tasks that a training step begins with; see `sampling.first_wave`."""
        return first_wave(self._rules, num_waiting=len(self._fresh(training_step)))

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, float]]:
        """Rows of the next update, and what choosing them had cost; validation is verl's.

        Raises:
            GroupError: No group can be learned from, though the refills are used up.
        """
        if partition_id != PARTITION:
            return super().sample(global_steps, partition_id, batch_size)
        played, stopped = self._play(global_steps)
        decision = decide(
            self._rules,
            training_step=global_steps,
            waiting=self.waiting,
            played=list(played.values()),
            stopped=list(stopped),
        )
        if not decision.taken:
            raise GroupError(
                nothing_to_learn_from(
                    global_steps,
                    list(played.values()),
                    smallest_group=self._rules.smallest_group,
                )
            )
        metrics = self._metrics(global_steps, decision, num_played=len(played))
        metrics["sampling/tokens_stopped_early"] = self._cost_of(stopped)
        self._clear_groups(PARTITION, set(map(str, decision.thrown_away)))
        self.thrown_away, self.waiting = decision.thrown_away, decision.waiting
        self._tokens = {name: self._tokens[name] for name in decision.waiting}
        snapshot = dict(self.partitions[PARTITION])
        return self._materialize_batch(PARTITION, [*map(str, decision.taken)], snapshot), metrics

    def throw_away_waiting(self) -> tuple[tuple[GroupName, ...], int]:
        """Let no group wait any longer; returns those that did, and their tokens."""
        names, self.waiting = self.waiting, ()
        tokens = sum(self._tokens.pop(name) for name in names)
        self._sync_metadata_from_transfer_queue()
        self._clear_groups(PARTITION, set(map(str, names)))
        return names, tokens

    def _fresh(self, training_step: int) -> tuple[GroupName, ...]:
        return still_fresh(self._rules, self.waiting, training_step=training_step)

    def _play(
        self, training_step: int
    ) -> tuple[dict[GroupName, PlayedGroup], dict[GroupName, Stopped]]:
        """Wait for the groups that were started, and start more, until there are enough."""
        rules, num_waiting = self._rules, len(self._fresh(training_step))
        played: dict[GroupName, PlayedGroup] = {}
        stopped: dict[GroupName, Stopped] = {}
        rows: dict[GroupName, Rows] = {}
        num_refills = 0
        while True:
            in_flight = self._read_whole(training_step, played, rows)
            enough = is_enough(rules, num_waiting=num_waiting, played=played.values())
            if enough and in_flight and rules.extra_tasks:
                stopped = self._stop(in_flight)
                self._read_whole(training_step, played, rows, except_for=stopped)
                break
            if not in_flight:
                size = next_wave(
                    rules,
                    num_waiting=num_waiting,
                    played=list(played.values()),
                    num_refills=num_refills,
                )
                if not size:
                    break
                num_refills += 1
                self._choosing.start(size)
            time.sleep(self.poll_interval)
        self._reported = tuple(
            episode
            for name in sorted(rows)
            for episode in episodes_in(dict(sorted(rows[name].items())))
        )
        return played, stopped

    def _read_whole(
        self,
        training_step: int,
        played: dict[GroupName, PlayedGroup],
        rows: dict[GroupName, Rows],
        *,
        except_for: Collection[GroupName] = (),
    ) -> set[str]:
        """Add the groups that have become whole; returns the names of those in flight."""
        self._sync_metadata_from_transfer_queue()
        new = {
            name
            for name in map(GroupName.parse, self.finished_keys[PARTITION])
            if name.training_step == training_step and name not in played and name not in except_for
        }
        for name, found in self._rows_of_groups(new, self._choosing.read_rows).items():
            rows[name] = found
            played[name] = played_group(name, found)
            self._tokens[name] = num_tokens(found)
        return self.pending_keys[PARTITION] | self.running_keys[PARTITION]

    def _stop(self, groups: set[str]) -> dict[GroupName, Stopped]:
        """Stop groups, and wait until nothing is in flight."""
        names = sorted(groups)
        self._choosing.stop(names)
        while True:
            self._sync_metadata_from_transfer_queue()
            if not self.pending_keys[PARTITION] and not self.running_keys[PARTITION]:
                break
            time.sleep(self.poll_interval)
        self._choosing.end_requests()
        stopped = self._choosing.stop(names)
        return {GroupName.parse(name): what for name, what in stopped.items()}

    def _cost_of(self, stopped: Mapping[GroupName, Stopped]) -> int:
        """Tokens of groups that were stopped, those of their episodes that had ended included."""
        ended = [
            key
            for key in self.partitions[PARTITION]
            if GroupName.parse(RowKey.parse(key).group) in stopped
        ]
        rows = self._choosing.read_rows(ended) if ended else {}
        return sum(what.num_tokens for what in stopped.values()) + num_tokens(rows)

    def _metrics(
        self, training_step: int, decision: Decision, *, num_played: int
    ) -> dict[str, float]:
        groups: Counter[str] = Counter(decision.thrown_away.values())
        tokens: Counter[str] = Counter()
        for name, reason in decision.thrown_away.items():
            tokens[reason] += self._tokens.get(name, 0)
        return {
            "sampling/groups_played": num_played,
            "sampling/groups_taken": len(decision.taken),
            "sampling/groups_that_waited": sum(
                name.training_step < training_step for name in decision.taken
            ),
            "sampling/groups_no_signal": groups["no_signal"],
            "sampling/groups_too_small": groups["too_small"],
            "sampling/groups_stopped_early": groups["stopped_early"],
            "sampling/groups_surplus": groups["surplus"],
            "sampling/tokens_no_signal": tokens["no_signal"] + tokens["too_small"],
            "sampling/tokens_surplus": tokens["surplus"] + tokens["stale"],
        }
