"""What `trainer evolve` repeats: play, keep what went well, imitate it."""

from collections.abc import Generator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from longhaul_trainer.config.component_settings import Scalar
from longhaul_trainer.config.section import Section

__all__ = ["EvolutionConfig"]

SET_BY_ROUNDS = (
    "imitation.sources=",
    "model.path=",
    "name=",
    "runs_directory=",
    *(
        f"validation.{name}="
        for name in ("split", "num_tasks", "samples_per_task", "temperature", "before", "every")
    ),
)
"""Settings that mean nothing in `evolution.settings`."""


class EvolutionConfig(Section):
    """What `trainer evolve` repeats: the model plays training tasks, and imitates what went well.

    With the defaults that is AgentEvol as its authors' code computes it (arXiv:2406.04151), but for
    the sampling, which is greedy there; the paper's form has `imitation.weight = "return"`.
    """

    rounds: int = Field(default=4, ge=1)
    """Imitations, each of which is a run of its own that plays the tasks when it is done."""
    tasks: int = Field(default=64, ge=1)
    """Training tasks that are played, the same ones after each round."""
    samples_per_task: int = Field(default=4, ge=1)
    """Episodes of each task. `imitation.best_per_task` says how many of a task are imitated."""
    temperature: float = Field(default=1.0, ge=0)
    """At which they are sampled, without nucleus sampling; 0 is greedy, one episode for a task."""
    where: Mapping[str, Scalar] = {"success": True}
    """Which of them are imitated, by the conditions of `trainer export --where`, such as
    `{ min_return = 0.99 }`."""
    restart_from: Literal["base", "last"] = "base"
    """What each round trains: `model.path` again (AgentEvol), or the weights of the round before
    (expert iteration)."""
    keep: Literal["all", "newest"] = "all"
    """Which rounds' episodes are imitated beside `imitation.sources`: of `all` before, or of the
    `newest` alone."""
    settings: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What the imitations have other than this file and `warm_start.settings`, as on the command
    line, e.g. `["num_training_steps=20", "optimizer.learning_rate=2e-3"]`."""

    def conflicts(self) -> Generator[str]:
        """Greedy episodes of a task are the same episode."""
        if self.samples_per_task > 1 and self.temperature == 0:
            yield (
                f"evolution.samples_per_task = {self.samples_per_task} with evolution.temperature "
                f"= 0 would play one greedy episode {self.samples_per_task} times; raise the "
                "temperature, or set one sample"
            )
        if "phase" in self.where:
            yield (
                "evolution.where names a phase; what a round plays is of one, so choose among "
                "these episodes by other conditions"
            )
        for setting in self.settings:
            if setting.startswith(SET_BY_ROUNDS):
                yield (
                    f"evolution.settings has {setting!r}, which each round sets itself; leave it "
                    "out"
                )
