"""Which groups an update takes from those that were played.

verl's replay buffer decides which groups a training step is trained on, and which it discards
because they are too old. Here it also reports which groups those were: a group whose episodes
all failed has no row that could show it, and a discarded group has none left.

verl counts a group's age from the training step that played it, a limit of T training steps
as T + 1 steps that a group may span. Its strategy `wait` lets the learner wait for groups
that are about to become too old, and yet may take others before them, so that some are
learned from later than the limit; here it waits until every group can be taken in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from longhaul_core.errors import LonghaulError
from longhaul_core.store.records import DiscardReason
from longhaul_trainer.training.step_metadata import EpisodeMetadata, GroupName, RowKey, Rows

PARTITION = "train"
"""Where verl keeps the rows of training episodes in TransferQueue; validation has its own."""

ReadRows = Callable[[Sequence[str]], Rows]
"""Gives what travels beside rows, by their keys."""


class GroupBuffer(ReplayBuffer):
    """verl's buffer of synchronous training, where no error is taken for an episode's failure."""

    taken: tuple[GroupName, ...] = ()
    """Groups of the newest training batch, in the order in which they were requested."""
    thrown_away: Mapping[GroupName, DiscardReason] = MappingProxyType({})
    """Groups that were discarded and not yet recorded, with the reason."""

    def __init__(
        self,
        *,
        require_agent_loops: Callable[[], None],
        **verls: Any,  # noqa: ANN401
    ) -> None:
        """Begin with nothing played.

        Args:
            require_agent_loops: Raises if a process that plays episodes is gone.
            verls: What verl's buffer takes.
        """
        super().__init__(**verls)
        self._require_agent_loops = require_agent_loops

    def _sync_metadata_from_transfer_queue(self) -> None:
        """See what became of every group.

        Raises:
            LonghaulError: If a process that plays is gone, whose groups verl would wait for, or an
                episode ended by an error that is not its own: verl would learn from the rest of its
                group, or play other tasks for ever if what broke stays broken.
        """
        self._require_agent_loops()
        super()._sync_metadata_from_transfer_queue()
        broken = sorted(name for names in self.failure_keys.values() for name in names)
        if broken:
            raise LonghaulError(
                f"an error that no episode is to blame for ended {broken[0]!r}; it stands in "
                "logs/processes.log of the run's folder"
            )

    def reported(self, taken: Sequence[EpisodeMetadata]) -> Sequence[EpisodeMetadata]:
        """The episodes that ended and whose outcomes this training step reports.

        Args:
            taken: Of the newest training batch.
        """
        return taken

    def _rows_of_groups(
        self, names: Collection[GroupName], read_rows: ReadRows
    ) -> dict[GroupName, Rows]:
        """Of whole groups; a group without any episode that ended has none."""
        if not names:
            return {}
        keys: dict[str, list[str]] = {str(name): [] for name in names}
        for key in self.partitions[PARTITION]:  # padding rows of the newest batch among them
            group = RowKey.parse(key).group
            if group in keys:
                keys[group].append(key)
        every = [key for of_group in keys.values() for key in of_group]
        found = read_rows(every) if every else {}
        return {name: {key: found[key] for key in keys[str(name)]} for name in names}

    def _materialize_batch(
        self,
        partition_id: str,
        selected_prompt_uids: list[str],
        partition_snapshot: dict[str, dict[str, object]],
    ) -> KVBatchMeta:
        if partition_id == PARTITION:
            self.taken = tuple(sorted(map(GroupName.parse, selected_prompt_uids)))
        return super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)


class AsyncGroupBuffer(GroupBuffer, ReplayBufferAsync):
    """verl's buffer of asynchronous training, whose staleness limit holds for every group."""

    def _evict_terminal_groups(
        self,
        global_steps: int,
        partition_id: str,
        eviction_reasons: tuple[set[str], set[str], set[str], Counter[Any]],
    ) -> tuple[set[str], int, int, dict[str, object]]:
        stale = sorted(map(GroupName.parse, eviction_reasons[0]))
        self.thrown_away = {**self.thrown_away, **dict.fromkeys(stale, "stale")}
        return super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)

    def _has_enough_samples(
        self, global_steps: int, partition_id: str, batch_size: int, sampleable_keys: set[str]
    ) -> bool:
        if len(sampleable_keys) < batch_size:
            return False
        if partition_id != PARTITION or self.max_off_policy_strategy != "wait":
            return True
        assert self.max_off_policy_threshold is not None
        played = self.prompt_global_steps[partition_id]
        oldest = sorted(played[uid] for uid in sampleable_keys)[batch_size:]
        in_flight = self.pending_keys[partition_id] | self.running_keys[partition_id]
        return all_in_time(
            [*oldest, *(played[uid] for uid in in_flight)],
            after=global_steps,
            batch_size=batch_size,
            max_staleness=self.max_off_policy_threshold - 1,
        )

    def _select_prompt_uids(
        self, partition_id: str, sampleable_keys: set[str], batch_size: int
    ) -> tuple[list[str], dict[str, dict[str, object]], dict[str, int]]:
        chosen, partition, played = super()._select_prompt_uids(
            partition_id, sampleable_keys, batch_size
        )
        if partition_id != PARTITION:
            return chosen, partition, played
        # verl leaves the order of groups of one training step to chance.
        names = sorted(map(GroupName.parse, sampleable_keys))[:batch_size]
        if not any(key.split("_")[0] in {str(name) for name in names} for key in partition):
            raise RuntimeError("the groups taken have no materializable trajectories")
        return [str(name) for name in names], partition, played


def all_in_time(played: Iterable[int], *, after: int, batch_size: int, max_staleness: int) -> bool:
    """Whether groups can be taken, oldest first, before they are too old.

    Args:
        played: Training step that played each group that is left.
        after: The training step that takes others now; the next one takes the first of these.
        batch_size: Groups that a training step takes.
        max_staleness: Training steps that may lie between playing a group and taking it.
    """
    return all(
        number + max_staleness >= after + 1 + place // batch_size
        for place, number in enumerate(sorted(played))
    )
