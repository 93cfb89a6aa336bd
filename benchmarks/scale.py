"""1,024 episodes at once: what each part of a training step takes, and which would limit 8 GPUs.

One training step is really played, credited and "learned": the run's own trainer, verl's agent
loops as Ray actors, environments in worker processes, a real tokenizer and chat template,
TransferQueue, verl's replay buffer, credit, the store and its writer. Only what GPUs compute is
not: engines and learner answer after the time that eight H100 would take
(`scale_hardware.py` has the arithmetic), replies are random words, log-probabilities constants.

Two tables:

- *while episodes are played*: processor time of each kind of process, a step; what one process of
  it could carry, what it could carry on a machine with eight GPUs (`PROCESSES_THERE`), and whether
  that is more than the engines of a 7B and a 1.5B model play.
- *after that*: what the trainer itself takes for the training step's rows before the learner can
  go on; what grows with the rows is multiplied up to 1,024 episodes of 50 steps.

Processor time is what to compare: on a machine that other programs use, wall time is theirs too.

    uv run python benchmarks/scale.py                 # 1,024 episodes of 10 steps: minutes
    uv run python benchmarks/scale.py --steps 50      # the whole: 10 GiB of memory, 20 minutes
    uv run python benchmarks/scale.py --model 1.5B --plot docs/images/scale.png
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Ray, transformers, verl and Plotly are typed in part.

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import shlex
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import scale_world
from rich.console import Console
from rich.table import Table
from scale_hardware import MODELS, Engine, Hardware, Model, Rank, Reply
from scale_meters import DRIVER, Meter, Spent, Stopwatch, Use
from sqlalchemy.orm import Session

from longhaul_core.store.queries import storage_stats
from longhaul_core.store.records import RunStarted
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import episodes_at_once
from longhaul_trainer.models import prepare_model
from longhaul_trainer.play.environments import descriptions_of, task_stream
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.training.stages import StageClock
from longhaul_trainer.verl.variables import prepare_environment

if TYPE_CHECKING:
    from transfer_queue import KVBatchMeta

WHOLE_EPISODES, WHOLE_STEPS = 1024, 50
GROUP_SIZE = 8
WINDOW = 3
NUM_RANKS = 2
"""Stand-ins of the learner's ranks; each reads its share of the rows."""

PROCESSES_THERE: Mapping[str, int] = {
    "agent loops": 8,
    "environment workers": 16,
    "storage units": 2,
    "queue controller": 1,
    "router": 1,
    "store writer": 1,
    DRIVER: 1,
    "Ray": 1,
}
"""On a machine with eight GPUs, whose 96 cores and more have room for all of them."""

