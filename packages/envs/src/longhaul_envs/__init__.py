"""Packaged environments, and all that makes an environment of one's own as good as they are.

`registry` says which there are, `sources` lists the tasks of any environment, `check` holds
it to the contract, `baselines` says what training must beat, `play` plays it in a plain loop.
"""
