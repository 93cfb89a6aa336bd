"""Blackjack: come nearer to 21 than the dealer."""

from longhaul_envs.registration import register

register("longhaul/Blackjack-v0", "longhaul_envs.blackjack.environment:Blackjack")
