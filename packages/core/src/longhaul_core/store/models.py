"""Tables of the trajectory store.

    runs 1──* attempts                     one row per process that worked on the run
    runs 1──* changes                      what each commit of a writer changed, in their order
    runs 1──* episodes 1──* steps          numbers of a step: lean, for SQL over many steps
                       1──* observations   what each step was taken on: text, pictures
                       1──* calls          calls of models: prompt, reply, numbers, credit
                       1──* call_tokens    what an engine of ours read and wrote, token by token
                       1──* messages       each chat message of the prompts once
                       1──* episode_tools  the lists of tools that its calls were offered
                       1──* loss_inputs    what the loss function read of a call, each time
                       1──* critic_loss_inputs  what the critic's loss read of it
                       1──* episode_media  the pictures that it refers to
    media, tool_lists                      each picture and each list once, by its hash
    tasks, panels ─ panel_tasks            what was to be done
    leases                                 which runner on another machine played an episode
    groups, failures, labels, metrics, evaluations, policy_versions, token_pieces
    audits 1──* audit_findings             whether what was trained is what was meant

Rows are how trajectories are kept, not what the framework thinks with: they never
leave this package. `writer` turns records into rows, `queries` turns rows into plain
results. There are no ORM relationships, so no attribute access can issue a query.

The one decision to know: a step is several rows. A row with a kilobyte of text and tokens
makes SQLite read a page per step; the lean table holds forty steps in a page. Text is beside it:
one observation a step, and as many calls as were made, maybe none. Tokens and logprobs, which no
question in SQL reads, are beside the calls. What the prompts of an episode repeat is kept once:
tokens by `token_stream`, messages by `message_text`.

Times are Unix times in seconds, flags are boolean (0 and 1 in SQLite), JSON is text, token ids
are compressed (see `token_stream`), logprobs packed little-endian float32, entropies float16 (see
`packing`).
"""

