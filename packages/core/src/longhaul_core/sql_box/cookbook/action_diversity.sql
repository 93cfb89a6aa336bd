-- Do actions become all alike?
-- Distinct actions over steps, and the share of the most frequent one.
-- :run run  The run.
WITH used AS (
    SELECT training_step, action, count(*) AS times
    FROM step_detail
    WHERE run_id = :run AND phase = 'train'
    GROUP BY training_step, action
)
SELECT training_step, sum(times) AS num_steps, count(*) AS num_distinct,
       CAST(max(times) * 1.0 / sum(times) AS double precision) AS share_of_most_frequent
FROM used
GROUP BY training_step
ORDER BY training_step
