"""How a prompt is laid out, whatever a memory puts in it.

The defaults are short on purpose: a small model on a CPU is the default reader, and
every token of a prompt is paid for at every step of every episode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from longhaul_core.components import build_component
from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Message, Observation

__all__ = [
    "DEFAULT_TEMPLATE",
    "InstructionPlace",
    "PromptTemplate",
    "build_template",
    "environment_template",
]

DEFAULT_TEMPLATE = "default"
"""Name of `PromptTemplate` in a configuration."""

InstructionPlace = Literal["user", "system"]
"""Which message the instruction is a part of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """The fixed parts of every prompt of an environment.

    A template of one's own is a subclass with methods of its own.
    """

    system: str = ""
    """The system message; none is sent if it is empty."""
    instruction: str = ""
    """How to answer: last line of the message that `instruction_place` names."""
    instruction_place: InstructionPlace = "user"
    """`system`: every prompt of an episode then begins with it, and an engine that keeps what it
    has read of earlier prompts reads it once."""
    list_actions: bool = True
    """Whether admissible actions are listed where the environment knows them."""
    reply_prefix: str = ""
    """What the renderer writes of every reply beforehand. `FullHistory` puts it back in
    front of earlier replies, so that a later prompt repeats what the engine saw."""
    summary_request: str = (
        "Summarise what has happened so far in a few sentences: what was done, what was found, "
        "and what remains to be done."
    )
    """Last line of the prompt in which `SummaryMemory` asks for a summary."""

    def system_messages(self) -> tuple[Message, ...]:
        """What every prompt begins with: the system message, which may hold the instruction."""
        if self.instruction_place == "user":
            return _system_message(self.system)
        return _system_message("\n".join(filter(None, (self.system, self.instruction))))

    def user_message(
        self,
        observation: Observation,
        past: Sequence[str] = (),
        *,
        summary: str = "",
        earlier: Sequence[str] = (),
    ) -> Message:
        """The message that asks for the next action: text, then the observation's pictures.

        Args:
            observation: What the policy is to act on.
            past: Finished exchanges as `past_line` writes them, oldest first.
            summary: What is known of the exchanges before those; empty where nothing is.
            earlier: Some of the exchanges before those, as `past_line` writes them, oldest first.
        """
        lines = _story(past, summary=summary, earlier=earlier)
        if lines:
            lines.append("Now:")
        lines.append(observation.text)
        if self.list_actions and observation.admissible_actions is not None:
            lines.append("Actions: " + " | ".join(observation.admissible_actions))
        if self.instruction and self.instruction_place == "user":
            lines.append(self.instruction)
        text = "\n".join(lines)
        pictures = observation.pictures
        return Message(role="user", content=(text, *pictures) if pictures else text)

    def window_message(
        self, observation: Observation, past: Sequence[tuple[Observation, str]], *, num_steps: int
    ) -> Message:
        """What `WindowMemory` asks with: `user_message`, unless a template counts steps.

        Args:
            observation: What the policy is to act on.
            past: The last finished exchanges, oldest first: what was seen, and the action.
            num_steps: Finished exchanges of the episode, of which those are the last.
        """
        return self.user_message(observation, [self.past_line(*exchange) for exchange in past])

    def summary_messages(self, past: Sequence[str], *, summary: str = "") -> tuple[Message, ...]:
        """The prompt that asks for a summary of finished exchanges, and of the summary before.

        The instruction is no part of it: it says how to write an action.
        """
        lines = [*_story(past, summary=summary), self.summary_request]
        return (*_system_message(self.system), Message(role="user", content="\n".join(lines)))

    def past_line(self, observation: Observation, action: str) -> str:
        """One finished exchange, as a later prompt shows it: its text, without its pictures."""
        return f"{observation.text}\n> {action}"


def _system_message(text: str) -> tuple[Message, ...]:
    return (Message(role="system", content=text),) if text else ()


def _story(past: Sequence[str], *, summary: str, earlier: Sequence[str] = ()) -> list[str]:
    """The lines about the past; none without one."""
    parts = (("Summary:", [summary] if summary else []), ("Earlier:", earlier), ("Past:", past))
    return [line for head, lines in parts if lines for line in (head, *lines)]


def build_template(
    name: str,
    *,
    system: str,
    instruction: str,
    list_actions: bool,
    reply_prefix: str,
    instruction_place: InstructionPlace = "user",
) -> PromptTemplate:
    """A prompt template by its name in a configuration; its arguments are the fields.

    Args:
        name: `DEFAULT_TEMPLATE`, or `package.module:name` of a subclass of `PromptTemplate`, or of
            a function that returns an instance.
        system: See `PromptTemplate`, as for the others.
        instruction: How to answer.
        list_actions: Whether admissible actions are listed.
        reply_prefix: What the renderer writes of every reply beforehand.
        instruction_place: Where the instruction is. A function of one's own is given it where it is
            not `user`, and may do without it otherwise.

    Raises:
        ConfigError: If it cannot be imported or made, or is no `PromptTemplate`.
    """
    built_in: Mapping[str, type[PromptTemplate]] = {DEFAULT_TEMPLATE: PromptTemplate}
    arguments: dict[str, object] = {
        "system": system,
        "instruction": instruction,
        "list_actions": list_actions,
        "reply_prefix": reply_prefix,
    }
    if instruction_place != "user":
        arguments["instruction_place"] = instruction_place
    made = build_component(name, built_in, setting="prompt.template", needs=(), arguments=arguments)
    if not isinstance(made, PromptTemplate):
        raise ConfigError(
            f"prompt.template = {name!r}: made a {type(made).__name__}, and must make a "
            "longhaul_core.memory.PromptTemplate; subclass it"
        )
    return made


def environment_template(  # noqa: PLR0913  what a run may say of its prompts
    own: EnvironmentPrompt | None,
    *,
    form: str,
    name: str = DEFAULT_TEMPLATE,
    system: str | None = None,
    instruction: str | None = None,
    list_actions: bool = True,
    reply_prefix: str = "",
    instruction_place: InstructionPlace = "user",
    shows_tools: bool = False,
) -> PromptTemplate:
    """The words around an environment's observations: somebody's own, or else the environment's.

    Args:
        own: How the environment introduces itself; None if it does not.
        form: How an action is to be written, in words (`Parser.instruction`). It ends the
            environment's own instruction; after a prefix the reply can only be the action itself.
        name: See `build_template`.
        system: The system message; None for the environment's.
        instruction: How to answer; None for the environment's, and `form`.
        list_actions: See `PromptTemplate`, as for the others.
        reply_prefix: What the renderer writes of every reply beforehand.
        instruction_place: Where the instruction is.
        shows_tools: Whether the chat template says which tools there are.

    Raises:
        ConfigError: See `build_template`.
    """
    if instruction is None:
        asked = "" if reply_prefix else form
        instruction = " ".join(filter(None, [own.instruction if own else "", asked]))
    if system is None:
        system = own.system if own else ""
        if own and own.actions and not list_actions:
            system = f"{system}\n{own.actions}"
        if own and own.calls and not shows_tools:
            system = f"{system}\n{own.calls}"
    return build_template(
        name,
        system=system,
        instruction=instruction,
        list_actions=list_actions,
        reply_prefix=reply_prefix,
        instruction_place=instruction_place,
    )
