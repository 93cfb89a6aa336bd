"""The surface of verl that we stand on, pinned name by name.

A failure here says what a new verl has changed, before a training run finds out. Each test
names who of ours depends on it.
"""

import ast
import dataclasses
import importlib
import inspect
import math
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import pytest

from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


LEFT_OUT = ("self", "cls", "_ray_trace_ctx")


def parameters(function: Callable[..., object]) -> list[str]:
    """Names of the parameters, `*` and `**` shown.

    `self` is left out, and so is what Ray adds to a class that another test makes an actor of.
    """
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = inspect.signature(function).parameters.values()
    return [marks.get(p.kind, "") + p.name for p in found if p.name not in LEFT_OUT]


def source(thing: object) -> str:
    assert inspect.isclass(thing) or callable(thing)
    return inspect.getsource(thing)


def test_the_versions_are_those_that_were_read() -> None:
    assert version("verl") == "0.9.1"
    assert version("ray").startswith("2.60.")


# verl/plugin.py, verl/cpu/platform.py


def test_verl_finds_our_plugin_and_took_the_cpu_for_its_platform() -> None:
    import verl
    from verl.plugin.platform import get_platform
    from verl.plugin.platform.platform_manager import PlatformRegistry

    from longhaul_trainer.verl.cpu.platform import CpuPlatform

    (ours,) = [point for point in entry_points(group="verl.plugins") if point.name == "longhaul"]
    assert ours.value == "longhaul_trainer.verl.plugin:register"
    assert '_entry_points(group="verl.plugins")' in inspect.getsource(verl)
    assert PlatformRegistry.get("cpu") is CpuPlatform
    assert get_platform().device_name == "cpu"


def test_the_platform_answers_everything_that_verl_asks_of_one() -> None:
    from verl.plugin.platform.platform_base import PlatformBase

    from longhaul_trainer.verl.cpu.platform import CpuPlatform

    asked: frozenset[str] = getattr(PlatformBase, "__abstractmethods__")  # noqa: B009
    assert not getattr(CpuPlatform, "__abstractmethods__")  # noqa: B009
    assert "set_device" in asked  # a method, whose parameters are compared
    for name in asked:
        theirs, ours = getattr(PlatformBase, name), getattr(CpuPlatform, name)
        if callable(theirs):
            assert parameters(ours) == parameters(theirs), name
    # not abstract, but overridden
    assert parameters(PlatformBase.rollout_env_vars) == parameters(CpuPlatform.rollout_env_vars)


