"""Views with plain names: the usual questions are one short SELECT.

All that name a run show its *lineage*: what a later attempt rolled back is left out. They hold no
data, so every migration drops them and makes them anew from here;
changing one needs a migration all the same, so that existing stores get it.
"""

from collections.abc import Mapping
from typing import Literal

__all__ = ["view_definitions"]

Dialect = Literal["sqlite", "postgresql"]

_EPISODE_SUMMARY = """
SELECT e.id AS episode_id, e.run_id, r.name AS run_name, e.attempt, e.phase, e.training_step,
       e.group_index, e.sample_index, e.retry,
       g.resolved_training_step, g.discard_reason,
       t.environment, t.task_id, t.split, t.goal,
       e.failed, f.cause AS failure_cause, f.message AS failure_message,
       e.success, e.stop_reason, e.terminated, e.truncated,
       e.episode_return, e.num_steps, e.horizon,
       e.num_prompt_tokens, e.num_action_tokens, e.num_invalid_actions,
       e.trained, e.trained_training_step, e.episode_advantage, e.optimizer_step_index,
       e.final_value, e.retention,
       {started} AS started, e.duration_seconds
FROM episodes e
JOIN runs r ON r.id = e.run_id
JOIN tasks t ON t.hash = e.task_hash
JOIN groups g ON g.run_id = e.run_id AND g.attempt = e.attempt AND g.phase = e.phase
    AND g.training_step = e.training_step AND g.group_index = e.group_index
LEFT JOIN failures f ON f.episode_id = e.id
WHERE NOT e.rolled_back
"""

# Joined on the left, the text of a step is not read by a question that does not name it. What the
# calls of a step add up to is asked of them only where it is named.
_STEP_DETAIL = """
SELECT s.episode_id, s.step_index, e.run_id, e.phase, e.training_step, e.group_index,
       e.sample_index,
       t.environment, t.task_id, e.success, e.episode_return,
       o.text AS observation, o.picture_hashes_json, o.admissible_actions_json,
       c.reply, s.action, s.action_valid,
       s.reward, s.shaped_reward, s.return_to_go, s.value, s.value_target,
       s.episode_advantage, s.step_advantage, s.advantage, s.loss_weight, s.trained,
       e.trained_training_step,
       s.anchor_hash, s.act_call_index, c.policy_version, c.finish_reason, c.dropped_exchanges,
       {calls_of_step}
       s.environment_seconds, e.retention
FROM steps s
JOIN episodes e ON e.id = s.episode_id
LEFT JOIN tasks t ON t.hash = e.task_hash
LEFT JOIN observations o ON o.episode_id = s.episode_id AND o.step_index = s.step_index
LEFT JOIN calls c ON c.episode_id = s.episode_id AND c.step_index = s.step_index
    AND c.call_index = s.act_call_index
WHERE NOT e.rolled_back
"""

_OF_STEP = "FROM calls a WHERE a.episode_id = s.episode_id AND a.step_index = s.step_index"
_CALLS_OF_STEP = f"""
       (SELECT count(*) {_OF_STEP}) AS num_calls,
       (SELECT coalesce(sum(a.num_prompt_tokens), 0) {_OF_STEP}) AS num_prompt_tokens,
       (SELECT coalesce(sum(a.num_action_tokens), 0) {_OF_STEP}) AS num_action_tokens,
       (SELECT coalesce(sum(a.queue_seconds), 0) {_OF_STEP}) AS queue_seconds,
       (SELECT coalesce(sum(a.generate_seconds), 0) {_OF_STEP}) AS generate_seconds,
"""

_CALL_DETAIL = """
SELECT c.episode_id, c.step_index, c.call_index, e.run_id, e.phase, e.training_step,
       e.group_index, e.sample_index, t.environment, t.task_id,
       c.purpose, c.agent, c.model, c.policy_version, c.reply, c.tool_calls_json, c.finish_reason,
       c.dropped_exchanges, c.num_prompt_tokens, c.num_action_tokens,
       c.num_cached_tokens, c.queue_seconds, c.generate_seconds,
       c.trained AND s.trained AS trained, e.trained_training_step,
       c.credit_share, c.advantage, c.loss_weight, c.split_reason
FROM calls c
JOIN steps s ON s.episode_id = c.episode_id AND s.step_index = c.step_index
JOIN episodes e ON e.id = c.episode_id
JOIN tasks t ON t.hash = e.task_hash
WHERE NOT e.rolled_back
"""

