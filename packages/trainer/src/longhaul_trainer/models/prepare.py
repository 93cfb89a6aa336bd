"""From a model's name in a configuration to a folder that verl, vLLM and transformers load.

Five names are built in and are written to a cache once: `"smollm2"`, a real small model
that a Python package carries, and random ones for smoke runs, `"tiny"`, `"tiny-moves"`,
`"tiny-tools"` and `"tiny-vision"`. Anything else is the path of a folder. Nothing is ever fetched
from a network.
"""

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from longhaul_core.errors import ConfigError, MachineError
from longhaul_trainer.models.caches import cache_folder


class BuiltInModel(NamedTuple):
    """A model we can write ourselves."""

    folder_name: str
    """In the cache. A change to what is written raises the number at its end."""
    write: Callable[[Path], None]


def _write_smollm2(folder: Path) -> None:
    from longhaul_trainer.models.smollm2 import write_smollm2  # imports torch

    write_smollm2(folder)


def _write_tiny(folder: Path) -> None:
    from longhaul_trainer.models.tiny import write_tiny_model  # imports torch

    write_tiny_model(folder)


def _write_tiny_moves(folder: Path) -> None:
    from longhaul_trainer.models.tiny import MOVES, write_tiny_model  # imports torch

    write_tiny_model(folder, favoured=MOVES)


def _write_tiny_tools(folder: Path) -> None:
    from longhaul_trainer.models.tiny import write_tiny_tool_model  # imports torch

    write_tiny_tool_model(folder)


def _write_tiny_vision(folder: Path) -> None:
    from longhaul_trainer.models.tiny_vision import write_tiny_vision_model  # imports torch

    write_tiny_vision_model(folder)


BUILT_IN_MODELS = {
    "smollm2": BuiltInModel("smollm2-135m-instruct-1", _write_smollm2),
    "tiny": BuiltInModel("tiny-1", _write_tiny),
    "tiny-moves": BuiltInModel("tiny-moves-1", _write_tiny_moves),
    "tiny-tools": BuiltInModel("tiny-tools-1", _write_tiny_tools),
    "tiny-vision": BuiltInModel("tiny-vision-2", _write_tiny_vision),
}


def default_model_cache() -> Path:
    """`longhaul/models` in the folder of caches.

    Raises:
        MachineError: If no folder for caches can be written.
    """
    return cache_folder() / "longhaul" / "models"


def prepare_model(
    name_or_path: str, cache: Path | None = None, *, setting: str = "model.path"
) -> Path:
    """Folder of the model, complete and ready to load.

    Args:
        name_or_path: `"smollm2"`, `"tiny"`, `"tiny-moves"`, `"tiny-tools"`, `"tiny-vision"`,
            or the path of a Hugging Face folder.
        cache: Where built-in models are kept; None: `default_model_cache()`. Any number of
            processes may prepare the same model at once: one writes, the others wait.
        setting: What named the model, for messages.

    Raises:
        ConfigError: If the folder does not exist or lacks what a model needs.
        MachineError: If a built-in model cannot be written.
    """
    built_in = BUILT_IN_MODELS.get(name_or_path)
    if built_in is None:
        return _checked_folder(name_or_path, setting)
    cache = default_model_cache() if cache is None else cache
    folder = cache / built_in.folder_name
    if folder.is_dir():
        return folder
    try:
        _write(built_in, cache)
    except PermissionError as error:
        raise MachineError(
            f"the model {name_or_path!r} cannot be written to {cache} ({error.strerror}: "
            f"{error.filename}); name another folder for caches with XDG_CACHE_HOME"
        ) from error
    return folder


def _write(built_in: BuiltInModel, cache: Path) -> None:
    """Write the model's folder, whole or not at all."""
    folder = cache / built_in.folder_name
    cache.mkdir(parents=True, exist_ok=True)
    partial = cache / f".{built_in.folder_name}.partial"
    with _locked(cache / f".{built_in.folder_name}.lock"):
        if not folder.is_dir():  # another process may have written it while we waited
            shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
            partial.mkdir()
            built_in.write(partial)
            partial.rename(folder)


def hash_model(folder: Path) -> str:
    """SHA-256 over the names and contents of all files of a model folder, in hex.

    Args:
        folder: What `prepare_model` returned. Read whole: about a second per gigabyte.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def _checked_folder(name_or_path: str, setting: str) -> Path:
    folder = Path(name_or_path).expanduser()
    names = " or ".join(repr(name) for name in BUILT_IN_MODELS)
    if not folder.is_dir():
        raise ConfigError(
            f"{setting} = {name_or_path!r} is not a folder; give the path of a Hugging Face "
            f"model folder, or {names}"
        )
    wanted = {
        "config.json": ["config.json"],
        "weights (*.safetensors)": ["*.safetensors"],
        "a tokenizer (tokenizer.json)": ["tokenizer.json", "tokenizer.model", "vocab.json"],
    }
    missing = [
        what
        for what, patterns in wanted.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
    ]
    if missing:
        raise ConfigError(f"{setting} = {name_or_path!r} lacks {', '.join(missing)}")
    return folder


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the lock file; the kernel lets go of it however the process ends."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
