"""ORS, the Open Reward Standard: any of its environment servers, by address."""