from sqlalchemy import (
    BigInteger,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

__all__ = [
    "LONGEST",
    "SCHEMA_VERSION",
    "AttemptRow",
    "AuditFindingRow",
    "AuditRow",
    "Base",
    "CallRow",
    "CallTokensRow",
    "ChangeRow",
    "CommitRow",
    "CriticLossInputRow",
    "EpisodeMediaRow",
    "EpisodeRow",
    "EpisodeToolsRow",
    "EvaluationRow",
    "FailureRow",
    "GroupRow",
    "LabelRow",
    "LeaseRow",
    "LossInputRow",
    "MediaRow",
    "MessageRow",
    "MetricRow",
    "ObservationRow",
    "PanelRow",
    "PanelTaskRow",
    "PolicyVersionRow",
    "RunRow",
    "SearchProgressRow",
    "StepRow",
    "TaskRow",
    "TokenPieceRow",
    "ToolListRow",
]

SCHEMA_VERSION = "9"
"""One more with every change to a table or a view."""

RunId = String(128)
EpisodeId = String(255)
Hash = String(32)
"""128 bits of BLAKE2b as hexadecimal text."""
PictureHash = String(64)
"""SHA-256 of a picture's bytes as hexadecimal text."""
LONGEST = "longest"
"""Key, in a column's `info`, of the most characters of a text that an index holds: PostgreSQL puts
2,704 bytes into one place of an index, and a character takes up to four."""
INFINITE = "infinite"
"""Key, in a column's `info`, of a number that may be an infinity."""
_NAME: dict[str, int] = {LONGEST: 255}
_ENVIRONMENT: dict[str, int] = {LONGEST: 128}
_TASK_ID: dict[str, int] = {LONGEST: 512}
# SQLite numbers rows by itself only in a column of type INTEGER.
RowNumber = BigInteger().with_variant(Integer, "sqlite")

_DOUBLE: TypeEngine[float] = Double()


class Base(DeclarativeBase):
    """Names every constraint alike on both databases."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {float: _DOUBLE, str: Text()}  # noqa: RUF012  # read by SQLAlchemy


class RunRow(Base):
    """One training or evaluation run: its state now. History is in `attempts`."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(RunId, primary_key=True)
    name: Mapped[str]
    kind: Mapped[str] = mapped_column(String(16))
    """train, evaluate, demonstrate (by environments' own experts), imported (read from files of
    another program), play (by a person), or branch (stored episodes were taken up again)."""
    attempt: Mapped[int]
    """The newest attempt."""
    status: Mapped[str] = mapped_column(String(16))
    """running, finished, failed or cancelled. A run that was killed still says running: see
    heartbeat_at."""
    message: Mapped[str]
    """Why it failed; empty otherwise."""
    num_training_steps: Mapped[int | None]
    """Training steps planned."""
    started_at: Mapped[float]
    """Start of the first attempt."""
    ended_at: Mapped[float | None]
    heartbeat_at: Mapped[float]
    """Last sign of life of the newest attempt."""
    host: Mapped[str | None]
    pid: Mapped[int | None]
    cancel_requested_at: Mapped[float | None]
    """Someone asked the run to stop; a resume clears it."""
    config_json: Mapped[str]
    """The newest attempt's resolved configuration, without credentials."""


class AttemptRow(Base):
    """One process's try at a run."""

    __tablename__ = "attempts"

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    attempt: Mapped[int] = mapped_column(primary_key=True)
    resumes_after_training_step: Mapped[int | None]
    """The checkpoint it went on from: what earlier attempts did beyond it is rolled back."""
    status: Mapped[str] = mapped_column(String(16))
    message: Mapped[str]
    started_at: Mapped[float]
    ended_at: Mapped[float | None]
    host: Mapped[str | None]
    pid: Mapped[int | None]
    provenance_json: Mapped[str]


class PolicyVersionRow(Base):
    """Weights that were sampled from."""

    __tablename__ = "policy_versions"

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    attempt: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    """Optimizer steps behind the weights."""
    training_step: Mapped[int]
    created_at: Mapped[float]
    rolled_back: Mapped[bool]


class TaskRow(Base):
    """What was to be done. Runs share tasks: the key is the hash of all columns but the goal.

    Empty data are no part of what is hashed.
    """

    __tablename__ = "tasks"
    __table_args__ = (Index(None, "environment", "task_id"),)

    hash: Mapped[str] = mapped_column(Hash, primary_key=True)
    environment: Mapped[str] = mapped_column(info=_ENVIRONMENT)
    version: Mapped[str]
    data_hash: Mapped[str]
    task_id: Mapped[str] = mapped_column(info=_TASK_ID)
    """Unique within the environment."""
    seed: Mapped[int] = mapped_column(BigInteger)
    split: Mapped[str] = mapped_column(String(16))
    """train, validation or test."""
    goal: Mapped[str]
    data: Mapped[str]
    """What a program is given to work on, a JSON object; empty where the environment knows the task
    by its id and seed."""


class PanelRow(Base):
    """A fixed list of tasks that a run is evaluated on."""

    __tablename__ = "panels"

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    name: Mapped[str] = mapped_column(primary_key=True, info=_NAME)
    split: Mapped[str] = mapped_column(String(16), primary_key=True)
    content_hash: Mapped[str] = mapped_column(Hash)
    """Equal for two runs that were evaluated on the same tasks in the same order."""
    num_tasks: Mapped[int]


class PanelTaskRow(Base):
    """Membership of a task in a panel."""

    __tablename__ = "panel_tasks"

    content_hash: Mapped[str] = mapped_column(Hash, primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    task_hash: Mapped[str] = mapped_column(Hash, ForeignKey("tasks.hash"), index=True)


class GroupRow(Base):
    """Attempts at one task, made to be compared with each other."""

    __tablename__ = "groups"
    __table_args__ = (
        Index(None, "run_id", "resolved_training_step", "phase", "attempt"),
        Index(
            "ix_groups_newest_first",
            "run_id",
            "rolled_back",
            "training_step",
            "phase",
            "group_index",
            "attempt",
        ),
    )

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    attempt: Mapped[int] = mapped_column(primary_key=True)
    phase: Mapped[str] = mapped_column(String(16), primary_key=True)
    training_step: Mapped[int] = mapped_column(primary_key=True)
    group_index: Mapped[int] = mapped_column(primary_key=True)
    task_hash: Mapped[str] = mapped_column(Hash, ForeignKey("tasks.hash"), index=True)
    group_size: Mapped[int | None]
    """Episodes requested; null if the trainer gave no number."""
    resolved_training_step: Mapped[int | None]
    """The training step that took the group for its update, or threw it away; null while it waits.
    `training_step` is the one that played it."""
    update_index: Mapped[int | None]
    """0-based place in that update, which decides the optimizer step; null if discarded."""
    discard_reason: Mapped[str | None] = mapped_column(String(32))
    """A `DiscardReason`; null if the group was not discarded."""
    max_abs_advantage: Mapped[float | None]
    """Largest |advantage| of a step of its episodes; 0: nothing was learned from it. Null without
    credit."""
    rolled_back: Mapped[bool]


class EpisodeRow(Base):
    """One episode, ended or failed."""

    __tablename__ = "episodes"
    __table_args__ = (
        Index(None, "run_id", "phase", "training_step"),
        Index(None, "run_id", "attempt", "phase", "training_step", "group_index"),
        Index(
            "ix_episodes_branched_from",
            "branched_from",
            "branched_at_step",
            sqlite_where=text("branched_from IS NOT NULL"),
            postgresql_where=text("branched_from IS NOT NULL"),
        ),
        # The newest first; and all columns that lists are filtered and sorted by, and curves are
        # made of, so that neither reads the wide rows.
        Index(
            "ix_episodes_newest_first",
            "run_id",
            "rolled_back",
            "training_step",
            "phase",
            "group_index",
            "sample_index",
            "id",
            "task_hash",
            "failed",
            "success",
            "trained",
            "stop_reason",
            "episode_return",
            "num_steps",
            "num_prompt_tokens",
            "num_action_tokens",
            "num_invalid_actions",
            "oldest_policy_version",
            "newest_policy_version",
            "started_at",
            "duration_seconds",
        ),
    )

    id: Mapped[str] = mapped_column(EpisodeId, primary_key=True)
    """run/attempt/phase/training_step/group_index/sample_index/retry: the natural key."""
    run_id: Mapped[str] = mapped_column(RunId, ForeignKey("runs.id", ondelete="cascade"))
    attempt: Mapped[int]
    phase: Mapped[str] = mapped_column(String(16))
    """train, baseline, validation, test, play or branch."""
    training_step: Mapped[int]
    """The training step that played it."""
    group_index: Mapped[int]
    sample_index: Mapped[int]
    """0-based place in the group."""
    retry: Mapped[int]
    task_hash: Mapped[str] = mapped_column(Hash, ForeignKey("tasks.hash"), index=True)
    rolled_back: Mapped[bool]
    """A later attempt went on from a checkpoint before this episode, or, in training, before the
    training step that decided on its group."""
    failed: Mapped[bool]
    """Something broke: no return, no success, in no baseline. See `failures`."""
    success: Mapped[bool | None]
    stop_reason: Mapped[str | None] = mapped_column(String(32))
    """A `StopReason` value; null if failed."""
    terminated: Mapped[bool | None]
    """The task itself ended."""
    truncated: Mapped[bool | None]
    """A limit cut it short."""
    episode_return: Mapped[float | None]
    """Undiscounted sum of rewards; null if failed."""
    num_steps: Mapped[int]
    horizon: Mapped[int]
    """The step limit in force."""
    num_calls: Mapped[int]
    """Calls of models, summed over the steps."""
    num_prompt_tokens: Mapped[int]
    """Read by our engine, summed over the calls that it answered."""
    num_action_tokens: Mapped[int]
    """Sampled by our engine, summed over the calls that it answered."""
    num_invalid_actions: Mapped[int]
    oldest_policy_version: Mapped[int | None]
    """Of the weights that sampled its calls; null where no engine of ours did."""
    newest_policy_version: Mapped[int | None]
    """Larger than the oldest where new weights came while it was played."""
    seed: Mapped[int] = mapped_column(BigInteger)
    """Seeds the sampling of the episode's actions."""
    branched_from: Mapped[str | None] = mapped_column(EpisodeId)
    """Id of the episode that it continues, which may be gone by now; null if it began at its task.
    Its first steps are that one's."""
    branched_at_step: Mapped[int | None]
    """The first step that is its own."""
    branched_action: Mapped[str | None]
    """The action that was given there; null if whoever went on chose it."""
    started_at: Mapped[float]
    duration_seconds: Mapped[float]
    trained: Mapped[bool]
    """Was in the loss of a training step of the lineage."""
    trained_training_step: Mapped[int | None]
    """The training step whose update it was in; null if untrained."""
    episode_advantage: Mapped[float | None]
    optimizer_step_index: Mapped[int | None]
    final_observation: Mapped[str | None]
    """Seen after the last action; null if failed."""
    final_picture_hashes_json: Mapped[str | None]
    """Pictures of it, as in `observations`."""
    final_anchor_state: Mapped[str | None]
    """Null: the final observation itself is the anchor, or there is none."""
    final_anchor_hash: Mapped[str | None] = mapped_column(Hash)
    """Of the anchor state of the final observation; null if failed."""
    final_value: Mapped[float | None]
    """The critic's value of the final observation; null unless truncated, and without a critic."""
    retention: Mapped[str | None] = mapped_column(String(16))
    """What the run's retention did: `removed` its text, pictures, tokens and logprobs, so that
    numbers and actions are left; or `sampled` it, to be kept whole. Null: it is whole so far."""


class FailureRow(Base):
    """Why an episode failed."""

    __tablename__ = "failures"

    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade"), primary_key=True
    )
    cause: Mapped[str] = mapped_column(String(32))
    """A `FailureCause` value."""
    message: Mapped[str]


class StepRow(Base):
    """The numbers of one step."""

    __tablename__ = "steps"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # read by SQLAlchemy

    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade"), primary_key=True
    )
    step_index: Mapped[int] = mapped_column(primary_key=True)
    """0-based place in the episode."""
    action: Mapped[str]
    """What the environment was given."""
    action_valid: Mapped[bool]
    reward: Mapped[float]
    """Paid for this step alone."""
    shaped_reward: Mapped[float | None]
    """What credit was given for: the environment's reward, or that of `algorithm.reward_shaping`,
    less the step's penalty where `algorithm.invalid_action_penalty_on = "return"`; null without
    credit."""
    value: Mapped[float | None]
    """The critic's value of its prompt before the update; null without a critic."""
    value_target: Mapped[float | None]
    """Lambda-return at the first token of the action; null without a critic."""
    return_to_go: Mapped[float | None]
    """Discounted sum of the shaped rewards from this step on."""
    episode_advantage: Mapped[float | None]
    step_advantage: Mapped[float | None]
    advantage: Mapped[float | None]
    """Both parts combined; a call's is its share of it. Where tokens have their own, their mean."""
    loss_weight: Mapped[float | None]
    """Weight of each token of its trained calls; their mean, where purposes have shares."""
    trained: Mapped[bool]
    """The mask: whether the tokens of its trained calls were in the loss."""
    anchor_hash: Mapped[str] = mapped_column(Hash)
    """Of the anchor state; steps of a group with equal hashes are compared by GiGPO."""
    act_call_index: Mapped[int | None]
    """The call that chose the action; null where no model did."""
    environment_seconds: Mapped[float]


