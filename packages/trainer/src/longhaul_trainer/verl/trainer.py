"""verl's trainer, with our tasks, credit, loss and bookkeeping.

verl keeps what it is good at: workers, engines, weight sync, log-probabilities, the
update, the loop over training steps. Overridden is what decides *what is trained*: where
tasks come from, advantages and loss weights, the cut into optimizer steps, checkpoints
that survive a kill, validation on our panel, and what goes to the store. When playing and
learning take turns is verl's own: see `modes`.

What is known of a training step between verl's hooks is one value, `self._step`
(`training.training_step.TrainingStep`): `_balance_batch` makes it of the rows and selects what is
trained, `_compute_values` adds the critic's values, `_compute_advantage` credits it, and the two
updates read it.

A training step plays groups, and it takes groups for its update. In asynchronous
rollout those differ: a group's name holds the training step that played it, and a group that
was requested and has no decision waits. A checkpoint keeps the tasks that wait, and a
resume plays them again, first.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from longhaul_core.errors import AllFailedError, LonghaulError
from longhaul_core.horizons import HorizonState
from longhaul_core.store.records import Record
from longhaul_core.tasks import Panel, TaskStream
from longhaul_core.types import Split, Task
from longhaul_trainer.config.estimator_settings import smallest_group
from longhaul_trainer.models.vision import reads_pictures
from longhaul_trainer.play.horizons import horizon_schedule
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.run.directory import PanelScore
from longhaul_trainer.training.audit import LONGEST_WAIT_SECONDS, start_audit
from longhaul_trainer.training.checkpoints import CheckpointFolder
from longhaul_trainer.training.columns import objects
from longhaul_trainer.training.credit import CriticValues
from longhaul_trainer.training.demonstrations import Demonstrations
from longhaul_trainer.training.rank_balance import imbalance, shared_out
from longhaul_trainer.training.rewards import refuse_hook_errors
from longhaul_trainer.training.run_records import RunRecords
from longhaul_trainer.training.sampling import SamplingRules, all_failed
from longhaul_trainer.training.stages import StageClock
from longhaul_trainer.training.step_metadata import (
    EpisodeMetadata,
    GroupName,
    RowMetadata,
    Rows,
    episodes_in,
    read_metadata,
    without_demonstrations,
)
from longhaul_trainer.training.training_step import TrainingStep
from longhaul_trainer.verl.agent_loop import DEMONSTRATION_SESSIONS, GREEDY_SESSION
from longhaul_trainer.verl.buffer import PARTITION, AsyncGroupBuffer, GroupBuffer
from longhaul_trainer.verl.critic import ReportedValueLoss
from longhaul_trainer.verl.dynamic_sampling import DynamicSampling, DynamicSamplingBuffer
from longhaul_trainer.verl.filtering import FilteringBuffer
from longhaul_trainer.verl.loss import weighted_means
from longhaul_trainer.verl.loss_inputs import (
    OPTIMIZER_STEP,
    TRAINING_STEP,
    MicroBatchReports,
    ReportedLoss,
)
from longhaul_trainer.verl.manager import AgentLoops
from longhaul_trainer.verl.run_recorder import RunRecorder
from longhaul_trainer.verl.sight import proof_of_sight, rows_to_try
from longhaul_trainer.verl.trackers import Trackers

ENGINE_SECONDS = 120.0
"""Longest that an idle engine may take to answer."""

COMPARED_WITH_SAMPLER = "training/rollout_"
"""How verl's metrics begin that compare sampler and learner."""

UNREAD_BY_WORKERS = frozenset(
    {
        *("global_steps", "group_index", "horizon", "index", "metrics", "num_turns", "phase"),
        *("raw_prompt", "rm_scores", "session_id", "task", "training_step", "uid"),
    }
)
"""Fields of rows that the learner's and the critic's processes have no use for."""

LONGEST_WRITE_SECONDS = 5.0
"""How long a run that ends waits for its audit's result to be written."""

