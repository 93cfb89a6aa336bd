"""Environments compared with their authors' own code; `comparison` has the list."""
