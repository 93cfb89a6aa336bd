"""Results of runs on panels, and two of them compared task by task."""
