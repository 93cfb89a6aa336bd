"""Seeds that every sampled token can be traced to.

A seed is a hash of the numbers that name the draw, so it depends on no order in which
episodes happened to run, on no machine and on no Python hash. Seeds stay below 2**53:
JSON readers and every SQL integer of 64 bits carry them exactly.
"""

import hashlib

__all__ = ["call_seed", "continuation_seed", "episode_seed", "retry_seed", "step_seed"]

_SEED_BITS = 53


def episode_seed(
    run_seed: int, *, training_step: int, group_index: int, sample_index: int, phase: str = "train"
) -> int:
    """The seed of one episode's sampling, in [0, 2**53).

    Args:
        run_seed: Chosen by the user.
        training_step: The training step that the episode is played for.
        group_index: Which group of that training step, from 0.
        sample_index: Place in the group, from 0.
        phase: Keeps validation and test episodes of the same step apart from training's.
    """
    return _hashed("episode", phase, run_seed, training_step, group_index, sample_index)


def retry_seed(episode_seed: int, *, retry: int) -> int:
    """The seed of an episode's `retry`-th repetition, in [0, 2**53).

    It differs from the first one: a failure that the sampled actions brought about
    would come back with the same actions.
    """
    return episode_seed if retry == 0 else _hashed("retry", episode_seed, retry)


def step_seed(episode_seed: int, *, step_index: int) -> int:
    """The seed of a step, and of the reply of its first call, in [0, 2**53)."""
    return _hashed("step", episode_seed, step_index)


def call_seed(step_seed: int, *, call_index: int) -> int:
    """The seed of the reply of a step's `call_index`-th call, from 0, in [0, 2**53)."""
    return step_seed if call_index == 0 else _hashed("call", step_seed, call_index)


def continuation_seed(step_seed: int, *, num_tokens: int) -> int:
    """The seed of what a reply still has to come, in [0, 2**53).

    Args:
        step_seed: Of the reply.
        num_tokens: What the engine reads before it goes on: the prompt, and the reply so far.
    """
    return _hashed("continuation", step_seed, num_tokens)


def _hashed(*parts: str | int) -> int:
    name = "/".join(str(part) for part in parts)
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> (64 - _SEED_BITS)
