"""Does credit per step pay? GiGPO beside GRPO and RLOO on Sokoban, learning curves over seeds.

    python benchmarks/learning.py run FOLDER       warm-starts, tunes and trains; about an hour
    python benchmarks/learning.py report FOLDER    prints the tables and draws the plot

A second `run` goes on where the first was stopped. The plan is the constants below, told in
docs/learning.md; both were committed before the first run.

Each run is one process: episodes by `run_episode`, credit by `credit_training_step`, the loss by
`ppo_loss`, the store by `StoreWriter`, and a plain torch sampler and AdamW in the place of vLLM
and verl, whose start-up alone would have spent the time. What is compared is the estimators.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Plotly, tokenizers and transformers are untyped.

import argparse
import asyncio
import functools
import itertools
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import torch
from playwright.sync_api import sync_playwright
from plotly.subplots import make_subplots
from safetensors.torch import save_file
from sqlalchemy.orm import Session
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.audit import audit_run
from longhaul_core.environment import Environment, StepResult
from longhaul_core.errors import LonghaulError
from longhaul_core.evaluation import cluster_bootstrap_difference, cluster_t_difference
from longhaul_core.evaluation.paired import paired_differences
from longhaul_core.gym.convert import to_observation, to_step_result
from longhaul_core.memory import build_memory
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import Agent, EpisodeLimits, EpisodeSpec, episode_seed, run_episode
from longhaul_core.store import StoreWriter, read_only_engine
from longhaul_core.store.queries import (
    EpisodeFilter,
    evaluations,
    get_run,
    list_episodes,
    list_runs,
    training_curve,
)
from longhaul_core.store.records import (
    ConsumedStep,
    ConsumedSteps,
    EpisodeCredit,
    EpisodeRecord,
    Evaluation,
    Metrics,
    PanelTasks,
    Phase,
    PolicyVersion,
    Record,
    RunEnded,
    RunStarted,
    TokenPieces,
)
from longhaul_core.tasks import Panel
from longhaul_core.types import FailedEpisode, Message, Observation, Split, Task, Trajectory
from longhaul_envs.sokoban.board import ACTIONS
from longhaul_envs.sokoban.tasks import SokobanOptions, level_of, tasks
from longhaul_trainer.config import RunConfig
from longhaul_trainer.environments import (
    environment_spec,
    prompt_template,
    task_panel,
    task_stream,
)
from longhaul_trainer.losses import ActionTokens, ppo_loss
from longhaul_trainer.models.folder import (
    MESSAGE_END,
    MESSAGE_START,
    PAD,
    LlamaShape,
    write_config,
)
from longhaul_trainer.verl.credit import StepCredit, TrainedEpisode, credit_training_step
from longhaul_trainer.verl.notes import RowNote
from longhaul_trainer.verl.renderer import ChatTemplateRenderer, token_pieces

FloatArray = npt.NDArray[np.float32]

# The plan

OPTIONS = {"size": 6, "num_boxes": 1, "min_pushes": 2}
"""Of `longhaul/Sokoban-v0`. Its reward is 1 for the step that solves the level, else 0."""
HORIZON = 40
TASKS_PER_TRAINING_STEP = 16
GROUP_SIZE = 8
OPTIMIZER_STEPS = 2
"""Of each training step; eight groups each."""
WARMUP_TRAINING_STEPS = 5
"""AdamW's first steps are as long as its rate whatever the gradient, so the rate rises."""

ALGORITHMS = ("gigpo", "grpo", "rloo")
SEEDS = (0, 1, 2, 3, 4)
NUM_TRAINING_STEPS = 80
VALIDATE_EVERY = 20
NUM_PANEL_TASKS = 128

LEARNING_RATES = (1e-4, 3e-4, 1e-3)
TUNING_SEED = 100
NUM_TUNING_STEPS = 25
"""Tuning is judged on a panel of its own, of the test split, after its last training step."""

CONFIDENCE = 0.975
"""Of each of the two comparisons, so that both together hold with 0.95."""

SHAPE = LlamaShape(
    num_layers=3,
    hidden_size=64,
    intermediate_size=192,
    num_heads=2,
    num_key_value_heads=2,
    vocabulary_size=15,
    context_tokens=128,
    rope_theta=10000.0,
)
"""0.16 million parameters."""
WARM_START_SEED = 0
WARM_START_UPDATES = 400
WARM_START_BATCH = 128
WARM_START_RATE = 2e-3

OPENING = "Goal: push every box onto a target\n# # # # # #\n"
"""Begins every observation, and is one token: the upper wall says nothing."""
WORDS = (PAD, MESSAGE_START, MESSAGE_END, "#", "@", "$", ".", "*", "+", "_", *ACTIONS, OPENING)
"""The vocabulary, in the order of its ids."""
UPDATE_ROWS = 1024
"""Prompts that go through the model at once in an update; memory alone depends on it."""