# A call that was left out of the update has nulls; one that was read twice has two rows.
_CALL_LOSS_INPUTS = """
SELECT c.episode_id, c.step_index, c.call_index, e.run_id, e.attempt, e.training_step,
       e.group_index, e.sample_index,
       c.purpose, c.agent, c.trained AND s.trained AS trained, e.trained_training_step,
       c.num_action_tokens, c.advantage, c.loss_weight,
       i.training_step AS update_training_step, i.optimizer_step_index, i.rank, i.micro_batch,
       i.row_index, i.num_tokens,
       i.advantage_low, i.advantage_high, i.weight_low, i.weight_high, i.old_logprob_sum
FROM calls c
JOIN steps s ON s.episode_id = c.episode_id AND s.step_index = c.step_index
JOIN episodes e ON e.id = c.episode_id
LEFT JOIN loss_inputs i ON i.episode_id = c.episode_id AND i.step_index = c.step_index
    AND i.call_index = c.call_index
WHERE NOT e.rolled_back AND e.phase = 'train'
"""

# What the text index holds of each step.
_STEP_TEXTS: Mapping[Dialect, str] = {
    "sqlite": """
SELECT o.id, o.episode_id, o.step_index, o.text AS observation,
       coalesce((
           SELECT group_concat(r.reply, char(10)) FROM (
               SELECT c.reply FROM calls c
               WHERE c.episode_id = o.episode_id AND c.step_index = o.step_index
               ORDER BY c.call_index
           ) r
       ), '') AS replies
FROM observations o
""",
    "postgresql": """
SELECT o.id, o.episode_id, o.step_index, o.text AS observation,
       coalesce((
           SELECT string_agg(c.reply, chr(10) ORDER BY c.call_index) FROM calls c
           WHERE c.episode_id = o.episode_id AND c.step_index = o.step_index
       ), '') AS replies
FROM observations o
""",
}

# Failed episodes have neither return nor success: avg() leaves out what is null.
_TRAINING_CURVE = """
SELECT run_id, phase, training_step,
       CAST(sum(CASE WHEN failed THEN 0 ELSE 1 END) AS bigint) AS num_episodes,
       sum(CASE WHEN failed THEN 1 ELSE 0 END) AS num_failed,
       avg(episode_return) AS mean_return,
       CAST(avg(CASE WHEN success THEN 1.0 WHEN NOT success THEN 0.0 END)
            AS double precision) AS success_rate,
       CAST(avg(CASE WHEN NOT failed THEN num_steps * 1.0 END)
            AS double precision) AS mean_num_steps,
       sum(CASE WHEN failed THEN 0 ELSE num_steps END) AS num_steps,
       sum(num_prompt_tokens) AS num_prompt_tokens,
       sum(num_action_tokens) AS num_action_tokens,
       CAST(sum(num_invalid_actions) * 1.0 / nullif(sum(num_steps), 0)
            AS double precision) AS invalid_action_rate
FROM episodes
WHERE NOT rolled_back
GROUP BY run_id, phase, training_step
"""

# A training step is done when its metrics are there, the last that it leaves. Of what stands,
# a later attempt has the later training steps.
_RUN_SUMMARY = """
SELECT r.id AS run_id, r.name, r.kind, r.status, r.message, r.attempt,
       {started} AS started, {ended} AS ended, {heartbeat} AS heartbeat,
       r.num_training_steps AS num_training_steps_planned,
       coalesce((
           SELECT m.training_step FROM metrics m WHERE m.run_id = r.id AND NOT m.rolled_back
           ORDER BY m.attempt DESC, m.training_step DESC LIMIT 1
       ), 0) AS num_training_steps_done,
       CAST(coalesce(c.num_episodes, 0) AS bigint) AS num_episodes,
       CAST(coalesce(c.num_failed, 0) AS bigint) AS num_failed,
       CAST(coalesce(c.num_steps, 0) AS bigint) AS num_steps,
       CAST(coalesce(c.num_prompt_tokens, 0) AS bigint) AS num_prompt_tokens,
       CAST(coalesce(c.num_action_tokens, 0) AS bigint) AS num_action_tokens,
       r.host, r.pid
FROM runs r
LEFT JOIN (
    SELECT run_id,
           sum(num_episodes) AS num_episodes, sum(num_failed) AS num_failed,
           sum(num_steps) AS num_steps, sum(num_prompt_tokens) AS num_prompt_tokens,
           sum(num_action_tokens) AS num_action_tokens
    FROM training_curve GROUP BY run_id
) c ON c.run_id = r.id
"""

