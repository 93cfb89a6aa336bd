"""The model that an imitation begins with, where a run's file describes one that is not there."""

import json
from pathlib import Path

from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.store.queries import recorded_episode
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Trajectory
from longhaul_envs.built import built_once
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.imitation import ImitationConfig
from longhaul_trainer.run.demonstrations import Demonstrations

__all__ = ["make_model_where_there_is_none"]

MOST_READ = 200
"""Episodes whose words are read; of more, so many that lie evenly among them."""


def make_model_where_there_is_none(config: RunConfig) -> bool:
    """Write what `imitation.new_model_layers` describes to `model.path`.

    Args:
        config: An imitation that describes one, with absolute paths.

    Returns:
        Whether a model was made.

    Raises:
        ConfigError: The sources hold nothing that could be read, or the model that is there is of
            another size.
        MachineError: The folder cannot be written.
    """
    described, folder = config.imitation, Path(config.model.path)
    if folder.exists():
        _require_size(folder, described)
        return False

    def write(folder: Path) -> None:
        from longhaul_trainer.models.small import write_small_model  # imports torch

        write_small_model(
            folder,
            words_of(config),
            num_layers=described.new_model_layers,
            hidden_size=described.new_model_width,
            vocabulary_size=described.new_model_vocabulary,
            seed=config.seed,
        )

    built_once(folder, write)
    return True


def _require_size(folder: Path, described: ImitationConfig) -> None:
    path = folder / "config.json"
    found: dict[str, object] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    sizes = found.get("num_hidden_layers"), found.get("hidden_size")
    if sizes != (described.new_model_layers, described.new_model_width):
        raise ConfigError(
            f"model.path = {str(folder)!r} is there, of {sizes[0]} layers and width {sizes[1]}, "
            f"and imitation.new_model_layers = {described.new_model_layers} with new_model_width = "
            f"{described.new_model_width} describe another; name a new folder, or leave them out"
        )


def words_of(config: RunConfig) -> list[str]:
    """What was shown and replied in a run's demonstrations, a text for each message."""
    demonstrations = Demonstrations.chosen(config)
    chosen = [each for task in demonstrations.tasks for each in demonstrations.of_task[task.key]]
    texts: list[str] = []
    engine = read_only_engine(config.store)
    try:
        for each in chosen[:: max(1, -(-len(chosen) // MOST_READ))]:
            with Session(engine) as session:
                texts += _texts(recorded_episode(session, each.episode_id))
    finally:
        engine.dispose()
    return texts


def _texts(episode: Trajectory) -> list[str]:
    calls = [call for step in episode.steps for call in step.calls]
    shown = [message.text for call in calls for message in call.messages]
    return [*shown, *(call.reply for call in calls)]
