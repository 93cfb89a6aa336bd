"""Two Pythons whose processes are forks, and so begin with the imports done that take most time."""

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from longhaul_trainer.verl.cpu.preload import LIBRARIES, OWN
from longhaul_trainer.verl.cpu.zygote import Zygote
from longhaul_trainer.verl.variables import prepare_environment
from verl_process import process_variables

VERL = (*OWN, "longhaul_trainer.verl.cpu.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pythons:
    """Their stand-ins."""

    engine: str
    """It has imported vLLM and no Ray: for Ray's workers and for engines."""
    verl: str
    """It has imported verl as well: for programs."""


@pytest.fixture(scope="session")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pythons]:
    """For tests that need processes of their own, but not what starting one takes."""
    folder = tmp_path_factory.mktemp("zygotes")
    with ExitStack() as stack:
        with process_variables():
            prepare_environment("cpu", scratch=folder)
            engine = stack.enter_context(Zygote(LIBRARIES, folder=folder / "engine"))
            verl = stack.enter_context(Zygote(VERL, folder=folder / "verl", fork_of=engine))
        yield Pythons(engine=str(engine.stand_in), verl=str(verl.stand_in))
