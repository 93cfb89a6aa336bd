"""Pictures of observations and messages."""
