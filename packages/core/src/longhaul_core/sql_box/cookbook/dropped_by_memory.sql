-- What did the memory drop before an episode's last step?
-- Messages that an earlier prompt of the episode showed and the last one does not, the newest first. A memory that
-- writes its whole window into one message drops and adds whole messages; the replay shows their lines.
-- :episode episode  The episode.
WITH shown AS (
    SELECT p.step_index, p.role, p.content
    FROM steps s
    JOIN prompt_messages p ON p.episode_id = s.episode_id AND p.step_index = s.step_index
        AND p.call_index = s.act_call_index
    WHERE s.episode_id = :episode
),
final AS (
    SELECT role, content FROM shown
    WHERE step_index = (SELECT max(step_index) FROM steps WHERE episode_id = :episode)
)
SELECT role, content, min(step_index) AS first_step, max(step_index) AS last_step
FROM shown
WHERE NOT EXISTS (SELECT 1 FROM final f WHERE f.role = shown.role AND f.content = shown.content)
GROUP BY role, content
ORDER BY last_step DESC, first_step DESC, role, content
