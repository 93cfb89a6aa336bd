"""The memory lab: prompts of stored episodes under other memories than the one that played them."""
