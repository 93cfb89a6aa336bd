"""How long a training step takes on GPUs, from a run's own numbers. An estimate, as a range.

The upper end takes every episode at its limits: all steps of the horizon, the longest prompts and
replies. The lower end takes `TYPICAL_STEPS` of the steps and `TYPICAL_LENGTH` of the tokens, and a
learner that uses more of a GPU. Environments, validation, checkpoints, weight sync and credit are
not counted.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from longhaul_trainer.config import RunConfig
from longhaul_trainer.preflight.resources.model_size import ModelSize
from longhaul_trainer.verl.composed import Composed
from longhaul_trainer.verl.queue_rows import TRAINED_CALLS


class Speed(NamedTuple):
    """What a GPU can do at best."""

    flops: float
    """Operations a second in dense bfloat16."""
    bytes: float
    """Of its memory that it reads a second."""


TERA = 1e12
SPEEDS = {
    "B200": Speed(2250 * TERA, 8.0 * TERA),
    "H200": Speed(989 * TERA, 4.8 * TERA),
    "H100 PCIe": Speed(756 * TERA, 2.0 * TERA),
    "H100": Speed(989 * TERA, 3.35 * TERA),
    "A100": Speed(312 * TERA, 2.0 * TERA),
    "A10": Speed(125 * TERA, 0.6 * TERA),
    "L40S": Speed(362 * TERA, 0.86 * TERA),
    "L40": Speed(181 * TERA, 0.86 * TERA),
    "L4": Speed(121 * TERA, 0.3 * TERA),
    "RTX 4090": Speed(165 * TERA, 1.01 * TERA),
    "RTX 3090": Speed(71 * TERA, 0.94 * TERA),
}
"""By a part of the driver's name of a GPU that no digit follows; the first that fits. From NVIDIA's
data sheets."""

ASSUMED = "H100"
"""Where this machine has no GPU, or one that is not in the table."""

USED_FLOPS = (0.40, 0.25)
"""Share of a GPU's operations that training and reading prompts reach, at best and at worst."""
USED_BYTES = 0.6
"""Share of its memory's speed that decoding reaches."""
PASS_SECONDS = 0.005
"""Of each of the engine's passes, besides the card's work: scheduling, sampling, the way back."""
TYPICAL_STEPS, TYPICAL_LENGTH = 0.6, 0.35
"""Of the limits. Of GiGPO's runs on ALFWorld: 3,840 rows of 6,400, of 900 tokens of 2,560."""

Range = tuple[float, float]
"""From, to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Of one training step, each as a range."""

    gpu: str
    """Its name in `SPEEDS`."""
    assumed: bool
    """Whether that GPU is none of this machine's."""
    learned_tokens: Range
    """That pass through the learner."""
    play_seconds: Range
    learn_seconds: Range
    in_turns: bool
    """Whether playing and learning take turns on the same GPUs."""

    @property
    def seconds(self) -> Range:
        """Of the training step: the sum, or where both go on at once the longer of the two."""
        pairs = zip(self.play_seconds, self.learn_seconds, strict=True)
        low, high = (play + learn if self.in_turns else max(play, learn) for play, learn in pairs)
        return low, high


class Tokens(NamedTuple):
    """Of a training step."""

    read: float
    """That the engine reads as prompts and did not know."""
    written: float
    learned: float
    prompt: float
    """Of one call."""
    reply: float
    """Of one call."""


End = tuple[Tokens, float]
"""One end of the range: its tokens, and the share of a GPU's operations that is used."""


def step_time(
    run: RunConfig,
    composed: Composed,
    size: ModelSize,
    critic: ModelSize | None,
    *,
    gpu: str | None,
) -> StepTime:
    """Estimate a training step on GPUs.

    Args:
        run: The run.
        composed: Its settings of verl.
        size: Of the policy.
        critic: Of the critic; None without one.
        gpu: The driver's name of the GPU; None where there is none.
    """
    name = None if gpu is None else known_gpu(gpu)
    speed = SPEEDS[name or ASSUMED]
    typical = tokens_of(run, steps=TYPICAL_STEPS, length=TYPICAL_LENGTH)
    longest = tokens_of(run, steps=1.0, length=1.0)
    waves = 1 + (run.sampling.max_refills if run.sampling.dynamic else 0)
    ends = list(zip((typical, longest), USED_FLOPS, strict=True))
    play = [_play_seconds(run, composed, size, speed, end) for end in ends]
    learn = [_learn_seconds(composed, (size, critic), speed, end) for end in ends]
    return StepTime(
        gpu=name or ASSUMED,
        assumed=name is None,
        learned_tokens=(typical.learned, longest.learned),
        play_seconds=(play[0], waves * play[1]),
        learn_seconds=(learn[0], learn[1]),
        in_turns=not composed.engine_is_apart,
    )


def known_gpu(name: str) -> str | None:
    """Which of `SPEEDS` a GPU is, by the driver's name of it; None for none of them."""
    return next((known for known in SPEEDS if re.search(rf"{known}(?!\d)", name)), None)


