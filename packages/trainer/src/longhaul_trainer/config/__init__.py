"""A run, described. Importing this needs no accelerator and no training stack."""

from longhaul_trainer.config.critic import CriticConfig
from longhaul_trainer.config.episodes import (
    ActionsConfig,
    EnvironmentConfig,
    HorizonScheduleConfig,
    MemoryConfig,
    MixedEnvironmentConfig,
    PromptConfig,
    RolloutConfig,
)
from longhaul_trainer.config.learning import (
    AlgorithmConfig,
    CheckpointConfig,
    LossConfig,
    OptimizerConfig,
    TasksConfig,
    ValidationConfig,
)
from longhaul_trainer.config.load import (
    default_config_text,
    load_config,
    load_default_config,
    parse_config,
)
from longhaul_trainer.config.machine import EngineConfig, ModelConfig, ResourcesConfig
from longhaul_trainer.config.retention import RetentionConfig
from longhaul_trainer.config.run import RunConfig
from longhaul_trainer.config.sampling import SamplingConfig
from longhaul_trainer.config.trainer import TrainerConfig

__all__ = [
    "ActionsConfig",
    "AlgorithmConfig",
    "CheckpointConfig",
    "CriticConfig",
    "EngineConfig",
    "EnvironmentConfig",
    "HorizonScheduleConfig",
    "LossConfig",
    "MemoryConfig",
    "MixedEnvironmentConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PromptConfig",
    "ResourcesConfig",
    "RetentionConfig",
    "RolloutConfig",
    "RunConfig",
    "SamplingConfig",
    "TasksConfig",
    "TrainerConfig",
    "ValidationConfig",
    "default_config_text",
    "load_config",
    "load_default_config",
    "parse_config",
]
