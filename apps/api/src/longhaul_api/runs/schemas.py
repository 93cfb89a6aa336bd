"""What the run routes answer."""

from longhaul_api.schemas import Answer

__all__ = ["Attempt", "CurvePoint", "Evaluation", "Failure", "Run", "RunDetail"]


class Run(Answer):
    """One training or evaluation run. Counts are of the lineage."""

    run_id: str
    name: str
    kind: str
    """`train` or `evaluate`."""
    attempt: int
    """0, or how often it was resumed."""
    status: str
    """`running`, `finished`, `failed` or `cancelled`. A run that was killed still says
    `running`: its `heartbeat_at` no longer moves."""
    message: str
    """Why it failed, else empty."""
    started_at: float
    """Unix time, in seconds, as are all times."""
    ended_at: float | None
    heartbeat_at: float
    """Last sign of life."""
    cancel_requested: bool
    num_training_steps: int | None
    """Planned; null where the run has none."""
    num_training_steps_done: int
    num_episodes: int
    """Episodes that ended; failed ones are counted apart."""
    num_failed_episodes: int
    num_steps: int
    num_prompt_tokens: int
    """Read by the engine, over all steps."""
    num_action_tokens: int
    """Sampled, over all steps."""
    last_mean_return: float | None
    """Over the episodes of the newest training step."""
    last_success_rate: float | None
    """In [0, 1]."""


class Attempt(Answer):
    """One process's try at a run."""

    attempt: int
    resumes_after_training_step: int | None
    """The checkpoint that it went on from; null for the first attempt."""
    status: str
    message: str
    started_at: float
    ended_at: float | None
    host: str | None
    pid: int | None
    provenance_json: str
    """What is needed to repeat it, as JSON text."""


class RunDetail(Answer):
    """All about one run but its episodes."""

    summary: Run
    config_json: str
    """The resolved configuration as JSON text, without credentials."""
    attempts: tuple[Attempt, ...]


class CurvePoint(Answer):
    """The episodes of one training step and phase, taken together."""

    phase: str
    """`train`, `baseline`, `validation` or `test`."""
    training_step: int
    num_episodes: int
    """Episodes that ended; the means are over these."""
    num_failed_episodes: int
    mean_return: float | None
    """Undiscounted; null if every episode failed."""
    success_rate: float | None
    """In [0, 1]."""
    mean_num_steps: float | None
    num_steps: int
    num_action_tokens: int
    invalid_action_rate: float | None
    """Invalid actions per step."""


class Evaluation(Answer):
    """Result on a fixed panel of tasks."""

    training_step: int
    """Training steps behind the weights; 0 before training."""
    panel: str
    split: str
    num_episodes: int
    mean_return: float
    success_rate: float
    """In [0, 1]."""


class Failure(Answer):
    """An episode that broke: in no baseline, in no loss, never scored."""

    episode_id: str
    phase: str
    training_step: int
    group_index: int
    sample_index: int
    retry: int
    environment: str
    task_id: str
    cause: str
    """Which side broke, e.g. `environment_timeout`."""
    message: str
    num_steps: int
    """Finished before it broke."""
