"""The command line, `trainer`. Commands import what is heavy only once they need it."""
