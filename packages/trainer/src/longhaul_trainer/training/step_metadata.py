"""What the trainer knows of an episode and its steps, and where their calls are in a row.

It travels beside each row through TransferQueue as one `RowMetadata`: the first row of an episode
carries what is known of the whole episode, and every row where its calls are. It travels pickled:
verl keeps a row in a pydantic model, which would turn a dataclass into a dictionary. Nothing here
imports verl, so credit can be worked out, and tested, without it.

Row keys in TransferQueue are `{group}_{sample_index}_{row}`, so a group's name holds no `_`.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from longhaul_core.types import CreditedBy, GroupOutcome, TaskKey

METADATA = "longhaul"
"""Our key in a row's `extra_fields`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetadata:
    """What credit must know of a step, whether or not a call of it is trained."""

    reward: float
    """The environment's."""
    action_valid: bool
    anchor: str
    """Hash of its anchor state; the state itself where the estimator compares texts."""
    trained_calls: tuple[int, ...]
    """0-based places, among the step's calls, of those that are trained."""
    prompt_tokens: int
    """That the engine read in all calls of the step, those that are not trained included."""
    action_tokens: int
    """That it wrote in them."""
    cached_tokens: int | None = None
    """Prompt tokens from the prefix cache; None where it is not reported for every call."""
    agents: tuple[str, ...] = ()
    """Names of the agents that made its trained calls, in alphabetical order."""
    hook_reward: float | None = None
    """What `algorithm.reward_shaping` returned for the step; None without such a function."""
    spells_mark: bool = False
    """Whether its observation, or what a program's calls newly read of users and tools, spells a
    control token of the model's; it was read as a text."""
    continuations: tuple[str, ...] = ()
    """How each call's prompt relates to the calls before it (`Continuation`), where a program made
    it."""
    overridden_calls: int = 0
    """How many of these calls asked for something that they did not get."""
    prompt: str = ""
    """Hash of the tokens of the prompt that its first trained call read; empty without one, and
    where steps make no pairs."""
    action: str = ""
    """What the environment was given; empty where steps make no pairs."""
    repeated_tokens: int = 0
    """See `num_repeated_tokens`, summed over these calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeMetadata:
    """What credit must know of an episode that ended."""

    environment: str
    task_id: str
    training_step: int
    """That played the episode."""
    group_index: int
    """0-based place of the task among those that the training step played."""
    sample_index: int
    """0-based place of the episode in its group."""
    retry: int
    """How many tries of this episode failed before."""
    horizon: int
    """Longest that the episode could be, in steps."""
    success: bool
    episode_return: float
    truncated: bool
    """Whether a limit cut the episode short."""
    scored: bool
    """Whether it was scored as a whole at its end; see `Trajectory.scored`."""
    final_anchor: str
    """Anchor of the state seen after the last step; see `StepMetadata.anchor`."""
    greedy: bool
    """Whether it is the greedy episode that is the baseline of its group, and not trained."""
    steps: tuple[StepMetadata, ...]
    """All of them, in order."""
    demonstration: bool = False
    """Whether it is a stored episode that is imitated beside its group."""
    hook_error: str = ""
    """Why `algorithm.reward_shaping` returned no rewards; the trainer ends the run with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpan:
    """Where the tokens of one trained call are in the response of its row."""

    step: int
    """0-based place of its step in the episode."""
    call: int
    """0-based place among the calls of its step."""
    valued: bool
    """Whether a critic's value of the step is read before its first token."""
    start: int
    """0-based place, in the row's response, of the first token of the reply."""
    prompt_tokens: int
    action_tokens: int
    policy_version: int
    """Optimizer steps behind the oldest weights that sampled a token of the reply."""
    credit_share: float
    """What the advantage is multiplied by for these tokens."""
    credited_by: CreditedBy
    """Which step's advantage that is."""
    purpose: str
    """What the call was made for, by which `loss.purposes` shares out the loss."""
    split_reason: str | None
    """`SplitReason` value of the call that begins a row; None for those that continue it."""

    @property
    def stop(self) -> int:
        """Place after the reply's last token."""
        return self.start + self.action_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMetadata:
    """What travels beside one row. The first four fields say which episode the row is of."""

    training_step: int
    group_index: int
    sample_index: int
    retry: int
    spans: tuple[CallSpan, ...]
    """Of the row's calls, in order; empty for the final observation that the critic alone reads."""
    episode: EpisodeMetadata | None
    """With the first row of its episode, and with no other."""
    demonstration: bool = False
    """See `EpisodeMetadata`."""


Rows = Mapping[str, RowMetadata]
"""Row key → what travels beside the row."""


class Episode(NamedTuple):
    """What an episode is called among the rows."""

    group: str
    sample_index: int


class GroupName(NamedTuple):
    """Key of a group among the rows; sorts in the order in which groups were requested."""

    training_step: int
    """That plays it."""
    group_index: int
    """0-based place among the groups of that training step."""

    def __str__(self) -> str:
        return f"train-{self.training_step}-{self.group_index}"

    @classmethod
    def parse(cls, name: str) -> GroupName:
        """Read a group's name."""
        _, training_step, group_index = name.split("-")
        return cls(int(training_step), int(group_index))


class RowKey(NamedTuple):
    """Where a row belongs, as its key says."""

    group: str
    sample_index: int
    row: int
    """0-based place of the row in its episode."""

    @property
    def episode(self) -> Episode:
        """The episode that the row is of."""
        return Episode(self.group, self.sample_index)

    @classmethod
    def parse(cls, key: str) -> RowKey:
        """Read a TransferQueue key."""
        group, sample_index, row = key.split("_")
        return cls(group, int(sample_index), int(row))