class Trial(NamedTuple):
    """One run of the plan."""

    algorithm: str
    learning_rate: float
    seed: int
    tuning: bool

    @property
    def name(self) -> str:
        """The run's name in the store."""
        kind = "tuning" if self.tuning else "learning"
        return f"{kind}-{self.algorithm}-{self.learning_rate:g}-{self.seed}"


TUNING = [
    Trial(algorithm, rate, TUNING_SEED, tuning=True)
    for rate in LEARNING_RATES
    for algorithm in ALGORITHMS
]


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description="Learning curves of three algorithms.")
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("folder", type=Path, help="holds the policy and the store")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    parser.add_argument("--processes", type=int, default=2, help="runs at once, one core each")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    if arguments.command == "run":
        folder.mkdir(parents=True, exist_ok=True)
        run_plan(folder, num_processes=arguments.processes)
    else:
        report(folder, arguments.docs)


def run_plan(folder: Path, *, num_processes: int) -> None:
    """Every run of the plan that the store does not hold as finished."""
    warm_started(folder)
    StoreWriter(store_of(folder)).close()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, mp_context=context) as pool:
        finish(pool, folder, TUNING)
        rates = chosen_rates(folder)
        print(f"chosen learning rates: {rates}", flush=True)
        trials = [
            Trial(algorithm, rates[algorithm], seed, tuning=False)
            for seed in SEEDS
            for algorithm in ALGORITHMS
        ]
        finish(pool, folder, trials)


def finish(pool: ProcessPoolExecutor, folder: Path, trials: Sequence[Trial]) -> None:
    """Train what is missing of `trials`, in their order."""
    done = finished(folder)
    missing = [trial for trial in trials if trial.name not in done]
    for trial, seconds in zip(
        missing, pool.map(train, itertools.repeat(folder), missing), strict=True
    ):
        print(f"{trial.name}: {seconds:.0f} s", flush=True)


def store_of(folder: Path) -> Path:
    """The store of all runs."""
    return folder / "learning.db"


def finished(folder: Path) -> dict[str, str]:
    """Name of each finished run, to its id."""
    engine = read_only_engine(store_of(folder))
    with Session(engine) as session:
        runs = list_runs(session, status="finished", kind="train")
        found = {get_run(session, run_id=run.run_id).summary.name: run.run_id for run in runs}
    engine.dispose()
    return found


def chosen_rates(folder: Path) -> dict[str, float]:
    """The learning rate of each algorithm that did best in tuning; the smaller of equals."""
    done = finished(folder)
    with Session(read_only_engine(store_of(folder))) as session:
        rates: dict[str, float] = {}
        for algorithm in ALGORITHMS:
            scores = {
                trial.learning_rate: evaluations(session, run_id=done[trial.name])[-1].success_rate
                for trial in TUNING
                if trial.algorithm == algorithm
            }
            print(f"tuning of {algorithm}: {scores}", flush=True)
            rates[algorithm] = max(sorted(scores), key=lambda rate: scores[rate])
    return rates


# The policy


def warm_started(folder: Path) -> Path:
    """Folder of the policy that every run starts from; the first call trains it."""
    model = folder / "model"
    if not (model / "model.safetensors").exists():
        model.mkdir(exist_ok=True)
        started = time.monotonic()
        write_config(model, SHAPE, dtype="float32")
        write_tokenizer(model)
        imitate_expert(model)
        print(f"warm start: {time.monotonic() - started:.0f} s", flush=True)
    return model


def write_tokenizer(folder: Path) -> None:
    """One token for the opening, for each cell and for each action."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    del vocabulary[OPENING]
    tokenizer: Any = Tokenizer(WordLevel(vocab=vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [AddedToken(word, special=True, normalized=False) for word in WORDS[:3]]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(OPENING, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": MESSAGE_START,
        "eos_token": MESSAGE_END,
        "pad_token": PAD,
        "unk_token": PAD,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    template = "{{ messages[-1]['content'] + '" + MESSAGE_END + "' }}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def imitate_expert(folder: Path) -> None:
    """Random weights, trained for a while to make the expert's moves, into `folder`."""
    torch.set_num_threads(1)
    torch.manual_seed(WARM_START_SEED)
    model = LlamaForCausalLM(LlamaForCausalLM.config_class.from_pretrained(folder))
    examples = list(expert_examples())
    prompts_NT = torch.tensor([prompt for prompt, _ in examples])
    actions_N = torch.tensor([action for _, action in examples])
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    for update in range(WARM_START_UPDATES):
        rate = WARM_START_RATE * min(1.0, (update + 1) / 20) * (1 - update / WARM_START_UPDATES)
        for group in optimizer.param_groups:
            group["lr"] = rate
        chosen_B = torch.randint(len(examples), (WARM_START_BATCH,))
        logits_BV = next_token_logits(model, prompts_NT[chosen_B])
        loss = torch.nn.functional.cross_entropy(logits_BV, actions_N[chosen_B])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    weights = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied to the embedding
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def expert_examples() -> Iterator[tuple[list[int], int]]:
    """Every board of the solutions of the training tasks as a prompt, with the move made there."""
    number = {word: place for place, word in enumerate(WORDS)}
    for task in tasks(Split.TRAIN, SokobanOptions(**OPTIONS)):
        level = level_of(task.task_id)
        position = level.start
        for action in level.solution:
            cells = "".join(level.board.rows(position)[1:])
            yield [number[word] for word in (OPENING, *cells, MESSAGE_END)], number[action]
            position = level.board.move(position, action)


