"""Rules about the prompts that trained calls read."""

from longhaul_core.audit.evidence import Evidence
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules

__all__ = ["RULES"]

RULES = Rules()

REMOVED = "the run's retention removed its messages"
UNREADABLE = "its tokens were pruned from the store, or their texts are not in it"


@RULES.add("marks_of_texts", "no control token of a trained prompt came out of a text")
def check_marks_of_texts(evidence: Evidence, tally: Tally) -> None:
    """No control token of a prompt came out of a text, which could end its turn by it.

    A name that the policy sampled as a control token may be one in later prompts too.
    """
    removed = {
        episode.numbers.episode_id
        for episode in evidence.trained
        if episode.numbers.retention == "removed"
    }
    for key, call in evidence.calls.items():
        if not evidence.in_loss(call) or call.num_prompt_tokens is None:
            continue
        if call.episode_id in removed:
            tally.skip(REMOVED)
            continue
        marks = evidence.spelled_marks.get(key, ())
        if marks is None:
            tally.skip(UNREADABLE)
            continue
        tally.checked()
        for mark in marks:
            least = mark.num_in_texts - mark.num_sampled
            if mark.num_as_text < least:
                tally.found(
                    f"{mark.name!r} {mark.num_in_texts} times in the texts of its messages, and "
                    f"{mark.num_as_text} times as text in its prompt",
                    *key,
                    expected=f"at least {least} times: a text never becomes a control token",
                )
