"""Episodes: lists of them, and one with every step."""