def next_token_logits(model: LlamaForCausalLM, prompts_BT: torch.Tensor) -> torch.Tensor:
    """Logits of the reply's only token; the prompts are equally long, so none is padded."""
    return model(input_ids=prompts_BT, logits_to_keep=1, use_cache=False).logits[:, -1].float()


class TorchPolicy:
    """Samples replies of one token: all prompts that wait go through the model together."""

    def __init__(self, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model = model
        self._words = [tokenizer.decode([token]) for token in range(len(WORDS))]
        self._logprobs: dict[tuple[int, ...], FloatArray] = {}
        """Of each prompt met since the last update; the same prompt is read once."""
        self._waiting: dict[tuple[int, ...], asyncio.Future[None]] = {}
        self.version = 0

    def updated(self) -> None:
        """Forget what the weights before the optimizer step said."""
        self._logprobs.clear()
        self.version += 1

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """See `Policy.act`."""
        del episode_id
        if prompt.tokens not in self._logprobs:
            if not self._waiting:
                asyncio.get_running_loop().call_soon(self._read_waiting)
            if prompt.tokens not in self._waiting:
                self._waiting[prompt.tokens] = asyncio.get_running_loop().create_future()
            await self._waiting[prompt.tokens]
        logprobs_V = self._logprobs[prompt.tokens]
        token = drawn_token(logprobs_V, sampling)
        return Completion(
            text=self._words[token],
            action_tokens=(token,),
            behavior_logprobs=(float(logprobs_V[token]),),
            policy_version=self.version,
            reply_cut=True,
        )

    def _read_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        with torch.no_grad():
            logits_BV = next_token_logits(self._model, torch.tensor(list(waiting)))
        for (tokens, future), logprobs_V in zip(
            waiting.items(), logits_BV.log_softmax(-1).numpy(), strict=True
        ):
            self._logprobs[tokens] = logprobs_V
            future.set_result(None)


def drawn_token(logprobs_V: FloatArray, sampling: Sampling) -> int:
    """The likeliest token at temperature 0, else one drawn by the seed; temperature 1 alone."""
    if sampling.temperature == 0:
        return int(logprobs_V.argmax())
    cumulative_V = np.exp(logprobs_V.astype(np.float64)).cumsum()
    uniform = (np.random.PCG64(sampling.seed).random_raw() >> 11) * 2.0**-53
    return int(cumulative_V.searchsorted(uniform * cumulative_V[-1], side="right"))


class QuickEnvironment:
    """A Gymnasium environment that is called where the episode is; Sokoban never waits."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    async def open(self) -> None:
        """Nothing to wait for."""

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        self._environment = self._make()
        return to_observation(
            *self._environment.reset(seed=task.seed, options={"task_id": task.task_id})
        )

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        text, reward, terminated, truncated, info = self._environment.step(action)
        return to_step_result(text, reward, terminated=terminated, truncated=truncated, info=info)

    async def close(self) -> None:
        """Nothing is held."""


# One run


def configuration(folder: Path, trial: Trial) -> RunConfig:
    """What the run is, as `trainer train` would read it."""
    steps = NUM_TUNING_STEPS if trial.tuning else NUM_TRAINING_STEPS
    return RunConfig.model_validate(
        {
            "name": trial.name,
            "seed": trial.seed,
            "num_training_steps": steps,
            "tasks_per_training_step": TASKS_PER_TRAINING_STEP,
            "store": str(store_of(folder)),
            "runs_directory": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "engine_dtype": "float32"},
            "environment": {"id": "longhaul/Sokoban-v0", "options": OPTIONS},
            "rollout": {
                "group_size": GROUP_SIZE,
                "horizon": HORIZON,
                "max_reply_tokens": 1,
                "max_prompt_tokens": 48,
            },
            "memory": {"kind": "none"},
            "prompt": {"system": "", "instruction": "", "list_actions": False},
            "actions": {"format": "plain"},
            "algorithm": {"name": trial.algorithm},
            "optimizer": {
                "learning_rate": trial.learning_rate,
                "optimizer_steps_per_training_step": OPTIMIZER_STEPS,
                "warmup_training_steps": WARMUP_TRAINING_STEPS,
            },
            "validation": {
                "num_tasks": NUM_PANEL_TASKS,
                "test_num_tasks": NUM_PANEL_TASKS,
                "every": steps if trial.tuning else VALIDATE_EVERY,
                "before": not trial.tuning,
            },
            "resources": {"device": "cpu"},
        }
    )


def train(folder: Path, trial: Trial) -> float:
    """One run from its start to its end, into the store; seconds that it took."""
    started = time.monotonic()
    torch.set_num_threads(1)
    with StoreWriter(store_of(folder)) as writer:
        OneProcessRun(configuration(folder, trial), writer, tuning=trial.tuning).go()
    return time.monotonic() - started


class OneProcessRun:
    """A training in this process: what verl's trainer does with Ray, without Ray."""

    def __init__(self, run: RunConfig, writer: StoreWriter, *, tuning: bool) -> None:
        self._run = run
        self._writer = writer
        self._id = f"{run.name}-{time.time_ns() // 1_000_000}"
        self._model = LlamaForCausalLM.from_pretrained(run.model.path, dtype=torch.float32)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=run.optimizer.learning_rate,
            betas=run.optimizer.betas,
            weight_decay=run.optimizer.weight_decay,
        )
        self._panel = task_panel(run, Split.TEST if tuning else Split.VALIDATION)
        tokenizer: Any = AutoTokenizer.from_pretrained(run.model.path)
        self._tokenizer = tokenizer
        self._policy = TorchPolicy(self._model, tokenizer)
        renderer = CachedRenderer(tokenizer)
        template = prompt_template(run)
        self._agent = {
            temperature: Agent(
                policy=self._policy,
                renderer=renderer,
                parser=ActionParser(format=ActionFormat(run.actions.format)),
                build_memory=functools.partial(build_memory, run.memory.kind, template=template),
                temperature=temperature,
                max_reply_tokens=run.rollout.max_reply_tokens,
            )
            for temperature in (0.0, run.rollout.temperature)
        }
        make = environment_spec(run).make
        self._make_environment: Callable[[Task], Environment] = lambda task: QuickEnvironment(make)
        self._seconds: dict[str, float] = {}

    def go(self) -> None:
        """Train, validate, write everything down."""
        run = self._run
        pieces = token_pieces(self._tokenizer, range(len(WORDS)))
        self._writer.write(
            [
                RunStarted(
                    run_id=self._id,
                    name=run.name,
                    kind="train",
                    attempt=0,
                    config_json=json.dumps(run.model_dump(mode="json")),
                    provenance_json=json.dumps({"benchmark": "benchmarks/learning.py"}),
                    started_at=time.time(),
                    num_training_steps=run.num_training_steps,
                    pid=os.getpid(),
                ),
                PanelTasks(
                    run_id=self._id,
                    name=self._panel.split.value,
                    split=self._panel.split,
                    tasks=self._panel.tasks,
                ),
                TokenPieces(run_id=self._id, pieces=pieces),
            ]
        )
        stream = task_stream(run)
        if run.validation.before:
            self._validate(self._panel, training_step=0)
        for training_step in range(1, run.num_training_steps + 1):
            self._train_on(stream.next(run.tasks_per_training_step), training_step=training_step)
            if training_step % run.validation.every == 0:
                self._validate(self._panel, training_step=training_step)
        self._writer.write(
            [
                RunEnded(
                    run_id=self._id,
                    attempt=0,
                    status="finished",
                    message="",
                    ended_at=time.time(),
                )
            ]
        )

    def _play(
        self, wanted: Sequence[Task], *, phase: Phase, training_step: int, group_size: int
    ) -> list[EpisodeRecord]:
        """`group_size` episodes of each task, all at once."""
        run = self._run
        agent = self._agent[run.rollout.temperature if phase == "train" else 0.0]
        limits = EpisodeLimits(
            horizon=run.rollout.horizon, max_prompt_tokens=run.rollout.max_prompt_tokens
        )

        async def episode(task: Task, group_index: int, position: int) -> EpisodeRecord:
            seed = episode_seed(
                run.seed,
                training_step=training_step,
                group_index=group_index,
                position=position,
                phase=phase,
            )
            outcome = await run_episode(
                EpisodeSpec(
                    task=task, seed=seed, group_index=group_index, position=position, retry=0
                ),
                agent=agent,
                make_environment=self._make_environment,
                limits=limits,
            )
            if isinstance(outcome, FailedEpisode):
                raise LonghaulError(f"an episode failed: {outcome.message}")
            return EpisodeRecord(
                run_id=self._id,
                attempt=0,
                phase=phase,
                training_step=training_step,
                group_index=group_index,
                retry=0,
                outcome=outcome,
                group_size=group_size,
            )

        async def all_of_them() -> list[EpisodeRecord]:
            return await asyncio.gather(
                *(
                    episode(task, group_index, position)
                    for group_index, task in enumerate(wanted)
                    for position in range(group_size)
                )
            )

        return asyncio.run(all_of_them())

    def _train_on(self, batch: Sequence[Task], *, training_step: int) -> None:
        """One training step."""
        run = self._run
        started = time.perf_counter()
        episodes = self._play(
            batch, phase="train", training_step=training_step, group_size=run.rollout.group_size
        )
        played = time.perf_counter()
        outcomes = [trajectory_of(record) for record in episodes]
        credit = credit_training_step(
            notes_of(episodes),
            algorithm=run.algorithm,
            num_optimizer_steps=run.optimizer.optimizer_steps_per_training_step,
            num_groups=run.tasks_per_training_step,
        )
        by_place = {
            (record.group_index, record.outcome.position): trajectory_of(record)
            for record in episodes
        }
        records: list[Record] = [
            *episodes,
            *(
                self._credit_record(e, by_place[place_of(e)], training_step)
                for e in credit.episodes
            ),
        ]
        gradient_norms: list[float] = []
        for part in range(run.optimizer.optimizer_steps_per_training_step):
            rows = rows_of(credit, by_place, part)
            gradient_norms.append(self._update(rows))
            records.append(self._consumed(rows, training_step, part))
            self._policy.updated()
        updated = time.perf_counter()
        records.append(
            PolicyVersion(
                run_id=self._id,
                attempt=0,
                version=self._policy.version,
                training_step=training_step,
                created_at=time.time(),
            )
        )
        values = {
            "episodes/mean_return": float(np.mean([o.episode_return for o in outcomes])),
            "episodes/success_rate": float(np.mean([o.success for o in outcomes])),
            "episodes/mean_steps": float(np.mean([len(o.steps) for o in outcomes])),
            "groups/without_signal": float(credit.groups_without_signal),
            "actor/optimizer_steps": float(len(gradient_norms)),
            "actor/grad_norm": float(np.mean(gradient_norms)),
            "agreement/logprob_difference_max": 0.0,  # sampler and learner are one model
            "timing_s/gen": played - started,
            "timing_s/update_actor": updated - played,
        }
        records.append(
            Metrics(run_id=self._id, attempt=0, training_step=training_step, values=values)
        )
        self._writer.write(records)

    def _update(self, rows: Sequence["Row"]) -> float:
        """One optimizer step on `rows`; the norm of its gradient before it is clipped.

        A prompt that many rows share goes through the model once: the loss of a row needs
        nothing but the logits of its prompt, so the gradient is the same.
        """
        loss, optimizer = self._run.loss, self._run.optimizer
        assert loss.dual_clip is not None
        rising = optimizer.warmup_training_steps * optimizer.optimizer_steps_per_training_step
        for group in self._optimizer.param_groups:
            group["lr"] = optimizer.learning_rate * min(1.0, (self._policy.version + 1) / rising)
        self._optimizer.zero_grad()
        prompts = list(dict.fromkeys(row.prompt for row in rows))
        for start in range(0, len(prompts), UPDATE_ROWS):
            chunk = {prompt: n for n, prompt in enumerate(prompts[start : start + UPDATE_ROWS])}
            chosen = [row for row in rows if row.prompt in chunk]
            logprobs_UV = next_token_logits(self._model, torch.tensor(list(chunk))).log_softmax(-1)
            places_B = torch.tensor([chunk[row.prompt] for row in chosen])
            tokens_B = torch.tensor([row.token for row in chosen])
            tokens = ActionTokens(
                policy_logprobs_BT=logprobs_UV[places_B, tokens_B].unsqueeze(-1),
                old_logprobs_BT=torch.tensor([[row.old_logprob] for row in chosen]),
                advantages_BT=torch.tensor([[row.advantage] for row in chosen]),
                loss_weights_BT=torch.tensor([[row.weight] for row in chosen]),
            )
            ppo_loss(
                tokens,
                clip_low=loss.clip_low,
                clip_high=loss.clip_high,
                dual_clip=loss.dual_clip,
            ).loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), optimizer.max_gradient_norm)
        self._optimizer.step()
        return float(norm)

    def _credit_record(
        self, episode: TrainedEpisode, outcome: Trajectory, training_step: int
    ) -> EpisodeCredit:
        note = episode.notes[0]
        return EpisodeCredit(
            run_id=self._id,
            attempt=0,
            phase="train",
            training_step=training_step,
            group_index=note.group_index,
            position=note.position,
            retry=0,
            episode_advantage=episode.credit.episode_advantage,
            step_advantages=episode.credit.step_advantages,
            returns_to_go=episode.credit.returns_to_go,
            advantages=episode.credit.advantages,
            loss_weights=episode.loss_weights,
            policy_logprobs=tuple(step.behavior_logprobs for step in outcome.steps),
            trained=True,
            optimizer_step_index=episode.optimizer_step,
        )

    def _consumed(self, rows: Sequence["Row"], training_step: int, part: int) -> ConsumedSteps:
        return ConsumedSteps(
            run_id=self._id,
            attempt=0,
            training_step=training_step,
            optimizer_step_index=part,
            rank=0,
            micro_batch=0,
            rows=tuple(row.consumed(place) for place, row in enumerate(rows)),
        )

    def _validate(self, panel: Panel, *, training_step: int) -> None:
        """Greedy episodes on the panel."""
        phase: Phase = "test" if panel.split is Split.TEST else "validation"
        episodes = self._play(panel.tasks, phase=phase, training_step=training_step, group_size=1)
        outcomes = [trajectory_of(record) for record in episodes]
        score = Evaluation(
            run_id=self._id,
            attempt=0,
            training_step=training_step,
            panel=panel.split.value,
            split=panel.split,
            num_episodes=len(outcomes),
            mean_return=float(np.mean([o.episode_return for o in outcomes])),
            success_rate=float(np.mean([o.success for o in outcomes])),
        )
        self._writer.write([*episodes, score])


