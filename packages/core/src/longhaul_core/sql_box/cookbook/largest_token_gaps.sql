-- Which tokens have the largest gap between sampler and learner?
-- policy_logprob - behavior_logprob, of the tokens of one training step. A gap of some hundredths is rounding; a large
-- one is a sampler with other weights or another prompt than the learner.
-- :run run  The run.
-- :training_step integer  The training step that played the episodes.
-- :most integer = 20  How many tokens.
WITH largest AS (
    SELECT t.episode_id, t.step_index, t.call_index, t.token_index, t.behavior_logprob, t.policy_logprob
    FROM episodes e
    JOIN token_logprobs t ON t.episode_id = e.id
    WHERE e.run_id = :run AND e.phase = 'train' AND e.training_step = :training_step
        AND NOT e.rolled_back AND t.policy_logprob IS NOT NULL
    ORDER BY abs(t.policy_logprob - t.behavior_logprob) DESC, t.episode_id, t.step_index, t.call_index, t.token_index
    LIMIT :most
)
SELECT l.episode_id, l.step_index, l.call_index, l.token_index, l.behavior_logprob, l.policy_logprob,
       l.policy_logprob - l.behavior_logprob AS gap, c.num_action_tokens, c.policy_version, c.reply
FROM largest l
JOIN calls c ON c.episode_id = l.episode_id AND c.step_index = l.step_index AND c.call_index = l.call_index
ORDER BY abs(l.policy_logprob - l.behavior_logprob) DESC, l.episode_id, l.step_index, l.call_index, l.token_index