class PlacedCall(NamedTuple):
    """A trained call, and the row that it is in."""

    row: str
    """Key of the row."""
    span: CallSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode:
    """An episode that ended, put together from its rows."""

    metadata: EpisodeMetadata
    calls: tuple[PlacedCall, ...]
    """Its trained calls, in the order that they were made."""

    @property
    def rows(self) -> tuple[str, ...]:
        """Keys of its rows, in the order of their first calls."""
        return tuple(dict.fromkeys(call.row for call in self.calls))

    @property
    def trained_tokens(self) -> tuple[int, ...]:
        """For each step, the tokens of all its trained calls together."""
        return self.tokens_of(self.calls)

    def tokens_of(self, calls: Iterable[PlacedCall]) -> tuple[int, ...]:
        """For each step, the tokens of those of its trained calls that are among these."""
        counts = [0] * len(self.metadata.steps)
        for call in calls:
            counts[call.span.step] += call.span.action_tokens
        return tuple(counts)


def packed(row: RowMetadata) -> bytes:
    """What a row's `extra_fields` carry under `METADATA`."""
    return pickle.dumps(row)


def read_metadata(extra_fields: Sequence[Mapping[str, Any]]) -> list[RowMetadata]:
    """What travels beside rows, in the order given."""
    return [pickle.loads(fields[METADATA]) for fields in extra_fields]


def episodes_in(rows: Rows) -> list[EpisodeMetadata]:
    """What is known of the episodes whose rows these are, in the order of their first rows."""
    return [row.episode for row in rows.values() if row.episode is not None]


def played_episodes(rows: Rows) -> dict[Episode, PlayedEpisode]:
    """The episodes that rows belong to, in the order of the rows.

    Args:
        rows: Every row with a trained call of each episode, in any order.

    Raises:
        ValueError: If a row of an episode is missing, or one of its calls is in two rows.
    """
    metadata: dict[Episode, EpisodeMetadata] = {}
    calls: dict[Episode, list[PlacedCall]] = defaultdict(list)
    for key, row in rows.items():
        episode = RowKey.parse(key).episode
        calls[episode] += [PlacedCall(key, span) for span in row.spans]
        if row.episode is not None:
            metadata[episode] = row.episode
    for episode, found in calls.items():
        if episode not in metadata:
            raise ValueError(f"the first row of {episode} is missing")
        _refuse_other_calls(episode, metadata[episode], found)
    return {
        episode: PlayedEpisode(
            metadata=metadata[episode],
            calls=tuple(sorted(found, key=lambda call: (call.span.step, call.span.call))),
        )
        for episode, found in calls.items()
    }


def _refuse_other_calls(
    episode: Episode, metadata: EpisodeMetadata, calls: Iterable[PlacedCall]
) -> None:
    wanted = Counter(
        (place, call) for place, step in enumerate(metadata.steps) for call in step.trained_calls
    )
    found = Counter((call.span.step, call.span.call) for call in calls)
    if found != wanted:
        raise ValueError(
            f"each trained call of {episode} should be in one of its rows: (step, call) "
            f"{sorted((wanted - found).elements())} are missing, "
            f"{sorted((found - wanted).elements())} are there too often"
        )


def without_final(rows: Rows) -> tuple[dict[str, RowMetadata], dict[Episode, str]]:
    """The rows of calls, and the row of each truncated episode's final observation.

    The latter has no call: it is there for the critic alone.

    Returns:
        Rows with calls; episode → key of the row of its final observation.
    """
    finals = {RowKey.parse(key).episode: key for key, row in rows.items() if not row.spans}
    return {key: row for key, row in rows.items() if row.spans}, finals


def without_greedy(rows: Rows) -> tuple[dict[str, RowMetadata], dict[str, PlayedEpisode]]:
    """The rows of sampled episodes, and each group's greedy episode.

    Returns:
        Rows of what was sampled; group → its greedy episode. A group whose greedy episode failed
        is not among the latter.
    """
    greedy = {
        RowKey.parse(key).episode
        for key, row in rows.items()
        if row.episode is not None and row.episode.greedy
    }
    of_greedy = {key: row for key, row in rows.items() if RowKey.parse(key).episode in greedy}
    return {key: row for key, row in rows.items() if key not in of_greedy}, {
        episode.group: played for episode, played in played_episodes(of_greedy).items()
    }


def without_demonstrations(
    rows: Rows,
) -> tuple[dict[str, RowMetadata], dict[str, RowMetadata]]:
    """The rows of episodes that were played, and those of demonstrations beside their groups."""
    return (
        {key: row for key, row in rows.items() if not row.demonstration},
        {key: row for key, row in rows.items() if row.demonstration},
    )


def group_outcomes(episodes: Iterable[EpisodeMetadata]) -> list[GroupOutcome]:
    """How often each group solved its task, in the order of the group's first episode.

    Args:
        episodes: That ended; a failed one leaves nothing here.
    """
    groups: dict[GroupName, list[EpisodeMetadata]] = defaultdict(list)
    for episode in episodes:
        groups[GroupName(episode.training_step, episode.group_index)].append(episode)
    return [
        GroupOutcome(
            task=TaskKey(members[0].environment, members[0].task_id),
            horizon=members[0].horizon,
            num_successes=sum(episode.success for episode in members),
            num_episodes=len(members),
        )
        for members in groups.values()
    ]