@pytest.mark.parametrize(
    ("resources", "enough"),
    [({"CPU": 16.0, "GPU": 2.0}, True), ({"CPU": 16.0, "NPU": 2.0}, True), ({"CPU": 16.0}, False)],
)
def test_pools_count_gpus_and_npus_only(
    resources: dict[str, float], *, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why the CPU's worker goes by the name of a GPU."""
    from ray._private import state
    from verl.single_controller.ray.base import ResourcePoolManager

    monkeypatch.setattr(state, "available_resources_per_node", lambda: {"a node": resources})
    pools = ResourcePoolManager(resource_pool_spec={"pool": [2]}, mapping={})

    with nullcontext() if enough else pytest.raises(ValueError, match="Total available GPUs 0"):
        pools._check_resource_available()


# verl/cpu/learner.py, verl/cpu/worker.py


def test_engines_are_chosen_by_device_and_ours_is_the_one_for_cpus() -> None:
    from verl.workers.engine.base import EngineRegistry

    from longhaul_trainer.verl.cpu.learner import ResponseLogitsEngine

    for backend in ("fsdp", "fsdp2"):
        assert EngineRegistry.get_engine_cls("language_model", backend) is ResponseLogitsEngine
    assert "VERL_ENGINE_DEVICE" in source(EngineRegistry.get_engine_cls)


def test_our_engine_overrides_what_the_forward_step_calls() -> None:
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    from longhaul_trainer.verl.cpu.learner import ResponseLogitsEngine

    for name in ("prepare_model_inputs", "prepare_model_outputs"):
        theirs, ours = (
            getattr(kind, name) for kind in (FSDPEngineWithLMHead, ResponseLogitsEngine)
        )
        assert parameters(ours) == parameters(theirs)
        assert f"self.{name}(" in source(FSDPEngineWithLMHead)
    # precision is FSDP2's alone, so ours sets the dtype of autocast after the module is built
    engine: Any = FSDPEngineWithLMHead
    assert parameters(engine._build_fsdp_module) == ["module"]
    assert "self._autocast_dtype" in source(engine.forward_step)
    # and it rounds adapters that are merged for the engine
    assert parameters(engine._merged_lora_per_tensor_param) == []
    assert "return self._merged_lora_per_tensor_param(), None" in source(
        engine.get_per_tensor_param
    )


def test_the_worker_is_made_as_before_and_leaves_a_process_group_alone() -> None:
    from verl.utils.distributed import initialize_global_process_group_ray
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

    expected = ["config", "role", "distillation_config", "**kwargs"]
    assert parameters(ActorRolloutRefWorker.__init__) == expected
    assert parameters(initialize_global_process_group_ray) == ["timeout_second", "backend"]
    assert "is_initialized()" in source(initialize_global_process_group_ray)
    assert "initialize_global_process_group_ray" in source(TrainingWorker.__init__)


# verl/trainer.py

HOOKS = {
    "_init_dataloader": [],
    "_build_replay_buffer": [],
    "_next_train_batch": ["num_prompts"],
    "_init_resource_pool_mgr": [],
    "_setup": [],
    "prepare_step": [],
    "step": ["metrics", "timing_raw"],
    "on_init_end": [],
    "on_step_begin": [],
    "on_sample_end": [],
    "on_step_end": [],
    "_balance_batch": ["batch", "metrics", "logging_prefix", "keep_minibatch"],
    "_compute_ref_log_prob": ["batch", "metrics"],
    "_compute_old_log_prob": ["batch", "metrics"],
    "_compute_values": ["batch", "metrics"],
    "_compute_advantage": ["batch", "metrics"],
    "_update_critic": ["batch", "metrics"],
    "_update_actor": ["batch", "metrics"],
    "_compute_metrics": ["batch", "metrics", "timing_raw", "global_steps", "epoch"],
    "_validate": [],
    "_save_checkpoint": [],
    "_load_checkpoint": [],
}
"""Methods of verl's trainer that ours overrides, and their parameters."""


@pytest.mark.parametrize("name", HOOKS)
def test_what_our_trainer_overrides_is_still_called_so(name: str) -> None:
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from longhaul_trainer.verl.trainer import LonghaulTrainer

    assert parameters(getattr(PPOTrainerSync, name)) == HOOKS[name]
    assert parameters(getattr(LonghaulTrainer, name)) == HOOKS[name]
    assert name in vars(LonghaulTrainer)


def test_nothing_is_overridden_that_is_not_pinned_here() -> None:
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from longhaul_trainer.verl.trainer import LonghaulTrainer

    functions = {name for name, value in vars(LonghaulTrainer).items() if inspect.isfunction(value)}
    overridden = {name for name in functions if hasattr(PPOTrainerSync, name)}
    assert overridden - {"__init__"} == set(HOOKS)


def test_a_training_step_calls_the_hooks_in_the_order_that_ours_count_on() -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    text = source(PPOTrainer._step_once)
    calls = [
        "self.replay_buffer.sample(",
        "self.on_sample_end()",
        "self._balance_batch(",
        "self._compute_old_log_prob(",
        "self._compute_ref_log_prob(",
        "self._compute_values(",
        "self._compute_advantage(",
        "self._update_critic(",
        "self._update_actor(",
    ]
    places = [text.index(call) for call in calls]
    assert places == sorted(places)


def test_the_pass_for_old_logprobs_computes_the_entropy_of_every_token() -> None:
    """`LonghaulTrainer._compute_advantage` reads it from the queue, and asks for no pass."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    text = source(PPOTrainer._compute_old_log_prob)
    assert '"calculate_entropy": True' in text
    assert 'response_from_nested(data.pop("entropy"), data["response_mask"])' in text
    assert 'fields=data.select("old_log_probs", "entropy")' in text


def test_entropy_is_of_the_whole_vocabulary_and_in_nats() -> None:
    import torch
    from verl.utils.torch_functional import entropy_from_logits

    # Probabilities 1/2, 1/4, 1/8, 1/8: 1/2 ln 2 + 1/4 ln 4 + 2 · 1/8 ln 8 = 7/4 ln 2; one of four
    # for certain; four alike: ln 4. A constant added to all logits changes nothing.
    logits = torch.tensor([[8.0, 4, 2, 2], [1, 0, 0, 0], [3, 3, 3, 3]]).log().clamp(min=-1e4) + 5
    expected = [1.75 * math.log(2), 0.0, math.log(4)]
    assert entropy_from_logits(logits).tolist() == pytest.approx(expected, abs=1e-6)


def test_the_reference_s_pass_leaves_its_word_on_adapters_in_the_batch() -> None:
    """`LonghaulTrainer._compute_ref_log_prob` takes it out; it may go when verl does so."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    text = source(PPOTrainer._compute_ref_log_prob)
    assert text.count("no_lora_adapter") == 1
    assert text.index('metadata["no_lora_adapter"] = True') < text.index("extra_info.update(")


def test_the_trainer_has_what_ours_reads() -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    text = source(PPOTrainer)
    for attribute in (
        "actor_rollout_wg",
        "agent_loop_manager",
        "checkpoint_manager",
        "global_steps",
        "replay_buffer",
        "role_worker_mapping",
        "steps_per_epoch",
        "tokenizer",
        "total_training_steps",
        "train_dataloader",
    ):
        assert f"self.{attribute}" in text, attribute
    for getter in ("get_llm_client", "get_teacher_client", "get_reward_handles"):
        assert parameters(getattr(PPOTrainer, getter)) == []
    assert parameters(PPOTrainer.fit) == ["agent_loop_manager"]
    assert parameters(PPOTrainer.init) == []


def test_engines_sleep_while_a_checkpoint_is_loaded_and_new_weights_wake_them() -> None:
    from verl.checkpoint_engine.base import CheckpointEngineManager
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    text = source(PPOTrainer)
    sleep = text.index("self.checkpoint_manager.sleep_replicas()")
    assert sleep < text.index("self._load_checkpoint()")
    assert parameters(CheckpointEngineManager.sleep_replicas) == []
    assert parameters(CheckpointEngineManager.update_weights) == ["global_steps"]


def test_the_replay_buffer_polls_at_an_interval_that_can_be_set() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    assert "time.sleep(self.poll_interval)" in source(ReplayBuffer)
    assert parameters(ReplayBuffer.sample) == ["global_steps", "partition_id", "batch_size"]


def test_padding_rows_are_marked_and_their_keys_parse() -> None:
    from verl.trainer.ppo import padding_utils

    function = padding_utils.upsample_batch_to_divisible_size
    assert parameters(function) == ["batch", "batch_multiple", "eos_token_id"]
    assert 'f"{pad_uid}_{local_idx}_0"' in source(function)
    template = source(padding_utils.construct_minimal_padding_template)
    assert "is_padding=True" in template
    # a report of what the loss read knows them by their mask, for they keep a real row's note
    assert "response_mask = torch.zeros_like(responses)" in template
    assert "loss_mask=response_mask" in template


def test_ranks_read_equally_many_rows_in_the_order_of_the_batch() -> None:
    """What `training/rank_balance.py` counts on, and where it has the tokens of a row from."""
    from transfer_queue import BatchMeta, KVBatchMeta
    from verl.protocol import BatchData
    from verl.single_controller.base import decorator
    from verl.trainer.ppo import padding_utils
    from verl.trainer.ppo.v1 import agent_loop_tq

    dispatched = source(decorator._split_args_kwargs_data_proto)
    assert "BatchData(arg).chunk(chunks=chunks)" in dispatched
    assert "data = kv_batch_meta2batch_meta(data)" in source(BatchData.chunk)
    assert parameters(BatchMeta.chunk) == parameters(KVBatchMeta.chunk) == ["chunks"]
    given = KVBatchMeta(keys=list("fbcdea"), tags=[{} for _ in range(6)], partition_id="train")
    given.reorder([5, 1, 2, 3, 4, 0])
    assert [part.keys for part in given.chunk(3)] == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert '"seq_len": prompt_len + response_len' in inspect.getsource(agent_loop_tq)
    assert "seq_len=SYNTHETIC_PADDING_SEQ_LEN" in source(
        padding_utils.construct_minimal_padding_template
    )


def test_the_loss_knows_how_many_rows_its_rank_reads_in_an_update() -> None:
    """`MicroBatchReports` waits with the last; verl reads the loss off the device after each."""
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead

    assert "dp_size=self.get_data_parallel_size()" in source(FSDPEngine.forward_backward_batch)
    engine: Any = FSDPEngineWithLMHead
    assert '"loss": loss.detach().item()' in source(engine.forward_step)


def test_an_update_reads_the_keys_that_ours_sends() -> None:
    from verl.workers.engine_workers import TrainingWorker

    text = source(inspect.unwrap(TrainingWorker.train_mini_batch))
    for key in ("mini_batch_size", "epochs", "seed", "dataloader_kwargs"):
        assert f'key="{key}"' in text, key
    assert "calculate_entropy" in inspect.getsource(
        __import__("verl.workers.engine.fsdp.transformer_impl", fromlist=["*"])
    )


def test_what_an_update_sends_reaches_the_loss_which_is_called_once_a_micro_batch() -> None:
    from verl.utils import transferqueue_utils
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead

    given = source(transferqueue_utils._async_meta_to_realdata)
    assert "meta_info = copy.deepcopy(meta.extra_info)" in given
    assert "tu.assign_non_tensor_data(tensor_dict=tensordict, key=key, val=val)" in given
    engine: Any = FSDPEngineWithLMHead
    assert source(engine.forward_step).count("loss_function(") == 1
    assert source(FSDPEngine.forward_backward_batch).count("self.forward_step(") == 1


def test_metrics_are_aggregated_as_ours_expect() -> None:
    from verl.utils.metric import AggregationType, Metric, reduce_metrics

    assert AggregationType.SUM.value == "sum"
    assert parameters(Metric.__init__)[:2] == ["aggregation", "value"]
    # micro-batches add up; the ranks' mean is taken, which is why ours multiply by their number
    micro = Metric(value=1.0, aggregation=AggregationType.SUM)
    micro.append(2.0)
    assert micro.aggregate() == 3.0
    other = Metric(value=5.0, aggregation=AggregationType.SUM)
    other.append(0.0)
    assert Metric.aggregate_dp([micro, other]) == pytest.approx((3.0 + 5.0) / 2)
    assert reduce_metrics({"a": [1.0, 3.0]})["a"] == 2.0


# verl/manager.py, verl/agent_loop.py, verl/rows.py


def test_agent_loops_are_started_and_called_as_ours_expect() -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager, AgentLoopWorker
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
    from verl.utils.tensordict_utils import index_select_tensor_dict

    actor_class: Any = AgentLoopWorkerTQ
    worker = actor_class.__ray_metadata__.modified_class
    wanted = ["config", "llm_client", "teacher_client", "reward_loop_worker_handles"]
    assert parameters(AgentLoopWorker.__init__) == wanted
    assert inspect.iscoroutinefunction(worker.generate_sequences)
    assert inspect.iscoroutinefunction(AgentLoopManager._init_agent_loop_workers)
    assert "await instance._init_agent_loop_workers()" in source(AgentLoopManagerTQ.create)
    for name in wanted:
        assert f"self.{name}" in source(AgentLoopManager), name
    # workers that can stop groups are ours, made as verl makes its own
    assert "self.agent_loop_workers_class.options(" in source(
        AgentLoopManager._init_agent_loop_workers
    )
    assert "self.agent_loop_workers.append(" in source(AgentLoopManager._init_agent_loop_workers)
    # a group is a task of its worker from the call that hands it over until it is settled
    assert "self.background_tasks.add(task)" in source(worker.generate_sequences)
    assert "task.add_done_callback(self.background_tasks.discard)" in source(
        worker.generate_sequences
    )
    assert parameters(index_select_tensor_dict) == ["batch", "indices"]
    # a group is settled when each of its sessions is
    assert "await _settle_session_tasks(tasks)" in source(worker._run_prompt)


def test_abandoned_requests_can_be_ended_in_the_engine() -> None:
    from verl.checkpoint_engine.base import CheckpointEngineManager

    for name in ("abort_replicas", "resume_generation_replicas"):
        assert callable(getattr(CheckpointEngineManager, name))


def test_an_agent_loop_is_built_from_our_entry_and_given_the_columns_of_its_prompt() -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    from longhaul_trainer.verl.agent_loop import EpisodeAgentLoop

    text = source(AgentLoopWorker._run_agent_loop)
    for argument in ("server_manager=", "tokenizer="):
        assert argument in text
    assert "agent_loop.run(sampling_params, **kwargs)" in text
    assert parameters(EpisodeAgentLoop.run)[0] == "sampling_params"


def test_a_session_may_return_one_row_per_step_or_none() -> None:
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    actor_class: Any = AgentLoopWorkerTQ
    text = source(actor_class.__ray_metadata__.modified_class._agent_loop_postprocess)
    assert "outputs = output if isinstance(output, list) else [output]" in text
    assert "if not outputs:" in text
    assert 'f"{uid}_{session_id}_{i}"' in text
    # each row's reward becomes the last row's: why step rewards travel in a note
    assert "output.reward_score = final_output.reward_score" in text


def test_a_row_has_the_fields_that_ours_fill() -> None:
    from verl.experimental.agent_loop import AgentLoopOutput
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

    assert set(AgentLoopOutput.model_fields) >= {
        "prompt_ids",
        "response_ids",
        "response_mask",
        "response_logprobs",
        "reward_score",
        "num_turns",
        "metrics",
        "extra_fields",
    }
    assert set(AgentLoopMetrics.model_fields) >= {"generate_sequences", "tool_calls"}


def test_what_the_engine_sampled_with_travels_with_its_row_to_the_update() -> None:
    from verl.experimental.agent_loop import AgentLoopOutput
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.utils import transferqueue_utils

    assert 'output["rollout_log_probs"]' in source(AgentLoopOutput.as_dict)
    # a batch that names no fields is fetched with all of them: the loss reads the engine's logprobs
    assert "KVBatchMeta(partition_id=partition_id, keys=keys, tags=tags)" in source(ReplayBuffer)
    assert "if fields is not None:" in source(transferqueue_utils.async_kv_batch_meta2batch_meta)


def test_the_rollout_server_is_asked_with_tokens_and_answers_with_logprobs() -> None:
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.replica import TokenOutput

    assert parameters(LLMServerClient.generate)[:1] == ["request_id"]
    assert {"prompt_ids", "sampling_params"} <= set(parameters(LLMServerClient.generate))
    fields = set(TokenOutput.model_fields)
    assert fields >= {"token_ids", "log_probs", "stop_reason", "extra_fields"}


# verl/engine_server.py


def test_the_rollout_server_has_the_places_that_ours_puts_itself_in() -> None:
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.replica import RolloutReplicaRegistry, get_rollout_replica_class
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

    server: Any = vLLMHttpServer
    assert parameters(server.generate)[:3] == ["prompt_ids", "sampling_params", "request_id"]
    generate = source(server.generate)
    # a reply's first output says that the engine has it, and the last one is what is returned
    assert "self._admitting -= 1" in generate
    assert "final_res = output" in generate
    assert "SamplingParams(max_tokens=max_tokens, **sampling_params)" in generate
    assert "rejected = await self._park_until_admitted(request_id)" in generate
    assert 'extra_fields["num_cached_tokens"]' in generate
    assert "while self._admitting > 0:" in source(server.abort_all_requests)
    # verl/client.py: its own arguments reach ours, and a server is asked by its `generate` alone
    client = source(LLMServerClient.generate)
    assert "await server.generate.remote(" in client
    assert client.count("await server.") == 1
    assert "**priority_kwargs,\n                **kwargs," in client
    # ours starts the engine alone, with all that verl does between it and the HTTP server
    run_server = source(server.run_server)
    assert run_server.index("self.engine = engine_client") < run_server.index("run_uvicorn(")
    for line in (
        "AsyncEngineArgs.from_cli_args(args)",
        "vllm_config.parallel_config.data_parallel_master_port = self._dp_master_port",
        "AsyncLLM.from_vllm_config(vllm_config=vllm_config, usage_context=usage_context, **kwargs)",
        "await engine_client.reset_mm_cache()",
        'method="monkey_patch_model"',
        '"banned_token_ids": get_vision_placeholder_token_ids(self.model_config.processor)',
    ):
        assert line in run_server, line
    assert run_server.count("await engine_client.") == 3  # the third is for the HTTP server
    assert "self._get_worker_extension_cls()" in source(server.launch_server)
    assert "self._master_sock" in source(server.__init__)
    launch = source(server.launch_server)
    assert "self._preprocess_engine_kwargs(engine_kwargs)" in launch
    assert launch.index("self._preprocess_engine_kwargs") < launch.index("**engine_kwargs")
    assert "self.server_class = ray.remote(vLLMHttpServer)" in source(vLLMReplica.__init__)
    assert "RolloutReplicaRegistry.get(rollout)" in source(get_rollout_replica_class)
    assert parameters(RolloutReplicaRegistry.register) == ["name", "loader"]


# verl/cpu/engine.py


def test_weights_are_received_in_buckets_by_a_callback() -> None:
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer as transfer

    receiver = transfer.BucketedWeightReceiver
    assert parameters(receiver.__init__) == ["zmq_handle", "device", "use_shm"]
    assert parameters(receiver.receive_weights) == ["on_bucket_received"]
    assert "on_bucket_received(" in source(receiver.receive_weights)


def test_experts_on_a_cpu_make_their_activation_in_every_pass() -> None:
    """Which asks for a configuration that a pass has not; ours is without. Not so: drop ours."""
    from vllm.model_executor.layers.fused_moe import cpu_fused_moe

    made = "MoEActivation.SILU: lambda x: SiluAndMul(compile_native=False).forward_native(x)"
    assert made in inspect.getsource(cpu_fused_moe)


# verl/sight.py


def test_log_probabilities_of_rows_are_written_beside_them() -> None:
    from verl.trainer.ppo.v1 import agent_loop_tq
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    compute = source(PPOTrainer._compute_old_log_prob)
    assert 'response_from_nested(data.pop("log_probs"), data["response_mask"])' in compute
    assert "self.actor_rollout_wg.compute_log_prob(batch)" in compute
    put = inspect.getsource(agent_loop_tq)
    assert 'field["multi_modal_inputs"] = multi_modal_inputs' in put


# verl/engine_updates.py, plugin.py


def test_a_learner_and_an_engine_name_their_socket_in_one_way_that_ours_moves() -> None:
    from verl.workers.rollout import base
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
    from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

    assert "_ROLLOUT_REGISTRY[(rollout_name, mode)]" in source(base.get_rollout_class)
    extension: Any = vLLMColocateWorkerExtension
    name = "/tmp/rl-colocate-zmq-{job_id}-replica-{"
    assert f'self.zmq_handle = f"ipc://{name}self.replica_rank' in source(ServerAdapter.__init__)
    assert f'return f"ipc://{name}replica_rank' in source(extension._get_zmq_handle)
    assert "zmq_handle=self._get_zmq_handle()" in source(extension.update_weights_from_ipc)


# verl/loopback.py


def test_a_ray_that_takes_no_other_nodes_has_the_address_of_loopback() -> None:
    services: Any = importlib.import_module("ray._private.services")

    assert "if not ray_constants.ENABLE_RAY_CLUSTER:" in source(services.get_node_ip_address)
    assert services.get_localhost_ip() == "127.0.0.1"


def test_workers_meet_where_a_variable_says() -> None:
    from verl.single_controller.ray import base
    from verl.utils.distributed import initialize_global_process_group_ray

    meeting = source(initialize_global_process_group_ray)
    assert 'init_method=os.environ.get("DIST_INIT_METHOD", None)' in meeting
    started = inspect.getsource(base)
    assert '"MASTER_PORT": self._master_port' in started
    assert '"WG_PREFIX": self.name_prefix' in started


# transfer_queue


def test_sockets_are_made_and_addresses_are_taken_where_ours_replace_them() -> None:
    from transfer_queue import controller, interface
    from transfer_queue.storage import simple_storage
    from transfer_queue.storage.bootstrap import simple_storage_bootstrap
    from transfer_queue.storage.managers import base
    from transfer_queue.utils import zmq_utils

    for server in (controller, simple_storage):  # verl/locked_queue.py
        made = inspect.getsource(server)
        assert "self._node_ip = get_node_ip_address()" in made
        assert "ip=self._node_ip,\n" in made
        assert ".socket(" not in made.replace("def socket(", "")
    assert "ip=self.controller_info.ip," in inspect.getsource(base)
    assert "create_zmq_socket(self._ctx, zmq.DEALER, peer.ip, identity=identity)" in source(
        zmq_utils.ZMQSocketPool._connect
    )
    making: Any = zmq_utils.create_zmq_socket
    assert parameters(making) == ["ctx", "socket_type", "ip", "identity"]
    started = inspect.getsource(interface)
    assert "TransferQueueController.options(" in started
    assert "SimpleStorageUnit.options(" in inspect.getsource(simple_storage_bootstrap)


def test_transfer_queue_is_called_as_ours_call_it() -> None:
    import transfer_queue
    from transfer_queue import KVBatchMeta

    expected = {
        "kv_batch_get": {"keys", "partition_id", "select_fields"},
        "kv_batch_put": {"keys", "partition_id", "fields", "tags"},
        "kv_clear": {"keys", "partition_id"},
        "kv_list": {"partition_id"},
    }
    for name, names in expected.items():
        assert names <= set(parameters(getattr(transfer_queue, name))), name
    assert dataclasses.is_dataclass(KVBatchMeta)
    fields = {field.name for field in dataclasses.fields(KVBatchMeta)}
    assert fields >= {"keys", "tags", "partition_id", "fields", "extra_info"}
    assert callable(transfer_queue.init)
    assert callable(transfer_queue.close)
    named = 'ray.get_actor("TransferQueueController", namespace="transfer_queue")'
    assert named in source(transfer_queue.interface._init_from_existing)  # verl/nodes.py
    kept = KVBatchMeta(keys=["a", "b"], tags=[{}, {}], partition_id="train").select_keys(["b"])
    assert kept.keys == ["b"]


def test_rows_are_divided_among_storage_units_by_their_number() -> None:
    from transfer_queue.storage.bootstrap import simple_storage_bootstrap
    from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager
    from transfer_queue.storage.simple_storage import SimpleStorageUnit
    from transfer_queue.utils.common import get_node_round_robin_scheduling_strategies

    # verl/queue_rows.py: each unit takes its share of the limit, or anything without one
    manager: Any = AsyncSimpleStorageManager
    unit_class: Any = SimpleStorageUnit
    unit = source(unit_class.__ray_metadata__.modified_class.__init__)
    assert "math.ceil(total_storage_size / num_data_storage_units)" in unit
    assert "if total_storage_size is not None else None" in unit
    assert "global_idx % num_units" in source(manager._group_by_hash)
    # verl/nodes.py: units go to all living nodes in turn, and nowhere else
    started = inspect.getsource(simple_storage_bootstrap)
    assert "get_node_round_robin_scheduling_strategies(" in started
    assert "alive_node_ids[i % len(alive_node_ids)], soft=False" in source(
        get_node_round_robin_scheduling_strategies
    )


# resources/


def test_pools_reserve_processors_by_the_processes_that_may_share_a_gpu() -> None:
    from verl.single_controller.ray.base import RayResourcePool, ResourcePoolManager
    from verl.workers.rollout.replica import RolloutReplica
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    from longhaul_trainer.verl.processors import OF_A_LEARNER_GPU, OF_AN_ENGINE_GPU

    fields = {field.name: field.default for field in dataclasses.fields(ResourcePoolManager)}
    assert fields["max_colocate_count"] == OF_A_LEARNER_GPU
    assert 'bundle = {"CPU": self.max_colocate_count}' in source(
        RayResourcePool.get_placement_groups
    )
    assert f"max_colocate_count={OF_AN_ENGINE_GPU}," in source(RolloutReplica.init_standalone)
    # an engine's server asks for nothing, and is placed on the node of its workers
    assert "ray.remote(vLLMHttpServer)" in source(vLLMReplica.__init__)
    assert "num_cpus" not in source(vLLMReplica.launch_servers)


def test_what_the_sums_of_memory_and_disk_say_of_the_learner_is_so() -> None:
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
    from verl.utils.experimental.torch_functional import FusedLinearForPPOFunction
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    from longhaul_trainer.preflight.resources.gpu_memory import CHUNK_TOKENS

    chunk = inspect.signature(FusedLinearForPPOFunction.forward).parameters["chunk_size"]
    assert chunk.default == CHUNK_TOKENS
    # every worker loads the model where it is tied, and one else
    assert "use_meta_tensor=not self.model_config.hf_config.tie_word_embeddings" in source(
        FSDPEngine._build_module
    )
    # the reference lies in the machine's memory
    built = source(FSDPEngine._build_fsdp_module)
    assert "self.engine_config.offload_policy or self.engine_config.forward_only" in built
    assert "offload_policy = CPUOffloadPolicy(pin_memory=True)" in built
    # an adapter's engine keeps its weights there while it sleeps
    assert "self.lora_as_adapter or" in source(vLLMHttpServer._resolve_sleep_level)
    # a checkpoint is shards, moments, and whole weights from one worker
    saved = source(FSDPCheckpointManager.save_checkpoint)
    for what in ("model", "optimizer", "extra", "hf_model"):
        assert f"if self.should_save_{what}:" in saved
    assert "get_fsdp_full_state_dict(self.model, offload_to_cpu=True, rank0_only=True)" in saved


def test_ray_wraps_a_class_so_that_it_can_be_taken_out_again() -> None:
    import ray

    class Plain:
        pass

    wrapped: Any = ray.remote(Plain)
    assert issubclass(wrapped.__ray_metadata__.modified_class, Plain)


def test_ray_names_the_variable_that_it_compares_gpus_with_and_the_limits_of_its_start() -> None:
    """`verl.cpu.visible_gpus`, and `verl.cluster` with `verl.variables`."""
    from ray._private import node, services
    from ray._private.accelerators import get_accelerator_manager_for_resource

    manager = get_accelerator_manager_for_resource("GPU")
    assert manager is not None
    assert manager.get_visible_accelerator_ids_env_var() == "CUDA_VISIBLE_DEVICES"
    assert "RAY_gcs_server_port_wait_time_s" in source(node.Node)
    assert b"raylet_start_wait_time_s" in Path(services.RAYLET_EXECUTABLE).read_bytes()


def test_ray_starts_by_these_names_the_processes_that_a_lean_ray_leaves_out() -> None:
    """`verl.cpu.lean_ray`, `verl.cpu.begin_worker` and `verl.cpu.no_agent`."""
    from ray._private import node, services
    from ray._private.runtime_env.context import RuntimeEnvContext

    from longhaul_trainer.verl.cpu.no_agent import PORTS

    head = source(node.Node.start_head_processes)
    assert "self.start_monitor()" in head
    assert "self.start_api_server(" in head
    assert "ray_constants.SETUP_WORKER_FILENAME" in source(node.Node.__init__)
    assert b"prestart_worker_first_driver" in Path(services.RAYLET_EXECUTABLE).read_bytes()
    names: Any = importlib.import_module("ray._raylet")
    assert (
        "*_build_python_executable_command_memory_profileable(\n"
        "            ray_constants.PROCESS_TYPE_DASHBOARD_AGENT, session_dir"
    ) in source(services.start_raylet)
    assert PORTS == (
        names.METRICS_AGENT_PORT_NAME,
        names.METRICS_EXPORT_PORT_NAME,
        names.DASHBOARD_AGENT_LISTEN_PORT_NAME,
    )
    assert vars(RuntimeEnvContext()).keys() == {
        *("env_vars", "py_executable"),  # begun without Ray
        *("command_prefix", "override_worker_entrypoint", "java_jars"),
    }


def test_verls_jagged_outputs_are_read_one_place_to_the_left() -> None:
    """`no_padding_2_padding`: a logit predicts the token after it."""
    import torch
    from tensordict import TensorDict
    from verl.workers.utils.padding import no_padding_2_padding

    def jagged(*rows: list[float]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(r) for r in rows], layout=torch.jagged)

    data = TensorDict(
        {"prompts": jagged([0, 0], [0]), "responses": jagged([0], [0, 0])}, batch_size=2
    )
    # rows of 3 tokens each; a reply of n tokens is predicted from n places before the last
    found = no_padding_2_padding(jagged([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]), data)

    assert found.tolist() == [[2.0, 0.0], [4.0, 5.0]]


