-- Which actions are refused most often?
-- The share is of all times that this action was given.
-- :run run  The run.
-- :most integer = 20  How many actions.
SELECT action, sum(CASE WHEN action_valid THEN 0 ELSE 1 END) AS num_invalid, count(*) AS num_given,
       CAST(avg(CASE WHEN action_valid THEN 0.0 ELSE 1.0 END) AS double precision) AS invalid_share,
       min(CASE WHEN NOT action_valid THEN episode_id END) AS episode_id
FROM step_detail
WHERE run_id = :run AND phase <> 'demonstration'
GROUP BY action
HAVING sum(CASE WHEN action_valid THEN 0 ELSE 1 END) > 0
ORDER BY num_invalid DESC, num_given, action
LIMIT :most
