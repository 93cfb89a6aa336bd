"""What `buffer.py`, `filtering.py`, `modes.py` and `weight_transfer.py` take for granted of V1."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

BUFFER_HOOKS = {
    "_materialize_batch": ["partition_id", "selected_prompt_uids", "partition_snapshot"],
    "_terminal_eviction_reasons": ["global_steps", "partition_id"],
    "_evict_terminal_groups": ["global_steps", "partition_id", "eviction_reasons"],
    "_has_enough_samples": ["global_steps", "partition_id", "batch_size", "sampleable_keys"],
    "_select_prompt_uids": ["partition_id", "sampleable_keys", "batch_size"],
}


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize("name", BUFFER_HOOKS)
def test_the_buffer_decides_by_what_ours_overrides(name: str) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

    from longhaul_trainer.verl.buffer import AsyncGroupBuffer
    from longhaul_trainer.verl.filtering import FilteringBuffer

    assert parameters(getattr(ReplayBufferAsync, name)) == BUFFER_HOOKS[name]
    assert parameters(getattr(AsyncGroupBuffer, name)) == BUFFER_HOOKS[name]
    assert parameters(getattr(FilteringBuffer, name)) == BUFFER_HOOKS[name]
    text = inspect.getsource(ReplayBufferAsync.sample) + inspect.getsource(
        ReplayBufferAsync.wait_for_sampleable
    )
    assert f"self.{name}(" in text


def test_a_group_is_stale_by_the_training_steps_that_it_spans() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

    text = inspect.getsource(ReplayBufferAsync._stale_terminal_keys)
    expected = "global_steps - prompt_global_steps.get(uid, global_steps) + 1 > "
    assert f"{expected}self.max_off_policy_threshold" in text


def test_one_task_is_asked_for_in_the_place_of_each_group_that_eviction_returns() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

    text = inspect.getsource(ReplayBufferAsync.wait_for_sampleable)
    assert "self.refill_fn(len(evicted_uids))" in text
    assert text.count("refill_fn(") == 1
    for function in (
        ReplayBufferAsync._sampleable_terminal_keys,
        ReplayBufferAsync._evict_terminal_groups,
    ):
        source = inspect.getsource(function)
        assert "= eviction_reasons" in source
        assert source.index("stale_uids, dapo_uids, failed_uids") < source.index("= eviction_r")
    assert parameters(ReplayBufferAsync._clear_groups) == ["partition_id", "uids"]


def test_each_trainer_is_its_mode_of_verls() -> None:
    from verl.trainer.ppo.v1.trainer_base import get_trainer_cls

    from longhaul_trainer.verl.modes import TRAINERS
    from longhaul_trainer.verl.trainer import LonghaulTrainer

    assert TRAINERS.keys() == {"sync", "colocate_async", "separate_async"}
    for mode, trainer in TRAINERS.items():
        theirs = get_trainer_cls(mode)
        assert issubclass(trainer, theirs)
        # ours comes first, so that what is trained is ours in every mode
        assert trainer.__mro__.index(LonghaulTrainer) < trainer.__mro__.index(theirs)
        for hook in ("on_init_end", "on_step_end", "on_sample_end"):
            assert hook in vars(theirs) or mode == "separate_async"
            assert f"super().{hook}()" in inspect.getsource(getattr(LonghaulTrainer, hook))


def test_playing_ahead_asks_for_tasks_through_our_own_batches() -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    assert "self._next_train_batch(num_prompts)" in inspect.getsource(
        PPOTrainer._add_prompts_to_generate
    )
    assert "self._add_prompts_to_generate(missing_prompts)" in inspect.getsource(
        PPOTrainer._add_async_warmup_batches
    )
    assert '"global_steps": self.global_steps' in inspect.getsource(
        PPOTrainer._submit_batch_to_rollout
    )


def test_a_reply_says_which_weights_sampled_its_first_token() -> None:
    from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

    for client in (FullyAsyncLLMServerClient, LLMServerClient):
        assert "min_global_steps" in inspect.getsource(client.generate)


def test_a_reply_that_was_interrupted_is_asked_for_anew_with_the_same_parameters() -> None:
    """What `client` puts a seed of its own into, one request after the other."""
    from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient

    text = inspect.getsource(FullyAsyncLLMServerClient.generate)
    assert "await super().generate(" in text
    assert "prompt_ids=prompt_ids + final_output.token_ids" in text


def test_the_separate_learner_would_save_and_restore_weights_for_its_old_logprobs() -> None:
    from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

    theirs = PPOTrainerSeparateAsync._compute_old_log_prob
    assert parameters(theirs) == ["batch", "metrics"]
    assert "save_model_to_cpu" in inspect.getsource(theirs)


def test_weights_travel_by_the_steps_that_ours_has() -> None:
    from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry

    from longhaul_trainer.verl.weight_transfer import BACKEND, TcpCheckpointEngine

    assert CheckpointEngineRegistry.get(BACKEND) is TcpCheckpointEngine
    manager: Any = CheckpointEngineManager
    text = inspect.getsource(manager.build_process_group) + inspect.getsource(manager)
    for method in ("prepare", "init_process_group", "finalize"):
        assert f'["{method}"]' in text
    assert not inspect.isabstract(TcpCheckpointEngine)
