"""Episodes that a person plays: our own episode loop, with a person where it has a policy."""
