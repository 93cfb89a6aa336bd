-- Which trained calls did the loss not read exactly once?
-- A call whose advantage is zero has no gradient, and may be left out.
-- :run run  The run.
SELECT episode_id, step_index, call_index, advantage, count(num_tokens) AS times_read,
       max(num_tokens) AS tokens_read, max(num_action_tokens) AS num_action_tokens
FROM call_loss_inputs
WHERE run_id = :run AND trained AND advantage <> 0
GROUP BY episode_id, step_index, call_index, advantage
HAVING count(num_tokens) <> 1
ORDER BY episode_id, step_index, call_index
