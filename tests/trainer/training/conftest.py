"""verl is imported as a CPU run imports it."""

from verl_process import cpu_run

__all__ = ["cpu_run"]
