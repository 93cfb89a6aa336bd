-- How many episodes end at the horizon?
-- :run run  The run.
SELECT training_step, phase, max(horizon) AS horizon, count(*) AS num_episodes,
       sum(CASE WHEN stop_reason = 'horizon_reached' THEN 1 ELSE 0 END) AS num_at_horizon,
       CAST(avg(CASE WHEN stop_reason = 'horizon_reached' THEN 1.0 ELSE 0.0 END) AS double precision) AS share
FROM episode_summary
WHERE run_id = :run AND NOT failed
GROUP BY training_step, phase
ORDER BY training_step, phase
