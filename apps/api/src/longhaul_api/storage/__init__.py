"""How much room the store takes."""
