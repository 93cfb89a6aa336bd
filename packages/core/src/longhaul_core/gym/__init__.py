"""Any Gymnasium environment with text observations and text actions, played by the loop.

`ProcessPool` plays episodes in worker processes and survives whatever the environment does;
`thread_environments` plays in threads, for quick and trusted ones.
"""

from longhaul_core.gym.pool import ProcessEnvironment, ProcessPool
from longhaul_core.gym.source import GymSource, PooledSource, options_from
from longhaul_core.gym.spec import GymEnvironmentSpec
from longhaul_core.gym.thread import ThreadEnvironment, thread_environments

__all__ = [
    "GymEnvironmentSpec",
    "GymSource",
    "PooledSource",
    "ProcessEnvironment",
    "ProcessPool",
    "ThreadEnvironment",
    "options_from",
    "thread_environments",
]