def tokens_of(run: RunConfig, *, steps: float, length: float) -> Tokens:
    """Tokens of a training step.

    Each call reads its prompt, of which a full history knows all but its last exchange: there an
    episode reads the longest prompt once. The learner reads each trained call with its prompt, or
    where calls share a row (`optimizer.rows = "merged"`) the longest call of each episode.

    Args:
        run: The run.
        steps: Share of the horizon that an episode uses.
        length: Share of the longest prompt and reply.
    """
    rollout = run.rollout
    groups = run.tasks_per_training_step + run.sampling.extra_tasks
    trained = run.tasks_per_training_step * rollout.group_size
    played = groups * run.episodes_of_a_group
    calls = TRAINED_CALLS.get(run.agent.kind, 1) * rollout.horizon * steps
    prompt, reply = rollout.max_prompt_tokens * length, rollout.max_reply_tokens * length
    budget = run.rollout.max_episode_tokens
    if budget is not None:
        calls = min(calls, budget / (prompt + reply))
    grows = all(entry.memory.kind == "full" for entry in run.played_environments)
    merged = run.optimizer.rows == "merged"
    return Tokens(
        read=played * prompt * (1 if grows else calls),
        written=played * reply * calls,
        learned=trained * (prompt + reply) * (1 if merged else calls),
        prompt=prompt,
        reply=reply,
    )


def operations_of_a_token(size: ModelSize, *, attended_tokens: float, passes: float) -> float:
    """Operations that `passes` forward passes take for one token of a row.

    Two for each parameter that it is multiplied with; and four for each number of the hidden size,
    each layer and each token that attention multiplies it with: once for their weights, and once
    with them.

    Args:
        size: Of the model.
        attended_tokens: With how many tokens attention multiplies one, on average.
        passes: See `passes_of_an_update`.
    """
    attention = 4 * size.num_layers * size.hidden_size * attended_tokens
    return passes * (2 * size.multiplied_parameters + attention)


def attended_tokens(composed: Composed, row_tokens: float) -> float:
    """With how many tokens the learner's attention multiplies one, on average.

    FlashAttention takes those before it in its row, half of them on average. SDPA takes all of
    the micro-batch, and leaves out by a mask what it then has computed.
    """
    return composed.micro_batch_tokens if composed.masked_attention else row_tokens / 2


def passes_of_an_update(composed: Composed) -> float:
    """Forward passes' worth of work by which a token is learned.

    One for its old logprobs, one for the reference's, one forward, and two backward: of an adapter
    one, since the base gets no gradient. Checkpoints compute the forward pass again.
    """
    backward = 1 if composed.lora_rank else 2
    again = 1 if composed.gradient_checkpointing else 0
    reference = 1 if composed.has_reference else 0
    return 1 + reference + 1 + backward + again


def _learn_seconds(
    composed: Composed,
    models: tuple[ModelSize, ModelSize | None],
    speed: Speed,
    end: End,
) -> float:
    (size, critic), (tokens, share) = models, end
    attended = attended_tokens(composed, tokens.prompt + tokens.reply)
    operations = operations_of_a_token(
        size, attended_tokens=attended, passes=passes_of_an_update(composed)
    )
    if critic is not None:
        passes = 4 + (1 if composed.critic_checkpointing else 0)  # its values, and an update
        operations += operations_of_a_token(critic, attended_tokens=attended, passes=passes)
    return tokens.learned * operations / (composed.num_workers * _flops(composed, speed) * share)


def _play_seconds(
    run: RunConfig, composed: Composed, size: ModelSize, speed: Speed, end: End
) -> float:
    """Reading prompts, and writing replies token by token.

    Each of the engine's passes writes a token of every episode in flight; it reads all weights, and
    the keys and values of those episodes. Episodes that are not in flight wait for others.
    """
    tokens, share = end
    gpus = composed.num_engine_workers or composed.num_workers
    reading = tokens.read * operations_of_a_token(size, attended_tokens=tokens.prompt / 2, passes=1)
    reading /= gpus * _flops(composed, speed) * share
    at_once = min(
        (run.tasks_per_training_step + run.sampling.extra_tasks) * run.episodes_of_a_group,
        run.rollout.concurrent_episodes,
        sum(entry.num_workers for entry in run.played_environments),
        run.engine.max_sequences * gpus // composed.tensor_parallel_size,
    )
    of_a_token = 2 * composed.engine_bytes * size.num_layers * size.key_value_width
    in_an_engine = at_once * composed.tensor_parallel_size / gpus
    cached = of_a_token * (tokens.prompt + tokens.reply) * in_an_engine
    read_bytes = composed.engine_bytes * size.num_parameters + cached
    one_pass = read_bytes / (composed.tensor_parallel_size * speed.bytes * USED_BYTES)
    return reading + tokens.written / at_once * (one_pass + PASS_SECONDS)


def _flops(composed: Composed, speed: Speed) -> float:
    """In float32 tensor cores do half as much."""
    return speed.flops / (2 if composed.compute_bytes == 4 else 1)
