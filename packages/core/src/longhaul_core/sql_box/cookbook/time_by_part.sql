-- Where does the time of playing go?
-- Seconds summed over the steps of a training step; those of different episodes pass at the same time.
-- :run run  The run.
SELECT training_step, count(*) AS num_steps, sum(queue_seconds) AS queue_seconds,
       sum(generate_seconds) AS generate_seconds, sum(environment_seconds) AS environment_seconds
FROM step_detail
WHERE run_id = :run AND phase = 'train'
GROUP BY training_step
ORDER BY training_step
