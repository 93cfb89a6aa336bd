-- In which episodes did the model repeat an action?
-- The same action in steps that follow each other; the step is the first of them.
-- :run run  The run.
-- :times integer = 3  How often in a row, at least.
WITH numbered AS (
    SELECT episode_id, step_index, action,
           step_index - row_number() OVER (PARTITION BY episode_id, action ORDER BY step_index) AS streak
    FROM step_detail
    WHERE run_id = :run AND phase <> 'demonstration'
)
SELECT episode_id, min(step_index) AS step_index, action, count(*) AS times
FROM numbered
GROUP BY episode_id, action, streak
HAVING count(*) >= :times
ORDER BY times DESC, episode_id, step_index
