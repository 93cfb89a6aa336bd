-- In which steps did the environment show some words?
-- Reads every observation of the run, the newest first; the text index is faster in a large store.
-- :run run  The run.
-- :words text  As they stand in the text, in any case.
-- :most integer = 100  How many.
SELECT s.episode_id, s.step_index, s.training_step, s.observation, s.action
FROM step_detail s
WHERE s.run_id = :run AND lower(s.observation) LIKE
    '%' || replace(replace(replace(lower(:words), '!', '!!'), '%', '!%'), '_', '!_') || '%' ESCAPE '!'
ORDER BY s.training_step DESC, s.episode_id, s.step_index
LIMIT :most
