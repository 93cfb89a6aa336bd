-- Which tasks were never solved?
-- The best return says how close it came.
-- :run run  The run.
-- :times integer = 4  Played so often, at least.
SELECT environment, task_id, goal, count(*) AS num_episodes, max(episode_return) AS best_return,
       sum(CASE WHEN truncated THEN 1 ELSE 0 END) AS num_truncated, max(training_step) AS last_training_step
FROM episode_summary
WHERE run_id = :run AND phase IN ('train', 'validation') AND NOT failed
GROUP BY environment, task_id, goal
HAVING sum(CASE WHEN success THEN 1 ELSE 0 END) = 0 AND count(*) >= :times
ORDER BY best_return DESC, environment, task_id
