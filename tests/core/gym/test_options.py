"""A run's file may hold anything for an option: what is not of its type is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.gym import options_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    size: int = 3
    share: float = 0.5
    shown: bool = True
    kind: str = "a"
    names: tuple[str, ...] = ()
    numbers: tuple[int, ...] = (1, 2)
    sites: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        assert self.size > 0  # a text is refused before it is compared
        assert sum(self.numbers) > 0


def options(**given: object) -> Options:
    return options_from(Options, given, environment_id="tests/Options-v0")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"size": "3"}, "size must be a whole number, got '3'"),
        ({"size": 1.5}, "size must be a whole number, got 1.5"),
        ({"size": True}, "size must be a whole number, got True"),
        ({"share": "half"}, "share must be a number, got 'half'"),
        ({"shown": "no"}, "shown must be true or false, got 'no'"),
        ({"shown": 0}, "shown must be true or false, got 0"),
        ({"kind": ["a"]}, "kind must be text, got"),
        ({"names": 3}, "names must be a list, got 3"),
        ({"names": [3]}, "names must be a list, got"),
        ({"numbers": 3}, "numbers must be a list, got 3"),
        ({"numbers": ["1"]}, "numbers must be a list, got"),
        ({"sites": ["a"]}, "sites must be a table, got"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(given: dict[str, object], wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        options(**given)


def test_values_of_their_type_are_taken() -> None:
    made = options(size=4, share=1, shown=False, names="a", numbers=[3], sites={"a": "b"})

    assert made == Options(
        size=4,
        share=1,
        shown=False,
        names=("a",),  # a lone text stands for a list of it
        numbers=(3,),
        sites={"a": "b"},
    )
