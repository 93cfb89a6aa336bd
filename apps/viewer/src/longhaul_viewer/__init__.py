"""A browser over the trajectory store: runs, curves, episodes, and replay step by step."""
