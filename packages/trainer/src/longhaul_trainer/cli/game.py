"""An episode that a person plays in a terminal."""

import tempfile
from pathlib import Path

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from longhaul_core.environment import StepResult
from longhaul_core.types import Observation, Task
from longhaul_envs.pictures import png
from longhaul_envs.players import Player

__all__ = ["ADVICE", "Game"]

ADVICE = "?"
"""Asks the environment's expert."""


class Game:
    """Shows observations, reads actions, and keeps the score."""

    def __init__(
        self, player: Player, task: Task, *, console: Console, picture: Path | None
    ) -> None:
        """Prepare to play `task`.

        Args:
            player: Plays it.
            task: What is played.
            console: Where everything is shown.
            picture: A file that always holds the present picture. None: a temporary one, where
                the observation itself has a picture.
        """
        self._player = player
        self._task = task
        self._console = console
        self._picture = picture
        self._num_steps = 0
        self._return = 0.0

    def run(self) -> None:
        """Play until the episode ends.

        Raises:
            EOFError: If nobody types any more.
        """
        observation = self._player.start(self._task)
        while True:
            self._show(observation)
            result = self._player.act(self._asked(observation))
            self._num_steps += 1
            self._return += result.reward
            self._show_result(result)
            if result.terminated or result.truncated:
                self._show(result.observation)
                how = "solved" if result.success else "not solved"
                kind = "terminated" if result.terminated else "truncated"
                self._console.print(f"[bold]The episode is over: {how} ({kind}).[/]")
                return
            observation = result.observation

    def score(self) -> str:
        """Steps and return so far."""
        return f"{self._num_steps} steps, return {self._return:g}"

    def _show(self, observation: Observation) -> None:
        self._console.print(Panel(Text(printable(observation.text)), title="observation"))
        shown = [picture.data for picture in observation.pictures if picture.data is not None]
        pixels = self._player.render() if self._picture is not None else None
        data = png(pixels) if pixels is not None else (shown[-1] if shown else None)
        if data is None:
            return
        if self._picture is None:
            self._picture = Path(tempfile.mkdtemp(prefix="longhaul-play-")) / "observation.png"
        self._picture.write_bytes(data)
        self._console.print(f"picture: {self._picture}")

    def _show_result(self, result: StepResult) -> None:
        refused = "" if result.action_accepted else ", not accepted"
        self._console.print(f"[bold]step {self._num_steps}[/]: reward {result.reward:g}{refused}")

    def _asked(self, observation: Observation) -> str:
        """The action that the person types, or the one of the number that they type."""
        listed = observation.admissible_actions or ()
        numbered = [Text(f"{n} {printable(action)}") for n, action in enumerate(listed, start=1)]
        if numbered:
            self._console.print(Columns(numbered, padding=(0, 3)))
        while True:
            typed = self._console.input("action> ").strip()
            if typed == ADVICE and ADVICE not in listed:
                advice = self._player.expert_action()
                words = "no expert's advice here" if advice is None else f"the expert: {advice}"
                self._console.print(Text(printable(words)))
            elif not listed or typed in listed or not typed.isdecimal():
                return typed
            elif 1 <= int(typed) <= len(listed):
                return listed[int(typed) - 1]
            else:
                self._console.print(f"there are actions 1 to {len(listed)}")


def printable(text: str) -> str:
    """`text` with control characters written out, so that none reaches the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
