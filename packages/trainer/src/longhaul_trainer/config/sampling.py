"""Which of the groups that are played are trained on."""

from collections.abc import Generator

from pydantic import Field

from longhaul_trainer.config.section import Section


class SamplingConfig(Section):
    """Which of the groups that are played are trained on."""

    dynamic: bool = False
    """DAPO's dynamic sampling: a group whose episodes all have the same return, before shaping, is
    left out, and further tasks are played in its place."""
    max_refills: int = Field(default=3, ge=1)
    """Times in a training step that `dynamic` plays further tasks; after the last one the update
    takes the groups there are, and without any the run ends. Unless trainer.mode = "sync", each
    group has its own replacement, and this is how many training steps' worth of them there are."""
    extra_tasks: int = Field(default=0, ge=0)
    """Tasks started beyond those that an update takes: when enough groups are whole, the episodes
    still in flight are stopped. Quicker, and biased towards tasks with short episodes."""

    def conflicts(self) -> Generator[str]:
        """Refills are of dynamic sampling alone."""
        refills = type(self).model_fields["max_refills"].default
        if not self.dynamic and self.max_refills != refills:
            yield (
                f"sampling.max_refills = {self.max_refills} does nothing at sampling.dynamic = "
                "false; "
                "set sampling.dynamic = true, or leave it out"
            )

    @property
    def chooses(self) -> bool:
        """Whether more groups may be played than an update takes."""
        return self.dynamic or self.extra_tasks > 0
