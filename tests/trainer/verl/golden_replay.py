"""Run by `golden_steps.replayed`: recorded training steps through the trainer's own `step`.

This is the adapter between the recorded files and the code of today, and the one place that a
change of the trainer's classes may edit; what it writes must stay what was recorded.

Real are the trainer with its credit, rows and columns, verl's replay buffer, verl's workers of
policy and critic with their losses and optimizers, and the tiny model. In place of the other
processes of a run stand: TransferQueue in memory (`Queue`), agent loops that play the recorded
episodes, and for what a model computed before the update the recorded numbers (`InOneProcess`).

    python golden_replay.py FOLDER    # reads inputs.json there, writes outputs.json
"""

import hashlib
import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from longhaul_core.store import EpisodeCredit, Record
from longhaul_core.types import FinishReason, Observation, Split, Step, StopReason, Task, Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models import prepare_model
from longhaul_trainer.verl.variables import prepare_environment
from steps import one_call_step
from trainer.verl.golden_steps import (
    Inputs,
    Outputs,
    RecordedEpisode,
    RecordedGroup,
    RecordedStep,
)
from verl_process import one_critic, one_worker

NEVER_READ = -3.25
"""What a model computed of a gap: nobody may care."""
CREDIT = (
    *("group_index", "retry", "optimizer_step_index"),
    *("episode_advantage", "step_advantages", "advantages"),
    *("shaped_rewards", "returns_to_go", "loss_weights"),
    *("values", "value_targets", "final_value"),
)
"""What is kept of an episode's credit, beside what is kept of its calls."""
COLUMNS = {
    "actor": (
        *("prompts", "responses", "response_mask", "loss_mask", "advantages", "loss_weights"),
        *("old_log_probs", "rollout_log_probs", "ref_log_prob"),
    ),
    "critic": ("input_ids", "loss_mask", "values", "returns", "value_weights"),
}
"""What is kept of the rows of an update."""
LEFT_OUT = ("perf/", "timing", "mfu", "memory", "training/")
"""Metrics of the machine rather than of the step."""


# From recorded episodes to today's nouns


def run_of(inputs: Inputs) -> RunConfig:
    """The run that the training step is one of."""
    table: dict[str, Any] = {
        "num_training_steps": 8,
        "model": {"path": "tiny", "engine_dtype": "float32"},
        **inputs["settings"],
    }
    # What was recorded before a penalty had a place lowered returns.
    table["algorithm"] = {"invalid_action_penalty_on": "return"} | table["algorithm"]
    if "trace_decay" in table["algorithm"]:  # the setting's name in the recording
        table["algorithm"]["gae_lambda"] = table["algorithm"].pop("trace_decay")
    return RunConfig.model_validate(table)


def task_of(group: RecordedGroup) -> Task:
    """The task of a group."""
    return Task(
        environment="samples/Rooms-v0",
        version="1",
        data_hash="",
        task_id=group["task_id"],
        seed=0,
        split=Split.TRAIN,
    )


def step_of(step: RecordedStep, index: int) -> Step:
    """A step of an episode."""
    return one_call_step(
        index,
        Observation(text=step["observation"], anchor_state=step["anchor_state"]),
        messages=(),
        prompt_tokens=tuple(step["prompt"]),
        action_tokens=tuple(step["reply"]),
        behavior_logprobs=tuple(step["behavior_logprobs"]),
        reply="",
        action="",
        action_valid=step["action_valid"],
        reward=step["reward"],
        policy_version=step["policy_version"],
        finish_reason=FinishReason(step["finish_reason"]),
    )


def trajectory_of(
    episode: RecordedEpisode, *, task: Task, sample_index: int, horizon: int, uses_critic: bool
) -> Trajectory:
    """An episode that ended; the loop composes its final prompt for a critic alone."""
    final_prompt = episode.get("final_prompt") if uses_critic else None
    return Trajectory(
        task=task,
        sample_index=sample_index,
        seed=0,
        horizon=horizon,
        steps=tuple(step_of(step, index) for index, step in enumerate(episode["steps"])),
        stop_reason=StopReason(episode.get("stop_reason", "")),
        success=episode.get("success", False),
        final_observation=Observation(text="You are at the end."),
        final_prompt_tokens=None if final_prompt is None else tuple(final_prompt),
        started_at=0.0,
        duration_seconds=1.0,
    )


