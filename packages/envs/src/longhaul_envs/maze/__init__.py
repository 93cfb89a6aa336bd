"""Maze: find the way to the goal, seeing little of it."""

from longhaul_envs.registration import register

register("longhaul/Maze-v0", "longhaul_envs.maze.environment:Maze")
