"""Whole training runs; a package by name, since `benchmarks/` has a module that is called so."""
