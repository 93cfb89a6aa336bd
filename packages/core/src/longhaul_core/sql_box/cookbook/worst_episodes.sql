-- Which episodes of the last training step went worst, and why?
-- Those that broke come first, then the lowest returns.
-- :run run  The run.
-- :most integer = 20  How many.
SELECT episode_id, environment, task_id, episode_return, stop_reason, failure_cause, failure_message,
       num_steps, horizon, num_invalid_actions
FROM episode_summary
WHERE run_id = :run AND phase = 'train' AND training_step = (
    SELECT max(training_step) FROM episode_summary WHERE run_id = :run AND phase = 'train'
)
ORDER BY CASE WHEN failed THEN 0 ELSE 1 END, episode_return, episode_id
LIMIT :most
