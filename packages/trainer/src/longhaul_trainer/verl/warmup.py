"""Imports done ahead of time, while the machine waits for another process.

verl imports vLLM in the trainer's process when it launches the rollout server, after the
training worker has loaded its model. The trainer has nothing to do in that time.
"""

from __future__ import annotations

import importlib
import threading

ROLLOUT_SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"


def import_ahead() -> None:
    """Begin to import what the rollout server's launch needs, on a thread of its own."""
    threading.Thread(
        target=importlib.import_module, args=(ROLLOUT_SERVER,), name="import-ahead", daemon=True
    ).start()