POLL_SECONDS = 0.1
"""How often the trainer looks whether its episodes have ended; verl's own 2 s cost up to
that much of every training step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContext:
    """What a run brings to its trainer."""

    run_context: RunContext
    stream: TaskStream
    panel: Panel | None
    """What is validated; None where nothing is."""
    checkpoints: CheckpointFolder
    recorder: RunRecorder
    stages: StageClock
    trackers: Trackers


class LonghaulTrainer(PPOTrainer):
    """Trains episodes of many steps: credit per step, however the steps are put into rows."""

    def __init__(self, config: DictConfig, context: TrainingContext) -> None:
        self._context = context
        self._run = context.run_context.config
        self._records = RunRecords(context.run_context)
        super().__init__(config)
        self._step: TrainingStep | None = None
        """The training step that is going on; None before the first has its episodes."""
        self._beside: KVBatchMeta | None = None
        """Rows of the demonstrations that it imitates; None without any."""
        self._num_asked: Counter[int] = Counter()  # groups of the newest training step
        self._waiting: dict[GroupName, Task] = {}
        self._again: list[Task] = []  # waited at the checkpoint that this attempt went on from
        self._horizons = horizon_schedule(self._run)
        self._horizon_state = HorizonState()
        self._checkpoint_is_due = False
        self._audit: threading.Thread | None = None
        self._writing_audit = threading.Lock()
        self._audit_is_left = False
        self._over: dict[str, Any] | None = None
        """State of the last training step of this attempt that is over; None before the first."""
        self.scores: dict[int, PanelScore] = {}
        """Validation scores by training step."""

    # Tasks

    def _init_dataloader(self) -> None:
        self.train_dataloader = None
        self.steps_per_epoch = 10**9
        self.total_training_steps = self._run.num_training_steps
        updates = self._run.optimizer.optimizer_steps_per_training_step
        with open_dict(self.config):
            # verl's schedule advances once per call of the worker, that is per optimizer step.
            for optim in (self.config.actor_rollout_ref.actor.optim, self.config.critic.optim):
                optim.total_training_steps = self.total_training_steps * updates

    replay_buffer: GroupBuffer

    def _build_replay_buffer(self) -> GroupBuffer:
        sampler = self.config.trainer.v1.sampler
        verls: dict[str, Any] = {
            "trainer_mode": self.trainer_mode,
            "trainer_config": self.config.trainer.v1.get(self.trainer_mode, {}),
            "max_off_policy_threshold": sampler.max_off_policy_threshold,
            "max_off_policy_strategy": sampler.max_off_policy_strategy,
            "sampler_kwargs": sampler.sampler_kwargs,
            "poll_interval": POLL_SECONDS,
            "refill_fn": self._add_prompts_to_generate,
            "require_agent_loops": lambda: self._agent_loops.require_alive(),
        }
        self._dynamic_sampling: DynamicSamplingBuffer | None = None
        if not self._run.sampling.chooses:
            return (GroupBuffer if self.trainer_mode == "sync" else AsyncGroupBuffer)(**verls)
        if self.trainer_mode != "sync":
            return FilteringBuffer(self._sampling_rules(), self._rows_of, verls)
        choosing = DynamicSampling(
            rules=self._sampling_rules(),
            read_rows=self._rows_of,
            start=self._add_prompts_to_generate,
            stop=lambda groups: self._agent_loops.stop_groups(groups),
            end_requests=self._end_requests,
        )
        self._dynamic_sampling = DynamicSamplingBuffer(choosing, verls)
        return self._dynamic_sampling

    @property
    def _agent_loops(self) -> AgentLoops:
        return cast("AgentLoops", self.agent_loop_manager)

    def _sampling_rules(self) -> SamplingRules:
        run = self._run
        return SamplingRules(
            num_groups=run.tasks_per_training_step,
            smallest_group=smallest_group(run.algorithm),
            dynamic=run.sampling.dynamic,
            max_refills=run.sampling.max_refills,
            extra_tasks=run.sampling.extra_tasks,
            max_staleness=run.trainer.max_staleness,
        )

    def _end_requests(self) -> None:
        """End what the engines still write for episodes that nobody waits for."""
        engines = cast("Any", self.checkpoint_manager)  # its coroutines wait for themselves
        engines.abort_replicas()
        engines.resume_generation_replicas()

    def prepare_step(self) -> dict[str, Any]:
        """Start the training step's tasks: fewer than usual where groups wait for it.

        More than usual where less than `prefetch_batches` is in flight, since groups without a
        signal were left out and not replaced.
        """
        if self._dynamic_sampling is None:
            ahead = self._run.trainer.prefetch_batches * self._run.tasks_per_training_step
            if (missing := ahead - len(self._waiting)) > 0:
                self._add_prompts_to_generate(missing)
            return super().prepare_step()
        num_tasks = self._dynamic_sampling.first_wave(self.global_steps)
        if num_tasks:
            self._add_prompts_to_generate(num_tasks)
        return {}

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        number = num_prompts or self._run.tasks_per_training_step
        again, self._again = self._again[:number], self._again[number:]
        tasks = [*again, *self._context.stream.next(number - len(again))]
        horizon = self._horizons.horizon(self.global_steps, self._horizon_state)
        first = self._num_asked[self.global_steps]
        self._num_asked = Counter({self.global_steps: first + len(tasks)})
        self._waiting |= {
            GroupName(self.global_steps, place): task for place, task in enumerate(tasks, first)
        }
        return self._prompts(tasks, phase="train", horizon=horizon, first=first)

    def _prompts(
        self, tasks: Sequence[Task], *, phase: str, horizon: int, first: int = 0
    ) -> TensorDict:
        """Tasks as verl's agent-loop workers take them; `first` is the place of the first."""
        num_tasks = len(tasks)
        places = range(first, first + num_tasks)
        columns = {
            "uid": [f"{phase}-{self.global_steps}-{place}" for place in places],
            "index": list(range(num_tasks)),
            "task": list(tasks),
            "phase": [phase] * num_tasks,
            "training_step": [self.global_steps] * num_tasks,
            "group_index": list(places),
            "horizon": [
                self._run.horizon_of(task.environment, scheduled=horizon) for task in tasks
            ],
            **self._episodes_of_a_group(phase, tasks),
            "raw_prompt": [task.goal for task in tasks],
        }
        # An array of objects is what verl's own loader gives, although the signature says lists.
        batch = tu.get_tensordict(
            {name: cast("list[object]", objects(values)) for name, values in columns.items()}
        )
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        return batch

    def _episodes_of_a_group(self, phase: str, tasks: Sequence[Task]) -> dict[str, list[int]]:
        """How many episodes verl starts for each task, and which of them are beside its group."""
        if phase != "train":
            return {}
        imitation = self._run.imitation
        demonstrations = self._context.run_context.demonstrations
        if demonstrations is not None and imitation.imitates:
            return {"__rollout_n__": [demonstrations.num_of(task) for task in tasks]}
        number = self._run.rollout.group_size
        sessions: dict[str, int] = {}
        if self._run.algorithm.needs_greedy_episode:
            sessions[GREEDY_SESSION] = number
            number += 1
        if imitation.coefficient_at(self.global_steps) > 0:
            sessions[DEMONSTRATION_SESSIONS] = number
            number += imitation.beside_each_group
        if not sessions:
            return {}
        sessions["__rollout_n__"] = number
        return {name: [value] * len(tasks) for name, value in sessions.items()}

    # Workers

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        RolloutReplicaRegistry.register("vllm", _vllm_replica)
        if self.config.trainer.device == "cpu":
            from longhaul_trainer.verl.cpu.worker import CpuActorRolloutRefWorker, CpuTrainingWorker

            for role in self.role_worker_mapping:
                worker = CpuTrainingWorker if role == Role.Critic else CpuActorRolloutRefWorker
                self.role_worker_mapping[role] = ray.remote(worker)
        else:
            from longhaul_trainer.verl.critic_worker import GpuCriticWorker
            from longhaul_trainer.verl.policy_worker import GpuActorRolloutRefWorker

            for role in self.role_worker_mapping:
                worker = GpuCriticWorker if role == Role.Critic else GpuActorRolloutRefWorker
                self.role_worker_mapping[role] = ray.remote(worker)

    def _setup(self) -> None:
        super()._setup()
        run_context = self._context.run_context
        reports = functools.partial(
            MicroBatchReports,
            run_id=run_context.run_id,
            attempt=run_context.attempt,
            find_writer=functools.partial(RunRecorder.find, run_context.recorder_name),
        )
        self.actor_rollout_wg.set_loss_fn(ReportedLoss(self._run.loss, reports()))
        if self.use_critic:
            self.critic_wg.set_loss_fn(ReportedValueLoss(self._run.critic, reports()))

    # One training step

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """One training step. If no group has enough episodes that did not fail, the run ends.

        Raises:
            AllFailedError: The batch has no row to train on.
        """
        try:
            return super().step(metrics, timing_raw)
        except RuntimeError as error:
            if "no materializable trajectories" not in str(error):
                raise
            raise AllFailedError(self._all_failed()) from error

    def _all_failed(self) -> str:
        return all_failed(
            self.global_steps,
            smallest_group=smallest_group(self._run.algorithm),
            beside=" and a greedy one" if self._run.algorithm.needs_greedy_episode else "",
        )

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._context.stages.begin_step(self.global_steps)

    def on_sample_end(self) -> None:
        super().on_sample_end()
        self._context.stages.enter("log-probabilities", training_step=self.global_steps)

    def _balance_batch(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,
    ) -> KVBatchMeta:
        """Select what is trained, drop the other rows, pad each optimizer step's rows.

        Log-probabilities and values are computed of all rows together, updates are made of each
        optimizer step's; in both orders, ranks have nearly equally many tokens.
        """
        self._record_decisions(metrics)
        played, imitated = without_demonstrations(self._rows_of(batch.keys))
        step = TrainingStep.of(
            played,
            number=self.global_steps,
            algorithm=self._run.algorithm,
            num_optimizer_steps=self._run.optimizer.optimizer_steps_per_training_step,
            groups=[str(group) for group in self.replay_buffer.taken],
            preferences=self._run.imitation.preferences,
            purposes=self._run.loss.purposes,
        )
        step = step.with_reported(self.replay_buffer.reported(step.episodes))
        refuse_hook_errors(step.played)
        if not step.selection.episodes:
            raise AllFailedError(self._all_failed())
        if step.unread:
            tq.kv_clear(keys=list(step.unread), partition_id=PARTITION)
        demonstrations = self._imitated(imitated, batch)
        parts = {
            part: self._filled_up(batch.select_keys(taken))
            for part in range(self._run.optimizer.optimizer_steps_per_training_step)
            if (taken := step.selection.keys_of(part))
        }
        step = step.with_updates({part: rows.keys for part, rows in parts.items()})
        self._step = step.with_demonstrations(demonstrations)
        metrics.update(self._step.report())
        rows = self._together([*parts.values()], batch.extra_info or {})
        metrics["perf/rank_imbalance/log_probs"] = self._imbalance([rows])
        return rows

    def _imitated(self, rows: Rows, batch: KVBatchMeta) -> Demonstrations:
        """What is imitated beside the groups; rows that are not are dropped."""
        found = Demonstrations.of(
            rows,
            algorithm=self._run.algorithm,
            num_optimizer_steps=self._run.optimizer.optimizer_steps_per_training_step,
            groups=[str(group) for group in self.replay_buffer.taken],
            purposes=self._run.loss.purposes,
            coefficient=self._run.imitation.coefficient_at(self.global_steps),
        )
        parts = {
            part: self._filled_up(batch.select_keys(list(keys)))
            for part, keys in found.parts.items()
        }
        self._beside = self._together([*parts.values()], {}) if parts else None
        if rows and not parts:
            tq.kv_clear(keys=[*rows], partition_id=PARTITION)
        return found.with_parts({part: of_part.keys for part, of_part in parts.items()})

    def _filled_up(self, rows: KVBatchMeta) -> KVBatchMeta:
        """`rows`, with as many for each rank."""
        return self._balanced(
            upsample_batch_to_divisible_size(rows, self._num_ranks(), self.tokenizer.eos_token_id)
        )

    def _together(self, parts: Sequence[KVBatchMeta], extra_info: dict[str, Any]) -> KVBatchMeta:
        """The rows of several optimizer steps, at least one."""
        keys = [key for rows in parts for key in rows.keys]
        return self._balanced(
            KVBatchMeta(
                keys=keys,
                tags=[tag for rows in parts for tag in rows.tags],
                partition_id=PARTITION,
                fields=self._fields_for_workers(keys[0]),
                extra_info=extra_info,
            )
        )

    def _fields_for_workers(self, key: str) -> list[str]:
        """What workers fetch of rows as they were played: the fields of one, less those unread."""
        row = tq.kv_batch_get(keys=[key], partition_id=PARTITION)
        return sorted(set(map(str, row.keys())) - UNREAD_BY_WORKERS)

    def _balanced(self, rows: KVBatchMeta) -> KVBatchMeta:
        """`rows`, put into an order that verl cuts into parts of nearly equally many tokens."""
        ranks = shared_out(_tokens_of(rows), num_ranks=self._num_ranks())
        rows.reorder([place for places in ranks for place in places])
        return rows

    def _imbalance(self, updates: Sequence[KVBatchMeta]) -> float:
        """How much more the rank with the most tokens reads than the mean; see `imbalance`."""
        return imbalance([_tokens_of(rows) for rows in updates], num_ranks=self._num_ranks())

    @property
    def _current(self) -> TrainingStep:
        """The training step that is going on."""
        if self._step is None:
            raise RuntimeError("verl asked for a part of a training step that has no episodes yet")
        return self._step

    def _record_decisions(self, metrics: dict[str, Any]) -> None:
        """Record which groups this training step took, and which it threw away."""
        buffer = self.replay_buffer
        thrown_away, buffer.thrown_away = buffer.thrown_away, {}
        self._warn_of_few(len(buffer.taken))
        self._context.recorder.put(
            self._records.decisions(self.global_steps, taken=buffer.taken, thrown_away=thrown_away)
        )
        self._settle([*buffer.taken, *thrown_away])
        metrics["groups/stale"] = sum(reason == "stale" for reason in thrown_away.values())
        metrics["groups/waiting"] = len(self._waiting)

    def _settle(self, decided: Sequence[GroupName]) -> None:
        for group in decided:
            self._waiting.pop(group)

    def _warn_of_few(self, num_taken: int) -> None:
        wanted = self._run.tasks_per_training_step
        if num_taken < wanted:
            self._context.stages.warn(
                self.global_steps,
                f"the update has {num_taken} groups of {wanted}: the others failed"
                + (
                    " or gave no signal, and sampling.max_refills was used up"
                    if self._run.sampling.dynamic
                    else ""
                ),
            )

    def _throw_away_waiting(self, metrics: dict[str, Any]) -> None:
        """No group waits at a checkpoint that is due: a resume is exact."""
        if self._dynamic_sampling is None:
            return
        names, num_tokens = self._dynamic_sampling.throw_away_waiting()
        self._context.recorder.put(
            self._records.decisions(self.global_steps, thrown_away=dict.fromkeys(names, "surplus"))
        )
        self._settle(names)
        metrics["groups/waiting"] -= len(names)
        metrics["sampling/groups_surplus"] += len(names)
        metrics["sampling/tokens_surplus"] += num_tokens

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """The policy's, which verl compares with the sampler's; an imitated reply has none.

        Before them, those of a few rows with other pictures: see `sight`.
        """
        if reads_pictures(self._run.model.path):
            metrics |= proof_of_sight(
                _read_by_workers(rows_to_try(batch, num_ranks=self._num_ranks())),
                compute=self.actor_rollout_wg.compute_log_prob,
                temperature=self._run.rollout.temperature,
            )
        batch = self._logprobs_before_update(batch, metrics)
        if self._run.imitation.imitates:
            for name in [name for name in metrics if name.startswith(COMPARED_WITH_SAMPLER)]:
                del metrics[name]
        if self._beside is not None:
            unread: dict[str, Any] = {}  # nobody sampled them
            self._beside = self._logprobs_before_update(self._beside, unread)
        return batch

    def _logprobs_before_update(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Under the weights that the update begins with; the rows, with what is known of them."""
        return super()._compute_old_log_prob(batch, metrics)

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """The reference's, which is the policy without its adapter where it has one."""
        batch = super()._compute_ref_log_prob(_read_by_workers(batch), metrics)
        # verl leaves this on, and the critic, who is asked next, has no adapter to leave out.
        (batch.extra_info or {}).pop("no_lora_adapter", None)
        return batch

    def _compute_values(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """The critic's values of every row, and of the final observations of truncated episodes."""
        self._context.stages.enter("values", training_step=self.global_steps)
        batch = super()._compute_values(_read_by_workers(batch), metrics)
        final_rows = self._current.final_rows
        computed: dict[str, torch.Tensor] = {}
        if final_rows:
            keys = list(final_rows.values())
            tags = tq.kv_list(partition_id=PARTITION)[PARTITION]
            rows = self._balanced(
                upsample_batch_to_divisible_size(
                    KVBatchMeta(
                        keys=keys,
                        tags=[tags[key] for key in keys],
                        partition_id=PARTITION,
                        fields=self._fields_for_workers(keys[0]),
                        extra_info={},  # verl adds to it
                    ),
                    self._num_ranks(),
                    self.tokenizer.eos_token_id,
                )
            )
            super()._compute_values(rows, metrics)
            computed = self._fetch("values", keys)
            tq.kv_clear(keys=rows.keys, partition_id=PARTITION)
        read = self._fetch("values", batch.keys)
        self._step = self._current.with_values(
            CriticValues(
                {key: row.double().numpy() for key, row in read.items()},
                {episode: float(computed[key][0]) for episode, key in final_rows.items()},
            )
        )
        return batch

    def _fetch(self, field: str, keys: Sequence[str]) -> dict[str, torch.Tensor]:
        """A field of rows, by their keys."""
        data = tq.kv_batch_get(keys=list(keys), partition_id=PARTITION, select_fields=[field])
        return dict(zip(keys, data[field].unbind(0), strict=True))

    def _num_ranks(self) -> int:
        worker_group: Any = self.actor_rollout_wg
        if "actor" not in worker_group._dispatch_info:
            worker_group._dispatch_info["actor"] = worker_group._query_dispatch_info("actor")
        return max(worker_group._dispatch_info["actor"]) + 1

    def _rows_of(self, keys: Sequence[str], partition: str = PARTITION) -> dict[str, RowMetadata]:
        """What travels beside rows, by their keys."""
        data = tq.kv_batch_get(
            keys=list(keys), partition_id=partition, select_fields=["extra_fields"]
        )
        return dict(zip(keys, read_metadata(data.pop("extra_fields").tolist()), strict=True))

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Give every token of a call its advantage and weight; gaps and padding get zeros."""
        self._context.stages.enter("advantages", training_step=self.global_steps)
        imitated = [] if self._beside is None else self._beside.keys
        keys = [*batch.keys, *imitated]
        data = tq.kv_batch_get(
            keys=keys,
            partition_id=PARTITION,
            select_fields=["responses", "rollout_log_probs", "old_log_probs", "entropy"],
        )
        lengths = dict(zip(keys, map(len, data["responses"].unbind(0)), strict=True))
        policy = dict(zip(keys, data["old_log_probs"].unbind(0), strict=True))
        behavior = dict(zip(keys, data["rollout_log_probs"].unbind(0), strict=True))
        # Of the pass that computed the old log-probabilities: verl takes `actor/entropy` of it.
        entropies = dict(zip(keys, data["entropy"].unbind(0), strict=True))
        step = self._current
        if self._run.algorithm.reward_kl_coefficient > 0:
            rows = [key for episode in step.selection.episodes for key in episode.played.rows]
            step = step.with_reference_kl(
                policy=policy,
                reference=self._fetch("ref_log_prob", rows),
                kind=self._run.algorithm.reward_kl_kind,
            )
        reference = None
        if step.preferences is not None:
            reference = self._fetch("ref_log_prob", batch.keys)
            step = step.with_gains(policy=policy, reference=reference)
        self._step = step = step.credited()
        batch = _put(batch, step.columns(batch.keys, [lengths[key] for key in batch.keys]))
        if self._beside is not None:
            of_rows = step.demonstrations.columns(imitated, [lengths[key] for key in imitated])
            self._beside = _put(self._beside, of_rows)
        metrics.update(
            step.credit_report(
                policy=policy,
                behavior=behavior,
                policy_version=self._run.policy_version(self.global_steps - 1),
                nothing_stale=self._run.trainer.max_staleness == 0,
            )
            | step.demonstrations.loss_report(policy)
        )
        self._context.recorder.put(
            self._records.credit(
                self.global_steps,
                episodes=[*step.credit, *step.demonstrations.episodes],
                policy_logprobs=policy,
                policy_entropies=entropies,
                reference_logprobs=reference,
            )
        )
        self._context.stages.begin_update(self.global_steps)
        return batch

    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """One call of the critic's worker per optimizer step, each with its own episodes' rows."""
        outputs: list[dict[str, Any]] = []
        updates = {
            optimizer_step: batch.select_keys(list(keys))
            for optimizer_step, keys in self._current.updates.items()
        }
        for optimizer_step, rows in updates.items():
            rows.extra_info = (rows.extra_info or {}) | self._update_info(rows, optimizer_step)
            output = self.critic_wg.train_mini_batch(_read_by_workers(rows)).get()
            outputs.append(reduce_metrics(rename_dict(output["metrics"], "critic/")))
        metrics["critic/optimizer_steps"] = len(outputs)
        metrics["perf/rank_imbalance/critic"] = self._imbalance([*updates.values()])
        metrics["perf/mfu/critic"] = float(np.mean([o.pop("critic/mfu") for o in outputs]))
        for name in outputs[-1]:
            metrics[name] = float(np.mean([output[name] for output in outputs]))
        if self.global_steps <= self._run.critic.warmup_training_steps:
            metrics["actor/optimizer_steps"] = 0
        return batch

    def _update_info(self, rows: KVBatchMeta, optimizer_step: int) -> dict[str, Any]:
        """How a worker makes an update: of all rows at once, in their order, once."""
        return {
            "global_batch_size": len(rows),
            "mini_batch_size": len(rows),
            "epochs": 1,
            "seed": self._run.seed,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": self._run.rollout.temperature,
            TRAINING_STEP: self.global_steps,
            OPTIMIZER_STEP: optimizer_step,
        }

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """One call of the worker per optimizer step, each with its own episodes' rows.

        Where all episodes of one failed, its demonstrations are imitated alone, and no other
        metric is of it.
        """
        outputs: list[dict[str, Any]] = []
        steps = {*self._current.updates, *self._current.demonstrations.parts}
        updates = {step: self._rows_of_update(step, batch) for step in sorted(steps)}
        for optimizer_step, rows in updates.items():
            rows.extra_info = (rows.extra_info or {}) | {
                "calculate_entropy": self._run.loss.entropy_coefficient > 0,
                "distillation_use_topk": False,
                "distillation_only": False,
                **self._update_info(rows, optimizer_step),
            }
            output = self.actor_rollout_wg.update_actor(_read_by_workers(rows))
            if optimizer_step in self._current.updates:
                outputs.append(
                    weighted_means(
                        reduce_metrics(rename_dict(output["metrics"], "actor/")),
                        whole_weight=self._current.selection.weight_of(optimizer_step),
                    )
                )
        metrics["actor/optimizer_steps"] = len(updates)
        metrics["perf/rank_imbalance/actor"] = self._imbalance([*updates.values()])
        metrics["perf/mfu/actor"] = float(np.mean([o.pop("actor/mfu") for o in outputs]))
        for name in outputs[-1]:
            metrics[name] = float(np.mean([output[name] for output in outputs]))
        return batch

    def _rows_with_gradient(self, part: KVBatchMeta) -> KVBatchMeta:
        """`part` without rows that add nothing: an advantage of zero and no other loss term.

        The weights were shared out over the whole part before, so the gradient is the same.
        One row stays, so that the optimizer takes the step it was configured to take. Where ranks
        need rows to have equally many, the shortest that add nothing are those.
        """
        ranks = self._num_ranks()
        loss = self._run.loss
        if loss.kl_coefficient > 0 or loss.entropy_coefficient > 0:
            return part
        moving = self._current.rows_with_advantage()
        kept = [key for key in part.keys if key in moving]
        tokens = dict(zip(part.keys, _tokens_of(part), strict=True))
        others = sorted((key for key in part.keys if key not in moving), key=tokens.__getitem__)
        num_filling = -len(kept) % ranks if kept else ranks
        return self._balanced(part.select_keys([*kept, *others[:num_filling]]))

    def _rows_of_update(self, optimizer_step: int, batch: KVBatchMeta) -> KVBatchMeta:
        """The rows of an optimizer step, and those that it imitates."""
        own = self._current.updates.get(optimizer_step)
        imitated = self._current.demonstrations.parts.get(optimizer_step)
        parts: list[KVBatchMeta] = []
        if own:
            parts.append(self._rows_with_gradient(batch.select_keys(list(own))))
        if imitated and self._beside is not None:
            parts.append(self._beside.select_keys(list(imitated)))
        if len(parts) == 1 and own:
            return parts[0]
        return self._balanced(
            KVBatchMeta(
                keys=[key for rows in parts for key in rows.keys],
                tags=[tag for rows in parts for tag in rows.tags],
                partition_id=PARTITION,
                fields=sorted(set[str].intersection(*({*(rows.fields or ())} for rows in parts))),
                extra_info=parts[0].extra_info,
            )
        )

    def _clear_demonstrations(self) -> None:
        if self._beside is not None:
            tq.kv_clear(keys=self._beside.keys, partition_id=PARTITION)
            self._beside = None

    @property
    def _engines_sleep(self) -> bool:
        """Whether engines free their memory while the learner has the cards that both use."""
        return self.config.actor_rollout_ref.rollout.free_cache_engine

    def on_step_end(self) -> None:
        self._context.stages.enter("weight sync", training_step=self.global_steps)
        self._clear_demonstrations()
        self._check_engines()
        super().on_step_end()
        self._context.recorder.put([self._records.policy_version(self.global_steps)])

    def _check_engines(self) -> None:
        """Ask each engine for a sign of life: verl sends weights to a dead one and waits for ever.

        Raises:
            LonghaulError: If an engine is dead or does not answer.
        """
        if self._engines_sleep:
            return  # they do now, and verl wakes them with the weights
        servers = [s for m in self._rollout_server_managers() for s in m.server_handles]
        try:
            ray.get([server.clear_kv_cache.remote() for server in servers], timeout=ENGINE_SECONDS)
        except (RayTaskError, RayActorError, GetTimeoutError) as error:
            raise LonghaulError(
                f"the rollout engine died in training step {self.global_steps}; why stands in "
                "logs/processes.log of the run's folder, and `trainer resume` goes on from the "
                "last checkpoint"
            ) from error

    def on_init_end(self) -> None:
        self._context.stages.enter("weight sync", training_step=self.global_steps)
        super().on_init_end()
        if self.global_steps == 0:  # a checkpoint's version was recorded with its training step
            self._context.recorder.put([self._records.policy_version(self.global_steps)])

    def _compute_metrics(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        timing_raw: dict[str, float],
        global_steps: int,
        epoch: int,
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._checkpoint_is_due = self._checkpoint_is_due or self._is_best()
        if self._checkpoint_is_due:
            self._throw_away_waiting(metrics)
        metrics["store/writer_seconds"] = self._context.recorder.processor_seconds
        record = self._records.metrics(self.global_steps, metrics)
        self._context.recorder.put([record])
        # Before the checkpoint, which marks all of the training step as done.
        self._context.trackers.log(self.global_steps, dict(record.values))
        self._audit_the_first()
        self._learn_from_outcomes()
        self._over = self._state()
        self.remove_older_text()
        if self._checkpoint_is_due:
            self._write_checkpoint()
        self._context.stages.finished(training_step=self.global_steps, metrics=metrics)

    def _audit_the_first(self) -> None:
        """Begin the audit of this attempt's first training step, all of which is stored now."""
        if self._audit is not None:
            return
        self._context.recorder.flush()
        self._audit = start_audit(
            self._run.store,
            run_id=self._context.run_context.run_id,
            training_step=self.global_steps,
            write=self._write_audit,
            warn=self._context.stages.warn,
        )

    def _write_audit(self, records: Sequence[Record]) -> None:
        with self._writing_audit:
            if not self._audit_is_left:
                self._context.recorder.write(records)

    def leave_audit(self) -> None:
        """Have an audit that goes on write nothing: Ray, by which it would, is about to end."""
        self._audit_is_left = True
        if self._writing_audit.acquire(timeout=LONGEST_WRITE_SECONDS):
            self._writing_audit.release()

    def remove_older_text(self) -> None:
        """Let the writer remove what retention does not keep, unless the audit still reads."""
        kept = self._run.retention.full_training_steps
        if kept is None or self._over is None:
            return
        if self._audit is not None and not self._audit.is_alive():
            self._context.recorder.keep_whole(after=self._over["training_step"] - kept)

    def wait_for_audit(self) -> None:
        """Wait until the audit of the first training step ends, for a minute at most."""
        if self._audit is not None:
            self._audit.join(timeout=LONGEST_WAIT_SECONDS)

    def _learn_from_outcomes(self) -> None:
        """Let the outcomes of the episodes decide what the next training step plays."""
        outcomes = self._current.outcomes
        self._context.stream.record(outcomes)
        self._horizon_state = self._horizons.after(self._horizon_state, outcomes)

    # Validation

    def _validate(self) -> dict[str, float]:
        """Episodes on the panel, as `[validation]` says; returns the scores as metrics.

        They are played at the final horizon from the start, so that scores of two moments differ
        by the policy alone.
        """
        panel = self._context.panel
        assert panel is not None
        self._context.stages.enter("validation", training_step=self.global_steps)
        batch = self._prompts(
            panel.tasks,
            phase=panel.split.value,
            horizon=self._run.rollout.horizon,
        )
        tu.assign_non_tensor_data(batch, "validate", True)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": self.global_steps}] * len(
            batch
        )
        tq.kv_batch_put(keys=list(batch["uid"]), partition_id="val", tags=tags)
        self._agent_loops.generate_sequences(batch)
        rows, _ = self.replay_buffer.sample(
            global_steps=self.global_steps, partition_id="val", batch_size=len(batch)
        )
        if not rows.keys:
            raise AllFailedError(
                f"validation at training step {self.global_steps}: every episode failed; "
                f"see the failures of run {self._context.run_context.run_id} in the store"
            )
        episodes = episodes_in(self._rows_of(rows.keys, "val"))
        tq.kv_clear(keys=rows.keys, partition_id="val")
        score = _score_of(episodes, num_planned=self._num_planned(panel))
        self.scores[self.global_steps] = score
        recorded = [
            self._records.score(
                self.global_steps, score, panel=panel.split.value, split=panel.split
            )
        ]
        of_environments: dict[str, float] = {}
        for name, part in panel.parts.items():
            environment = part.tasks[0].environment
            played = [episode for episode in episodes if episode.environment == environment]
            num_planned = self._num_planned(part)
            num_unplayed = float(num_planned - len(played))
            of_environments[f"validation/{environment}/num_unplayed"] = num_unplayed
            if played:  # else every episode of it failed, and there is no score
                partial = _score_of(played, num_planned=num_planned)
                recorded.append(
                    self._records.score(self.global_steps, partial, panel=name, split=panel.split)
                )
                of_environments |= {
                    f"validation/{environment}/mean_return": partial.mean_return,
                    f"validation/{environment}/success_rate": partial.success_rate,
                }
        self._context.recorder.put(recorded)
        metrics = of_environments | {
            "validation/mean_return": score.mean_return,
            "validation/success_rate": score.success_rate,
            "validation/success_rate_low": score.success_low,
            "validation/success_rate_high": score.success_high,
            "validation/num_episodes": float(score.num_episodes),
            "validation/num_unplayed": float(score.num_unplayed),
            "validation/mean_steps": float(np.mean([len(episode.steps) for episode in episodes])),
        }
        if self.global_steps == 0:  # later ones are among the metrics of their training step
            self._context.trackers.log(0, metrics)
        return metrics

    def _num_planned(self, panel: Panel) -> int:
        """Episodes of the panel."""
        return len(panel.tasks) * self._run.validation.samples_per_task

    # Checkpoints

    def _save_checkpoint(self) -> None:
        """Verl calls this before it syncs weights, validates and measures; ours comes after.

        So at a checkpoint everything of its training step is done and stored, and a
        resume has nothing to make up for.
        """
        self._checkpoint_is_due = True

    def _is_best(self) -> bool:
        """Whether this step's validation beat that of every checkpoint, and is to be kept."""
        score = self.scores.get(self.global_steps)
        if score is None or not self._run.checkpoint.keep_best:
            return False
        best = self._context.checkpoints.best()
        beaten = None if best is None else best.validation()
        return beaten is None or score.rank > beaten.rank

    def _write_checkpoint(self) -> None:
        """Weights, optimizer, generators and the run's own state: all of it, or none."""
        self._checkpoint_is_due = False
        self._context.stages.enter("checkpoint", training_step=self.global_steps)
        with self._learner_has_the_card():
            self._save(self._state())

    def keep_last_step(self) -> int | None:
        """Write the last training step that is over as a checkpoint, where the run ends after it.

        Returns:
            Its number; None if it is a checkpoint already, or if there is none of this attempt, or
            if the learner has begun to change its weights.
        """
        context = self._context
        if self._over is None or context.stages.is_updating:
            return None
        number: int = self._over["training_step"]
        newest = context.checkpoints.latest()
        if newest is not None and newest.training_step >= number:
            return None
        # On a shared card they sleep from the end of the episodes to the weight sync.
        are_awake = context.stages.stage.name not in ("log-probabilities", "values", "advantages")
        context.stages.enter("checkpoint", training_step=number)
        if self._engines_sleep and are_awake:
            engines = cast("Any", self.checkpoint_manager)  # its coroutines wait for themselves
            engines.abort_replicas()
            engines.sleep_replicas()
        self._save(self._over)
        return number

    def _state(self) -> dict[str, Any]:
        """What a resume after this training step needs beside the learner's own."""
        return {
            "training_step": self.global_steps,
            "stream": self._context.stream.state(),
            "waiting": [asdict(task) for task in [*self._waiting.values(), *self._again]],
            "horizon": self._horizon_state.to_json(),
            "scores": {step: asdict(score) for step, score in self.scores.items()},
        }

    def _save(self, state: dict[str, Any]) -> None:
        number, checkpoints = state["training_step"], self._context.checkpoints
        folder = checkpoints.begin(number)
        self.actor_rollout_wg.save_checkpoint(str(folder / "actor"), None, number)
        if self.use_critic and self._run.checkpoint.optimizer:  # else nobody loads it again
            self.critic_wg.save_checkpoint(str(folder / "critic"), None, number)
        # The step is in the store before its checkpoint exists: a kill between the two repeats
        # a training step, and never leaves a hole.
        self._context.recorder.flush()
        checkpoints.publish(number, state)
        checkpoints.prune(
            keep_last=self._run.checkpoint.keep_last, keep_best=self._run.checkpoint.keep_best
        )

    @contextlib.contextmanager
    def _learner_has_the_card(self) -> Generator[None]:
        """Free what the engines hold of the cards they share, as verl does before it loads one."""
        if not self._engines_sleep:
            yield
            return
        engines = cast("Any", self.checkpoint_manager)  # its coroutines wait for themselves
        engines.sleep_replicas()
        yield
        engines.update_weights(self.global_steps)

    def _load_checkpoint(self) -> None:
        self.global_steps = 0
        checkpoint = self._context.checkpoints.latest()
        if checkpoint is None:
            return
        self._context.stages.enter("loading the checkpoint", training_step=checkpoint.training_step)
        self.global_steps = checkpoint.training_step
        self.actor_rollout_wg.load_checkpoint(str(checkpoint.folder / "actor"))
        if self.use_critic:
            self.critic_wg.load_checkpoint(str(checkpoint.folder / "critic"))
        state = checkpoint.state()
        self.scores = {
            int(step): PanelScore.stored(score) for step, score in state["scores"].items()
        }
        self._horizon_state = HorizonState.from_json(state["horizon"])
        self._again = [
            Task(**task | {"split": Split(task["split"])}) for task in state.get("waiting", [])
        ]


def _vllm_replica() -> type[RolloutReplica]:
    """The engine behind our server; the first to ask imports vLLM."""
    from longhaul_trainer.verl.engine_server import EngineReplica

    return EngineReplica


def _put(rows: KVBatchMeta, columns: dict[str, torch.Tensor]) -> KVBatchMeta:
    """The rows, with further fields."""
    return tq.kv_batch_put(
        keys=rows.keys,
        partition_id=PARTITION,
        fields=TensorDict(columns, batch_size=len(rows)),
    )


def _read_by_workers(rows: KVBatchMeta) -> KVBatchMeta:
    """`rows`, of which a worker fetches what it reads: each field costs it time for each row."""
    rows.fields = [name for name in rows.fields or () if name not in UNREAD_BY_WORKERS]
    return rows


def _tokens_of(rows: KVBatchMeta) -> list[int]:
    """Tokens of each row, prompt and response, as its agent loop counted them."""
    return [tag["seq_len"] for tag in rows.tags]


def _score_of(episodes: Sequence[EpisodeMetadata], *, num_planned: int) -> PanelScore:
    """The score that episodes make, at least one; each counts the same."""
    return PanelScore.of(
        ((one.group_index, one.episode_return, one.success) for one in episodes),
        num_planned=num_planned,
    )
