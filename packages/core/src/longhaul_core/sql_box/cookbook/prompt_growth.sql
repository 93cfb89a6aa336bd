-- Do prompts grow with the step's number?
-- They need not: the memory decides what a prompt shows.
-- :run run  The run.
SELECT s.step_index, count(*) AS num_calls,
       CAST(avg(c.num_prompt_tokens * 1.0) AS double precision) AS mean_prompt_tokens,
       max(c.num_prompt_tokens) AS most_prompt_tokens,
       CAST(avg(c.num_action_tokens * 1.0) AS double precision) AS mean_reply_tokens
FROM episodes e
JOIN steps s ON s.episode_id = e.id
JOIN calls c ON c.episode_id = s.episode_id AND c.step_index = s.step_index AND c.call_index = s.act_call_index
WHERE e.run_id = :run AND NOT e.rolled_back AND e.phase <> 'demonstration' AND c.num_prompt_tokens IS NOT NULL
GROUP BY s.step_index
ORDER BY s.step_index
