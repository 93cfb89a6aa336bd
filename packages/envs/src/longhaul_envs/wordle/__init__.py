"""Wordle: find a word of five letters, and learn a little from each guess."""

from longhaul_envs.registration import register

register("longhaul/Wordle-v0", "longhaul_envs.wordle.environment:Wordle")