class Row(NamedTuple):
    """One step as the loss reads it."""

    prompt: tuple[int, ...]
    token: int
    old_logprob: float
    advantage: float
    weight: float
    group_index: int
    position: int
    step_index: int

    def consumed(self, row_index: int) -> ConsumedStep:
        """For the store, in the precision of the tensors."""
        advantage, weight = float(np.float32(self.advantage)), float(np.float32(self.weight))
        return ConsumedStep(
            group_index=self.group_index,
            position=self.position,
            retry=0,
            step_index=self.step_index,
            row_index=row_index,
            num_tokens=1,
            advantage_low=advantage,
            advantage_high=advantage,
            weight_low=weight,
            weight_high=weight,
            old_logprob_sum=float(np.float32(self.old_logprob)),
        )


class CachedRenderer(ChatTemplateRenderer):
    """Renders the same messages once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(tokenizer)
        self._rendered: dict[tuple[Message, ...], tuple[int, ...]] = {}

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """See `Renderer.render`."""
        key = tuple(messages)
        if key not in self._rendered:
            self._rendered[key] = super().render(messages)
        return self._rendered[key]


def trajectory_of(record: EpisodeRecord) -> Trajectory:
    """The episode; none fails here."""
    assert isinstance(record.outcome, Trajectory)
    return record.outcome


def place_of(episode: TrainedEpisode) -> tuple[int, int]:
    """Group and position."""
    return episode.notes[0].group_index, episode.notes[0].position


def notes_of(episodes: Sequence[EpisodeRecord]) -> dict[str, RowNote]:
    """What credit is worked out from, by row key."""
    return {
        f"{record.group_index}_{record.outcome.position}_{step.index}": RowNote(
            task_id=outcome.task.task_id,
            group_index=record.group_index,
            position=outcome.position,
            retry=0,
            horizon=outcome.horizon,
            step=step.index,
            num_steps=len(outcome.steps),
            reward=step.reward,
            action_valid=step.action_valid,
            anchor=step.observation.anchor,
            success=outcome.success,
            episode_return=outcome.episode_return,
            prompt_tokens=len(step.prompt_tokens),
            action_tokens=len(step.action_tokens),
        )
        for record in episodes
        for outcome in [trajectory_of(record)]
        for step in outcome.steps
    }


def rows_of(
    credit: StepCredit, by_place: dict[tuple[int, int], Trajectory], part: int
) -> list[Row]:
    """The rows of one optimizer step that have a gradient; one of the others if none has."""
    rows = [
        Row(
            prompt=step.prompt_tokens,
            token=step.action_tokens[0],
            old_logprob=step.behavior_logprobs[0],
            advantage=advantage,
            weight=weight,
            group_index=episode.notes[0].group_index,
            position=episode.notes[0].position,
            step_index=step.index,
        )
        for episode in credit.episodes
        if episode.optimizer_step == part
        for step, advantage, weight in zip(
            by_place[place_of(episode)].steps,
            episode.credit.advantages,
            episode.loss_weights,
            strict=True,
        )
    ]
    return [row for row in rows if row.advantage != 0.0] or rows[:1]


# The report

COLORS = {"gigpo": "#1b6ca8", "grpo": "#d1495b", "rloo": "#4d9a5b"}
LABELS = {"gigpo": "GiGPO", "grpo": "GRPO", "rloo": "RLOO"}


class Curve(NamedTuple):
    """What the store says of one finished run."""

    trial: Trial
    run_id: str
    success: dict[int, dict[str, float]]
    """Training step, then task, to 1 or 0: the panel, greedy."""
    training: list[tuple[int, float]]
    """Training step and success rate of the episodes trained on, sampled."""
    minutes: float

    def rate(self, training_step: int) -> float:
        """Success rate on the panel."""
        return float(np.mean(list(self.success[training_step].values())))


def report(folder: Path, docs: Path) -> None:
    """Print the tables, audit every run, draw the plot."""
    rates = chosen_rates(folder)
    done = finished(folder)
    with Session(read_only_engine(store_of(folder))) as session:
        curves = [
            read_curve(session, done[trial.name], trial)
            for seed in SEEDS
            for algorithm in ALGORITHMS
            for trial in [Trial(algorithm, rates[algorithm], seed, tuning=False)]
            if trial.name in done
        ]
        complete = [
            seed for seed in SEEDS if sum(c.trial.seed == seed for c in curves) == len(ALGORITHMS)
        ]
        print(f"seeds with all algorithms: {complete}")
        curves = [curve for curve in curves if curve.trial.seed in complete]
        print_curves(curves)
        differences = print_differences(curves)
        print_audits(session, [curve.run_id for curve in curves])
    plot(curves, differences, docs / "images" / "learning_curves.png")


def read_curve(session: Session, run_id: str, trial: Trial) -> Curve:
    """The curve of one run."""
    success = {
        score.training_step: panel_success(session, run_id, score.training_step)
        for score in evaluations(session, run_id=run_id)
    }
    summary = get_run(session, run_id=run_id).summary
    assert summary.ended_at is not None
    return Curve(
        trial=trial,
        run_id=run_id,
        success=success,
        training=[
            (point.training_step, point.success_rate)
            for point in training_curve(session, run_id=run_id, phase="train")
            if point.success_rate is not None
        ],
        minutes=(summary.ended_at - summary.started_at) / 60,
    )


def panel_success(session: Session, run_id: str, training_step: int) -> dict[str, float]:
    """Success by task at one validation."""
    where = EpisodeFilter(
        run_id=run_id,
        phase="validation",
        min_training_step=training_step,
        max_training_step=training_step,
    )
    page = list_episodes(session, where=where, limit=10_000)
    return {row.task_id: float(bool(row.success)) for row in page.rows}


def print_curves(curves: Sequence[Curve]) -> None:
    """Success on the panel by training step: the mean over seeds, and every seed."""
    steps = sorted(curves[0].success)
    print("\n| success on the panel after | " + " | ".join(map(str, steps)) + " | minutes |")
    print("|---" * (len(steps) + 2) + "|")
    for algorithm in ALGORITHMS:
        own = [curve for curve in curves if curve.trial.algorithm == algorithm]
        means = [float(np.mean([curve.rate(step) for curve in own])) for step in steps]
        cells = " | ".join(f"**{mean:.3f}**" for mean in means)
        minutes = sum(curve.minutes for curve in own)
        print(f"| {LABELS[algorithm]}, mean of {len(own)} | {cells} | {minutes:.1f} |")
        for curve in own:
            cells = " | ".join(f"{curve.rate(step):.3f}" for step in steps)
            print(f"| seed {curve.trial.seed} | {cells} | {curve.minutes:.1f} |")


def print_differences(curves: Sequence[Curve]) -> dict[str, list[FloatArray]]:
    """The comparisons of the plan; the primary one's differences, by the other algorithm."""
    steps = sorted(curves[0].success)
    primary: dict[str, list[FloatArray]] = {}
    print("\n| GiGPO less | measure | mean | bootstrap | t over seeds | counts |")
    print("|---|---|---|---|---|---|")
    for other in ALGORITHMS[1:]:
        for measure, chosen in (("last validation", steps[-1:]), ("mean of four", steps[1:])):
            found = [
                np.mean([paired_differences(b.success[n], a.success[n]) for n in chosen], axis=0)
                for a, b in pairs(curves, other)
            ]
            if measure == "last validation":
                primary[other] = found
            drawn = cluster_bootstrap_difference(found, seed=0, confidence=CONFIDENCE)
            t = cluster_t_difference(found, confidence=CONFIDENCE)
            counts = all(i.low > 0 or i.high < 0 for i in (drawn, t))
            print(
                f"| {LABELS[other]} | {measure} | {t.estimate:+.3f} | "
                f"[{drawn.low:+.3f}, {drawn.high:+.3f}] | [{t.low:+.3f}, {t.high:+.3f}] | "
                f"{'yes' if counts else 'no'} |"
            )
    return primary


