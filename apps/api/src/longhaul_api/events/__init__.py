"""What happens in a run, as it happens."""
