"""Episodes as files of other programs."""
