"""Models that a run can start from, as Hugging Face folders.

Importing this imports no torch: a run's configuration is checked on machines
that have none.
"""

from longhaul_trainer.models.prepare import hash_model, prepare_model

__all__ = ["hash_model", "prepare_model"]
