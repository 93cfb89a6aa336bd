"""Reinforcement learning of language agents on verl, and the command line that runs it."""
