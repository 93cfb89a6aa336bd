-- How many tokens of prompts are read again because something before them changed?
-- `shared_tokens` are those that a prompt begins with as the prompt before it of its conversation (or, where the conversation begins, of its agent and purpose): an engine that keeps prefixes has them. `repeated_tokens` is how much longer the prompt before was, at most to the new one's end: 0 where prompts go on, and no less than what is repeated where they do not, such as under a window memory or with a clock in the instructions. Of programs the metric `gateway/repeated_tokens_rate` counts by the tokens themselves.
-- :run run  The run.
WITH in_order AS (
    SELECT e.training_step, e.phase, c.num_prompt_tokens, c.num_shared_prompt_tokens,
           coalesce(
               lag(c.num_prompt_tokens) OVER (
                   PARTITION BY c.episode_id, c.agent, c.purpose, c.conversation ORDER BY c.step_index, c.call_index),
               lag(c.num_prompt_tokens) OVER (
                   PARTITION BY c.episode_id, c.agent, c.purpose ORDER BY c.step_index, c.call_index),
               0
           ) AS num_before
    FROM episodes e
    JOIN calls c ON c.episode_id = e.id
    WHERE e.run_id = :run AND NOT e.rolled_back AND c.num_prompt_tokens IS NOT NULL
),
counted AS (
    SELECT training_step, phase, num_prompt_tokens, num_shared_prompt_tokens,
           CASE WHEN num_before < num_prompt_tokens THEN num_before ELSE num_prompt_tokens END
               - num_shared_prompt_tokens AS num_repeated
    FROM in_order
)
SELECT training_step, phase, count(*) AS num_calls,
       CAST(sum(num_prompt_tokens) AS bigint) AS prompt_tokens,
       CAST(sum(num_shared_prompt_tokens) AS bigint) AS shared_tokens,
       CAST(sum(num_repeated) AS bigint) AS repeated_tokens,
       CAST(sum(num_repeated) * 1.0 / sum(num_prompt_tokens) AS double precision) AS repeated_rate
FROM counted
GROUP BY training_step, phase
ORDER BY training_step, phase
