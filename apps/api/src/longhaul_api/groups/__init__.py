"""Groups: the attempts at one task, compared with each other."""
