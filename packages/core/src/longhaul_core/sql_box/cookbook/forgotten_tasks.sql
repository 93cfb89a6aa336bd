-- Which tasks were solved once and are not solved any more?
-- Solved at an earlier evaluation, and by no episode of the newest one.
-- :run run  The run.
-- :phase text = validation  validation or test.
WITH newest AS (
    SELECT max(training_step) AS training_step FROM episode_summary WHERE run_id = :run AND phase = :phase
)
SELECT e.environment, e.task_id, e.goal,
       max(CASE WHEN e.success THEN e.training_step END) AS last_solved,
       max(CASE WHEN e.training_step = n.training_step THEN e.episode_id END) AS episode_id
FROM episode_summary e
CROSS JOIN newest n
WHERE e.run_id = :run AND e.phase = :phase
GROUP BY e.environment, e.task_id, e.goal
HAVING max(CASE WHEN e.success THEN e.training_step END) < max(n.training_step)
    AND max(CASE WHEN e.training_step = n.training_step THEN 1 ELSE 0 END) = 1
ORDER BY last_solved, e.environment, e.task_id
