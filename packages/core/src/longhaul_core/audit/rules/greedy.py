"""Rules about greedy episodes: each group that needs one has it, and it is no part of the loss."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from longhaul_core.audit.evidence import AuditedEpisode, Evidence, FirstReply
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules, signs_of_training
from longhaul_core.audit.rules.replies import EXACT_AGREEMENT, PRUNED, ROUGH_AGREEMENT

__all__ = ["RULES"]

RULES = Rules()


@RULES.add("greedy_episodes", "groups have the greedy episode that they are compared with")
def check_played(evidence: Evidence, tally: Tally) -> None:
    """Each group has one greedy episode that ended, or failures that say why not."""
    if not evidence.intent.needs_greedy_episode:
        return
    tried = {episode.numbers.group_index for episode in evidence.greedy.episodes}
    for group_index, _ in evidence.groups:
        tally.checked()
        if group_index not in tried:
            tally.found(
                f"group {group_index} without a greedy episode",
                expected="one, or a recorded failure",
            )
    horizons = {e.numbers.group_index: e.numbers.horizon for e in evidence.episodes}
    tasks = {e.numbers.group_index: e.numbers.task_hash for e in evidence.episodes}
    seen: set[int] = set()
    for episode in evidence.greedy.episodes:
        numbers = episode.numbers
        wrong = [
            what
            for what, there in (
                ("steps that are not all there", not episode.complete),
                ("another one beside it", not numbers.failed and numbers.group_index in seen),
                (
                    f"a horizon of {numbers.horizon}",
                    numbers.horizon != horizons.get(numbers.group_index),
                ),
                ("another task", numbers.task_hash != tasks.get(numbers.group_index)),
            )
            if there
        ]
        seen |= set() if numbers.failed else {numbers.group_index}
        tally.checked()
        if wrong:
            tally.found(
                f"a greedy episode with {', '.join(wrong)}",
                numbers.episode_id,
                expected="one whole episode of the group's task, at its horizon",
            )


@RULES.add("greedy_untrained", "greedy episodes are in no loss")
def check_untrained(evidence: Evidence, tally: Tally) -> None:
    """A greedy episode is in no loss: it has no credit, and none of its steps is trained."""
    for episode in evidence.greedy.episodes:
        tally.checked()
        wrong = signs_of_training(episode, ended=True)
        if wrong:
            tally.found(
                f"a greedy episode with {', '.join(wrong)}",
                episode.numbers.episode_id,
                expected="nothing: it is a baseline, and in no loss",
            )


@RULES.add("greedy_replies", "greedy replies take the likeliest token")
def check_greedy(evidence: Evidence, tally: Tally) -> None:
    """No sampled reply to the prompt that a greedy one answered has a likelier token.

    Compared is the first step, whose prompt a group shares, up to the first token that differs,
    where the same weights sampled both.
    """
    if not evidence.intent.needs_greedy_episode:
        return
    if evidence.intent.temperature != 1 or evidence.intent.top_p < 1:
        tally.skip(
            "replies were sampled from a distribution that temperature or top_p changed",
            len(evidence.greedy.ended),
        )
        return
    bound = EXACT_AGREEMENT if evidence.intent.exact_engine else ROUGH_AGREEMENT
    for greedy, sampled in _same_prompt(evidence, tally):
        tally.checked()
        lead = _lead(greedy, sampled)
        if lead > bound:
            tally.found(
                f"a token {lead:.3g} nats less likely than the one that {sampled.episode_id} "
                "sampled in its place",
                greedy.episode_id,
                0,
                expected="the likeliest token",
            )


def _same_prompt(evidence: Evidence, tally: Tally) -> Iterator[tuple[FirstReply, FirstReply]]:
    """Each group's greedy first reply, with each sampled one of the same weights and prompt."""
    groups: dict[int, list[AuditedEpisode]] = defaultdict(list)
    for episode in evidence.ended:
        groups[episode.numbers.group_index].append(episode)
    replies = evidence.greedy.first_replies
    for group, episode in evidence.greedy.ended.items():
        greedy = replies.get(episode.numbers.episode_id)
        if greedy is None or greedy.action_tokens is None or greedy.behavior_logprobs is None:
            tally.skip(PRUNED)
            continue
        version = episode.version_of_first_reply(evidence.first_version)
        for other in groups[group]:
            if version is None or other.version_of_first_reply(evidence.first_version) != version:
                tally.skip("the greedy reply and a sampled one are of different weights")
                continue
            sampled = replies.get(other.numbers.episode_id)
            if sampled is not None and sampled.prompt_tokens == greedy.prompt_tokens:
                yield greedy, sampled


def _lead(greedy: FirstReply, sampled: FirstReply) -> float:
    """By how much the sampled token is likelier where the two replies part, in nats; or 0."""
    tokens, others = (
        np.frombuffer(reply.action_tokens or b"", "<i4") for reply in (greedy, sampled)
    )
    logprobs, other_logprobs = (
        np.frombuffer(reply.behavior_logprobs or b"", "<f4") for reply in (greedy, sampled)
    )
    shorter = min(len(tokens), len(others), len(logprobs), len(other_logprobs))
    parts = np.flatnonzero(tokens[:shorter] != others[:shorter])
    if not len(parts):
        return 0.0
    return float(other_logprobs[parts[0]]) - float(logprobs[parts[0]])
