"""verl-agent's prompts: one message a step, with the last exchanges and their numbers in it."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longhaul_core.errors import ConfigError
from longhaul_core.memory import PromptTemplate
from longhaul_core.types import Message, Observation

__all__ = ["VerlAgentPrompt", "verl_agent_prompt"]

_PICTURE = "<image>"
"""Where the words have the picture."""
_SEPARATOR = " [SEP] "
_LONGEST_WEBSHOP = 13_000
"""Characters of a prompt of WebShop, beyond which the authors leave the past out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlAgentPrompt(PromptTemplate):
    """The authors' words, with what they name of an observation in their braces.

    A subclass says in `named`, `seen` and `done` how the authors write things.
    """

    first: str
    """Without a past."""
    later: str = ""
    """With the last exchanges; empty where there is no such prompt."""

    def user_message(
        self,
        observation: Observation,
        past: Sequence[str] = (),
        *,
        summary: str = "",
        earlier: Sequence[str] = (),
    ) -> Message:
        """See `PromptTemplate.user_message`: the prompt of an episode's first step."""
        return self._message(self.first.format(**self.named(observation, 1)), observation)

    def window_message(
        self, observation: Observation, past: Sequence[tuple[Observation, str]], *, num_steps: int
    ) -> Message:
        """See `PromptTemplate.window_message`."""
        step = num_steps + 1
        text = (self.later if num_steps and self.later else self.first).format(
            step_count=num_steps,
            history_length=len(past),
            current_step=step,
            action_history=self.history(past, observation, step=step),
            memory_context=self.history(past, observation, step=step),
            **self.named(observation, step),
        )
        return self._message(text, observation)

    def named(self, observation: Observation, step: int) -> dict[str, str]:
        """What the words name of an observation, at a step that counts from 1."""
        return {"current_observation": self.seen(observation, step)}

    def seen(self, observation: Observation, step: int) -> str:
        """The observation as the authors' environment words it."""
        return observation.text

    def done(self, action: str) -> str:
        """The action as a later prompt has it."""
        return action

    def history(
        self, past: Sequence[tuple[Observation, str]], observation: Observation, *, step: int
    ) -> str:
        """The exchanges before a step, which end with the one before it."""
        return "\n".join(
            f"[Observation {number}: '{self.seen(seen, number)}', "
            f"Action {number}: '{self.done(action)}']"
            for number, (seen, action) in enumerate(past, start=step - len(past))
        )

    def _message(self, text: str, observation: Observation) -> Message:
        before, _, after = text.partition(_PICTURE)
        pictures = observation.pictures
        parts = tuple(part for part in (before, *pictures, after) if part)
        return Message(role="user", content=parts if pictures else text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPrompt(VerlAgentPrompt):
    """The same words at every step: the authors fill nothing in, and leave doubled braces be."""

    def user_message(
        self,
        observation: Observation,
        past: Sequence[str] = (),
        *,
        summary: str = "",
        earlier: Sequence[str] = (),
    ) -> Message:
        """See `PromptTemplate.user_message`."""
        return self._message(self.first, observation)

    def window_message(
        self, observation: Observation, past: Sequence[tuple[Observation, str]], *, num_steps: int
    ) -> Message:
        """See `PromptTemplate.window_message`."""
        return self.user_message(observation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ALFWorldPrompt(VerlAgentPrompt):
    """The goal stands in the first observation, and from the second on in the words."""

    def named(self, observation: Observation, step: int) -> dict[str, str]:
        """See `VerlAgentPrompt.named`."""
        actions = "\n ".join(f"'{action}'" for action in observation.admissible_actions or ())
        return {
            "task_description": f"{_headed(observation.text, 'Goal: ')[0]}.",
            "current_observation": self.seen(observation, step),
            "admissible_actions": actions,
        }

    def seen(self, observation: Observation, step: int) -> str:
        """ALFWorld's own text, which greets at the first step and tells the goal."""
        goal, text = _headed(observation.text, "Goal: ")
        if step > 1:
            return text
        return f"-= Welcome to TextWorld, ALFRED! =-\n\n{text}\n\nYour task is to: {goal}."


@dataclass(frozen=True, slots=True, kw_only=True)
class WebShopPrompt(VerlAgentPrompt):
    """A page's texts in quotes, without the instruction."""

    def window_message(
        self, observation: Observation, past: Sequence[tuple[Observation, str]], *, num_steps: int
    ) -> Message:
        """See `PromptTemplate.window_message`; a long one does without the past."""
        # A class with slots is made twice, so `super()` alone would be of the first.
        message = VerlAgentPrompt.window_message(self, observation, past, num_steps=num_steps)
        if num_steps and len(message.content) > _LONGEST_WEBSHOP:
            return self.user_message(observation)
        return message

    def named(self, observation: Observation, step: int) -> dict[str, str]:
        """See `VerlAgentPrompt.named`."""
        actions = observation.admissible_actions or ("search[<your query>]", "click[search]")
        return {
            "task_description": _instruction(observation.text)[0],
            "current_observation": self.seen(observation, step),
            "available_actions": "\n".join(f"'{action}'," for action in actions),
        }

    def seen(self, observation: Observation, step: int) -> str:
        """The texts after the instruction."""
        return _SEPARATOR.join(f"'{part}'" for part in _instruction(observation.text)[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanPrompt(VerlAgentPrompt):
    """The grid in the authors' symbols."""

    def seen(self, observation: Observation, step: int) -> str:
        """Cells with their blanks and tabs, a row a line."""
        _, grid = _headed(observation.text, "Goal: ")
        return "\n".join(
            "".join(f" {_SYMBOLS.get(cell, cell)} \t" for cell in row.split())
            for row in grid.splitlines()
        )

    def done(self, action: str) -> str:
        """The move's name; what is none stands still."""
        return action.capitalize() if action in ("up", "down", "left", "right") else "Still"


_SYMBOLS = {".": "O", "*": "√", "$": "X", "@": "P", "+": "S"}
"""Of our grid, where the authors have another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPrompt(VerlAgentPrompt):
    """Each search of the past with what it found."""

    def named(self, observation: Observation, step: int) -> dict[str, str]:
        """See `VerlAgentPrompt.named`."""
        return {"task_description": _headed(observation.text, "Question: ")[0]}

    def seen(self, observation: Observation, step: int) -> str:
        """What was found, between the authors' marks."""
        found = _headed(observation.text, "Question: ")[1].partition("\n")[2]
        return f"<information>{found}</information>"

    def done(self, action: str) -> str:
        """The action with its tags; the authors keep nothing of another."""
        return action if action.startswith(("<search>", "<answer>")) else ""

    def history(
        self, past: Sequence[tuple[Observation, str]], observation: Observation, *, step: int
    ) -> str:
        """See `VerlAgentPrompt.history`; an action stands with the observation after it."""
        answers = [*(seen for seen, _ in past[1:]), observation]
        return "\n".join(
            f"Step {number}:{self.done(action)} {self.seen(answer, number)}\n"
            for number, ((_, action), answer) in enumerate(
                zip(past, answers, strict=bool(past)), start=step - len(past)
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaPrompt(VerlAgentPrompt):
    """The formula of a card game, without blanks."""

    def named(self, observation: Observation, step: int) -> dict[str, str]:
        """See `VerlAgentPrompt.named`."""
        _, _, rest = observation.text.partition("Formula:")
        return {"text_formula": "".join(rest.partition("\n")[0].replace("_", "").split())}


def _headed(text: str, mark: str) -> tuple[str, str]:
    """What the first line says after `mark`, and the lines after it; or nothing, and all."""
    if not text.startswith(mark):
        return "", text
    head, _, rest = text.removeprefix(mark).partition("\n")
    return head, rest


def _instruction(text: str) -> tuple[str, list[str]]:
    """WebShop's instruction, and the texts of the page after it."""
    parts = text.split(_SEPARATOR)
    place = parts.index("Instruction:") + 1 if "Instruction:" in parts else 0
    return parts[place], parts[place + 1 :]


_PROMPTS: Mapping[tuple[str, str], tuple[str, type[VerlAgentPrompt]]] = {
    ("longhaul/ALFWorld-v0", ""): ("alfworld", ALFWorldPrompt),
    ("longhaul/WebShop-v0", "sep"): ("webshop", WebShopPrompt),
    ("longhaul/Sokoban-v0", ""): ("sokoban", SokobanPrompt),
    ("longhaul/Sokoban-v0", "grid"): ("sokoban", SokobanPrompt),
    ("longhaul/Sokoban-v0", "image"): ("sokoban-image", FixedPrompt),
    ("longhaul/Search-v0", ""): ("search", SearchPrompt),
    ("longhaul/NumberLine-v0", "image"): ("number-line", FixedPrompt),
    ("longhaul/Blackjack-v0", "image"): ("blackjack", FixedPrompt),
    ("longhaul/EZPoints-v0", "image"): ("ez-points", FormulaPrompt),
    ("longhaul/Points24-v0", "image"): ("points24", FormulaPrompt),
}
"""By environment and its option `observation`: whose words, and how they are filled."""


def verl_agent_prompt(
    environment_id: str, options: Mapping[str, object], *, reply_prefix: str = ""
) -> PromptTemplate:
    """verl-agent's prompt for an environment; see `published_template`."""
    observation = str(options.get("observation", ""))
    found = _PROMPTS.get((environment_id, observation))
    if found is None:
        known = (f'{name} with observation = "{form}"' if form else name for name, form in _PROMPTS)
        raise ConfigError(
            f'prompt.template = "verl-agent" has no words for {environment_id} with observation = '
            f'"{observation}"; it has them for {", ".join(known)}; '
            'elsewhere set prompt.template = "default"'
        )
    words = tomllib.loads(Path(__file__).with_name("verl_agent.toml").read_text("utf-8"))
    return found[1](**words[found[0]], reply_prefix=reply_prefix)
