"""What must be true of every store, as questions whose right answer is "nothing"."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.orm import Session

__all__ = ["INVARIANTS", "Violation", "violations"]


class Violation(NamedTuple):
    """Something that an invariant forbids."""

    invariant: str
    """Its name in `INVARIANTS`."""
    subject: str
    """The episode, step or group that breaks it."""


INVARIANTS: Mapping[str, str] = {
    # Every step of every episode is there, and no other.
    "steps_match_episode_length": """
        SELECT e.id FROM episodes e
        LEFT JOIN steps s ON s.episode_id = e.id
        WHERE e.run_id = :run_id
        GROUP BY e.id, e.num_steps
        HAVING count(s.step_index) <> e.num_steps
            OR coalesce(max(s.step_index), -1) <> e.num_steps - 1
    """,
    "every_step_has_content": """
        SELECT s.episode_id || '#' || s.step_index FROM steps s
        JOIN episodes e ON e.id = s.episode_id
        LEFT JOIN step_contents c ON c.episode_id = s.episode_id AND c.step_index = s.step_index
        WHERE e.run_id = :run_id AND c.id IS NULL
    """,
    # One float32 of four bytes per sampled token; pruned tokens are not asked about.
    "every_trained_token_has_a_logprob": """
        SELECT s.episode_id || '#' || s.step_index FROM steps s
        JOIN episodes e ON e.id = s.episode_id
        JOIN step_contents c ON c.episode_id = s.episode_id AND c.step_index = s.step_index
        WHERE e.run_id = :run_id AND s.trained AND c.action_tokens IS NOT NULL
            AND (length(c.action_tokens) <> 4 * s.num_action_tokens
                 OR c.behavior_logprobs IS NULL
                 OR length(c.behavior_logprobs) <> 4 * s.num_action_tokens
                 OR length(c.policy_logprobs) <> 4 * s.num_action_tokens)
    """,
    "every_trained_step_has_credit": """
        SELECT s.episode_id || '#' || s.step_index FROM steps s
        JOIN episodes e ON e.id = s.episode_id
        WHERE e.run_id = :run_id AND s.trained
            AND (s.advantage IS NULL OR s.return_to_go IS NULL OR s.loss_weight IS NULL)
    """,
    # A place in a group that has no ended episode has a failure that says why. A group of training
    # episodes that no training step has decided on may still be played.
    "groups_are_whole_or_say_why": """
        SELECT g.run_id || '/' || g.attempt || '/' || g.phase || '/' || g.training_step
               || '/' || g.group_index
        FROM groups g
        JOIN episodes e ON e.run_id = g.run_id AND e.attempt = g.attempt AND e.phase = g.phase
            AND e.training_step = g.training_step AND e.group_index = g.group_index
        WHERE g.run_id = :run_id AND NOT g.superseded AND g.group_size IS NOT NULL
            AND (g.phase <> 'train' OR g.resolved_training_step IS NOT NULL)
        GROUP BY g.run_id, g.attempt, g.phase, g.training_step, g.group_index, g.group_size
        HAVING count(DISTINCT e.sample_index) <> g.group_size
    """,
    "failures_have_causes_and_no_return": """
        SELECT e.id FROM episodes e LEFT JOIN failures f ON f.episode_id = e.id
        WHERE e.run_id = :run_id
            AND (e.failed <> (f.episode_id IS NOT NULL)
                 OR e.failed <> (e.episode_return IS NULL)
                 OR (e.failed AND e.trained))
    """,
    "surviving_places_hold_one_ended_episode": """
        SELECT min(e.id) FROM episodes e
        WHERE e.run_id = :run_id AND NOT e.superseded AND NOT e.failed
        GROUP BY e.phase, e.training_step, e.group_index, e.sample_index
        HAVING count(*) > 1
    """,
    # What was trained was in the update that took its group.
    "training_follows_the_decision_on_the_group": """
        SELECT e.id FROM episodes e
        JOIN groups g ON g.run_id = e.run_id AND g.attempt = e.attempt AND g.phase = e.phase
            AND g.training_step = e.training_step AND g.group_index = e.group_index
        WHERE e.run_id = :run_id
            AND (e.trained <> (e.trained_training_step IS NOT NULL)
                 OR (e.trained AND (g.update_index IS NULL
                                    OR g.resolved_training_step <> e.trained_training_step)))
    """,
    "nothing_superseded_is_trained": """
        SELECT e.id FROM episodes e WHERE e.run_id = :run_id AND e.superseded AND e.trained
    """,
}
"""By name: SELECTs that give the offenders among a run's rows."""


def violations(session: Session, *, run_id: str) -> list[Violation]:
    """Everything in the run's rows that an invariant forbids; nothing, if all is well.

    Reads every step of the run.
    """
    return [
        Violation(name, str(subject))
        for name, query in INVARIANTS.items()
        for subject in session.scalars(text(query), {"run_id": run_id})
    ]
