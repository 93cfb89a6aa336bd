-- Do episodes do worse where the memory had to drop something?
-- dropped_exchanges counts what was left out of a prompt to make it fit.
-- :run run  The run.
WITH per_episode AS (
    SELECT e.id, e.success, e.episode_return, e.num_steps, max(c.dropped_exchanges) AS most_dropped
    FROM episodes e
    JOIN calls c ON c.episode_id = e.id
    WHERE e.run_id = :run AND NOT e.rolled_back AND NOT e.failed AND e.phase <> 'demonstration'
    GROUP BY e.id, e.success, e.episode_return, e.num_steps
)
SELECT CASE WHEN most_dropped > 0 THEN 'something' ELSE 'nothing' END AS dropped,
       count(*) AS num_episodes,
       CAST(avg(CASE WHEN success THEN 1.0 ELSE 0.0 END) AS double precision) AS success_rate,
       avg(episode_return) AS mean_return,
       CAST(avg(num_steps * 1.0) AS double precision) AS mean_num_steps
FROM per_episode
GROUP BY CASE WHEN most_dropped > 0 THEN 'something' ELSE 'nothing' END
ORDER BY dropped
