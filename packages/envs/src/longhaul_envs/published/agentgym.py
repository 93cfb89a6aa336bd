"""AgentGym's prompts: a chat that its clients begin, and then observations as they are."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longhaul_core.errors import ConfigError
from longhaul_core.memory import PromptTemplate
from longhaul_core.types import Message, Observation

__all__ = ["AgentGymPrompt", "agentgym_prompt"]

_SERVERS = "longhaul/AgentGym-v0"
_TASKS = {
    "longhaul/TextCraft-v0": "textcraft",
    "longhaul/ScienceWorld-v0": "sciworld",
    "longhaul/Search-v0": "searchqa",
    "longhaul/WebArena-v0": "webarena",
}
"""Environments of ours that read the actions which the authors' words name. BabyAI does in the
server's form alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGymPrompt(PromptTemplate):
    """Each observation is a message, after an opening that the model is said to have answered."""

    opening: str
    answer: str
    actions_marker: str = ""
    """Comes after the observation where the authors' server lists the actions behind it."""

    def system_messages(self) -> tuple[Message, ...]:
        """The opening, and the answer to it: there is no system message."""
        return (
            Message(role="user", content=self.opening),
            Message(role="assistant", content=self.answer),
        )

    def user_message(
        self,
        observation: Observation,
        past: Sequence[str] = (),
        *,
        summary: str = "",
        earlier: Sequence[str] = (),
    ) -> Message:
        """See `PromptTemplate.user_message`: the observation as the authors' server writes it."""
        listed = ""
        if self.actions_marker and observation.admissible_actions is not None:
            listed = self.actions_marker + json.dumps(observation.admissible_actions)
        return Message(role="user", content=observation.text + listed)


def agentgym_prompt(
    environment_id: str, options: Mapping[str, object], *, reply_prefix: str = ""
) -> PromptTemplate:
    """The prompt of AgentGym's client for an environment; see `published_template`."""
    words = tomllib.loads(Path(__file__).with_name("agentgym.toml").read_text("utf-8"))
    task = _TASKS.get(environment_id)
    if environment_id == "longhaul/BabyAI-v0" and options.get("form") == "agentgym":
        task = "babyai"
    if environment_id == _SERVERS:
        task = str(options.get("task") or options.get("task_name"))
    if task not in words:
        raise ConfigError(
            f'prompt.template = "agentgym" has no words for {environment_id} with {dict(options)}; '
            f"it has them for {', '.join(_TASKS)}, for longhaul/BabyAI-v0 with form = "
            f"'agentgym', and for {_SERVERS} with the tasks "
            f'{", ".join(words)}; elsewhere set prompt.template = "default" and '
            'actions.format = "tags"'
        )
    return AgentGymPrompt(
        opening=words[task]["opening"],
        answer=words[task]["reply"],
        actions_marker=words[task].get("actions", ""),
        reply_prefix=reply_prefix,
    )
