-- Which actions were reinforced most?
-- The steps of a training step with the highest advantage.
-- :run run  The run.
-- :training_step integer  The training step that played them.
-- :most integer = 20  How many.
SELECT episode_id, step_index, action, action_valid, reward, episode_advantage, step_advantage, advantage, loss_weight
FROM step_detail
WHERE run_id = :run AND phase = 'train' AND training_step = :training_step AND trained
ORDER BY advantage DESC, episode_id, step_index
LIMIT :most
