"""What the writer accepts: one frozen record per thing that happened.

Records carry domain types, never rows, and pickle, so a trainer can hand them to a
writer in another process. Each has a natural key (named in its docstring): a record
written twice changes nothing the second time, except `EpisodeCredit`, `Heartbeat`,
`LeaseRecord` and `RunEnded`, which set the same values again.

An *attempt* is one process's try at a run: 0 at first, one more with every resume. All
times are Unix times in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from longhaul_core.described import Described
from longhaul_core.text import storable_text
from longhaul_core.types import FailedEpisode, Split, Task, Trajectory

__all__ = [
    "FATE_OF_GROUP",
    "UNSCORED",
    "Audit",
    "AuditFinding",
    "AuditRule",
    "AuditSkip",
    "CallCredit",
    "CriticLossInput",
    "CriticLossInputs",
    "DiscardReason",
    "EpisodeCredit",
    "EpisodeRecord",
    "Evaluation",
    "GroupDecision",
    "Heartbeat",
    "Label",
    "LeaseOutcome",
    "LeaseRecord",
    "LossInput",
    "LossInputs",
    "Metrics",
    "PanelTasks",
    "Phase",
    "PolicyVersion",
    "Record",
    "RunEnded",
    "RunKind",
    "RunStarted",
    "RunStatus",
    "TokenPieces",
    "episode_id",
]

Phase = Literal["train", "baseline", "demonstration", "validation", "test", "play", "branch"]
"""What an episode is played for. `baseline`: the greedy one that a group is compared with.
`demonstration`: a stored one that is imitated beside a group of reinforcement learning. `play`: a
person played it. `branch`: it continues a stored episode from one of its steps. The last two are in
no curve and no panel."""
FATE_OF_GROUP: tuple[Phase, ...] = ("train", "baseline", "demonstration")
"""Phases whose episodes are kept by what a training step decided on their group: those that are
trained, and those beside them."""
UNSCORED: tuple[Phase, ...] = ("play", "branch")
"""Phases that are in no curve and no panel."""
RunKind = Literal["train", "evaluate", "demonstrate", "imported", "play", "branch"]
"""`demonstrate`: environments' own experts played its episodes. `imported`: they were played
elsewhere, and read from files. `play`: a person played them. `branch`: stored episodes were taken
up again at one of their steps."""
RunStatus = Literal["running", "finished", "failed", "cancelled"]
DiscardReason = Literal["stale", "no_signal", "too_small", "surplus", "stopped_early"]
"""Why a training step discarded a group: `stale`, its weights are too old to learn from;
`no_signal`, its returns are all equal; `too_small`, too few of its episodes ended; `surplus`, the
update was full; `stopped_early`, it was not waited for."""


def episode_id(  # one argument per part of the key
    run_id: str,
    *,
    attempt: int,
    phase: Phase,
    training_step: int,
    group_index: int,
    sample_index: int,
    retry: int,
) -> str:
    """The key of an episode in the store: the same episode has the same id on every retry.

    Returns:
        `"{run_id}/{attempt}/{phase}/{training_step}/{group_index}/{sample_index}/{retry}"`.
    """
    return f"{run_id}/{attempt}/{phase}/{training_step}/{group_index}/{sample_index}/{retry}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A process has begun (or resumed) a run. Key: run_id, attempt."""

    run_id: str
    name: str
    kind: RunKind
    attempt: int
    """0, then one more with every resume."""
    config_json: str
    """The resolved configuration, defaults included. Credentials are taken out when written."""
    provenance_json: str
    """What is needed to repeat it: git state, lock hash, model hash, host."""
    started_at: float
    num_training_steps: int | None = None
    """Training steps planned; None where the run has none."""
    resumes_after_training_step: int | None = None
    """Resume only: the checkpoint's training step. What earlier attempts left beyond it is
    marked as rolled back in the same transaction."""
    host: str | None = None
    pid: int | None = None
    """The process that trains; None if it does not say."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.run_id) <= 128 or "/" in self.run_id:
            raise ValueError(f"a run id has 1 to 128 characters and no '/', got {self.run_id!r}")
        if storable_text(self.run_id) != self.run_id:
            raise ValueError(
                f"a run id may hold neither NUL nor half a surrogate pair, got {self.run_id!r}"
            )
        if self.attempt < 0:
            raise ValueError(f"attempt must be at least 0, got {self.attempt}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A process is done with a run. Key: run_id, attempt."""

    run_id: str
    attempt: int
    status: Literal["finished", "failed", "cancelled"]
    message: str
    """Empty, or what went wrong, for people."""
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The process of a run is alive. Key: run_id; only the newest attempt's counts."""

    run_id: str
    attempt: int
    at: float
    host: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """New weights reached the engine. Key: run_id, attempt, version."""

    run_id: str
    attempt: int
    version: int
    """Optimizer steps behind the weights."""
    training_step: int
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelTasks:
    """The fixed tasks that a run is evaluated on. Key: run_id, name, split."""

    run_id: str
    name: str
    split: Split
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRecord:
    """An episode ended or failed. Key: its episode id."""

    run_id: str
    attempt: int
    phase: Phase
    training_step: int
    """1-based training step that played it; 0 for a validation before training."""
    group_index: int
    """0-based place of the task in the training step's batch, or in the panel."""
    retry: int
    """0 for the first try at this sample_index."""
    outcome: Trajectory | FailedEpisode
    group_size: int | None = None
    """Episodes requested per task; None if the caller gives no number."""
    branched_from: str | None = None
    """Id of the stored episode that it continues; None for one that began at its task."""
    branched_at_step: int | None = None
    """0-based first step that is its own."""
    branched_action: str | None = None
    """The action that was given there; None if whoever went on chose it."""

    def __post_init__(self) -> None:
        is_branch = self.phase == "branch"
        named = self.branched_from is not None, self.branched_at_step is not None
        if named != (is_branch, is_branch) or (self.branched_action is not None and not is_branch):
            raise ValueError(
                'an episode of phase "branch", and no other, names the episode and the step that '
                f"it continues: phase {self.phase!r}, episode {self.branched_from!r}, step "
                f"{self.branched_at_step!r}, action {self.branched_action!r}"
            )

    @property
    def episode_id(self) -> str:
        """The episode's key in the store."""
        return episode_id(
            self.run_id,
            attempt=self.attempt,
            phase=self.phase,
            training_step=self.training_step,
            group_index=self.group_index,
            sample_index=self.outcome.sample_index,
            retry=self.retry,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecision:
    """A training step took a group for its update, or threw it away.

    Key: the group's; an `EpisodeRecord` of it comes first.
    A group without a decision waits. What waits at a checkpoint is rolled back by a resume from
    it: the task is played again.
    """

    run_id: str
    attempt: int
    training_step: int
    """That played the group."""
    group_index: int
    resolved_training_step: int
    """That took it or threw it away: the one that played it, or a later one."""
    update_index: int | None
    """0-based place in the update, which decides the optimizer step; None if discarded."""
    discard_reason: DiscardReason | None = None
    """Why it was discarded; None if it was not."""

    def __post_init__(self) -> None:
        if (self.update_index is None) == (self.discard_reason is None):
            raise ValueError(
                "a group has a place in an update or a reason why it has none, got "
                f"{self.update_index} and {self.discard_reason!r}"
            )
        if self.resolved_training_step < self.training_step:
            raise ValueError(
                f"a group of training step {self.training_step} cannot be decided on in training "
                f"step {self.resolved_training_step}, before it was played"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCredit:
    """What training made of one call."""

    step_index: int
    call_index: int
    """0-based place in the step."""
    advantage: float
    """Its share of the step's; where tokens have their own, their mean."""
    loss_weight: float
    """Weight of each of its action tokens in the loss."""
    policy_logprobs: tuple[float, ...] | None = None
    """The learner's logprob of each action token before the update; None if not computed."""
    policy_entropies: tuple[float, ...] | None = None
    """Entropy, in nats, of the learner's distribution over the whole vocabulary at each action
    token, at the run's temperature, before the update; at least 0. None if not computed."""
    split_reason: str | None = None
    """`SplitReason` if it began a row; None if it continued one, or if that is unknown."""
    token_values: tuple[float, ...] | None = None
    """The critic's value before each action token; None unless advantages are by token."""
    token_advantages: tuple[float, ...] | None = None
    """Advantage of each action token; None where all tokens have the call's."""
    reference_logprob_sum: float | None = None
    """Of its action tokens, under the weights that the run starts from, in nats; None unless pairs
    of episodes are trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeCredit:
    """What training made of an episode. Key: the episode's; its `EpisodeRecord` comes first.

    Every tuple but `calls` has one entry per step of the episode.
    """

    run_id: str
    attempt: int
    phase: Phase
    training_step: int
    """That played the episode."""
    trained_training_step: int
    """Whose update it was in."""
    group_index: int
    sample_index: int
    retry: int
    episode_advantage: float
    """The episode part of the advantage, the same for all steps."""
    step_advantages: tuple[float, ...]
    """The step part of the advantage; zeros where the algorithm has none."""
    shaped_rewards: tuple[float, ...]
    """What credit is given for at each step: its reward, less a penalty that is off the return."""
    returns_to_go: tuple[float, ...]
    advantages: tuple[float, ...]
    """The parts combined; where tokens have their own, their mean."""
    loss_weights: tuple[float, ...]
    """Weight of each action token of the step's trained calls in the loss; their mean, where
    purposes have shares."""
    calls: tuple[CallCredit, ...]
    """One entry per trained call, in the order of steps and calls."""
    trained: bool
    """Whether the episode was in the loss."""
    values: tuple[float, ...] | None = None
    """The critic's value of each step's prompt; None without a critic."""
    value_targets: tuple[float, ...] | None = None
    """Lambda-return at each step's prompt; None without a critic."""
    final_value: float | None = None
    """The critic's value of a truncated episode's final observation, 0 for one that was scored at
    its end; None for a terminated one."""
    optimizer_step_index: int | None = None
    """0-based optimizer step of `trained_training_step` that used the episode."""

    def __post_init__(self) -> None:
        lengths = {
            "step_advantages": len(self.step_advantages),
            "shaped_rewards": len(self.shaped_rewards),
            "returns_to_go": len(self.returns_to_go),
            "advantages": len(self.advantages),
            "loss_weights": len(self.loss_weights),
        }
        optional = {"values": self.values, "value_targets": self.value_targets}
        lengths |= {name: len(given) for name, given in optional.items() if given is not None}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"credit needs one entry per step, got {lengths}")
        places = [(call.step_index, call.call_index) for call in self.calls]
        if places != sorted(set(places)):
            raise ValueError(
                "credit needs one entry per trained call, in the order of steps and calls, got "
                f"the places {places}"
            )

    @property
    def episode_id(self) -> str:
        """The episode's key in the store."""
        return episode_id(
            self.run_id,
            attempt=self.attempt,
            phase=self.phase,
            training_step=self.training_step,
            group_index=self.group_index,
            sample_index=self.sample_index,
            retry=self.retry,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallInput:
    """What a loss read of one call, in one row of a micro-batch.

    Its numbers are over the tokens that are in the loss: those whose weight is above 0.
    """

    training_step: int
    """That played the episode."""
    group_index: int
    sample_index: int
    retry: int
    step_index: int
    call_index: int
    """0-based place in the step."""
    row_index: int
    """0-based place of the row in the micro-batch."""
    phase: Phase = "train"
    """That the episode was played for."""
    num_tokens: int
    """Tokens in the loss; 0 if the row weighs nothing."""
    weight_low: float | None
    """Least weight of a token; None without tokens."""
    weight_high: float | None
    """Greatest weight of a token."""

    def require_numbers(self, **numbers: float | None) -> None:
        """Check that numbers over tokens are there exactly if tokens are.

        Raises:
            ValueError: They are not.
        """
        if self.num_tokens < 0:
            raise ValueError(f"num_tokens must be at least 0, got {self.num_tokens}")
        numbers |= {"weight_low": self.weight_low, "weight_high": self.weight_high}
        if any((number is None) != (self.num_tokens == 0) for number in numbers.values()):
            raise ValueError(
                f"{', '.join(numbers)} are None exactly when num_tokens is 0, "
                f"got {self.num_tokens} tokens and {numbers}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInput(_CallInput):
    """What the loss function read of one call, in one row of a micro-batch."""

    advantage_low: float | None
    """Least advantage of a token, before any importance weight; None without tokens."""
    advantage_high: float | None
    """Greatest advantage of a token."""
    old_logprob_sum: float
    """Sum of the old logprobs, added up in double precision; 0 without tokens."""

    def __post_init__(self) -> None:
        self.require_numbers(advantage_low=self.advantage_low, advantage_high=self.advantage_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticLossInput(_CallInput):
    """What the critic's loss read of one call, in one row of a micro-batch."""

    first_token: int | None
    """0-based place, in the action, of the first token in the loss; None without tokens."""
    target_low: float | None
    """Least value target of a token; None without tokens."""
    target_high: float | None
    """Greatest value target of a token."""

    def __post_init__(self) -> None:
        self.require_numbers(
            first_token=self.first_token,
            target_low=self.target_low,
            target_high=self.target_high,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MicroBatch:
    """Of what one call of a loss read. The calls' `EpisodeRecord`s come first.

    Key of each row: its episode, step and call, training_step, optimizer_step_index, rank,
    micro_batch, row_index.
    """

    run_id: str
    attempt: int
    training_step: int
    """Whose update it was."""
    optimizer_step_index: int
    """0-based optimizer step of the training step."""
    rank: int
    """Of the learner's worker, from 0."""
    micro_batch: int
    """0-based, counted within this rank's optimizer step."""

    def episode_id(self, row: LossInput | CriticLossInput) -> str:
        """The key in the store of the episode that `row` is of."""
        return episode_id(
            self.run_id,
            attempt=self.attempt,
            phase=row.phase,
            training_step=row.training_step,
            group_index=row.group_index,
            sample_index=row.sample_index,
            retry=row.retry,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs(_MicroBatch):
    """What the loss function read of one micro-batch."""

    rows: tuple[LossInput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticLossInputs(_MicroBatch):
    """What the critic's loss read of one micro-batch."""

    rows: tuple[CriticLossInput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Measurements of one training step. Key: run_id, attempt, training_step, and each name."""

    run_id: str
    attempt: int
    training_step: int
    values: Mapping[str, float]
    """By name, e.g. `{"train/mean_return": 0.4}`. NaN is kept as SQL's NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result on a panel. Key: run_id, attempt, training_step, panel, split."""

    run_id: str
    attempt: int
    training_step: int
    panel: str
    split: Split
    num_episodes: int
    """Episodes that ended; failures are not among them."""
    mean_return: float
    success_rate: float
    """In [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPieces:
    """The bytes that token ids stand for. Key: run_id and each token id.

    With them a reader without the tokenizer can show tokens; a token may hold part of
    a character only. Ids already known to the run stay as they are.
    """

    run_id: str
    pieces: Mapping[int, bytes]
    """By token id. A special token has its text, e.g. `b"<|im_end|>"`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A person's (or a judge's) remark on an episode. Key: episode_id, step_index, name, author."""

    episode_id: str
    step_index: int | None
    """None: the whole episode."""
    name: str
    value: str
    author: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRule:
    """How much a rule of an audit was checked on, and how many findings it has."""

    name: str
    num_checked: int
    num_findings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSkip(Described):
    """What an audit could not check, and why."""

    rule: str | None
    """None: every rule."""
    reason: str
    num_subjects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding(Described):
    """Something that an audit found not to be as it was meant."""

    rule: str
    training_step: int
    episode_id: str | None
    """None where no one episode is at fault."""
    step_index: int | None
    found: str
    expected: str
    call_index: int | None = None
    """0-based place in the step; None where no one call is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Whether what a run trained is what it was meant to train. Key: run_id, audited_at."""

    run_id: str
    audited_at: float
    training_steps: tuple[int, ...]
    """Those that were audited, rising."""
    num_steps: int
    """Trained ones among their steps."""
    rules: tuple[AuditRule, ...]
    not_checked: tuple[AuditSkip, ...]
    findings: tuple[AuditFinding, ...]
    """Those that are listed; `rules` counts all of them."""


LeaseOutcome = Literal["returned", "lost", "handed_back", "late", "cancelled"]
"""How a lease ended. `returned`: its runner reported what the program left; `lost`: the runner was
not heard of; `handed_back`: it was stopped; `late`: it did not end a program that was beyond its
deadline; `cancelled`: nobody waited for the episode any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A runner on another machine plays an episode. Key: run_id, lease_id.

    Written as a lease begins, now and then while it is held, and as it ends; one that has ended
    stays as it is.
    """

    run_id: str
    attempt: int
    lease_id: str
    episode_id: str
    """See `episode_id`. The episode itself comes when it has ended."""
    task_id: str
    runner: str
    """As it calls itself."""
    leased_at: float
    heard_at: float
    """The newest sign of life."""
    ended_at: float | None = None
    outcome: LeaseOutcome | None = None
    """None as long as it is held."""


Record = (
    RunStarted
    | RunEnded
    | Heartbeat
    | PolicyVersion
    | PanelTasks
    | EpisodeRecord
    | GroupDecision
    | EpisodeCredit
    | LossInputs
    | CriticLossInputs
    | Metrics
    | Evaluation
    | TokenPieces
    | Label
    | Audit
    | LeaseRecord
)
