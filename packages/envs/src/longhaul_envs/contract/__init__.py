"""The parts of `longhaul_envs.check`: what each rule of the contract asks of an environment."""
