"""What the store keeps of a run's older training steps."""

from collections.abc import Generator

from pydantic import Field

from longhaul_trainer.config.section import Section


class RetentionConfig(Section):
    """What the store keeps of a run's older training steps.

    Of every step and call it keeps the numbers, the action, the reward and the credit; the rest is
    nine tenths of their size.
    """

    full_training_steps: int | None = Field(default=None, ge=1)
    """Newest training steps that stay whole. Of those before, the run removes observations,
    prompts, replies, pictures, tokens and logprobs, and what needs them cannot be checked by
    `trainer audit` any more; left out, all stay whole."""
    sampled_groups: int = Field(default=0, ge=0)
    """Groups of each earlier training step that stay whole all the same, drawn by their number
    alone; so many of each validation and test, too."""

    def conflicts(self) -> Generator[str]:
        """A sample is of what goes."""
        if self.sampled_groups and self.full_training_steps is None:
            yield (
                f"retention.sampled_groups = {self.sampled_groups} does nothing without "
                "retention.full_training_steps: every group stays; set that, or leave this out"
            )