# A message is its own lines, or pieces of texts of its episode, one below the other.
_EPISODE_MESSAGES: Mapping[Dialect, str] = {
    "sqlite": """
SELECT m.episode_id, m.number, m.role,
       CASE WHEN m.pieces_json IS NULL THEN m.own_lines ELSE (
           SELECT group_concat(r.piece, char(10)) FROM (
               SELECT CASE p.type WHEN 'text' THEN p.value ELSE substr(
                   CASE json_extract(p.value, '$[0]')
                       WHEN 'o' THEN (
                           SELECT o.text FROM observations o
                           WHERE o.episode_id = m.episode_id
                               AND o.step_index = json_extract(p.value, '$[1]')
                       )
                       WHEN 'r' THEN (
                           SELECT c.reply FROM calls c
                           WHERE c.episode_id = m.episode_id
                               AND c.step_index = json_extract(p.value, '$[1]')
                               AND c.call_index = json_extract(p.value, '$[2]')
                       )
                       ELSE (
                           SELECT s.own_lines FROM messages s
                           WHERE s.episode_id = m.episode_id
                               AND s.number = json_extract(p.value, '$[1]')
                       )
                   END,
                   json_extract(p.value, '$[3]'), json_extract(p.value, '$[4]')
               ) END AS piece
               FROM json_each(m.pieces_json) p ORDER BY p.key
           ) r
       ) END AS content,
       m.parts_json, m.tool_calls_json, m.tool_call_id
FROM messages m
""",
    "postgresql": """
SELECT m.episode_id, m.number, m.role,
       CASE WHEN m.pieces_json IS NULL THEN m.own_lines ELSE (
           SELECT string_agg(CASE WHEN json_typeof(p.value) = 'string'
           THEN p.value #>> '{}' ELSE substr(
               CASE p.value ->> 0
                   WHEN 'o' THEN (
                       SELECT o.text FROM observations o
                       WHERE o.episode_id = m.episode_id
                           AND o.step_index = (p.value ->> 1)::integer
                   )
                   WHEN 'r' THEN (
                       SELECT c.reply FROM calls c
                       WHERE c.episode_id = m.episode_id
                           AND c.step_index = (p.value ->> 1)::integer
                           AND c.call_index = (p.value ->> 2)::integer
                   )
                   ELSE (
                       SELECT s.own_lines FROM messages s
                       WHERE s.episode_id = m.episode_id AND s.number = (p.value ->> 1)::integer
                   )
               END, (p.value ->> 3)::integer, (p.value ->> 4)::integer
           ) END, chr(10) ORDER BY p.place)
           FROM json_array_elements(m.pieces_json::json) WITH ORDINALITY AS p(value, place)
       ) END AS content,
       m.parts_json, m.tool_calls_json, m.tool_call_id
FROM messages m
""",
}

_PROMPT_MESSAGES: Mapping[Dialect, str] = {
    "sqlite": """
SELECT c.episode_id, c.step_index, c.call_index, j.key AS position, m.role, m.content,
       m.parts_json, m.tool_calls_json, m.tool_call_id
FROM calls c, json_each(c.messages_json) j
JOIN episode_messages m ON m.episode_id = c.episode_id AND m.number = j.value
""",
    "postgresql": """
SELECT c.episode_id, c.step_index, c.call_index, (j.place - 1)::integer AS position,
       m.role, m.content, m.parts_json, m.tool_calls_json, m.tool_call_id
FROM calls c
CROSS JOIN LATERAL json_array_elements_text(c.messages_json::json)
    WITH ORDINALITY AS j(number, place)
JOIN episode_messages m ON m.episode_id = c.episode_id AND m.number = j.number::integer
""",
}

_TIME: Mapping[Dialect, str] = {
    "sqlite": "datetime({column}, 'unixepoch')",
    "postgresql": "to_timestamp({column})",
}


def view_definitions(dialect: Dialect) -> dict[str, str]:
    """The SELECT of every view by its name, in an order in which each uses only earlier ones."""

    def time(column: str) -> str:
        return _TIME[dialect].format(column=column)

    return {
        "episode_summary": _EPISODE_SUMMARY.format(started=time("e.started_at")),
        "step_detail": _STEP_DETAIL.format(calls_of_step=_CALLS_OF_STEP.strip()),
        "call_detail": _CALL_DETAIL,
        "call_loss_inputs": _CALL_LOSS_INPUTS,
        "step_texts": _STEP_TEXTS[dialect],
        "episode_messages": _EPISODE_MESSAGES[dialect],
        "prompt_messages": _PROMPT_MESSAGES[dialect],
        "training_curve": _TRAINING_CURVE,
        "run_summary": _RUN_SUMMARY.format(
            started=time("r.started_at"),
            ended=time("r.ended_at"),
            heartbeat=time("r.heartbeat_at"),
        ),
    }
