"""Vocabulary, episode loop, credit assignment and trajectory store. Imports no torch."""
