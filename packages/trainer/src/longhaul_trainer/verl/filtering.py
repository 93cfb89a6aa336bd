"""verl's asynchronous replay buffer where groups without a signal are left out.

In asynchronous rollout no engine waits for a wave: while the learner waits for its groups, verl
requests one further task for each group that is left out. It would do so for ever where a policy
always succeeds or always fails; here the refills of a training step are limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from transfer_queue import KVBatchMeta

from longhaul_core.errors import GroupError
from longhaul_trainer.training.sampling import (
    SamplingRules,
    Unusable,
    nothing_to_learn_from,
    num_tokens,
    played_group,
)
from longhaul_trainer.training.step_metadata import EpisodeMetadata, GroupName, Rows, episodes_in
from longhaul_trainer.verl.buffer import PARTITION, AsyncGroupBuffer, ReadRows


class _LeftOut(NamedTuple):
    reason: Unusable
    rows: Rows


class FilteringBuffer(AsyncGroupBuffer):
    """Takes the groups that can be trained on from those that asynchronous rollout has played."""

    def __init__(self, rules: SamplingRules, read_rows: ReadRows, verls: Mapping[str, Any]) -> None:
        """Begin with nothing played.

        Args:
            rules: A training step plays `max_refills * num_groups` further tasks at most.
            read_rows: See there.
            verls: What `ReplayBufferAsync` takes, by its names there.
        """
        super().__init__(**verls)
        self._rules = rules
        self._read_rows = read_rows
        self._seen: dict[GroupName, _LeftOut | None] = {}  # whole groups that are still there
        self._useless: dict[GroupName, Rows] = {}  # of this training step
        self._useless_episodes: tuple[EpisodeMetadata, ...] = ()  # of the newest training batch's
        self._num_refills = 0

    def reported(self, taken: Sequence[EpisodeMetadata]) -> Sequence[EpisodeMetadata]:
        """Those of the groups that were taken, and of those that were looked at and left out."""
        return [*self._useless_episodes, *taken]

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, float]]:
        """Rows of the next update, and what was left out; validation is verl's.

        Raises:
            GroupError: No group can be learned from, though the refills are used up.
        """
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id != PARTITION:
            return batch, metrics
        reasons = Counter(self.thrown_away.values())
        left_out = [self._useless[name] for name in sorted(self._useless)]
        self._useless_episodes = tuple(e for rows in left_out for e in episodes_in(rows))
        metrics |= {
            "sampling/groups_taken": len(self.taken),
            "sampling/groups_no_signal": reasons["no_signal"],
            "sampling/groups_too_small": reasons["too_small"],
            "sampling/tokens_no_signal": sum(map(num_tokens, left_out)),
        }
        self._useless, self._num_refills = {}, 0
        return batch, metrics

    def _terminal_eviction_reasons(
        self, global_steps: int, partition_id: str
    ) -> tuple[set[str], set[str], set[str], Counter[Any]]:
        reasons = super()._terminal_eviction_reasons(global_steps, partition_id)
        if partition_id != PARTITION:
            return reasons
        stale, _, failed, counts = reasons
        finished = {GroupName.parse(name) for name in self.finished_keys[PARTITION]}
        self._seen = {name: seen for name, seen in self._seen.items() if name in finished}
        new = finished - self._seen.keys()
        for name, rows in self._rows_of_groups(new, self._read_rows).items():
            reason = self._rules.unusable(played_group(name, rows))
            self._seen[name] = None if reason is None else _LeftOut(reason, rows)
        useless = {str(name) for name, seen in self._seen.items() if seen is not None}
        return stale, useless - stale, failed, counts

    def _evict_terminal_groups(
        self,
        global_steps: int,
        partition_id: str,
        eviction_reasons: tuple[set[str], set[str], set[str], Counter[Any]],
    ) -> tuple[set[str], int, int, dict[str, object]]:
        """Throw groups away; only those that are returned are played anew."""
        stale, useless, failed, counts = eviction_reasons
        evicted, num_stale, _, metrics = super()._evict_terminal_groups(
            global_steps, partition_id, (stale, set(), failed, counts)
        )
        names = sorted(map(GroupName.parse, useless))
        for name in names:
            seen = self._seen[name]
            assert seen is not None
            self._useless[name] = seen.rows
            self.thrown_away = {**self.thrown_away, name: seen.reason}
        self._clear_groups(partition_id, useless)
        replaced = {str(name) for name in names[: self._most_refills - self._num_refills]}
        self._num_refills += len(replaced)
        return evicted | replaced, num_stale, 0, metrics

    def _has_enough_samples(
        self, global_steps: int, partition_id: str, batch_size: int, sampleable_keys: set[str]
    ) -> bool:
        if super()._has_enough_samples(global_steps, partition_id, batch_size, sampleable_keys):
            return True
        if partition_id != PARTITION or self._num_refills < self._most_refills:
            return False
        if self.pending_keys[PARTITION] or self.running_keys[PARTITION]:
            return False
        if not sampleable_keys:
            looked_at = [played_group(name, rows) for name, rows in self._useless.items()]
            raise GroupError(
                nothing_to_learn_from(
                    global_steps, looked_at, smallest_group=self._rules.smallest_group
                )
            )
        return len(sampleable_keys) < batch_size

    @property
    def _most_refills(self) -> int:
        return self._rules.max_refills * self._rules.num_groups
