# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (transformers and torch annotate little of what they return)
"""What one GPU does in some minutes: runs that read pictures, and one that experts begin.

Run: `python benchmarks/one_gpu.py FOLDER [--only NAME] [--seconds N] [--tiny]`. They are trained
side by side by the ordinary command, each in a folder of its own:

- `chain`: `configs/long/key_door.toml`, whose experts are imitated before reinforcement learning.
- `pictures`: GiGPO on Sokoban as a picture, at the settings of `configs/environments/`, with random
  weights of Qwen3-VL-2B's shape that write moves in tags. It has a quarter of the tasks, two
  training steps and no panels.
- `adapter`: an adapter and a critic of a small Qwen3-VL, on a smaller Sokoban.

Then it prints what the stores hold of each run, and when it began each stage before its first
training step. A run that is not over after `--seconds` is stopped, and what it stored by then is
printed. `--tiny` trains a model of 0.4 million parameters on
the CPU, and less: it tries the program, and its figures mean nothing.
"""

import argparse
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoTokenizer

from longhaul_trainer.models.folder import MESSAGE_END
from longhaul_trainer.models.tiny import favour
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model

CONFIGS = Path(__file__).parents[1] / "configs"
TRAINER = str(Path(sys.executable).with_name("trainer"))
STOP_SECONDS = 20
"""For a run that is stopped to end by itself."""

MOVES = tuple(f"</think><action>{move}</action>" for move in ("up", "down", "left", "right"))
MOVE_CHANCE, END_CHANCE = 0.02, 0.01
"""Of each move, and of the end, at each token: replies of 100 tokens, most of them valid."""
UNKNOWN = 1e-6
"""How likely next to others are tokens of the embedding that the tokenizer has not."""
QUIET = 1e-3
"""Factor of what layers add, so that a random model's tokens keep their chances."""

SIZES: Mapping[str, Mapping[str, Any]] = {
    "text_config": {
        "vocab_size": 151_936,
        "hidden_size": 2_048,
        "intermediate_size": 6_144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5_000_000,
            "mrope_section": [24, 20, 20],
            "mrope_interleaved": True,
        },
    },
    "vision_config": {
        "depth": 24,
        "hidden_size": 1_024,
        "intermediate_size": 4_096,
        "num_heads": 16,
        "num_position_embeddings": 2_304,
        "out_hidden_size": 2_048,
        "deepstack_visual_indexes": [5, 11, 17],
    },
}
"""Of Qwen3-VL-2B. Source: config.json of Qwen/Qwen3-VL-2B-Instruct."""

PICTURES = (
    str(CONFIGS / "recipes" / "gigpo.toml"),
    str(CONFIGS / "environments" / "sokoban-vision.toml"),
    str(CONFIGS / "machines" / "qwen2.5-1.5b-1x80gb.toml"),
    "name=pictures",
    "model.path=model",
    "num_training_steps=2",
    "tasks_per_training_step=8",
    "optimizer.optimizer_steps_per_training_step=8",
    "rollout.concurrent_episodes=64",
    "environment.num_workers=64",
    "engine.gpu_memory_utilization=0.35",
    "engine.max_sequences=64",
    "validation.num_tasks=0",
    "validation.test_num_tasks=0",
    "checkpoint.every=2",
    "checkpoint.optimizer=false",
)
SMALL_PICTURES = (
    'environment.options={size=5, min_pushes=1, step_penalty=0.01, observation="image"}',
    "num_training_steps=2",
    "tasks_per_training_step=4",
    "rollout.max_prompt_tokens=1024",
    'memory.kind="full"',
    'optimizer.rows="merged"',
    "optimizer.micro_batch_tokens=8192",
    "validation.num_tasks=2",
    "validation.test_num_tasks=2",
    "checkpoint.every=2",
    "model.lora_rank=4",
    'algorithm.name="gae"',
    "critic.learning_rate=1e-3",
)
"""Over the smoke run: several pictures in a row, an adapter and a critic."""
ADAPTER = (
    str(CONFIGS / "smoke.toml"),
    "name=adapter",
    "model.path=model",
    "resources.device=gpu",
    "model.engine_dtype=bfloat16",
    "engine.gpu_memory_utilization=0.05",
    *SMALL_PICTURES,
)
CHAIN = (
    str(CONFIGS / "long" / "key_door.toml"),
    "resources.device=gpu",
    "model.engine_dtype=bfloat16",
    "engine.gpu_memory_utilization=0.05",
)
RUNS: Mapping[str, Sequence[str]] = {"chain": CHAIN, "pictures": PICTURES, "adapter": ADAPTER}
TINY: Mapping[str, Sequence[str]] = {
    "pictures": (
        "resources.device=cpu",
        "model.engine_dtype=float32",
        "tasks_per_training_step=2",
        "rollout.group_size=2",
        "rollout.max_reply_tokens=48",
        "optimizer.optimizer_steps_per_training_step=2",
        "engine.memory_gib=0.5",
    ),
    "adapter": ("resources.device=cpu", "model.engine_dtype=float32"),
    "chain": (
        "resources.device=cpu",
        "model.engine_dtype=float32",
        "num_training_steps=2",
        "tasks_per_training_step=2",
        "warm_start.demonstrations=8",
        "warm_start.settings=['num_training_steps=2', 'tasks_per_training_step=4']",
        "checkpoint.every=2",
        "validation.num_tasks=4",
        "validation.test_num_tasks=4",
    ),
}