# verl/attention.py, verl/settings.py, verl/critic_worker.py: GPU runs without flash-attn


def _required_imports_of_flash_attention(tree: ast.Module) -> set[str]:
    """Functions, or the module itself, that fail for want of flash-attn when they are run."""
    found: set[str] = set()

    def visit(node: ast.AST, *, place: str, optional: bool) -> None:
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if not optional and any(name.split(".")[0] == "flash_attn" for name in names):
            found.add(place)
        if isinstance(node, ast.FunctionDef):
            place = node.name
        caught = {h.type.id for h in getattr(node, "handlers", []) if isinstance(h.type, ast.Name)}
        asks = isinstance(node, ast.If) and "is_flash_attn_2_available" in ast.dump(node.test)
        here = optional or asks or "ImportError" in caught
        for child in ast.iter_child_nodes(node):
            visit(child, place=place, optional=here)

    visit(tree, place="<module>", optional=False)
    return found


def test_what_the_learner_s_process_imports_of_flash_attention_it_can_do_without() -> None:
    import verl

    folder = Path(verl.__path__[0])
    elsewhere = ("megatron", "mcore", "mindspeed", "third_party")  # engines that are not FSDP
    required = {
        (str(file.relative_to(folder)), place)
        for file in folder.rglob("*.py")
        if not any(word in str(file.relative_to(folder)) for word in elsewhere)
        for place in _required_imports_of_flash_attention(ast.parse(file.read_text("utf-8")))
    }
    unused = {"log_probs_from_logits_response_rmpad", "log_probs_from_logits_all_rmpad"}
    assert required == {("utils/torch_functional.py", name) for name in unused}
    for file in folder.rglob("*.py"):
        called = {
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Call)
        }
        assert not called & unused, file


