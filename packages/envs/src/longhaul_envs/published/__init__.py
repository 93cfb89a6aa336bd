"""The prompts of published agents, word for word, by the name of the code that they are of.

The words are data beside the modules, each file with its source and licence. Around them nothing
is ours but the observations: where an environment says more or less than the authors' does, the
prompt does too (docs/guides/matching_published_recipes.md lists it).
"""

from collections.abc import Callable, Mapping

from longhaul_core.errors import ConfigError
from longhaul_core.memory import PromptTemplate
from longhaul_envs.published.agentgym import agentgym_prompt
from longhaul_envs.published.verl_agent import verl_agent_prompt

__all__ = ["PUBLISHED", "published_template"]

PUBLISHED: Mapping[str, tuple[str, Callable[..., PromptTemplate]]] = {
    "verl-agent": ("window", verl_agent_prompt),
    "agentgym": ("full", agentgym_prompt),
}
"""By the name that `prompt.template` has, the kind of memory that the authors' prompts remember
like, and the template's maker. It is called with the environment's id and options."""


def published_template(
    name: str,
    *,
    environment_id: str,
    options: Mapping[str, object],
    memory: str,
    reply_prefix: str = "",
) -> PromptTemplate:
    """The authors' template for an environment.

    Args:
        name: One of `PUBLISHED`.
        environment_id: What the run plays.
        options: Of that environment.
        memory: The kind of the run's memory.
        reply_prefix: See `PromptTemplate`.

    Raises:
        ConfigError: If the authors have no prompt for it, or remember otherwise.
    """
    kind, make = PUBLISHED[name]
    if memory != kind:
        raise ConfigError(
            f'prompt.template = "{name}" goes with memory.kind = "{kind}", as its authors\' '
            f'prompts do, got "{memory}"'
        )
    return make(environment_id, options, reply_prefix=reply_prefix)
