"""A training step without verl: rows, groups, credit and columns, and a run's state on disk.

Nothing here imports verl, Ray or vLLM; `longhaul_trainer.verl` puts it into verl's hooks.
"""
