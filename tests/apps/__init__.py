"""Tests of the API and the viewer; a package, so that what they share ends with them."""
