"""Maze: find the way to the goal, seeing little of it."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/Maze-v0",
    entry_point="longhaul_envs.maze.environment:Maze",
    disable_env_checker=True,  # the contract suite checks it
)
