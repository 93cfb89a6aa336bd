"""Where programs play episodes in tests: a real gateway, a scripted policy, one event loop."""

import asyncio
import json
import sys
from collections.abc import Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import faulty_program
from fakes import ByteChatRenderer, StreamingScriptedPolicy, make_task
from longhaul_core.policy import Policy
from longhaul_core.rollout import EpisodeLimits, EpisodeOutcome, EpisodeSpec, Responder
from longhaul_trainer.gateway.episode import CallRules
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.play.programs.command import CommandProgram
from longhaul_trainer.play.programs.grader import Grader
from longhaul_trainer.play.programs.play import play_program
from longhaul_trainer.play.programs.program import Program

COMMAND = [sys.executable, "-I", "-S", str(Path(faulty_program.__file__).absolute())]
LIMITS = EpisodeLimits(horizon=8, max_prompt_tokens=4_096, close_deadline_seconds=0.5)


def spec_of(fault: str, argument: object = None, *, sample_index: int = 0) -> EpisodeSpec:
    data = json.dumps({"fault": fault, "argument": argument})
    return EpisodeSpec(
        task=replace(make_task(), data=data), seed=sample_index, sample_index=sample_index
    )


T = TypeVar("T")


class Choices(TypedDict, total=False):
    """What an episode is played with that others are not."""

    program: Program
    policy: Policy
    limits: EpisodeLimits
    max_calls: int
    grader: Grader
    stop: asyncio.Event


class House:
    """An event loop with a gateway and the faulty program, for the tests of one module."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.gateway = Gateway()
        self.program = CommandProgram(COMMAND, deadline_seconds=60)

    @classmethod
    @contextmanager
    def open(cls) -> Generator["House"]:
        with asyncio.Runner() as runner:
            # One thread, so that their number says whether any is left behind.
            runner.get_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
            runner.run(asyncio.to_thread(int))
            house = cls(runner)
            runner.run(house.gateway.start())
            yield house
            runner.run(house.program.close())
            runner.run(house.gateway.stop())

    def run(self, act: Coroutine[None, None, T]) -> T:
        return self._runner.run(act)

    def played(
        self, fault: str, argument: object = None, **choices: Unpack[Choices]
    ) -> EpisodeOutcome:
        return self.run(self.play(fault, argument, **choices))

    async def play(
        self,
        fault: str,
        argument: object = None,
        *,
        sample_index: int = 0,
        **choices: Unpack[Choices],
    ) -> EpisodeOutcome:
        responder = Responder(
            policy=choices.get("policy") or StreamingScriptedPolicy(("north", "south")),
            renderer=ByteChatRenderer(),
        )
        return await play_program(
            spec_of(fault, argument, sample_index=sample_index),
            program=choices.get("program") or self.program,
            gateway=self.gateway,
            models={"policy": responder},
            rules=CallRules(trains=True, max_calls=choices.get("max_calls")),
            limits=choices.get("limits") or LIMITS,
            grader=choices.get("grader"),
            stop=choices.get("stop"),
        )
