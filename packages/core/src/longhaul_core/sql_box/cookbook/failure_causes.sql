-- What broke, and how often?
-- Failed episodes are in no baseline and no loss.
-- :run run  The run.
SELECT failure_cause, environment, count(*) AS num_episodes, min(training_step) AS first_training_step,
       max(training_step) AS last_training_step, min(failure_message) AS a_message, min(episode_id) AS episode_id
FROM episode_summary
WHERE run_id = :run AND failed
GROUP BY failure_cause, environment
ORDER BY num_episodes DESC, failure_cause, environment
