"""Views with plain names: the usual questions are one short SELECT.

All that name a run show its *lineage*: what a later attempt rolled back is left out. They hold no
data, and are made from here with the tables;
changing one needs a migration all the same, so that existing stores get it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from longhaul_core.store.message_text import (
    CALL_BIT,
    FIRST_BIT,
    LENGTH_BIT,
    NUMBER_BIT,
    RUN_BITS,
)

__all__ = ["view_definitions"]

Dialect = Literal["sqlite", "postgresql"]

_EPISODE_SUMMARY = """
SELECT e.id AS episode_id, e.run_id, r.name AS run_name, e.attempt, e.phase, e.training_step,
       e.group_index, e.sample_index, e.retry,
       g.resolved_training_step, g.discard_reason,
       t.environment, t.task_id, t.split, t.goal, t.data AS task_data,
       e.failed, f.cause AS failure_cause, f.message AS failure_message,
       e.success, e.stop_reason, e.terminated, e.truncated,
       e.episode_return, e.num_steps, e.horizon,
       e.num_prompt_tokens, e.num_action_tokens, e.num_invalid_actions,
       e.trained, e.trained_training_step, e.episode_advantage, e.optimizer_step_index,
       e.final_value, e.branched_from, e.branched_at_step, e.branched_action, e.retention,
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
       c.purpose, c.agent, c.model, c.conversation, c.continuation, c.policy_version,
       l.tools_json, c.reply, c.tool_calls_json, c.finish_reason, c.sampling_json,
       c.overridden_json, c.cost_usd, c.dropped_exchanges, c.recalled_steps_json,
       c.num_prompt_tokens, c.num_action_tokens, c.num_cached_tokens,
       c.queue_seconds, c.generate_seconds,
       c.trained AND s.trained AS trained, e.trained_training_step,
       c.credit_share, c.credited_by, c.advantage, c.loss_weight, c.split_reason,
       c.reference_logprob_sum
FROM calls c
JOIN steps s ON s.episode_id = c.episode_id AND s.step_index = c.step_index
JOIN episodes e ON e.id = c.episode_id
JOIN tasks t ON t.hash = e.task_hash
LEFT JOIN episode_tools o ON o.episode_id = c.episode_id AND o.number = c.tools_number
LEFT JOIN tool_lists l ON l.content_hash = o.content_hash
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
WHERE NOT rolled_back AND phase NOT IN ('play', 'branch')
GROUP BY run_id, phase, training_step
"""

# A lease that is open in an earlier attempt ended with that attempt's process.
_LEASE_SUMMARY = """
SELECT l.run_id, l.attempt, l.runner, l.task_id, l.episode_id, l.lease_id,
       CASE WHEN l.outcome IS NOT NULL THEN l.outcome
            WHEN l.attempt < r.attempt OR r.status <> 'running' THEN 'run_ended'
            ELSE 'playing' END AS state,
       {leased} AS leased, {heard} AS heard, {ended} AS ended,
       e.failed, e.success, e.num_steps
FROM leases l
JOIN runs r ON r.id = l.run_id
LEFT JOIN episodes e ON e.id = l.episode_id
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
           sum(CASE WHEN failed THEN 0 ELSE 1 END) AS num_episodes,
           sum(CASE WHEN failed THEN 1 ELSE 0 END) AS num_failed,
           sum(CASE WHEN failed THEN 0 ELSE num_steps END) AS num_steps,
           sum(num_prompt_tokens) AS num_prompt_tokens,
           sum(num_action_tokens) AS num_action_tokens
    FROM episodes WHERE NOT rolled_back GROUP BY run_id
) c ON c.run_id = r.id
"""


def _field(value: str, begin: int, end: int) -> str:
    """The bits of an integer, in both dialects."""
    return f"(({value}) >> {begin} & {(1 << end - begin) - 1})"


# The text that a reference means, see `message_text`.
def _source(reference: str) -> str:
    number = _field(reference, NUMBER_BIT, FIRST_BIT)
    return f"""CASE {_field(reference, 0, CALL_BIT)}
    WHEN 1 THEN (
        SELECT o.text FROM observations o
        WHERE o.episode_id = m.episode_id AND o.step_index = {number}
    )
    WHEN 2 THEN (
        SELECT c.reply FROM calls c
        WHERE c.episode_id = m.episode_id AND c.step_index = {number}
            AND c.call_index = {_field(reference, CALL_BIT, NUMBER_BIT)}
    )
    ELSE (
        SELECT s.own_lines FROM messages s
        WHERE s.episode_id = m.episode_id AND s.number = {number}
    )