class ObservationRow(Base):
    """What one step was taken on. Written once."""

    __tablename__ = "observations"
    __table_args__ = (UniqueConstraint("episode_id", "step_index"),)

    id: Mapped[int] = mapped_column(RowNumber, primary_key=True)
    """Refers to the step in the text index."""
    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade")
    )
    step_index: Mapped[int]
    text: Mapped[str]
    picture_hashes_json: Mapped[str | None]
    """Hashes of the `media` shown beside the text, in order, a JSON list; null without any."""
    anchor_state: Mapped[str | None]
    """Null: what is shown is the anchor."""
    admissible_actions_json: Mapped[str | None]
    """Null if the environment does not say."""


class CallRow(Base):
    """One call of a model. Credit comes after the update."""

    __tablename__ = "calls"
    __table_args__ = (UniqueConstraint("episode_id", "step_index", "call_index"),)

    id: Mapped[int] = mapped_column(RowNumber, primary_key=True)
    """Rises with the time of writing."""
    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade")
    )
    step_index: Mapped[int]
    call_index: Mapped[int]
    """0-based place in the step, in the order of the calls."""
    purpose: Mapped[str]
    """`act` chooses the step's action; `plan`, `remember`, `judge` or another word."""
    agent: Mapped[str]
    """Which agent of several made it; empty where there is one."""
    model: Mapped[str]
    """Which model answered; empty for the policy that is trained."""
    messages_json: Mapped[str | None]
    """The prompt: runs of its `messages`, a JSON list of an integer for each: from bit 0 the number
    of the first one, from bit 21 how many there are, from bit 42 the first one's position in the
    prompt. Null once retention removed them."""
    reply: Mapped[str | None]
    """As text; null once retention removed it."""
    tool_calls_json: Mapped[str | None]
    """Tools that the reply asks for: a list of `{"id", "name", "arguments"}`; null without any."""
    tools_number: Mapped[int | None]
    """Which of the `episode_tools` it was offered; null without any, and once retention removed
    them."""
    conversation: Mapped[int]
    """Which conversation of the episode, from 0 in the order of their first calls."""
    continuation: Mapped[str | None] = mapped_column(String(16))
    """How its prompt relates to the calls before, a `Continuation` value; null where an episode
    loop composed it."""
    sampling_json: Mapped[str | None]
    """How the reply was drawn, where that was not as the run says: `{"seed", "temperature",
    "top_p", "max_tokens", "stop", "altered"}`, `altered` with the JSON text of each setting under
    which the logprobs are not the policy's; null otherwise."""
    overridden_json: Mapped[str | None]
    """What its program asked for and did not get: a list of the names that the answer's header
    `Longhaul-Overridden` has; null where there is none."""
    cost_usd: Mapped[float | None]
    """What a hosted model charged for it, in US dollars; null where nobody knows."""
    finish_reason: Mapped[str] = mapped_column(String(16))
    """stop, length, tool_calls or aborted."""
    policy_version: Mapped[int | None]
    """Optimizer steps behind the weights that sampled it; null where no engine of ours did."""
    dropped_exchanges: Mapped[int]
    """Left out by the memory to make the prompt fit."""
    recalled_steps_json: Mapped[str | None]
    """Steps whose exchanges the memory chose from before the last ones and the prompt shows: a list
    of their indices; null where it chose none."""
    queue_seconds: Mapped[float]
    """Seconds until the engine began with the request; 0 where it does not report it."""
    generate_seconds: Mapped[float]
    num_cached_tokens: Mapped[int | None]
    """Leading prompt tokens from the engine's prefix cache; null where it does not report them."""
    num_prompt_tokens: Mapped[int | None]
    """Null where no engine of ours read them; such a call has no `call_tokens`."""
    num_action_tokens: Mapped[int | None]
    num_shared_prompt_tokens: Mapped[int | None]
    """How many leading prompt tokens equal those of the last call with tokens of its stream: of the
    same agent, purpose and conversation, or of the same agent and purpose where it is the
    conversation's first."""
    trained: Mapped[bool]
    """Whether its tokens are in the loss of a step that is trained."""
    credit_share: Mapped[float]
    """What the advantage is multiplied by for its tokens."""
    credited_by: Mapped[str] = mapped_column(String(16))
    """Which step's advantage that is, a `CreditedBy` value."""
    advantage: Mapped[float | None]
    """That product, as the loss used it; null without credit."""
    loss_weight: Mapped[float | None]
    """Weight of each of its action tokens."""
    split_reason: Mapped[str | None]
    """Why a new row of the learner began here, a `SplitReason` value; null where the call continued
    a row, and where there is no credit."""
    reference_logprob_sum: Mapped[float | None]
    """Of its action tokens, under the weights that the run starts from, in nats; null unless pairs
    of episodes are trained, whose advantages follow from it."""


