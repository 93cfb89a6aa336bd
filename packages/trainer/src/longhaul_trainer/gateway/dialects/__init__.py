"""How each vendor's clients ask for a reply and read it."""
