"""A run, described. Importing this needs no accelerator and no training stack."""

from longhaul_trainer.config.critic import CriticConfig
from longhaul_trainer.config.episodes import (
    EnvironmentConfig,
    HorizonScheduleConfig,
    MixedEnvironmentConfig,
    RolloutConfig,
)
from longhaul_trainer.config.learning import AlgorithmConfig, LossConfig, TasksConfig
from longhaul_trainer.config.load import load_config, load_default_config, parse_config
from longhaul_trainer.config.run import RunConfig
from longhaul_trainer.config.trainer import TrainerConfig

__all__ = [
    "AlgorithmConfig",
    "CriticConfig",
    "EnvironmentConfig",
    "HorizonScheduleConfig",
    "LossConfig",
    "MixedEnvironmentConfig",
    "RolloutConfig",
    "RunConfig",
    "TasksConfig",
    "TrainerConfig",
    "load_config",
    "load_default_config",
    "parse_config",
]
