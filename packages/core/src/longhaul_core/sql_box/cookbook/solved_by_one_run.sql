-- Which tasks does one run solve that another does not?
-- Both at their newest evaluation, over the tasks that both were asked.
-- :run run  A run.
-- :other run  Another run.
-- :phase text = validation  validation or test.
WITH newest AS (
    SELECT run_id, max(training_step) AS training_step FROM episode_summary
    WHERE run_id IN (:run, :other) AND phase = :phase GROUP BY run_id
),
rate AS (
    SELECT e.run_id, e.environment, e.task_id,
           CAST(avg(CASE WHEN e.success THEN 1.0 ELSE 0.0 END) AS double precision) AS success_rate,
           min(e.episode_id) AS episode_id
    FROM episode_summary e
    JOIN newest n ON n.run_id = e.run_id AND n.training_step = e.training_step
    WHERE e.phase = :phase AND NOT e.failed
    GROUP BY e.run_id, e.environment, e.task_id
)
SELECT a.environment, a.task_id, a.success_rate AS rate, b.success_rate AS other_rate,
       a.episode_id, b.episode_id AS other_episode_id
FROM rate a
JOIN rate b ON b.environment = a.environment AND b.task_id = a.task_id
WHERE a.run_id = :run AND b.run_id = :other AND a.success_rate <> b.success_rate
ORDER BY b.success_rate - a.success_rate, a.environment, a.task_id