END"""


# A whole text is not given to substr(), which would count its characters.
def _referred(reference: str) -> str:
    first = f"CAST({_field(reference, FIRST_BIT, LENGTH_BIT)} AS integer) + 1"
    return f"""CASE ({reference}) >> {LENGTH_BIT}
WHEN 0 THEN {_source(reference)}
ELSE substr({_source(reference)}, {first}, CAST(({reference}) >> {LENGTH_BIT} AS integer))
END"""


# Elements of a list come in its order; before 3.44, SQLite's group_concat takes no other.
_PIECES: Mapping[Dialect, str] = {
    "sqlite": f"""
SELECT group_concat(CASE p.type WHEN 'text' THEN p.value ELSE {_referred("p.value")} END, char(10))
FROM json_each(m.pieces_json) p
""",
    "postgresql": f"""
SELECT string_agg(
    CASE json_typeof(p.value) WHEN 'string' THEN p.value #>> '{{}}' ELSE {
        _referred("(p.value #>> '{}')::bigint")
    } END, chr(10) ORDER BY p.place
)
FROM json_array_elements(m.pieces_json::json) WITH ORDINALITY AS p(value, place)
""",
}

# A message is one text of its episode with a few characters around it, or its own lines, or pieces
# of texts of its episode, one below the other.
_EPISODE_MESSAGES = f"""
SELECT m.episode_id, m.number, m.role,
       CASE
           WHEN m.source IS NOT NULL THEN m.above || {_referred("m.source")} || m.below
           WHEN m.pieces_json IS NULL THEN m.own_lines
           ELSE ({{pieces}})
       END AS content,
       m.parts_json,
       CASE
           WHEN m.tool_calls_source IS NOT NULL THEN (
               SELECT c.tool_calls_json FROM calls c
               WHERE c.episode_id = m.episode_id
                   AND c.step_index = {_field("m.tool_calls_source", NUMBER_BIT, FIRST_BIT)}
                   AND c.call_index = {_field("m.tool_calls_source", CALL_BIT, NUMBER_BIT)}
           )
           ELSE m.tool_calls_json
       END AS tool_calls_json,
       m.tool_call_id,
       CASE
           WHEN m.reasoning_source IS NOT NULL THEN {_referred("m.reasoning_source")}
           ELSE m.reasoning
       END AS reasoning
FROM messages m
"""

_FIRST = _field("j.value", 0, RUN_BITS)
_RUN = f"{_FIRST} AND {_FIRST} + {_field('j.value', RUN_BITS, 2 * RUN_BITS)} - 1"
_POSITION = f"(j.value >> {2 * RUN_BITS}) + m.number - {_FIRST}"
# In SQLite a CROSS JOIN is made in the order that is written; the planner would look through all
# messages of an episode for each run.
_PROMPT_MESSAGES: Mapping[Dialect, str] = {
    "sqlite": f"""
SELECT c.episode_id, c.step_index, c.call_index, {_POSITION} AS position, m.role, m.content,
       m.parts_json, m.tool_calls_json, m.tool_call_id, m.reasoning
FROM calls c CROSS JOIN json_each(c.messages_json) j
CROSS JOIN episode_messages m ON m.episode_id = c.episode_id AND m.number BETWEEN {_RUN}
""",
    "postgresql": f"""
SELECT c.episode_id, c.step_index, c.call_index, ({_POSITION})::integer AS position,
       m.role, m.content, m.parts_json, m.tool_calls_json, m.tool_call_id, m.reasoning
FROM calls c
CROSS JOIN LATERAL (
    SELECT e.value::bigint AS value FROM json_array_elements_text(c.messages_json::json) AS e(value)
) j
JOIN episode_messages m ON m.episode_id = c.episode_id AND m.number BETWEEN {_RUN}
""",
}

_DIGITS = "123456789ABCDEF"


@dataclass(frozen=True, slots=True)
class _Float:
    """A binary format of IEEE 754 with a sign bit, its exponent's bits, then its fraction's."""

    num_bytes: int
    fraction_bits: int

    @property
    def infinite(self) -> int:
        """The exponent's bits of infinity and of what is no number."""
        return (1 << 8 * self.num_bytes - 1 - self.fraction_bits) - 1

    @property
    def shift(self) -> int:
        """What a number's exponent is less than its bits say, if its fraction is an integer."""
        return self.infinite // 2 + self.fraction_bits


