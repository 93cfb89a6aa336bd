"""Remarks of people and judges on episodes and steps."""
