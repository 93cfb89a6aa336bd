"""A run: its folder, its records beside it, and the process that it is."""
