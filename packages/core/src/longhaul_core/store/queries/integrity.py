"""What must be true of every store, as questions whose right answer is "nothing"."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from longhaul_core.store.queries.base import Answer

__all__ = ["INVARIANTS", "Violation", "violations"]


@dataclass(frozen=True, slots=True)
class Violation(Answer):
    """Something that an invariant forbids."""

    invariant: str
    """Its name in `INVARIANTS`."""
    subject: str
    """The episode, step, call or group that breaks it."""


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
    "every_step_has_its_observation": """
        SELECT s.episode_id || '#' || s.step_index FROM steps s
        JOIN episodes e ON e.id = s.episode_id
        LEFT JOIN observations o ON o.episode_id = s.episode_id AND o.step_index = s.step_index
        WHERE e.run_id = :run_id AND (o.id IS NULL) <> (coalesce(e.retention, '') = 'removed')
    """,
    # The calls of a step are 0, 1, 2 … to its last, and the one that chose the action is there.
    "calls_are_of_a_step_and_numbered": """
        SELECT c.episode_id || '#' || c.step_index FROM calls c
        JOIN episodes e ON e.id = c.episode_id
        LEFT JOIN steps s ON s.episode_id = c.episode_id AND s.step_index = c.step_index
        WHERE e.run_id = :run_id
        GROUP BY c.episode_id, c.step_index, s.step_index
        HAVING s.step_index IS NULL OR count(*) <> max(c.call_index) + 1
        UNION ALL
        SELECT s.episode_id || '#' || s.step_index FROM steps s
        JOIN episodes e ON e.id = s.episode_id
        LEFT JOIN calls c ON c.episode_id = s.episode_id AND c.step_index = s.step_index
            AND c.call_index = s.act_call_index
        WHERE e.run_id = :run_id AND s.act_call_index IS NOT NULL AND c.id IS NULL
    """,
    "every_list_of_tools_is_there": """
        SELECT c.episode_id || '#' || c.step_index || '.' || c.call_index FROM calls c
        JOIN episodes e ON e.id = c.episode_id
        LEFT JOIN episode_tools o ON o.episode_id = c.episode_id AND o.number = c.tools_number
        WHERE e.run_id = :run_id AND c.tools_number IS NOT NULL AND o.number IS NULL
    """,
    # One float32 of four bytes per sampled token, and none of an imitated reply, which nobody
    # sampled; pruned tokens are not asked about.
    "every_trained_token_has_a_logprob": """
        SELECT c.episode_id || '#' || c.step_index || '.' || c.call_index FROM calls c
        JOIN steps s ON s.episode_id = c.episode_id AND s.step_index = c.step_index
        JOIN episodes e ON e.id = c.episode_id JOIN runs r ON r.id = e.run_id
        LEFT JOIN call_tokens t ON t.episode_id = c.episode_id AND t.step_index = c.step_index
            AND t.call_index = c.call_index
        WHERE e.run_id = :run_id AND c.trained AND s.trained
            AND (c.num_action_tokens IS NULL
                 OR length(t.behavior_logprobs) <> CASE
                     WHEN e.phase = 'demonstration'
                         OR r.config_json LIKE '%"kind": "nll"%' THEN 0
                     ELSE 4 * c.num_action_tokens END
                 OR length(t.policy_logprobs) <> 4 * c.num_action_tokens)
    """,
    # A float16 each, where a call has any.
    "an_entropy_for_each_token_or_for_none": """
        SELECT c.episode_id || '#' || c.step_index || '.' || c.call_index FROM calls c
        JOIN episodes e ON e.id = c.episode_id
        JOIN call_tokens t ON t.episode_id = c.episode_id AND t.step_index = c.step_index
            AND t.call_index = c.call_index
        WHERE e.run_id = :run_id AND length(t.policy_entropies) <> 2 * c.num_action_tokens
    """,
    "every_trained_call_has_credit": """
        SELECT c.episode_id || '#' || c.step_index || '.' || c.call_index FROM calls c
        JOIN steps s ON s.episode_id = c.episode_id AND s.step_index = c.step_index
        JOIN episodes e ON e.id = c.episode_id
        WHERE e.run_id = :run_id AND c.trained AND s.trained
            AND (c.advantage IS NULL OR c.loss_weight IS NULL)
    """,
    "only_trained_calls_have_credit": """
        SELECT c.episode_id || '#' || c.step_index || '.' || c.call_index FROM calls c
        JOIN episodes e ON e.id = c.episode_id
        WHERE e.run_id = :run_id AND NOT c.trained AND c.advantage IS NOT NULL
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
        WHERE g.run_id = :run_id AND NOT g.rolled_back AND g.group_size IS NOT NULL
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
    "a_place_of_the_lineage_holds_one_ended_episode": """
        SELECT min(e.id) FROM episodes e
        WHERE e.run_id = :run_id AND NOT e.rolled_back AND NOT e.failed
        GROUP BY e.phase, e.training_step, e.group_index, e.sample_index
        HAVING count(*) > 1
    """,
    # What was trained was in the update that took its group; what was imitated beside a group, too.
    "training_follows_the_decision_on_the_group": """
        SELECT e.id FROM episodes e
        JOIN groups g ON g.run_id = e.run_id AND g.attempt = e.attempt
            AND g.phase = CASE e.phase WHEN 'demonstration' THEN 'train' ELSE e.phase END
            AND g.training_step = e.training_step AND g.group_index = e.group_index
        WHERE e.run_id = :run_id
            AND (e.trained <> (e.trained_training_step IS NOT NULL)
                 OR (e.trained AND (g.update_index IS NULL
                                    OR g.resolved_training_step <> e.trained_training_step)))
    """,
    "nothing_rolled_back_is_trained": """
        SELECT e.id FROM episodes e WHERE e.run_id = :run_id AND e.rolled_back AND e.trained
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
