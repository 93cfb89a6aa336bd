"""One episode, part by part, as a replay needs it."""
