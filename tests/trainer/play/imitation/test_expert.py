"""Which runs an expert can demonstrate for."""

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.imitation.expert import require_experts
from trainer.play.imitation.conftest import NUMBER_LINE


def test_a_run_whose_environment_has_an_expert_is_demonstrated() -> None:
    require_experts(parse_config(NUMBER_LINE))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("environment.id=CartPole-v1",), "CartPole-v1 has no expert .* defines no expert_action"),
        (
            ("environment.server=http://127.0.0.1:1",),
            "has no expert that could be asked: it is played by its own protocol",
        ),
        (("memory.kind=summary",), "asks the policy for summaries"),
        (("actions.require_thinking=true", "actions.format=tags"), "has no thoughts to write"),
        (("agent.kind=plan_then_act",), "an expert chooses actions"),
    ],
)
def test_what_stands_in_an_experts_way_is_named(settings: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        require_experts(parse_config(NUMBER_LINE, settings))