class Started(NamedTuple):
    """A command at work in its folder."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]


def main() -> None:
    """Train, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=RUNS)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--skip-doctor", action="store_true", help="handed on to trainer train")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else [*RUNS]
    limit = time.monotonic() + arguments.seconds
    if not arguments.tiny:
        print(f"GPU: {', '.join(gpu_values('name', 'memory.total', 'driver_version'))}")
    options = ["--skip-doctor"] if arguments.skip_doctor else []
    started: list[Started] = []
    try:
        for name in names:
            folder = arguments.folder / name
            started.append(begin(name, folder, options, tiny=arguments.tiny))
        peak_mib = wait(started, limit=limit, measures_gpu=not arguments.tiny)
    finally:
        for run in started:
            stop(run)
    if not arguments.tiny:
        print(f"most memory of the GPU, all processes: {peak_mib / 1024:.1f} GiB")
    for run in started:
        print(f"\n{run.name}: ended with {run.process.returncode}")
        report(run.folder)


def begin(name: str, folder: Path, options: Sequence[str], *, tiny: bool) -> Started:
    """Start a training with these options; its output is `output.log` in its folder."""
    folder.mkdir(parents=True)
    words = list(RUNS[name])
    if name != "chain":
        in_a_process(write_picture_model, folder / "model", tiny or name == "adapter")
    if tiny:
        words += TINY[name]
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [TRAINER, "train", *options, *words],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Started(name, folder, process)


def in_a_process(function: Any, *arguments: object) -> None:  # noqa: ANN401  any function
    """Call a function in a process of its own, which leaves nothing on the GPU."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{function.__name__} ended with {process.exitcode}")


def write_picture_model(folder: Path, tiny: bool) -> None:
    """Write a random Qwen3-VL as a Hugging Face folder, weights in bfloat16.

    Args:
        folder: Made here.
        tiny: Of 0.4 million parameters, and not of Qwen3-VL-2B's 2.1 billion.
    """
    folder.mkdir()
    write_tiny_vision_model(folder, family="qwen3_vl")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(MOVES))
    tokenizer.save_pretrained(folder)
    sizes = {"text_config": {"vocab_size": len(tokenizer)}} if tiny else SIZES
    of_transformers: Any = AutoModelForImageTextToText
    with torch.device("cuda" if torch.cuda.is_available() and not tiny else "cpu"):
        torch.manual_seed(0)
        model: Any = of_transformers.from_config(picture_config(folder, sizes), dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight *= QUIET
    embedding = model.get_input_embeddings().weight.data.mul_(0.1).cpu()
    favour({"model.embed_tokens.weight": embedding}, chances(tokenizer, len(embedding)))
    model.get_input_embeddings().weight.data.copy_(embedding)
    model.to(torch.bfloat16).save_pretrained(folder)


def picture_config(folder: Path, sizes: Mapping[str, Mapping[str, Any]]) -> Any:  # noqa: ANN401  a class a family
    """The configuration of a folder's model with other sizes, by its parts and their settings."""
    config: Any = AutoConfig.from_pretrained(folder)
    for part, values in sizes.items():
        for name, value in values.items():
            setattr(getattr(config, part), name, value)
    return config


def chances(tokenizer: Any, vocabulary_size: int) -> dict[int, float]:  # noqa: ANN401  transformers'
    """How many times as likely as another token those are that are not like the others."""
    known = len(tokenizer)
    likely = dict.fromkeys(MOVES, MOVE_CHANCE) | {MESSAGE_END: END_CHANCE}
    return dict.fromkeys(range(known, vocabulary_size), UNKNOWN) | {
        tokenizer.convert_tokens_to_ids(word): chance * known for word, chance in likely.items()
    }


