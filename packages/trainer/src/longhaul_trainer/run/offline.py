"""Nothing goes out to a network by itself: the one place that says so.

Set before anything is imported that would read them, and inherited by every process of a
run. A variable that the user has set already is the user's word and stays.
"""

import os
from collections.abc import Mapping

OFFLINE_ENVIRONMENT: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_MODE": "offline",
}


def stay_offline() -> None:
    """Turn telemetry and downloads off for this process and its children."""
    for name, value in OFFLINE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
