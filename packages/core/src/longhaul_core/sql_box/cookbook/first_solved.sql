-- When was each task solved for the first time?
-- :run run  The run.
-- :phase text = train  train, validation or test.
SELECT environment, task_id, goal, min(training_step) AS training_step, count(*) AS num_solved,
       min(episode_id) AS episode_id
FROM episode_summary
WHERE run_id = :run AND phase = :phase AND success
GROUP BY environment, task_id, goal
ORDER BY min(training_step), environment, task_id