def credit_of_steps(credit: EpisodeCredit) -> dict[str, Any]:
    """The credit of an episode of one trained call a step, as lists over its steps."""
    calls = credit.calls
    assert [(call.step_index, call.call_index) for call in calls] == [
        (step, 0) for step in range(len(credit.advantages))
    ]
    assert [call.loss_weight for call in calls] == [*credit.loss_weights]
    assert [call.advantage for call in calls] == [*credit.advantages]
    for call in calls:  # as `Recorded._compute` has it: each token's own, also in a merged row
        assert call.policy_logprobs is not None
        assert call.policy_entropies == tuple(-logprob for logprob in call.policy_logprobs)
    by_token = calls[0].token_advantages is not None
    return {
        "split_reasons": [call.split_reason for call in calls],
        "policy_logprobs": [call.policy_logprobs for call in calls],
        "token_advantages": [call.token_advantages for call in calls] if by_token else None,
        "token_values": [call.token_values for call in calls] if by_token else None,
    }


# What stands in for the other processes of a run


class Queue:
    """TransferQueue in memory; a value is what one row has of a field."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, dict[str, Any]] = {}

    def kv_list(self, partition_id: str = "train") -> dict[str, dict[str, dict[str, Any]]]:
        return {"train": {key: dict(tag) for key, tag in self.tags.items()}}

    def kv_clear(self, *, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            self.tags.pop(key, None)
            self.rows.pop(key, None)

    def kv_batch_put(
        self,
        *,
        keys: Sequence[str],
        partition_id: str,
        fields: Any = None,  # noqa: ANN401  verl's tables are untyped
        tags: Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:  # noqa: ANN401
        from transfer_queue import KVBatchMeta

        for key, tag in zip(keys, tags or [{}] * len(keys), strict=True):
            self.tags.setdefault(key, {}).update(tag)
        for name, column in () if fields is None else fields.items():
            values = column.unbind(0) if isinstance(column, torch.Tensor) else list(column)
            for key, value in zip(keys, values, strict=True):
                self.rows.setdefault(key, {})[name] = value
        return KVBatchMeta(
            keys=list(keys), tags=[self.tags[key] for key in keys], partition_id=partition_id
        )

    def kv_batch_get(
        self, *, keys: Sequence[str], partition_id: str, select_fields: Sequence[str] = ()
    ) -> Any:  # noqa: ANN401
        return self.table(keys, select_fields or list(self.rows[keys[0]]), {})

    def table(
        self, keys: Sequence[str], fields: Sequence[str], information: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401
        from verl.utils import tensordict_utils as tu

        columns: dict[str, Any] = {}
        for name in fields:
            values = [self.rows[key][name] for key in keys]
            columns[name] = (
                torch.nested.as_nested_tensor(values, layout=torch.jagged)
                if isinstance(values[0], torch.Tensor)
                else values
            )
        return tu.get_tensordict(columns, non_tensor_dict=dict(information))


class Records:
    """Keeps what the trainer and its workers write down."""

    processor_seconds = 0.0

    def __init__(self) -> None:
        self.written: list[Record] = []

    def found(self, _: str) -> "Records":
        return self

    def put(self, records: Sequence[Record]) -> None:
        self.written += records

    def settle(self) -> None: ...


class Updates:
    """verl's group of a worker, of one process: this one. Keeps what each update was of."""

    def __init__(self, name: str, worker: Any, queue: Queue, *, num_ranks: int = 1) -> None:  # noqa: ANN401
        self._name = name
        self._worker = worker
        self._queue = queue
        self._dispatch_info = {"actor": list(range(num_ranks))}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.metrics: dict[str, float] = {}
        self.gradients: dict[str, dict[str, Any]] = {}

    def set_loss_fn(self, loss: Callable[..., Any]) -> None:
        self._worker.set_loss_fn(loss)

    def update_actor(self, asked: Any) -> dict[str, Any]:  # noqa: ANN401
        return self._update(asked, self._worker.update_actor, self._worker.actor.engine)

    def train_mini_batch(self, asked: Any) -> Any:  # noqa: ANN401
        found = self._update(asked, self._worker.train_mini_batch, self._worker.engine)
        return SimpleNamespace(get=lambda: found)

    def _update(
        self,
        asked: Any,  # noqa: ANN401
        train: Callable[[Any], Any],
        engine: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        from verl.utils import tensordict_utils as tu

        place = f"{self._name} {len(self.gradients)}"
        # One process reads what ranks would share out by its order, in the order of the recordings.
        keys = sorted(asked.keys, key=list(self._queue.rows).index)
        rows = [self._queue.rows[key] for key in keys]
        self.rows[place] = [
            {name: row[name].tolist() for name in COLUMNS[self._name] if name in row}
            for row in rows
        ]
        fields = [name for name in rows[0] if name not in ("uid", "num_turns")]
        batch = self._queue.table(keys, fields, asked.extra_info)

        def keep(*_: object) -> None:
            self.gradients[place] = {
                name: summary(parameter.grad.full_tensor())
                for name, parameter in engine.module.named_parameters()
            }

        hook = engine.optimizer.register_step_pre_hook(keep)
        try:
            metrics = tu.get(train(batch), "metrics")
        finally:
            hook.remove()
        for name, values in metrics.items():
            self.metrics[f"{place}/{name}"] = float(np.sum(values))
        return {"metrics": metrics}


def summary(gradient: torch.Tensor) -> dict[str, Any]:
    """What is kept of a gradient: its bytes as a hash, and numbers that say how far another is."""
    values = gradient.detach().numpy().astype(np.float32)
    signs = np.random.default_rng(0).integers(0, 2, size=(8, values.size), dtype=np.int8)
    entries = values.astype(np.float64).ravel()
    return {
        "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
        "norm": float(np.sqrt((entries**2).sum())),
        # in float32's precision, which is what the entries have
        "sketch": [float(np.float32((np.where(row, entries, -entries)).sum())) for row in signs],
    }


class Recorded:
    """Plays the recorded episodes as verl's agent loops do, and knows what the models computed."""

    def __init__(self, inputs: Inputs, run: RunConfig, queue: Queue) -> None:
        self._inputs = inputs
        self._run = run
        self._queue = queue
        self.computed: dict[str, dict[str, torch.Tensor]] = {}
        """Row key → a model's number for each token of the response, by verl's names."""

    def next(self, number: int) -> list[Task]:
        """The tasks of the training step, as a task stream gives them."""
        assert number == len(self._inputs["groups"])
        return [task_of(group) for group in self._inputs["groups"]]

    def require_alive(self) -> None:
        """They are in this process."""

    def generate_sequences(self, prompts: Any) -> None:  # noqa: ANN401
        for uid, place, task in zip(
            prompts["uid"], prompts["group_index"], prompts["task"], strict=True
        ):
            for sample_index, tries in enumerate(self._inputs["groups"][place]["places"]):
                self._play(uid, place, sample_index, tries, task)
            self._queue.tags[uid]["status"] = "finished"

    def _play(
        self,
        uid: str,
        place: int,
        sample_index: int,
        tries: Sequence[RecordedEpisode],
        task: Task,
    ) -> None:
        """Put the rows of the first try that did not fail into the queue."""
        from longhaul_trainer.training.merging import metadata_of
        from longhaul_trainer.training.step_metadata import GroupName
        from longhaul_trainer.verl.rows import to_rows

        for retry, episode in enumerate(tries):
            if episode["failure"] is not None:
                continue
            trajectory = trajectory_of(
                episode,
                task=task,
                sample_index=sample_index,
                horizon=self._inputs["horizon"],
                uses_critic=self._run.algorithm.uses_critic,
            )
            rows = to_rows(
                trajectory,
                metadata=metadata_of(
                    trajectory,
                    group=GroupName(self._inputs["training_step"], place),
                    retry=retry,
                    anchor_texts=self._run.algorithm.anchor_similarity is not None,
                ),
                training_step_of=self._run.training_step_of,
                form=self._run.optimizer.rows,
                max_row_tokens=self._run.optimizer.max_row_tokens,
            )
            keys = [f"{uid}_{sample_index}_{number}" for number in range(len(rows))]
            for key, row in zip(keys, rows, strict=True):
                self._queue.tags[key] = {
                    "status": "success",
                    "seq_len": len(row.prompt_ids) + len(row.response_ids),
                }
                self._queue.rows[key] = columns_of(row)
            self._compute(keys, episode)
            return

    def _compute(self, keys: Sequence[str], episode: RecordedEpisode) -> None:
        """Put a model's numbers where the tokens that it read were sampled."""
        per_token = {
            "old_log_probs": "old_logprobs",
            "ref_log_prob": "reference_logprobs",
            "values": "values",
        }
        masks = [self._queue.rows[key]["response_mask"].bool() for key in keys]
        for name, recorded in per_token.items():
            numbers: Iterator[float] = (
                n for step in episode["steps"] for n in cast("dict[str, Any]", step)[recorded]
            )
            for key, mask in zip(keys, masks, strict=True):
                values = [next(numbers) if sampled else NEVER_READ for sampled in mask]
                if not mask.any():  # the row of the final observation
                    values = [episode.get("final_value", NEVER_READ)]
                self.computed.setdefault(key, {})[name] = torch.tensor(values)
            assert next(numbers, None) is None
        for key in keys:  # no number of a training step depends on them
            self.computed[key]["entropy"] = -self.computed[key]["old_log_probs"]


def columns_of(row: Any) -> dict[str, Any]:  # noqa: ANN401  an AgentLoopOutput
    """A row as verl's agent loop puts it into the queue."""
    fields = row.as_dict()
    whole = torch.cat([fields["prompts"], fields["responses"]])
    names = ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores")
    return {name: fields[name] for name in names} | {
        "loss_mask": fields["response_mask"],
        "input_ids": whole,
        "position_ids": torch.arange(len(whole)),
        "extra_fields": fields["extra_fields"],
    }


# The trainer


def make_trainer(
    inputs: Inputs, queue: Queue, records: Records, *, groups: Mapping[str, Updates], model: Path
) -> Any:  # noqa: ANN401
    """The run's trainer, with the other processes of the run in this one."""
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from longhaul_trainer.run.context import RunContext
    from longhaul_trainer.training.stages import StageClock
    from longhaul_trainer.verl.settings import Paths, verl_settings
    from longhaul_trainer.verl.trackers import Trackers
    from longhaul_trainer.verl.trainer import LonghaulTrainer, TrainingContext

    run = run_of(inputs)
    recorded = Recorded(inputs, run, queue)

    class InOneProcess(PPOTrainer):
        """verl's trainer, whose engines and models have computed what was recorded."""

        def _setup(self) -> None:
            everything: Any = self
            everything.tokenizer = SimpleNamespace(eos_token_id=2)
            everything.agent_loop_manager = recorded
            # There is no reward model to ask.
            everything.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=())
            everything.actor_rollout_wg = groups["actor"]
            everything.critic_wg = groups["critic"]

        def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
            return self._computed("entropy", self._computed("old_log_probs", batch))

        def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
            return self._computed("ref_log_prob", batch)

        def _compute_values(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
            return self._computed("values", batch)

        def _computed(self, field: str, batch: KVBatchMeta) -> KVBatchMeta:
            for key in batch.keys:
                # A row that only fills up is no recorded one.
                known = recorded.computed.get(key, {})
                queue.rows[key][field] = known.get(field, torch.zeros(1))
            return batch

    class Replayed(LonghaulTrainer, InOneProcess):
        """The trainer over it."""

    paths = Paths(
        model=model,
        checkpoints=model / "ck",
        agent_loops=model / "loops.yaml",
        critic=model if run.algorithm.uses_critic else None,
    )
    nothing: Any = None  # is asked for no checkpoint and no validation in a training step
    trainer: Any = Replayed(
        verl_settings(run, paths=paths, device="cpu"),
        TrainingContext(
            run_context=RunContext(
                run_id="run", attempt=0, recorder_name="records", config=run, descriptions={}
            ),
            stream=cast("Any", recorded),
            panel=nothing,
            checkpoints=nothing,
            recorder=cast("Any", records),
            stages=StageClock(),
            trackers=Trackers(run, run_id="run", folder=model.parent),
        ),
    )
    trainer._setup()
    trainer.global_steps = inputs["training_step"]
    return trainer


def replay(inputs: Inputs, *, workers: Mapping[str, Any], model: Path) -> Outputs:
    """One training step, from asking for its episodes to its last update."""
    from verl.trainer.ppo import padding_utils
    from verl.trainer.ppo.v1 import replay_buffer, trainer_base

    from longhaul_trainer.verl import trainer as longhaul_trainer
    from longhaul_trainer.verl.run_recorder import RunRecorder

    queue, records = Queue(), Records()
    for module in (padding_utils, replay_buffer, trainer_base, longhaul_trainer):
        cast("Any", module).tq = queue
    cast("Any", RunRecorder).find = records.found
    groups = {
        name: Updates(name, worker, queue, num_ranks=inputs["num_ranks"])
        for name, worker in workers.items()
    }
    trainer = make_trainer(inputs, queue, records, groups=groups, model=model)
    metrics: dict[str, Any] = {}
    trainer.step(metrics, {})
    updates = (groups["critic"], groups["actor"])
    measured = metrics | updates[0].metrics | updates[1].metrics
    return {
        "credit": [
            {name: getattr(record, name) for name in CREDIT}
            | {"position": record.sample_index}  # its name when the steps were recorded
            | credit_of_steps(record)
            for record in records.written
            if isinstance(record, EpisodeCredit)
        ],
        "rows": updates[0].rows | updates[1].rows,
        "metrics": {
            name: float(value)
            for name, value in measured.items()
            if not any(part in name for part in LEFT_OUT)
        },
        "gradients": updates[0].gradients | updates[1].gradients,
    }


# The workers


@contextmanager
def both_workers(model: Path) -> Generator[dict[str, Any]]:
    """Workers of the policy and the critic, verl's, whose optimizers do change weights."""
    policy: dict[str, object] = {
        "num_training_steps": 8,
        "tasks_per_training_step": 2,
        "model": {"path": "tiny", "engine_dtype": "float32"},
        "rollout": {"max_prompt_tokens": 200, "max_reply_tokens": 6},
        "optimizer": {"learning_rate": 1e-4, "micro_batch_tokens": 256},
    }
    critics = policy | {"algorithm": {"name": "gae"}, "critic": {"learning_rate": 1e-4}}
    with (
        one_worker(RunConfig.model_validate(policy), model) as actor,
        one_critic(RunConfig.model_validate(critics), model) as critic,
    ):
        head = dict(critic.engine.module.named_parameters())["score.weight"]
        torch.nn.init.normal_(head.to_local(), std=0.05, generator=torch.Generator().manual_seed(3))
        yield {"actor": actor, "critic": critic}


class Beginning:
    """The weights that each training step begins with."""

    def __init__(self, engine: Any) -> None:  # noqa: ANN401
        self._engine = engine
        self._weights = [p.to_local().detach().clone() for p in engine.module.parameters()]

    def again(self) -> None:
        """Put them back; the optimizer forgets its moments."""
        with torch.no_grad():
            for parameter, weights in zip(
                self._engine.module.parameters(), self._weights, strict=True
            ):
                parameter.to_local().copy_(weights)
        self._engine.optimizer.state.clear()


def probe(model: Path) -> str:
    """A hash of the processor, and of gradients of texts of many lengths: how it adds.

    None of our code is in it, so where it differs from the recorded one, so may every gradient.
    Kernels cut sums by their length and by the processor's caches, so one length would not do; and
    two machines once had the same gradients of all these texts, and others in three recorded steps.
    """
    plain: Any = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="sdpa"
    )
    found = hashlib.sha256(processor().encode())
    for num_rows, length in ((2, 40), *((1, 7 * n) for n in range(1, 64, 3))):
        plain.zero_grad()
        tokens = (torch.arange(num_rows * length) % 80 + 17).reshape(num_rows, length)
        plain(tokens).logits.float().log_softmax(-1)[:, :, 5].sum().backward()
        for parameter in plain.parameters():
            found.update(parameter.grad.numpy().tobytes())
    return found.hexdigest()


def processor() -> str:
    """Its model, its instructions and the sizes of its caches."""
    described = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    kept = ("vendor_id", "cpu family", "model", "stepping", "cache size", "flags")
    lines = [line for line in described.splitlines() if line.startswith(kept)]
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return "\n".join(lines + [cache.read_text(encoding="utf-8").strip() for cache in caches])


def main(folder: Path) -> None:
    """Replay the steps of `inputs.json`."""
    prepare_environment("cpu", scratch=folder / "scratch")
    torch.set_num_threads(1)
    steps: dict[str, Inputs] = json.loads((folder / "inputs.json").read_text(encoding="utf-8"))
    model = prepare_model("tiny", folder / "models")
    arithmetic = probe(model)
    outputs: dict[str, Outputs] = {}
    with both_workers(model) as workers:
        beginnings = [Beginning(workers["actor"].actor.engine), Beginning(workers["critic"].engine)]
        for name, inputs in steps.items():
            for beginning in beginnings:
                beginning.again()
            outputs[name] = {
                "arithmetic": arithmetic,
                **replay(inputs, workers=workers, model=model),
            }
    (folder / "outputs.json").write_text(json.dumps(outputs, allow_nan=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
