"""The columns that an audit reads of the store's tables, one class a table.

A field is the column of its name, which `store/models.py` describes. None stands for null: of
credit, where none was given.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from longhaul_core.store.message_text import MessageText, Source, whole_text

__all__ = [
    "CallNumbers",
    "CallPrompt",
    "CallReply",
    "CallTexts",
    "CallTokens",
    "CriticLossInput",
    "EpisodePicture",
    "FinalState",
    "LossInput",
    "MessageParts",
    "MessageTexts",
    "ObservationText",
    "State",
    "StepNumbers",
]


class StepNumbers(NamedTuple):
    """Of `steps`."""

    episode_id: str
    step_index: int
    action: str
    action_valid: bool
    reward: float
    shaped_reward: float | None
    return_to_go: float | None
    episode_advantage: float | None
    step_advantage: float | None
    advantage: float | None
    loss_weight: float | None
    trained: bool
    anchor_hash: str
    act_call_index: int | None
    value: float | None
    value_target: float | None


class CallNumbers(NamedTuple):
    """Of `calls`."""

    episode_id: str
    step_index: int
    call_index: int
    agent: str
    purpose: str
    conversation: int
    continuation: str | None
    sampling_json: str | None
    finish_reason: str
    trained: bool
    policy_version: int | None
    num_prompt_tokens: int | None
    num_action_tokens: int | None
    num_shared_prompt_tokens: int | None
    credit_share: float
    credited_by: str
    advantage: float | None
    loss_weight: float | None
    split_reason: str | None
    reference_logprob_sum: float | None


class CallTokens(NamedTuple):
    """Of `call_tokens`, which has no row of a call whose tokens were pruned."""

    episode_id: str
    step_index: int
    call_index: int
    tokens: bytes
    behavior_logprobs: bytes
    policy_logprobs: bytes | None
    token_values: bytes | None
    token_advantages: bytes | None


class CallPrompt(NamedTuple):
    """Of `calls`."""

    episode_id: str
    step_index: int
    call_index: int
    messages_json: str | None


class CallReply(NamedTuple):
    """Of `calls`."""

    episode_id: str
    step_index: int
    call_index: int
    reply: str | None


class CallTexts(NamedTuple):
    """Of `calls`."""

    episode_id: str
    step_index: int
    call_index: int
    trained: bool
    reply: str | None
    messages_json: str | None


class LossInput(NamedTuple):
    """Of `loss_inputs`."""

    episode_id: str
    step_index: int
    call_index: int
    training_step: int
    optimizer_step_index: int
    rank: int
    micro_batch: int
    row_index: int
    num_tokens: int
    advantage_low: float | None
    advantage_high: float | None
    weight_low: float | None
    weight_high: float | None
    old_logprob_sum: float


class CriticLossInput(NamedTuple):
    """Of `critic_loss_inputs`."""

    episode_id: str
    step_index: int
    call_index: int
    training_step: int
    optimizer_step_index: int
    num_tokens: int
    first_token: int | None
    target_low: float | None
    target_high: float | None
    weight_low: float | None
    weight_high: float | None


class State(NamedTuple):
    """Of `observations`."""

    episode_id: str
    step_index: int
    anchor_state: str | None
    text: str
    picture_hashes_json: str | None


class ObservationText(NamedTuple):
    """Of `observations`."""

    episode_id: str
    step_index: int
    text: str


class FinalState(NamedTuple):
    """Of `episodes`."""

    id: str
    final_anchor_state: str | None
    final_observation: str | None
    final_picture_hashes_json: str | None


class EpisodePicture(NamedTuple):
    """Of `episode_media`."""

    episode_id: str


class MessageParts(NamedTuple):
    """Of `messages`."""

    episode_id: str
    number: int
    role: str
    parts_json: str | None


class MessageTexts(NamedTuple):
    """Of `messages`."""

    episode_id: str
    number: int
    role: str
    own_lines: str
    pieces_json: str | None
    above: str | None
    source: int | None
    below: str | None
    parts_json: str | None

    def whole(self, texts: Mapping[Source, str]) -> str:
        """Its text, that of its parts one below the other.

        Args:
            texts: Of its episode: messages' own lines, observations, replies.

        Raises:
            StoreError: It repeats a text that is not there.
        """
        if self.parts_json is not None:
            parts: list[object] = json.loads(self.parts_json)
            return "\n".join(part for part in parts if isinstance(part, str))
        kept = MessageText(self.own_lines, self.pieces_json, self.above, self.source, self.below)
        return whole_text(kept, texts=texts, name=f"message {self.number} of {self.episode_id}")
