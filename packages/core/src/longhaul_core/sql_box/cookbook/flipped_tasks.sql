-- Which tasks flipped between two checkpoints?
-- Of a fixed panel: tasks whose share of solved episodes is another one at the later training step. The first
-- lines are those that got worse.
-- :run run  The run.
-- :before integer  Training step of the earlier evaluation.
-- :after integer  Training step of the later one.
-- :phase text = validation  validation or test.
WITH rate AS (
    SELECT training_step, environment, task_id, goal, count(*) AS num_episodes,
           CAST(avg(CASE WHEN success THEN 1.0 ELSE 0.0 END) AS double precision) AS success_rate,
           min(episode_id) AS episode_id
    FROM episode_summary
    WHERE run_id = :run AND phase = :phase AND training_step IN (:before, :after) AND NOT failed
    GROUP BY training_step, environment, task_id, goal
)
SELECT b.environment, b.task_id, b.goal, b.success_rate AS rate_before, a.success_rate AS rate_after,
       b.episode_id AS before_episode_id, a.episode_id AS after_episode_id
FROM rate b
JOIN rate a ON a.environment = b.environment AND a.task_id = b.task_id AND a.goal = b.goal
WHERE b.training_step = :before AND a.training_step = :after AND a.success_rate <> b.success_rate
ORDER BY a.success_rate - b.success_rate, b.environment, b.task_id
