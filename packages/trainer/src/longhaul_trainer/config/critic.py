"""The critic: a model that says what an episode still has to come."""

from collections.abc import Generator

from pydantic import Field

from longhaul_trainer.config.section import Section


class CriticConfig(Section):
    """The critic of `algorithm.name = "gae"`.

    What is not here is as `[model]` and `[optimizer]` have it: precision, weight decay, gradient
    norm, micro-batches and the number of optimizer steps. All its weights are trained.
    """

    path: str | None = Field(default=None, min_length=1)
    """Where its weights begin, as in model.path; left out, at the policy's."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """After warm-up; constant."""
    warmup_training_steps: int = Field(default=0, ge=0)
    """Training steps at the beginning in which the critic alone learns and the policy stays."""
    clip_range: float | None = Field(default=None, gt=0)
    """A value gains nothing by going further than this from what it was before the training step,
    in the environment's units; left out, it may go anywhere."""

    def changed(self) -> Generator[str]:
        """Names of the settings that are not as they are by default."""
        for name, field in type(self).model_fields.items():
            if getattr(self, name) != field.default:
                yield name