def test_attention_is_named_by_an_override_and_is_flash_attention_without_one() -> None:
    from verl.workers.config import HFModelConfig

    assert 'override_config.get("attn_implementation", "flash_attention_2")' in source(
        HFModelConfig.__post_init__
    )


def test_the_fused_kernels_in_torch_keep_the_logits_of_a_few_tokens_at_once() -> None:
    from verl.utils.experimental.torch_functional import FusedLinearForPPO
    from verl.utils.torch_functional import logprobs_from_logits_v2
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    assert parameters(FusedLinearForPPO.__init__) == ["chunk_size", "impl_backend"]
    # what verl does for want of flash-attn without them: one token at a time
    assert "for logit in logits" in source(logprobs_from_logits_v2)
    engine: Any = FSDPEngineWithLMHead
    assert 'key="use_fused_kernels"' in source(engine.prepare_model_outputs)


def test_rows_are_shared_among_gpus_in_flash_attention_alone() -> None:
    from verl.models.transformers.monkey_patch import apply_monkey_patch

    replaced = [line.strip() for line in source(apply_monkey_patch).splitlines() if "= _ul" in line]
    assert replaced == [
        "module.DeepseekV3FlashAttention2.forward = _ulysses_flash_attn_forward",
        "module._flash_attention_forward = _ulysses_flash_attention_forward",
        "flash_attention._flash_attention_forward = _ulysses_flash_attention_forward",
    ]


def test_verl_s_own_critic_is_flash_attention_s_and_ours_is_asked_for_first() -> None:
    from verl.utils.model import load_valuehead_model
    from verl.workers.engine.base import EngineRegistry

    from longhaul_trainer.verl.critic_worker import GpuValueEngine

    # why there is an engine of ours; if verl reads its settings here, ours may go
    assert 'attn_implementation="flash_attention_2"' in source(load_valuehead_model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_ENGINE_DEVICE", "cuda")
        patch.setenv("VERL_ENGINE_VENDOR", "nvidia")
        for backend in ("fsdp", "fsdp2"):
            assert EngineRegistry.get_engine_cls("value_model", backend) is GpuValueEngine


# verl/pictures.py


def test_rows_are_received_where_ours_puts_their_positions_right() -> None:
    from verl.workers.engine.base import BaseEngine
    from verl.workers.engine_workers import TrainingWorker

    call = "maybe_fix_3d_position_ids("
    assert source(TrainingWorker.train_mini_batch).count(call) == 2
    assert call in source(BaseEngine.train_batch)
    assert call in source(BaseEngine.infer_batch)
