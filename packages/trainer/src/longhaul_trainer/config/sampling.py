"""Which of the groups that are played are trained on."""

from collections.abc import Generator

from pydantic import Field

from longhaul_trainer.config.section import Remark, Section


class SamplingConfig(Section):
    """Which of the groups that are played are trained on."""

    dynamic: bool = False
    """DAPO's dynamic sampling: a group whose episodes all have the same return, before shaping, is
    filtered out, and episodes of further tasks are generated in its place."""
    max_refills: int = Field(default=3, ge=1)
    """Waves of further tasks in a training step, with `dynamic`; after the last one the update
    takes the groups there are, and without any the run ends. With asynchronous rollout each group
    is replaced by itself, at most `max_refills * tasks_per_training_step` times."""
    extra_tasks: int = Field(default=0, ge=0)
    """Oversampling: tasks started beyond those that an update takes. When enough groups are whole,
    the episodes still in progress are stopped: faster, and biased towards short episodes."""

    def remarks(self) -> Generator[Remark]:
        """Refills are of dynamic sampling alone."""
        refills = type(self).model_fields["max_refills"].default
        if not self.dynamic and self.max_refills != refills:
            yield Remark(
                f"sampling.max_refills = {self.max_refills} means nothing to sampling.dynamic = "
                "false",
                "max_refills",
            )

    @property
    def chooses(self) -> bool:
        """Whether more groups may be played than an update takes."""
        return self.dynamic or self.extra_tasks > 0
