"""Whether a run can start here: its description, environments, machine and resources."""