class CallTokensRow(Base):
    """The tokens of a call that an engine of ours answered. Pruning deletes the row."""

    __tablename__ = "call_tokens"

    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade"), primary_key=True
    )
    step_index: Mapped[int] = mapped_column(primary_key=True)
    call_index: Mapped[int] = mapped_column(primary_key=True)
    tokens: Mapped[bytes] = mapped_column(LargeBinary)
    """The prompt but for `calls.num_shared_prompt_tokens`, then the reply: a block of the episode's
    stream, which is read from its first call on (`queries.get_episode` does)."""
    behavior_logprobs: Mapped[bytes] = mapped_column(LargeBinary)
    """float32, one per action token, the sampler's."""
    policy_logprobs: Mapped[bytes | None] = mapped_column(LargeBinary)
    """float32, the learner's before the update; null without credit."""
    token_values: Mapped[bytes | None] = mapped_column(LargeBinary)
    """float32, the critic's value before each action token; null unless it credits tokens."""
    token_advantages: Mapped[bytes | None] = mapped_column(LargeBinary)
    """float32, of each action token; null where all have the call's."""
    policy_entropies: Mapped[bytes | None] = mapped_column(LargeBinary)
    """float16, nats: the entropy of the learner's distribution at each action token, before the
    update; null without credit."""


