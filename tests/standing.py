"""A gateway that stands in a process of its own, and programs that call it."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import httpx
import openai

from hosted_endpoint import Hosted
from longhaul_core.processes import descendants
from training.launching import processes_in

MAIN = "from longhaul_trainer.cli.main import main; main()"


class Standing:
    """A gateway that stands in a process of its own, which this Python starts."""

    def __init__(
        self, *given: str, python: str, folder: Path, key: str = "", first: str = ""
    ) -> None:
        self.folder = folder
        given = ("gateway", *given, "--port", "0", "--store", str(folder / "by_hand.db"))
        self.process = subprocess.Popen(
            [python, "-c", f"{first}\n{MAIN}", *given],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "HOSTED_KEY": key},
        )
        self.read: list[str] = []

    @classmethod
    def before(cls, hosted: Hosted, folder: Path, *, python: str, first: str = "") -> "Standing":
        """In front of a hosted model."""
        given = ["--endpoint", hosted.openai, "--model", "auto", "--key-variable", "HOSTED_KEY"]
        given += ["--price-prompt", "1", "--price-reply", "1"]
        return cls(*given, python=python, folder=folder, key=hosted.key, first=first)

    def lines_until(self, word: str) -> list[str]:
        """Lines that it prints next, up to one with the word."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line.rstrip())
            self.read.append(line)
            if word in line:
                return lines
        raise AssertionError(f"it ended without {word!r}: {self.read}")

    def environ(self) -> dict[str, str]:
        """Variables of the next episode that is open."""
        lines = self.lines_until("AGL_KEY")
        exports = [line.removeprefix("export ") for line in lines if line.startswith("export")]
        return dict(line.split("=", 1) for line in exports)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to each of its processes, as a terminal and a scheduler do."""
        for own in processes_in(self.folder):
            for pid in (*descendants(own), own):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def ended_by(self, number: signal.Signals) -> str:
        """The rest of what it prints when it is ended by a signal."""
        self.send(number)
        rest, _ = self.process.communicate(timeout=120)
        return rest


def ask(environ: dict[str, str]) -> str | None:
    """One call of a program that was given these variables."""
    with openai.OpenAI(
        base_url=environ["OPENAI_BASE_URL"], api_key=environ["OPENAI_API_KEY"], max_retries=0
    ) as client:
        said = client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": "Which way?"}]
        )
    return said.choices[0].message.content


def post(url: str, *, key: str, body: object = None) -> httpx.Response:
    """What is answered to a body with a key."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(url, headers=headers, json=body, timeout=60, verify=False)
