"""Runs: which there are, how they go, what went wrong in them."""
