-- How does a metric differ between two runs?
-- At the training steps that both have.
-- :run run  A run.
-- :other run  Another run.
-- :metric metric  Its name, as in the run's curves.
SELECT a.training_step, a.value, b.value AS other_value, b.value - a.value AS difference
FROM metrics a
JOIN metrics b ON b.name = a.name AND b.training_step = a.training_step
WHERE a.run_id = :run AND b.run_id = :other AND a.name = :metric AND NOT a.rolled_back AND NOT b.rolled_back
ORDER BY a.training_step
