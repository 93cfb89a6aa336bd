"""HTTP access to the trajectory store, for programs: runs, metrics, groups, episodes, steps."""
