-- Which groups gave no signal?
-- Those whose every advantage is zero, and those that were discarded for it. Equal returns do not imply it: credit is
-- computed from shaped rewards, and some estimators compare steps.
-- :run run  The run.
SELECT e.training_step, e.group_index, e.environment, e.task_id,
       count(DISTINCT e.episode_id) AS num_episodes,
       min(e.episode_return) AS lowest_return, max(e.episode_return) AS highest_return,
       max(e.discard_reason) AS discard_reason, min(e.episode_id) AS episode_id
FROM episode_summary e
JOIN steps s ON s.episode_id = e.episode_id
WHERE e.run_id = :run AND e.phase = 'train'
GROUP BY e.training_step, e.group_index, e.environment, e.task_id
HAVING max(abs(s.advantage)) = 0 OR max(e.discard_reason) = 'no_signal'
ORDER BY e.training_step, e.group_index
