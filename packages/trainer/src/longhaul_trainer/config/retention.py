"""What the store keeps of a run's older training steps."""

from collections.abc import Generator

from pydantic import Field

from longhaul_trainer.config.section import Remark, Section


class RetentionConfig(Section):
    """What the store keeps of a run's older training steps.

    The numbers, the action, the reward and the credit of every step and call always stay. The rest
    is about nine tenths of the store.
    """

    full_training_steps: int | None = Field(default=None, ge=1)
    """How many of the newest training steps stay whole. Of earlier ones the run removes
    observations, prompts, replies, pictures, tokens and logprobs; `trainer audit` can then no
    longer check what needs these. Left out, all stay whole."""
    sampled_groups: int = Field(default=0, ge=0)
    """Groups of each earlier training step, validation and test that stay whole, drawn by their
    number alone."""

    def remarks(self) -> Generator[Remark]:
        """A sample is drawn from what is removed, so something must be."""
        if self.sampled_groups and self.full_training_steps is None:
            yield Remark(
                f"retention.sampled_groups = {self.sampled_groups} means nothing without "
                "retention.full_training_steps: every group stays",
                "sampled_groups",
            )
