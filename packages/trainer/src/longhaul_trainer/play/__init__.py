"""Episodes: who plays them, in which environments or by which programs, and from which step on."""