class _ReadByALoss:
    """Columns of a call as a loss read it in a process of the learner: one row for each time.

    `calls` holds what the trainer meant; this is what was done. A call that the trainer left
    out of the update is not here. Run, attempt and rolled_back are the episode's. The key comes
    first: SQLite's integrity check (3.40) reads a table without row ids as if it did.
    """

    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # read by SQLAlchemy

    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade"), primary_key=True, sort_order=-1
    )
    step_index: Mapped[int] = mapped_column(primary_key=True, sort_order=-1)
    call_index: Mapped[int] = mapped_column(primary_key=True, sort_order=-1)
    training_step: Mapped[int] = mapped_column(primary_key=True, sort_order=-1)
    """The training step whose update read it."""
    optimizer_step_index: Mapped[int] = mapped_column(primary_key=True, sort_order=-1)
    """0-based optimizer step of the training step."""
    rank: Mapped[int] = mapped_column(primary_key=True, sort_order=-1)
    """Of the learner's worker, from 0."""
    micro_batch: Mapped[int] = mapped_column(primary_key=True, sort_order=-1)
    """0-based, counted within the rank's optimizer step."""
    row_index: Mapped[int] = mapped_column(primary_key=True, sort_order=-1)
    """0-based place in the micro-batch."""
    num_tokens: Mapped[int] = mapped_column(sort_order=-1)
    """Tokens in the loss: those whose weight is above 0. The rest is about them alone."""
    weight_low: Mapped[float | None] = mapped_column(sort_order=-1)
    """Least weight of a token; null without tokens."""
    weight_high: Mapped[float | None] = mapped_column(sort_order=-1)


