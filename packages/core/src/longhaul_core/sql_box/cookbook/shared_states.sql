-- Which states did episodes of a group share, and what did their actions earn there?
-- GiGPO compares the steps of a group that were taken in one state.
-- :run run  The run.
-- :training_step integer  The training step that played them.
SELECT group_index, anchor_hash, count(*) AS num_steps, count(DISTINCT episode_id) AS num_episodes,
       count(DISTINCT action) AS num_actions, min(step_advantage) AS lowest_advantage,
       max(step_advantage) AS highest_advantage, min(episode_id) AS episode_id
FROM step_detail
WHERE run_id = :run AND phase = 'train' AND training_step = :training_step
GROUP BY group_index, anchor_hash
HAVING count(DISTINCT episode_id) > 1
ORDER BY num_steps DESC, group_index, anchor_hash
