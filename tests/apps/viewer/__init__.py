"""Tests of the viewer; a package, so that its one browser ends with them."""