class LossInputRow(_ReadByALoss, Base):
    """A call as the policy's loss read it."""

    __tablename__ = "loss_inputs"

    advantage_low: Mapped[float | None]
    """Least advantage of a token, before any importance weight; null without tokens."""
    advantage_high: Mapped[float | None]
    old_logprob_sum: Mapped[float]
    """Sum of the old logprobs; 0 without tokens."""


class CriticLossInputRow(_ReadByALoss, Base):
    """A call as the critic's loss read it."""

    __tablename__ = "critic_loss_inputs"

    first_token: Mapped[int | None]
    """0-based place, in the action, of the first of the tokens; null without tokens."""
    target_low: Mapped[float | None]
    """Least value target of a token; null without tokens."""
    target_high: Mapped[float | None]


class MessageRow(Base):
    """A chat message of an episode's prompts, stored once. `episode_messages` shows it whole.

    A reference to a text of its episode is an integer: from bit 0 the kind (0 own lines of a
    message, 1 observation of a step, 2 reply of a call), from bit 2 the call's place in its step,
    from bit 10 the number of the message or step, from bit 27 the first character, from 0, and from
    bit 45 how many characters, 0 for the whole text.
    """

    __tablename__ = "messages"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # read by SQLAlchemy

    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    """From 0, stream by stream in the order of their first calls, and in each in the order of first
    use: what a conversation shows has numbers side by side."""
    role: Mapped[str] = mapped_column(String(16))
    """system, user, assistant or tool."""
    own_lines: Mapped[str]
    """All of its text, where `pieces_json` and `source` are null, or the lines that it has alone.
    The text of a message of several parts is that of its parts, one below the other."""
    pieces_json: Mapped[str | None]
    """What it is made of, one below the other: a JSON list of texts and references."""
    above: Mapped[str | None]
    source: Mapped[int | None] = mapped_column(BigInteger)
    """A reference, where one text of the episode is all of it but the few characters `above` and
    `below`; null otherwise, as these are."""
    below: Mapped[str | None]
    parts_json: Mapped[str | None]
    """Its parts in order, texts and `{"picture": hash of a media}`; null where it is one text."""
    tool_calls_json: Mapped[str | None]
    """What an assistant's message asks for, as in `calls`; null without any, and where
    `tool_calls_source` has them."""
    tool_calls_source: Mapped[int | None] = mapped_column(BigInteger)
    """A reference to the reply of the call that asked for the same; null otherwise."""
    tool_call_id: Mapped[str | None]
    """The request that a tool's message answers."""
    reasoning: Mapped[str | None]
    """An assistant's thoughts, where they were sent apart from its text; null without any, and
    where `reasoning_source` has them."""
    reasoning_source: Mapped[int | None] = mapped_column(BigInteger)
    """A reference to the characters of a reply that they are; null otherwise."""


