"""What the episode routes answer."""

from pydantic import BaseModel, ConfigDict, Field

from longhaul_api.parameters import LARGEST, Phase
from longhaul_api.schemas import Answer
from longhaul_core.store.queries import EpisodeFilter, EpisodeSort
from longhaul_core.types import StopReason

__all__ = [
    "Episode",
    "EpisodeDetail",
    "EpisodePage",
    "EpisodeQuery",
    "EpisodeTokens",
    "Label",
    "PromptMessage",
    "Step",
    "StepTokens",
]


class Episode(Answer):
    """One run of an environment from reset to its end."""

    episode_id: str
    """`run/attempt/phase/training step/group/sample_index/retry`."""
    run_id: str
    attempt: int
    phase: str
    """`train`, `baseline`, `validation` or `test`."""
    training_step: int
    group_index: int
    sample_index: int
    """0-based place in its group."""
    retry: int
    environment: str
    task_id: str
    split: str
    goal: str
    failed: bool
    """Something broke: no return, no success, in no baseline."""
    failure_cause: str | None
    failure_message: str | None
    success: bool | None
    """Whether the environment says the task was solved; null if it failed."""
    stop_reason: str | None
    terminated: bool | None
    """The task itself ended."""
    truncated: bool | None
    """A limit cut it short."""
    episode_return: float | None
    """Undiscounted sum of rewards."""
    num_steps: int
    horizon: int
    """The step limit in force."""
    num_prompt_tokens: int
    num_action_tokens: int
    num_invalid_actions: int
    started_at: float
    duration_seconds: float
    rolled_back: bool
    trained: bool
    """Whether it was in the loss."""
    episode_advantage: float | None
    optimizer_step_index: int | None


class EpisodePage(Answer):
    """Part of a list of episodes."""

    total: int
    """Matching episodes in all."""
    rows: tuple[Episode, ...]


class PromptMessage(Answer):
    """One chat message of a prompt."""

    role: str
    content: str


class Step(Answer):
    """One exchange. Credit is null before the update that it was computed for."""

    step_index: int
    observation: str
    anchor_state: str | None
    """The state that steps are compared in; null: the observation."""
    anchor_hash: str
    admissible_actions: tuple[str, ...] | None
    """Null if the environment does not say."""
    messages: tuple[PromptMessage, ...]
    """The prompt as the memory composed it."""
    reply: str
    action: str
    """What the environment was given."""
    action_valid: bool
    reward: float
    """Paid for this step alone."""
    shaped_reward: float | None
    """What credit was given for: the reward, shaped and less penalties."""
    value: float | None
    """The critic's; null without one."""
    return_to_go: float | None
    """Discounted sum of the shaped rewards from this step on."""
    episode_advantage: float | None
    step_advantage: float | None
    advantage: float | None
    """Both parts combined, as the loss used it."""
    loss_weight: float | None
    """Of each action token."""
    trained: bool
    split_reason: str | None
    """Why a new row of the batch began here."""
    policy_version: int
    """Optimizer steps behind the weights that sampled the action."""
    reply_cut: bool
    """A token limit ended the reply."""
    dropped_exchanges: int
    """Left out by the memory to make the prompt fit."""
    queue_seconds: float
    generate_seconds: float
    environment_seconds: float
    num_prompt_tokens: int
    num_action_tokens: int


class StepTokens(Step):
    """A step with its tokens; null once pruned."""

    prompt_tokens: tuple[int, ...] | None
    """As the engine read them."""
    action_tokens: tuple[int, ...] | None
    """As the engine wrote them."""
    behavior_logprobs: tuple[float, ...] | None
    """The sampler's, one per action token."""
    policy_logprobs: tuple[float, ...] | None
    """The learner's before the update, one per action token."""


class Label(Answer):
    """A remark on an episode or on one of its steps."""

    step_index: int | None
    """Null: the whole episode."""
    name: str
    value: str
    author: str
    created_at: float


class EpisodeHead(Answer):
    """One episode without its steps."""

    summary: Episode
    environment_version: str
    task_seed: int
    seed: int
    """Seeds the sampling of the actions."""
    final_observation: str | None
    """Seen after the last action; null if the episode failed."""
    labels: tuple[Label, ...]


class EpisodeDetail(EpisodeHead):
    """One episode with every step."""

    steps: tuple[Step, ...]


class EpisodeTokens(EpisodeHead):
    """One episode with every step and its tokens."""

    steps: tuple[StepTokens, ...]


class EpisodeQuery(BaseModel):
    """Which episodes, in which order. A filter that is left out does not restrict."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    phase: Phase | None = None
    min_training_step: int | None = Field(default=None, ge=0, le=LARGEST)
    max_training_step: int | None = Field(default=None, ge=0, le=LARGEST)
    group_index: int | None = Field(default=None, ge=0, le=LARGEST)
    failed: bool | None = None
    """True: only failed episodes; false: only those that ended."""
    success: bool | None = None
    trained: bool | None = None
    """Whether they were in the loss."""
    stop_reason: StopReason | None = None
    environment: str | None = None
    task_id: str | None = None
    min_return: float | None = None
    max_return: float | None = None
    rolled_back: bool | None = False
    """False: the lineage; true: what a resume took back."""
    sort: EpisodeSort = "training_step"
    """Episodes without a value come last in either direction."""
    descending: bool = True
    limit: int = Field(default=50, ge=1, le=1000)
    offset: int = Field(default=0, ge=0, le=LARGEST)

    def where(self, run_id: str) -> EpisodeFilter:
        """The store's filter for the episodes of one run."""
        order_and_page = {"sort", "descending", "limit", "offset"}
        return EpisodeFilter(run_id=run_id, **self.model_dump(exclude=order_and_page))
