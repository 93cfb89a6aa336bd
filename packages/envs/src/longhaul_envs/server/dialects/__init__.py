"""Other systems' protocols, each on a port of its own over the server's session table.

They carry no token and no step number, so they are opened only on request and only on loopback.
"""
