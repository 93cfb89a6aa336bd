"""The surface of vLLM that we stand on, read from its files: importing it costs half a minute."""

import ast
import importlib.util
from pathlib import Path

import pytest


def module_file(name: str) -> Path:
    """Where a module of vLLM is, without importing it."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent.joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def definitions(name: str) -> dict[str, ast.stmt]:
    """Functions and classes at the top of a module, by name."""
    tree = ast.parse(module_file(name).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def exported(name: str) -> set[str]:
    """Names that a package imports into itself."""
    tree = ast.parse(module_file(name).read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("function", ["initialize_layerwise_reload", "finalize_layerwise_reload"])
def test_a_model_can_be_reloaded_layer_by_layer(function: str) -> None:
    package = "vllm.model_executor.model_loader.reload"

    assert function in exported(package)
    assert function in definitions(f"{package}.layerwise")


def test_the_reload_takes_the_model_and_its_configuration() -> None:
    layerwise = definitions("vllm.model_executor.model_loader.reload.layerwise")
    names: dict[str, list[str]] = {}
    for function in ("initialize_layerwise_reload", "finalize_layerwise_processing"):
        node = layerwise[function]
        assert isinstance(node, ast.FunctionDef)
        names[function] = [argument.arg for argument in node.args.args]

    assert names["initialize_layerwise_reload"] == ["model"]
    assert names["finalize_layerwise_processing"] == ["model", "model_config"]


def test_an_output_layer_packs_its_own_weights() -> None:
    """What `finish_reload` calls again for a layer that shares the embedding's."""
    embedding = definitions("vllm.model_executor.layers.vocab_parallel_embedding")
    assert "ParallelLMHead" in embedding
    method = embedding["UnquantizedEmbeddingMethod"]
    assert isinstance(method, ast.ClassDef)
    methods = {node.name for node in method.body if isinstance(node, ast.FunctionDef)}
    assert "process_weights_after_loading" in methods


def test_a_worker_takes_an_extension_and_its_settings_are_still_there() -> None:
    text = module_file("vllm.config.parallel").read_text(encoding="utf-8")
    assert "worker_extension_cls: str" in text
    assert "distributed_executor_backend" in text
    assert "kv_cache_memory_bytes" in module_file("vllm.config.cache").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CPU_OMP_THREADS_BIND",
                                  "VLLM_NO_USAGE_STATS", "VLLM_LOGGING_LEVEL"])  # fmt: skip
def test_the_variables_that_a_run_sets_are_still_read(name: str) -> None:
    assert f'"{name}"' in module_file("vllm.envs").read_text(encoding="utf-8")


def test_the_cpu_build_is_known_by_its_version() -> None:
    """Why a metadata folder of ours says `+cpu`."""
    text = module_file("vllm.platforms").read_text(encoding="utf-8")
    assert 'vllm_version_matches_substr("cpu")' in text


def test_a_request_is_told_how_often_its_tokens_are_handed_on() -> None:
    """What `WholeReplies` changes for a stream, before the engine has its request."""
    processor = module_file("vllm.v1.engine.output_processor").read_text(encoding="utf-8")
    assert "self.request_states[request_id] = req_state" in processor
    assert "self.stream_interval = stream_interval" in processor
    assert "if self.stream_interval > 1:" in processor
    assert "external_req_id=request.external_req_id" in processor
    engine = module_file("vllm.v1.engine.async_llm").read_text(encoding="utf-8")
    added = engine.index("self.output_processor.add_request(")
    assert added < engine.index("await self.engine_core.add_request_async(")


def test_a_request_whose_task_is_cancelled_is_aborted() -> None:
    engine = module_file("vllm.v1.engine.async_llm").read_text(encoding="utf-8")
    assert (
        "except (asyncio.CancelledError, GeneratorExit): if q is not None: "
        "await self.abort(q.request_id, internal=True)"
    ) in " ".join(engine.split())


def test_a_reply_keeps_the_tokens_of_its_stop_word() -> None:
    detokenizer = module_file("vllm.v1.engine.detokenizer").read_text(encoding="utf-8")
    assert "self.output_text = self.output_text[:truncate_to]" in detokenizer
    assert "self.token_ids = self.token_ids[" not in detokenizer