def pairs(curves: Sequence[Curve], other: str) -> list[tuple[Curve, Curve]]:
    """GiGPO's run and the other's, seed by seed."""
    by_place = {(curve.trial.algorithm, curve.trial.seed): curve for curve in curves}
    seeds = sorted({curve.trial.seed for curve in curves})
    return [(by_place["gigpo", seed], by_place[other, seed]) for seed in seeds]


def print_audits(session: Session, run_ids: Sequence[str]) -> None:
    """Audit every run, whole."""
    reports = [audit_run(session, run_id) for run_id in run_ids]
    print(
        f"\naudit: {len(reports)} runs, {sum(r.num_steps for r in reports):,} trained steps, "
        f"{sum(rule.num_checked for r in reports for rule in r.rules):,} checks, "
        f"{sum(r.num_findings for r in reports)} findings"
    )


def plot(curves: Sequence[Curve], differences: dict[str, list[FloatArray]], path: Path) -> None:
    """Success on the panel and in training by training step, and the primary differences."""
    figure = make_subplots(
        rows=1,
        cols=3,
        column_widths=[0.38, 0.38, 0.24],
        subplot_titles=(
            "128 held-out levels, greedy",
            "training episodes, sampled",
            "last validation, GiGPO less …",
        ),
        horizontal_spacing=0.07,
    )
    for algorithm in ALGORITHMS:
        own = [curve for curve in curves if curve.trial.algorithm == algorithm]
        panel = [sorted((n, curve.rate(n)) for n in curve.success) for curve in own]
        smooth = [running_mean(curve.training) for curve in own]
        for column, lines in ((1, panel), (2, smooth)):
            for line in lines:
                add_line(figure, line, algorithm, column, mean=False)
            mean = [
                (points[0][0], float(np.mean([value for _, value in points])))
                for points in zip(*lines, strict=True)
            ]
            add_line(figure, mean, algorithm, column, mean=True)
    for other, found in differences.items():
        interval = cluster_bootstrap_difference(found, seed=0, confidence=CONFIDENCE)
        means = [float(values.mean()) for values in found]
        figure.add_scatter(
            x=[LABELS[other]] * len(means),
            y=means,
            mode="markers",
            marker={"color": COLORS[other], "size": 6, "opacity": 0.5},
            showlegend=False,
            row=1,
            col=3,
        )
        figure.add_scatter(
            x=[LABELS[other]],
            y=[interval.estimate],
            error_y={
                "array": [interval.high - interval.estimate],
                "arrayminus": [interval.estimate - interval.low],
            },
            mode="markers",
            marker={"color": COLORS[other], "size": 11, "symbol": "diamond"},
            showlegend=False,
            row=1,
            col=3,
        )
    figure.add_hline(y=0, line_dash="dot", line_color="gray", row=1, col=3)
    figure.update_xaxes(title_text="training step", row=1, col=1)
    figure.update_xaxes(title_text="training step", row=1, col=2)
    figure.update_yaxes(title_text="success rate", row=1, col=1)
    figure.update_layout(
        template="plotly_white",
        width=1200,
        height=430,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        legend={"orientation": "h", "y": -0.18},
    )
    screenshot(figure, path)


def running_mean(points: Sequence[tuple[int, float]], width: int = 5) -> list[tuple[int, float]]:
    """Each point with those before it, `width` in all."""
    return [
        (points[n][0], float(np.mean([value for _, value in points[n - width + 1 : n + 1]])))
        for n in range(width - 1, len(points))
    ]


def add_line(
    figure: go.Figure,
    points: Sequence[tuple[int, float]],
    algorithm: str,
    column: int,
    *,
    mean: bool,
) -> None:
    """One seed's curve, thin, or the mean of all, thick."""
    figure.add_scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="lines",
        line={"color": COLORS[algorithm], "width": 4 if mean else 1},
        opacity=1.0 if mean else 0.45,
        name=LABELS[algorithm],
        showlegend=mean and column == 1,
        row=1,
        col=column,
    )


def screenshot(figure: go.Figure, path: Path) -> None:
    """The figure as a picture."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page_file = Path(scratch) / "learning.html"
        figure.write_html(page_file, include_plotlyjs="inline")
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1220, "height": 450})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".main-svg")
        page.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    main()
