-- Which steps took longest, and on what?
-- :run run  The run.
-- :most integer = 20  How many.
WITH timed AS (
    SELECT episode_id, step_index, training_step, environment, queue_seconds, generate_seconds, environment_seconds,
           num_action_tokens
    FROM step_detail
    WHERE run_id = :run AND phase <> 'demonstration'
)
SELECT episode_id, step_index, training_step, environment,
       queue_seconds + generate_seconds + environment_seconds AS seconds,
       queue_seconds, generate_seconds, environment_seconds, num_action_tokens
FROM timed
ORDER BY queue_seconds + generate_seconds + environment_seconds DESC, episode_id, step_index
LIMIT :most
