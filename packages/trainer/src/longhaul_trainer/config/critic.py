"""The critic: a value model, which predicts the return-to-go."""

from collections.abc import Generator

from pydantic import Field

from longhaul_trainer.config.section import Section


class CriticConfig(Section):
    """The critic (value model) of `algorithm.name = "gae"`.

    It shares the rest of its settings with `[model]` and `[optimizer]`: precision, weight decay,
    gradient norm, micro-batches and the number of optimizer steps. All its weights are trained.
    """

    path: str | None = Field(default=None, min_length=1)
    """Its initial weights, as in `model.path`; left out, the policy's."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """After warm-up; constant."""
    warmup_training_steps: int = Field(default=0, ge=0)
    """Training steps at the beginning in which the critic alone learns and the policy stays."""
    clip_range: float | None = Field(default=None, gt=0)
    """PPO's value clipping: a value may move this far from what it was before the training step,
    in units of the return; left out, values are not clipped."""

    def changed(self) -> Generator[str]:
        """Names of the settings that are not as they are by default."""
        for name, field in type(self).model_fields.items():
            if getattr(self, name) != field.default:
                yield name
