"""Environments compared with their authors' own code, on the machine of a user who has it.

That code is imported from the folder that the user names and runs as the user; none of it is here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from longhaul_core.errors import ConfigError
from longhaul_envs.against import scienceworld, textcraft, webshop
from longhaul_envs.against.originals import Pair

__all__ = ["ORIGINALS", "Compared", "compared_with"]


class Original(NamedTuple):
    """An authors' code that can be played beside ours."""

    checkout: str
    """What the folder is a checkout of."""
    pairs: Callable[[Path, Random], Iterable[Pair]]
    """Endless: what both gave for random cases."""


ORIGINALS: Mapping[str, Original] = {
    "longhaul/ScienceWorld-v0": Original("WooooDyy/AgentGym", scienceworld.pairs),
    "longhaul/TextCraft-v0": Original("WooooDyy/AgentGym", textcraft.pairs),
    "longhaul/WebShop-v0": Original("princeton-nlp/WebShop", webshop.pairs),
}
"""By environment."""


@dataclass(slots=True)
class Compared:
    """How often both gave the same."""

    what: str
    num_compared: int = 0
    num_different: int = 0
    example: str = ""
    """The first difference, in words."""


def compared_with(
    environment_id: str, folder: Path, *, num_pairs: int, seed: int = 0
) -> list[Compared]:
    """Play our environment and the authors', and count what differs, by what was compared.

    Args:
        environment_id: One of `ORIGINALS`.
        folder: A checkout of the authors' code.
        num_pairs: Values that are compared, at least 1.
        seed: Of the cases.

    Raises:
        ConfigError: If there is no such comparison, or the folder lacks the code or what it needs.
    """
    if environment_id not in ORIGINALS:
        raise ConfigError(
            f"{environment_id} is compared with no original; {', '.join(ORIGINALS)} are"
        )
    found: dict[str, Compared] = {}
    for pair in islice(ORIGINALS[environment_id].pairs(folder, Random(seed)), num_pairs):
        compared = found.setdefault(pair.what, Compared(pair.what))
        compared.num_compared += 1
        if pair.ours != pair.theirs:
            compared.num_different += 1
            compared.example = compared.example or (
                f"{pair.case}: ours {pair.ours}, theirs {pair.theirs}"
            )
    return list(found.values())
