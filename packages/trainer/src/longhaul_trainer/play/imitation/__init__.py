"""Imitation: stored episodes are played again by the run's own loop, and their replies trained."""