def wait(started: Sequence[Started], *, limit: float, measures_gpu: bool) -> float:
    """Wait for the runs, stop those that are late, and measure.

    Args:
        started: The runs.
        limit: When to stop them, by `time.monotonic`.
        measures_gpu: Whether there is one.

    Returns:
        Most memory of the GPU in use at any second, in MiB.
    """
    peak_mib = 0.0
    for run in started:
        while not ended_within(run.process, 1.0):
            if measures_gpu:
                peak_mib = max(peak_mib, float(gpu_values("memory.used")[0].split()[0]))
            if time.monotonic() > limit:
                print(f"{run.name} is late, and stopped")
                stop(run)
    return peak_mib


def ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end of a process, but not for longer than that."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def stop(run: Started) -> None:
    """End a run that is at work as Ctrl-C does, and kill it where it does not end."""
    if run.process.poll() is not None:
        return
    os.killpg(run.process.pid, signal.SIGINT)
    if not ended_within(run.process, STOP_SECONDS):
        os.killpg(run.process.pid, signal.SIGKILL)


def gpu_values(*names: str) -> list[str]:
    """What the driver says of the first GPU."""
    answer = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [value.strip() for value in answer.stdout.splitlines()[0].split(",")]


TIMERS = {
    "play": ("gen",),
    "log-probabilities and values": ("old_log_prob", "ref", "values"),
    "update": ("update_actor", "update_critic"),
    "weight sync": ("update_weights",),
}
"""verl's timers of a training step, by what they are printed as."""


def report(folder: Path) -> None:
    """Print the figures of each run in a folder's store, and audit it."""
    store = folder / "longhaul.db"
    if not store.exists():
        print((folder / "output.log").read_text("utf-8", errors="replace"))
        return
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    runs = connection.execute("SELECT id, kind, status FROM runs ORDER BY started_at").fetchall()
    for run_id, kind, status in runs:
        print(f"{run_id} ({kind}): {status}")
        if kind != "demonstrate":
            report_stages(folder / "runs" / run_id / "logs" / "longhaul.log")
            report_run(connection, run_id)
            audit = subprocess.run(
                [TRAINER, "audit", run_id], cwd=folder, capture_output=True, text=True, check=False
            )
            print(f"  audit, exit code {audit.returncode}: {last_line(audit.stdout)}")
    connection.close()


def last_line(text: str) -> str:
    """Of a command's output."""
    return text.strip().rpartition("\n")[2]


def report_stages(log: Path) -> None:
    """Print when the run began what it does before its first training step."""
    for line in log.read_text("utf-8").splitlines():
        at, _, stage = line.partition("training step 0: ")
        if stage:
            print(f"  {at[11:19]} {stage}")


def report_run(connection: sqlite3.Connection, run_id: str) -> None:
    """Print speed, shares of time, agreement, memory and success of one run."""
    metrics: dict[str, list[float]] = {}
    for name, value in connection.execute(
        "SELECT name, value FROM metrics WHERE run_id = ? ORDER BY training_step", (run_id,)
    ):
        metrics.setdefault(name, []).append(value)
    seconds = metrics.get("timing_s/step", [])
    if not seconds:
        print("  no training step was over")
        return
    whole = sum(seconds)
    episodes, steps, prompt, reply = connection.execute(
        "SELECT count(*), sum(num_steps), sum(num_prompt_tokens), sum(num_action_tokens) "
        "FROM episodes WHERE run_id = ? AND phase = 'train' AND trained",
        (run_id,),
    ).fetchone()
    played = sum(metrics.get("timing_s/gen", []))
    print(f"  training steps: {', '.join(f'{value:.1f}' for value in seconds)} s")
    print(f"  episodes an hour: {3600 * episodes / whole:,.0f}; steps: {3600 * steps / whole:,.0f}")
    print(
        f"  tokens a second of play: {prompt / played:,.0f} of prompts, {reply / played:,.0f} of "
        f"replies; {reply / steps:.0f} a reply"
    )
    shares = {
        label: sum(sum(metrics.get(f"timing_s/{name}", [])) for name in names) / whole
        for label, names in TIMERS.items()
    }
    shares["rest"] = 1 - sum(shares.values())
    print(f"  time: {', '.join(f'{label} {share:.0%}' for label, share in shares.items())}")
    for name in ("agreement/logprob_difference_mean", "actor/grad_norm"):
        if name in metrics:
            print(f"  {name}: {', '.join(f'{value:.2g}' for value in metrics[name])}")
    most = max(metrics.get("actor/perf/max_memory_reserved_gb", [0.0]))
    print(f"  most memory that the learner reserved: {most:.1f} GiB")
    for step, split, success, count in connection.execute(
        "SELECT training_step, phase, avg(success), count(*) FROM episodes WHERE run_id = ? "
        "AND phase IN ('validation', 'test') GROUP BY 2, 1 ORDER BY 2, 1",
        (run_id,),
    ):
        print(f"  success, {split}, training step {step}: {success:.0%} of {count}")


if __name__ == "__main__":
    main()