class ToolListRow(Base):
    """What calls were offered, stored once."""

    __tablename__ = "tool_lists"

    content_hash: Mapped[str] = mapped_column(Hash, primary_key=True)
    tools_json: Mapped[str]
    """In the order that the model was told of them: a list of `{"name", "description",
    "parameters"}`, the last a JSON Schema as text."""


class EpisodeToolsRow(Base):
    """Calls of an episode were offered a list of tools."""

    __tablename__ = "episode_tools"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # read by SQLAlchemy

    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    """From 0, in the order of first use."""
    content_hash: Mapped[str] = mapped_column(
        Hash, ForeignKey("tool_lists.content_hash"), index=True
    )


class MediaRow(Base):
    """The bytes of a picture, stored once."""

    __tablename__ = "media"

    content_hash: Mapped[str] = mapped_column(PictureHash, primary_key=True)
    media_type: Mapped[str] = mapped_column(String(16))
    """image/png, image/jpeg or image/webp."""
    num_bytes: Mapped[int]
    data: Mapped[bytes] = mapped_column(LargeBinary)


class EpisodeMediaRow(Base):
    """An episode refers to a picture: in an observation, or in a message of a prompt."""

    __tablename__ = "episode_media"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # read by SQLAlchemy

    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade"), primary_key=True
    )
    content_hash: Mapped[str] = mapped_column(
        PictureHash, ForeignKey("media.content_hash"), primary_key=True, index=True
    )


class MetricRow(Base):
    """One measurement of a training step."""

    __tablename__ = "metrics"
    __table_args__ = (
        Index(None, "run_id", "name", "training_step"),
        {"sqlite_with_rowid": False},
    )

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    attempt: Mapped[int] = mapped_column(primary_key=True)
    training_step: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True, info=_NAME)
    value: Mapped[float | None] = mapped_column(info={INFINITE: True})
    """Null where it was not a number."""
    rolled_back: Mapped[bool]


class EvaluationRow(Base):
    """Result on a panel at a training step."""

    __tablename__ = "evaluations"

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    attempt: Mapped[int] = mapped_column(primary_key=True)
    training_step: Mapped[int] = mapped_column(primary_key=True)
    panel: Mapped[str] = mapped_column(primary_key=True, info=_NAME)
    split: Mapped[str] = mapped_column(String(16), primary_key=True)
    num_episodes: Mapped[int]
    mean_return: Mapped[float]
    success_rate: Mapped[float]
    """In [0, 1]."""
    rolled_back: Mapped[bool]


class CommitRow(Base):
    """How many transactions of writers have changed a run.

    Counted as the last act of each: who comes second waits until the first has committed, so that
    whoever reads a number has seen all that was committed under smaller ones.
    """

    __tablename__ = "commits"

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    last_commit: Mapped[int] = mapped_column(BigInteger)


