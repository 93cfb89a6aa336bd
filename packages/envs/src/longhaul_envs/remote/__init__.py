"""Environments of a server (`longhaul_envs.server`) as a source; needs `longhaul-envs[server]`."""