WORK = {
    "agent loops": "memory, template, tokenizer, parsing, rows",
    "environment workers": "observations there and back; the world itself takes 0.1 ms",
    "storage units": "TransferQueue: rows put",
    "queue controller": "TransferQueue: keys and tags",
    "router": "verl: which engine answers",
    "store writer": "episodes, tokens and text into the store",
    DRIVER: "asking TransferQueue what has ended",
    "Ray": "raylet and its control store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is run."""

    episodes: int = WHOLE_EPISODES
    steps: int = 10
    prompt_tokens: int = 2000
    reply_tokens: int = 150
    agent_loops: int = 2
    storage_units: int = 2
    model: Model = MODELS[0]
    speed: float = 1.0
    """How many times as fast as eight H100 the engines answer."""
    learner_speed: float = 100.0

    @property
    def num_steps(self) -> int:
        """Of all episodes."""
        return self.episodes * self.steps

    def hardware(self, model: Model | None = None) -> Hardware:
        """Eight H100 that play 1,024 episodes at once of a model; None: the run's."""
        return Hardware(
            model=model or self.model,
            prompt_tokens=self.prompt_tokens,
            reply_tokens=self.reply_tokens,
            concurrency=WHOLE_EPISODES,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One training step."""

    size: Size
    playing_seconds: float
    engine_seconds: float
    """In which the engines alone would have played: the time for which the busiest one was."""
    playing: Mapping[str, Use]
    """By kind of process."""
    learning: Mapping[str, Use]
    parts: Mapping[str, float]
    """Processor seconds of the parts of the agent loops, all loops together."""
    driver: Mapping[str, Spent]
    """Of the trainer's own functions, after the episodes."""
    driver_peak_bytes: int
    """Most that this process has ever held."""
    prompt_tokens: float
    """Of a step, mean."""
    store_bytes: int
    ranks: Mapping[str, float]
    """Processor seconds of all ranks of the learner by what they were asked for: to read rows from
    TransferQueue, to put numbers there and to report to the store."""


def configuration(size: Size, store: Path) -> RunConfig:
    """The run, as a file would have it."""
    words = max(1, (size.prompt_tokens - 100) // (WINDOW + 1) - 12)
    return RunConfig.model_validate(
        {
            "name": "scale",
            "num_training_steps": 1,
            "tasks_per_training_step": size.episodes // GROUP_SIZE,
            "store": str(store),
            "model": {"path": "smollm2"},
            "environment": {
                "id": scale_world.ID,
                "options": {"num_steps": size.steps, "num_words": words},
                "import_modules": [scale_world.__name__],
                "num_workers": size.episodes,
                "reset_deadline_seconds": 600.0,
                "step_deadline_seconds": 600.0,
            },
            "rollout": {
                "group_size": GROUP_SIZE,
                "horizon": size.steps,
                "max_prompt_tokens": 2 * size.prompt_tokens,
                "max_reply_tokens": 512,
                "concurrent_episodes": size.episodes,
                "policy_deadline_seconds": 3600.0,
            },
            "memory": {"kind": "window", "size": WINDOW},
            "actions": {"format": "tags", "require_thinking": True},
            "algorithm": {"name": "gigpo", "discount": 0.95},
            "loss": {"entropy_coefficient": 0.001},  # rows without an advantage are read too
            "optimizer": {"micro_batch_tokens": 16384},
            "validation": {"num_tasks": 1, "test_num_tasks": 1},
        }
    )


def measure(size: Size) -> Measured:
    """Play, credit and "learn" one training step in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        prepare_environment("cpu", scratch=Path(folder))
        with ray_here(), Meter() as meter:
            return _measured(size, Path(folder), meter)


@contextmanager
def ray_here() -> Generator[None]:
    """A Ray of this machine alone, which starts every process that is asked for.

    Where a test has a zygote, Ray's workers are forks of it.
    """
    import ray

    from longhaul_trainer.verl.cpu.preload import SHARED_ZYGOTE

    zygote = os.environ.get(SHARED_ZYGOTE)
    ray.init(
        address="local",
        num_cpus=64,
        object_store_memory=512 << 20,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        runtime_env=None if zygote is None else {"py_executable": shlex.quote(zygote)},
    )
    try:
        yield
    finally:
        ray.shutdown()


def _measured(size: Size, folder: Path, meter: Meter) -> Measured:
    import transfer_queue
    from transfer_queue import interface
    from verl.utils.debug import marked_timer

    from longhaul_trainer.verl.manager import StoppableAgentLoopManager
    from longhaul_trainer.verl.run_recorder import RunRecorder
    from longhaul_trainer.verl.settings import Paths, agent_loop_file, verl_settings

    run = configuration(size, folder / "longhaul.db")
    run_context = RunContext(
        run_id="scale",
        attempt=0,
        recorder_name=f"scale-{folder.name}",
        config=run,
        descriptions=descriptions_of(run),
    )
    loops = agent_loop_file(run_context.write(folder))
    loops.write_text(
        loops.read_text(encoding="utf-8").replace(
            "longhaul_trainer.verl.agent_loop.EpisodeAgentLoop", "scale_loop.MeasuredAgentLoop"
        ),
        encoding="utf-8",
    )
    model = prepare_model(run.model.path)
    settings = verl_settings(
        run,
        paths=Paths(model=model, checkpoints=folder / "checkpoints", agent_loops=loops),
        device="cpu",
    )
    settings.actor_rollout_ref.rollout.agent.num_workers = size.agent_loops
    settings.transfer_queue.backend.SimpleStorage.num_data_storage_units = size.storage_units
    with ExitStack() as stack:
        recorder = RunRecorder.start(
            run.store, name=run_context.recorder_name, run_id="scale", attempt=0
        )
        stack.callback(recorder.close)
        recorder.write([_started(run)])
        transfer_queue.init(settings.transfer_queue)
        stack.callback(transfer_queue.close)
        engines = Engines(size, model)
        stopwatch = Stopwatch(clock=time.process_time)
        trainer = scaled_trainer(settings, run_context, recorder, size, meter)
        manager: Any = StoppableAgentLoopManager
        trainer.agent_loop_manager = manager.create(
            config=settings,
            llm_client=engines.client(settings),
            teacher_client=None,
            reward_loop_worker_handles=None,
            at_once=episodes_at_once(run, num_loops=size.agent_loops),
        )
        stack.callback(trainer.agent_loop_manager.stop)
        for role, actors in {
            "agent loops": trainer.agent_loop_manager.agent_loop_workers,
            "engines (stand-in)": engines.engines,
            "router": [engines.router],
            "learner (stand-in)": trainer.learner.ranks,
            "store writer": [cast("Any", recorder)._actor],
            "storage units": cast("Any", interface)._TQ_STORAGE["SimpleStorage"].values(),
            "queue controller": [cast("Any", interface)._TQ_CONTROLLER],
        }.items():
            meter.know(role, process_ids(actors))
        watch_trainer(stopwatch)
        trainer.global_steps = 1
        meter.since_last()
        metrics: dict[str, Any] = {}
        timing: dict[str, float] = {}
        with marked_timer("step", timing):
            batch = trainer.step(metrics, timing)
        trainer._compute_metrics(batch, metrics, timing, global_steps=1, epoch=0)
        trainer.wait_for_audit()
        recorder.flush()
        learning = meter.since_last()
        with Session(read_only_engine(run.store)) as session:
            store_bytes = storage_stats(session).num_bytes
        assert metrics["rows/count"] == size.num_steps, "an episode failed; see the store"
        return Measured(
            size=size,
            playing_seconds=trainer.learner.playing_seconds,
            engine_seconds=engines.busy_seconds(),
            playing=trainer.learner.playing,
            learning=learning,
            parts=_parts(folder),
            driver=stopwatch.result(),
            driver_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            prompt_tokens=metrics["episodes/prompt_tokens_mean"],
            store_bytes=store_bytes,
            ranks=trainer.learner.processor_seconds,
        )


def process_ids(actors: Iterable[Any]) -> list[int]:
    """Of Ray's actors."""
    import ray

    def own_id(_: object) -> int:
        return os.getpid()

    return ray.get([actor.__ray_call__.remote(own_id) for actor in actors])


def _started(run: RunConfig) -> RunStarted:
    return RunStarted(
        run_id="scale",
        name=run.name,
        kind="train",
        attempt=0,
        config_json=json.dumps(run.model_dump(mode="json")),
        provenance_json="{}",
        started_at=time.time(),
    )


def _parts(folder: Path) -> dict[str, float]:
    """What the agent loops left of their parts."""
    total: dict[str, float] = {}
    for path in folder.glob("parts-*.json"):
        for label, (_, processor, _) in json.loads(path.read_text(encoding="utf-8")).items():
            total[label] = total.get(label, 0.0) + processor
    return total


class Engines:
    """Eight stand-ins of engines behind verl's own router."""

    def __init__(self, size: Size, model: Path) -> None:
        import ray
        from verl.workers.rollout.router import GlobalRequestLoadBalancer

        hardware = size.hardware()
        self.engines: list[Any] = [
            ray.remote(Engine)
            .options(num_cpus=0, max_concurrency=10_000)
            .remote(hardware, reply_of(model), speed=size.speed, seed=number)
            for number in range(hardware.num_gpus)
        ]
        self.router: Any = (
            ray.remote(GlobalRequestLoadBalancer)
            .options(num_cpus=0)
            .remote(servers={str(n): engine for n, engine in enumerate(self.engines)})
        )

    def client(self, settings: object) -> object:
        """The client that verl gives its agent loops."""
        from verl.workers.rollout.llm_server import LLMServerClient

        return LLMServerClient(config=cast("Any", settings), load_balancer_handle=self.router)

    def busy_seconds(self) -> float:
        """For which the busiest was."""
        import ray

        return max(ray.get([engine.busy.remote() for engine in self.engines]))


def reply_of(model: Path) -> Reply:
    """What a reply is made of, in the model's own tokens."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)

    def tokens(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    words = [tokens(f" {word}") for word in scale_world.WORDS]
    return Reply(
        opening=tokens("<think>"),
        words=tuple(word[0] for word in words if len(word) == 1),
        closings=tuple(
            (*tokens(f"</think><action>{move}</action>"), tokenizer.eos_token_id)
            for move in scale_world.MOVES
        ),
    )


@dataclass
class Learner:
    """What the trainer takes for verl's worker group: ranks that read rows and take their time."""

    ranks: Sequence[Any]
    size: Size
    meter: Meter
    _dispatch_info: dict[str, list[int]]
    processor_seconds: dict[str, float] = field(default_factory=dict[str, float])
    playing: Mapping[str, Use] = field(default_factory=dict[str, Use])
    playing_seconds: float = 0.0

    def set_loss_fn(self, loss: object) -> None:
        """Nothing is computed."""

    def compute_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        """See `Rank.compute_log_prob`."""
        self._ask("compute_log_prob", batch, share=2 / 12)
        return batch

    def update_actor(self, batch: KVBatchMeta) -> dict[str, Any]:
        """See `Rank.update_actor`; its metrics are those of a loss of zero."""
        row = self.size.prompt_tokens + self.size.reply_tokens
        self._ask("update_actor", batch, share=8 / 12, rows_at_once=max(1, 16384 // row))
        names = ("trained_weight", "clip_fraction", "mfu", "grad_norm")
        return {"metrics": dict.fromkeys(names, 1.0)}

    def _ask(self, method: str, batch: KVBatchMeta, *, share: float, **others: int) -> None:
        import ray

        seconds = self.size.hardware().learning_seconds(num_rows=len(batch)) * share
        size = -(-len(batch) // len(self.ranks))
        parts = [batch.keys[first : first + size] for first in range(0, len(batch), size)]
        asked = [
            getattr(rank, method).remote(
                batch.select_keys(keys), seconds=seconds / self.size.learner_speed, **others
            )
            for rank, keys in zip(self.ranks, parts, strict=False)
        ]
        before = self.processor_seconds.get(method, 0.0)
        self.processor_seconds[method] = before + sum(ray.get(asked))


def scaled_trainer(
    settings: Any,  # noqa: ANN401  verl's
    run_context: RunContext,
    recorder: Any,  # noqa: ANN401  Ray is imported with it
    size: Size,
    meter: Meter,
) -> Any:  # noqa: ANN401  its class is made here, since importing verl takes ten seconds
    """The run's trainer, with stand-ins of engines and learner."""
    import ray
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from longhaul_trainer.verl.trackers import Trackers
    from longhaul_trainer.verl.trainer import LonghaulTrainer, TrainingContext

    ranks: list[Any] = [
        ray.remote(Rank)
        .options(num_cpus=0)
        .remote(run_id="scale", recorder_name=run_context.recorder_name, rank=rank)
        for rank in range(NUM_RANKS)
    ]
    ray.get([rank.ready.remote() for rank in ranks])
    learner = Learner(
        ranks=ranks, size=size, meter=meter, _dispatch_info={"actor": list(range(NUM_RANKS))}
    )

    class WithStandIns(PPOTrainer):
        """verl's trainer, whose GPUs are elsewhere."""

        learner: Learner

        def _setup(self) -> None:
            everything: Any = self
            self._init_tokenizer()
            # There is no reward model to ask.
            everything.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=())
            everything.actor_rollout_wg = everything.learner = learner

        def on_sample_begin(self) -> None:
            self._began = time.perf_counter()

        def on_sample_end(self) -> None:
            learner.playing_seconds = time.perf_counter() - self._began
            learner.playing = meter.since_last()

        def _get_n_gpus_for_throughput(self) -> int:
            return size.hardware().num_gpus

    class Scaled(LonghaulTrainer, WithStandIns):
        """The run's, over it."""

    nothing: Any = None  # is asked for no checkpoint and no validation in a training step
    context = TrainingContext(
        run_context=run_context,
        stream=task_stream(run_context.config),
        panel=nothing,
        checkpoints=nothing,
        recorder=recorder,
        stages=StageClock(),
        trackers=Trackers(run_context.config, run_id="scale", folder=Path()),
    )
    trainer: Any = cast("Any", Scaled)(settings, context)
    trainer._setup()
    return trainer


def watch_trainer(stopwatch: Stopwatch) -> None:
    """Time the functions of the trainer's own process."""
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from longhaul_trainer.training.run_records import RunRecords
    from longhaul_trainer.training.training_step import TrainingStep
    from longhaul_trainer.verl.run_recorder import RunRecorder
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    watched: tuple[tuple[Any, str, str], ...] = (
        (ReplayBuffer, "_sync_metadata_from_transfer_queue", POLL),
        (LonghaulTrainer, "_rows_of", "metadata of rows read"),
        (TrainingStep, "of", "episodes selected and weighed"),
        (LonghaulTrainer, "_balance_batch", "rows cut into optimizer steps"),
        (PPOTrainer, "_compute_old_log_prob", "old log-probabilities taken over (verl)"),
        (Learner, "_ask", LEARNER),
        (TrainingStep, "credited", "credit (GiGPO)"),
        (TrainingStep, "columns", "advantages and weights as columns"),
        (TrainingStep, "credit_report", "metrics of credit"),
        (TrainingStep, "report", "metrics of credit"),
        (RunRecords, "credit", "records of credit"),
        (RunRecorder, "put", "records handed over"),
        (LonghaulTrainer, "_compute_advantage", "rows read and columns put (TransferQueue)"),
        (LonghaulTrainer, "_update_actor", "rows chosen for the update"),
        (PPOTrainer, "_compute_metrics", "metrics of the batch (verl)"),
    )
    for owner, name, label in watched:
        stopwatch.watch(owner, name, label)


POLL, LEARNER = "asked what has ended", "the learner is waited for"


def report(measured: Measured, console: Console) -> None:
    """Print both tables and what they rest on."""
    size = measured.size
    console.print(f"[bold]{machine()}[/bold]")
    console.print(
        f"{size.episodes:,} episodes at once, {size.steps} steps, {size.num_steps:,} steps of "
        f"{measured.prompt_tokens:,.0f} tokens and {size.reply_tokens} of reply, "
        f"{size.agent_loops} agent loops"
    )
    rate = size.num_steps / measured.playing_seconds
    console.print(
        f"played in {measured.playing_seconds:.0f} s, {rate:.0f} steps/s; the engines alone "
        f"({size.model.name} on 8 H100, {size.speed:g} times as fast): "
        f"{measured.engine_seconds:.0f} s"
    )
    console.print(playing_table(measured))
    console.print(parts_table(measured))
    console.print(learning_table(measured))
    console.print(memory_table(measured))


def playing_table(measured: Measured) -> Table:
    """What the kinds of processes took while episodes were played."""
    size = measured.size
    needed = {model.name: size.hardware(model).steps_per_second for model in MODELS}
    table = Table(title="while episodes are played")
    for title in ("process", "work", "ms/step", "steps/s of one", "there", "steps/s there"):
        table.add_column(title, justify="left" if title in ("process", "work") else "right")
    for name, most in needed.items():
        table.add_column(f"{name} plays {most:.0f}", justify="right")
    for role, milliseconds, there in stages(measured):
        table.add_row(
            role,
            WORK[role],
            f"{milliseconds:.2f}",
            f"{1000 / milliseconds:,.0f}",
            str(PROCESSES_THERE[role]),
            f"{there:,.0f}",
            *(
                ("LIMITS, " if there < n else "") + f"{there / n:.1f} times"
                for n in needed.values()
            ),
        )
    return table


def stages(measured: Measured) -> list[tuple[str, float, float]]:
    """Kind of process, its processor milliseconds a step, and steps a second on eight GPUs."""
    found: list[tuple[str, float, float]] = []
    for role, number in PROCESSES_THERE.items():
        use = measured.playing.get(role)
        if use is not None:
            milliseconds = max(1e-3, use.processor_seconds / measured.size.num_steps * 1e3)
            found.append((role, milliseconds, number * 1e3 / milliseconds))
    return found


def parts_table(measured: Measured) -> Table:
    """What is in the time of an agent loop."""
    table = Table(title="of it in an agent loop")
    table.add_column("part")
    table.add_column("ms/step", justify="right")
    whole = measured.playing["agent loops"].processor_seconds
    for label, seconds in sorted(measured.parts.items(), key=lambda item: -item[1]):
        table.add_row(label, f"{seconds / measured.size.num_steps * 1e3:.2f}")
    rest = whole - sum(measured.parts.values())
    table.add_row(
        "the rest: asyncio, Ray's answers, verl", f"{rest / measured.size.num_steps * 1e3:.2f}"
    )
    return table


def learning_table(measured: Measured) -> Table:
    """What the trainer's own process takes after the episodes."""
    size = measured.size
    times = WHOLE_EPISODES * WHOLE_STEPS / size.num_steps
    table = Table(title=f"the trainer's process, for {WHOLE_EPISODES * WHOLE_STEPS:,} rows")
    for title in ("function", "calls", "processor s here", "wall s here", "processor s there"):
        table.add_column(title, justify="left" if title == "function" else "right")
    own = 0.0
    for label, spent in measured.driver.items():
        if label in (POLL, LEARNER):
            continue
        own += spent.processor_seconds
        table.add_row(
            label,
            f"{spent.calls}",
            f"{spent.processor_seconds:.2f}",
            f"{spent.wall_seconds:.2f}",
            f"{spent.processor_seconds * times:.1f}",
        )
    table.add_row("together", "", f"{own:.2f}", "", f"{own * times:.1f}", end_section=True)
    for method, title in (
        ("compute_log_prob", "ranks: rows read, log-probabilities put, all ranks together"),
        ("update_actor", "ranks: rows read, what the loss read reported"),
    ):
        seconds = measured.ranks[method]
        table.add_row(title, "", f"{seconds:.2f}", "", f"{seconds * times:.1f}")
    for model in MODELS:
        hardware = size.hardware(model)
        whole = WHOLE_EPISODES * WHOLE_STEPS
        playing = whole / hardware.steps_per_second
        learning = hardware.learning_seconds(num_rows=whole)
        share = own * times / (playing + learning)
        table.add_row(
            f"{model.name} on 8 H100: {playing:,.0f} s to play, {learning:,.0f} s to learn",
            *[""] * 3,
            f"{share:.1%} of it",
        )
    return table


def memory_table(measured: Measured) -> Table:
    """Memory of every kind of process, and bytes of the store."""
    size = measured.size
    table = Table(title="memory and disk")
    table.add_column("what")
    table.add_column("processes", justify="right")
    table.add_column("GiB at most", justify="right")
    table.add_column("KiB a step", justify="right")
    both = {**measured.playing, **measured.learning}
    for role, use in sorted(both.items(), key=lambda item: -item[1].peak_bytes):
        table.add_row(
            role,
            str(use.num_processes),
            f"{use.peak_bytes / 2**30:.2f}",
            f"{use.peak_bytes / size.num_steps / 1024:.1f}",
        )
    table.add_row("driver, most it ever held", "1", f"{measured.driver_peak_bytes / 2**30:.2f}", "")
    table.add_row(
        "store on disk",
        "",
        f"{measured.store_bytes / 2**30:.2f}",
        f"{measured.store_bytes / size.num_steps / 1024:.1f}",
    )
    return table


def plot(measured: Measured, path: Path) -> None:
    """A bar for each kind of process, a line for what each model's engines play."""
    import plotly.graph_objects as go
    from learning_plot import screenshot

    found = sorted(stages(measured), key=lambda stage: -stage[2])
    figure = go.Figure(
        go.Bar(
            y=[f"{role} ({PROCESSES_THERE[role]})" for role, _, _ in found],
            x=[there for _, _, there in found],
            text=[f"{there:,.0f}" for _, _, there in found],
            orientation="h",
            marker_color="#1b6ca8",
        )
    )
    for model, color in zip(MODELS, ("#d1495b", "#4d9a5b"), strict=True):
        most = measured.size.hardware(model).steps_per_second
        figure.add_vline(
            x=most,
            line={"color": color, "width": 3, "dash": "dash"},
            annotation={
                "text": f"{model.name}: {most:.0f}",
                "font": {"color": color},
                "yanchor": "bottom",
                "x": math.log10(most),  # of a label on a logarithmic axis
            },
        )
    figure.update_xaxes(
        type="log", range=[1, 5], title_text="steps a second on a machine with eight H100"
    )
    figure.update_layout(template="plotly_white", width=1200, height=430)
    screenshot(figure, path)


def machine() -> str:
    """Processor, number of cores, how busy they are, and the interpreter."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    return (
        f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}"
    )


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description="Measure a training step of many episodes.")
    parser.add_argument("--episodes", type=int, default=WHOLE_EPISODES)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--prompt-tokens", type=int, default=2000)
    parser.add_argument("--reply-tokens", type=int, default=150)
    parser.add_argument("--agent-loops", type=int, default=2)
    parser.add_argument("--model", choices=[model.name for model in MODELS], default="7B")
    parser.add_argument("--speed", type=float, default=1.0, help="engines, against 8 H100")
    parser.add_argument("--learner-speed", type=float, default=100.0, help="learner, against them")
    parser.add_argument("--plot", type=Path, help="a PNG file")
    arguments = vars(parser.parse_args())
    picture: Path | None = arguments.pop("plot")
    model = next(model for model in MODELS if model.name == arguments.pop("model"))
    measured = measure(Size(**arguments, model=model))
    report(measured, Console(width=None if os.isatty(1) else 160))
    if picture is not None:
        plot(measured, picture)


if __name__ == "__main__":
    main()
