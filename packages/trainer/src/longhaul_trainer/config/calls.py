"""Calls of a program that a run treats in a way of their own."""

from collections.abc import Generator

from pydantic import Field

from longhaul_trainer.config.section import Section
from longhaul_trainer.config.toml import toml_value

CONDITIONS = ("model", "system", "tools", "header")


class CallKind(Section):
    """Calls of a program that cannot be changed, such as the title that it has made of its task.

    A call is of the first kind whose conditions (`model`, `system`, `tools`, `header`) it all
    meets; a kind has at least one. One that is not trained is no step: it belongs to the agent's
    step beside it, takes nothing of `rollout.horizon`, and is paid nothing.
    """

    model: str | None = Field(default=None, min_length=1)
    """Model that is asked for, or a pattern such as `claude-haiku-*`; it is a name of the policy
    too, as those of `agent.model_names`."""
    system: str | None = Field(default=None, min_length=1)
    """First words of a system message, or of one of its parts."""
    tools: bool | None = None
    """Whether the call offers tools."""
    header: str | None = Field(default=None, pattern=r"^[^\s:]+(:.*)?$")
    """A header of the request, or name and value with patterns, such as
    `x-openai-subagent: review*`."""
    train: bool = True
    """Whether the replies are trained, and drawn as the run says."""
    agent: str = ""
    """Name of the agent whose calls these are; left out, as the program says."""
    max_calls: int | None = Field(default=None, ge=1)
    """Most such calls of an episode; a later one is refused with 400, and the episode goes on."""
    max_reply_tokens: int | None = Field(default=None, ge=1)
    """Longest reply, up to `rollout.max_reply_tokens`."""

    def conflicts(self) -> Generator[str]:
        """A kind says which calls, and what is different with them."""
        given = self.model_dump(exclude_defaults=True)
        for names, what in (
            (CONDITIONS, "fits every call"),
            (type(self).model_fields.keys() - set(CONDITIONS), "changes nothing"),
        ):
            if not given.keys() & names:
                asked = ", ".join(name for name in type(self).model_fields if name in names)
                yield f"agent.calls: {toml_value(given)} {what}; set one of {asked}"
