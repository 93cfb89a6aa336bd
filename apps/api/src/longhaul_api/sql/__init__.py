"""Typed SQL over the store: the fenced box, the cookbook and the tables that there are."""
