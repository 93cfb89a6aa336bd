-- How often does a limit cut a reply?
-- A reply that is cut mostly holds no action.
-- :run run  The run.
SELECT training_step, purpose, count(*) AS num_calls,
       sum(CASE WHEN finish_reason = 'length' THEN 1 ELSE 0 END) AS num_cut,
       CAST(avg(CASE WHEN finish_reason = 'length' THEN 1.0 ELSE 0.0 END) AS double precision) AS cut_share,
       min(CASE WHEN finish_reason = 'length' THEN episode_id END) AS episode_id
FROM call_detail
WHERE run_id = :run AND phase <> 'demonstration'
GROUP BY training_step, purpose
ORDER BY training_step, purpose
