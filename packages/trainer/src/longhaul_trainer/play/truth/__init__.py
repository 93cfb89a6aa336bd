"""Credit truth of stored runs: which steps are measured, their continuations, and the judgement."""