class ChangeRow(Base):
    """What a commit changed, for those who follow a run."""

    __tablename__ = "changes"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # read by SQLAlchemy

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    commit_number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    """From 1, in the order of the commits."""
    place: Mapped[int] = mapped_column(primary_key=True)
    """0-based, within the commit."""
    kind: Mapped[str] = mapped_column(String(16))
    """A `ChangeKind`: episode, credit, decision, metrics, evaluation, run, label, audit."""
    training_step: Mapped[int | None]
    """Of an episode, the one that played it; of a decision, the one that decided. Null of a run, a
    label and an audit."""
    episode_id: Mapped[str | None] = mapped_column(EpisodeId)
    """Of an episode, credit and a label. Not a foreign key: a change stays."""


class SearchProgressRow(Base):
    """How far the text index is. One row, or none before the first time."""

    __tablename__ = "search_progress"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """1."""
    indexed_up_to: Mapped[int] = mapped_column(BigInteger)
    """Every step whose observation's id is no larger is in the index."""
    indexed_at: Mapped[float]
    """When it was last added to, Unix time."""


class LabelRow(Base):
    """A remark on an episode or on one of its steps."""

    __tablename__ = "labels"

    episode_id: Mapped[str] = mapped_column(
        EpisodeId, ForeignKey("episodes.id", ondelete="cascade"), primary_key=True
    )
    step_index: Mapped[int] = mapped_column(primary_key=True)
    """-1: the whole episode."""
    name: Mapped[str] = mapped_column(primary_key=True, info=_NAME)
    author: Mapped[str] = mapped_column(primary_key=True, info=_NAME)
    value: Mapped[str]
    created_at: Mapped[float]


class TokenPieceRow(Base):
    """The bytes that a token id of a run's tokenizer stands for."""

    __tablename__ = "token_pieces"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # read by SQLAlchemy

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    token_id: Mapped[int] = mapped_column(primary_key=True)
    piece: Mapped[bytes] = mapped_column(LargeBinary)


class LeaseRow(Base):
    """A runner on another machine has an episode to play, or had it."""

    __tablename__ = "leases"

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    lease_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    attempt: Mapped[int]
    episode_id: Mapped[str] = mapped_column(EpisodeId, index=True)
    """Not a foreign key: the episode comes when it has ended."""
    task_id: Mapped[str]
    runner: Mapped[str]
    leased_at: Mapped[float]
    heard_at: Mapped[float]
    """The newest sign of life that was written."""
    ended_at: Mapped[float | None]
    outcome: Mapped[str | None] = mapped_column(String(16))
    """returned, lost, handed_back, late or cancelled; null while it is held, and where the run was
    killed."""


class AuditRow(Base):
    """An audit of a run: what was checked, and the result."""

    __tablename__ = "audits"

    run_id: Mapped[str] = mapped_column(
        RunId, ForeignKey("runs.id", ondelete="cascade"), primary_key=True
    )
    audited_at: Mapped[float] = mapped_column(primary_key=True)
    first_training_step: Mapped[int | None]
    """Null if no training step was over."""
    last_training_step: Mapped[int | None]
    num_training_steps: Mapped[int]
    num_steps: Mapped[int]
    """Trained ones."""
    num_findings: Mapped[int]
    """0: every rule held wherever it could be checked. Not all need be listed."""
    rules_json: Mapped[str]
    """A list of `{"name", "num_checked", "num_findings"}`."""
    not_checked_json: Mapped[str]
    """A list of `{"rule", "reason", "num_subjects"}`; rule null means every rule."""


class AuditFindingRow(Base):
    """Something that an audit found not to be as it was meant."""

    __tablename__ = "audit_findings"
    __table_args__ = (
        ForeignKeyConstraint(
            ["run_id", "audited_at"], ["audits.run_id", "audits.audited_at"], ondelete="cascade"
        ),
    )

    run_id: Mapped[str] = mapped_column(RunId, primary_key=True)
    audited_at: Mapped[float] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    """From 0, in the order of the report."""
    rule: Mapped[str] = mapped_column(String(64))
    training_step: Mapped[int]
    episode_id: Mapped[str | None] = mapped_column(EpisodeId)
    """Null where no one episode is at fault. Not a foreign key: one may be missing."""
    step_index: Mapped[int | None]
    call_index: Mapped[int | None]
    found: Mapped[str]
    expected: Mapped[str]
