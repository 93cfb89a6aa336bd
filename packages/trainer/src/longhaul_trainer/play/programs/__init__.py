"""Programs that play episodes by themselves: commands and functions, unmodified."""
