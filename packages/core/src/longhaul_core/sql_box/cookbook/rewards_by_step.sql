-- Where in an episode are rewards paid?
-- By the step's place, over the episodes that have so many steps.
-- :run run  The run.
SELECT step_index, count(*) AS num_steps, avg(reward) AS mean_reward, avg(shaped_reward) AS mean_shaped_reward,
       avg(advantage) AS mean_advantage,
       CAST(avg(CASE WHEN action_valid THEN 0.0 ELSE 1.0 END) AS double precision) AS invalid_share
FROM step_detail
WHERE run_id = :run AND phase = 'train'
GROUP BY step_index
ORDER BY step_index