_FLOAT32 = _Float(num_bytes=4, fraction_bits=23)
_FLOAT16 = _Float(num_bytes=2, fraction_bits=10)


def _bits(blob: str, num_bytes: int) -> str:
    """The bytes of token `j.key`, little-endian, as an integer, in SQLite's functions."""
    digits = f"hex(substr({blob}, {num_bytes} * j.key + 1, {num_bytes}))"
    # Digit pairs are bytes, least byte first; instr() of a 0 is 0.
    shifts = (place ^ 4 for place in range(0, 8 * num_bytes, 4))
    terms = (
        f"(instr('{_DIGITS}', substr(d.h, {place}, 1)) << {shift})"
        for place, shift in enumerate(shifts, start=1)
    )
    return f"SELECT {' | '.join(terms)} AS u FROM (SELECT {digits} AS h LIMIT 1) d LIMIT 1"


def _power(dialect: Dialect, exponent: str) -> str:
    """2 to the power of an integer in [-149, 104]; SQLite may lack mathematics."""
    if dialect == "postgresql":
        return f"power(2::double precision, {exponent})"
    small = f"max(-({exponent}), 0)"
    return (
        f"(1.0 * (1 << min(max({exponent}, 0), 62)) * (1 << max({exponent} - 62, 0))"
        f" / (1 << min({small}, 62)) / (1 << min(max({small} - 62, 0), 62))"
        f" / (1 << max({small} - 124, 0)))"
    )


def _number(dialect: Dialect, blob: str, form: _Float) -> str:
    """Token `j.key` of packed floats; null for what is no number."""
    size, fraction = form.num_bytes, form.fraction_bits
    octets = (
        f"(get_byte({blob}, {size} * j.key + {place})::bigint << {8 * place})"
        for place in range(size)
    )
    bits: Mapping[Dialect, str] = {
        "sqlite": _bits(blob, size),
        "postgresql": f"SELECT {' | '.join(octets)} AS u OFFSET 0",
    }
    infinite = "9e999" if dialect == "sqlite" else "'Infinity'::double precision"
    exponent, mantissa = f"(v.u >> {fraction} & {form.infinite})", f"(v.u & {(1 << fraction) - 1})"
    return f"""(
    SELECT (1 - 2 * (v.u >> {8 * size - 1})) * CASE
        WHEN {blob} IS NULL THEN NULL
        WHEN {exponent} = {form.infinite} THEN CASE WHEN {mantissa} = 0 THEN {infinite} END
        WHEN {exponent} = 0 THEN {mantissa} * {_power(dialect, str(1 - form.shift))}
        ELSE ({mantissa} + {1 << fraction}) * {_power(dialect, f"{exponent} - {form.shift}")}
    END
    FROM ({bits[dialect]}) v
)"""


# A list of as many zeros as there are tokens stands in for generate_series, which SQLite lacks.
_TOKENS: Mapping[Dialect, str] = {
    "sqlite": """json_each(
    '[' || substr(replace(printf('%0*d', length(k.behavior_logprobs) / 4, 0), '0', ',0'), 2) || ']'
) j""",
    "postgresql": "generate_series(0, length(k.behavior_logprobs) / 4 - 1) AS j(key)",
}


def _token_logprobs(dialect: Dialect) -> str:
    return f"""
SELECT k.episode_id, k.step_index, k.call_index, CAST(j.key AS integer) AS token_index,
       {_number(dialect, "k.behavior_logprobs", _FLOAT32)} AS behavior_logprob,
       {_number(dialect, "k.policy_logprobs", _FLOAT32)} AS policy_logprob,
       {_number(dialect, "k.policy_entropies", _FLOAT16)} AS policy_entropy
FROM call_tokens k, {_TOKENS[dialect]}
WHERE length(k.behavior_logprobs) > 0
"""


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
        "episode_messages": _EPISODE_MESSAGES.format(pieces=_PIECES[dialect].strip()),
        "prompt_messages": _PROMPT_MESSAGES[dialect],
        "token_logprobs": _token_logprobs(dialect),
        "training_curve": _TRAINING_CURVE,
        "lease_summary": _LEASE_SUMMARY.format(
            leased=time("l.leased_at"), heard=time("l.heard_at"), ended=time("l.ended_at")
        ),
        "run_summary": _RUN_SUMMARY.format(
            started=time("r.started_at"),
            ended=time("r.ended_at"),
            heartbeat=time("r.heartbeat_at"),
        ),
    }
