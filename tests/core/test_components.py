"""Tests for `longhaul_core.components`: built-in names, and parts of the user's own."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from longhaul_core.actions import ActionFormat, build_parser
from longhaul_core.components import build_component, find_component, is_component
from longhaul_core.errors import ConfigError
from longhaul_core.memory import MEMORIES, PromptTemplate, build_memory, build_template
from longhaul_core.types import Message, Observation

MINE = """
from longhaul_core.actions import ParsedAction
from longhaul_core.memory import PromptTemplate, WindowMemory

def double(value):
    return 2 * value

async def later(value):
    return value

NUMBER = 3

class LastTwo(WindowMemory):
    def __init__(self, *, size, template):
        super().__init__(size=2, template=template)

class Forgetful:
    def __init__(self, *, size, template):
        pass
    def compose(self, observation, *, drop=0):
        return ()

class Shouting:
    instruction = "Shout."
    def __init__(self, *, require_thinking, reply_prefix):
        self.prefix = reply_prefix
    def parse(self, reply, admissible=None):
        return ParsedAction(text=(self.prefix + reply).upper(), valid=True)

class Bare(PromptTemplate):
    def past_line(self, observation, action):
        return action

def not_one(**fields):
    return fields

def broken(*, require_thinking, reply_prefix):
    raise KeyError("no such voice")
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "parts_of_mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "half_written.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "parts_of_mine", raising=False)
    return "parts_of_mine"


FUNCTIONS: Mapping[str, Callable[[int], int]] = {"same": int, "negative": lambda value: -value}


def found(name: str) -> Callable[[int], int]:
    return find_component(name, FUNCTIONS, setting="a.part", takes=("value",))


def test_a_built_in_name_and_a_path_are_found(mine: str) -> None:
    assert found("negative")(3) == -3
    assert found(f"{mine}:double")(3) == 6


@pytest.mark.parametrize(
    ("name", r"message"),
    [
        ("negates", r"'negates': must be one of same, negative, or package.module:name of your"),
        ("a-b:c", r"'a-b:c': must be one of same"),
        ("parts_of_mine:", r"must be one of same"),
        ("no_such_place:f", r"importing no_such_place: ModuleNotFoundError: No module named 'no_s"),
        ("half_written:f", r"importing half_written: ModuleNotFoundError: .*nothing_of_this_name"),
        ("parts_of_mine:halve", r"module parts_of_mine has no halve"),
        ("parts_of_mine:NUMBER", r"NUMBER is not a plain function or class"),
        ("parts_of_mine:later", r"later is not a plain function or class"),
        ("parts_of_mine:LastTwo", r"is called as LastTwo\(value\), and takes \(\*, size, template"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_anything_else_is_refused_with_its_setting_value_and_reason(
    name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        found(name)

    assert str(raised.value).startswith(f"a.part = {name!r}: ")


@pytest.mark.parametrize(
    ("name", r"is_one"),
    [("same", True), ("a.b:c", True), ("a:b:c", False), ("a.b", False), ("1a:b", False)],
)
def test_the_form_of_a_name_is_known_without_an_import(name: str, is_one: bool) -> None:
    assert is_component(name, FUNCTIONS) is is_one


def test_a_memory_of_ones_own_is_made_for_each_episode(mine: str) -> None:
    one, other = (
        build_memory(f"{mine}:LastTwo", size=9, template=PromptTemplate()) for _ in range(2)
    )

    assert one is not other
    assert one.compose(Observation(text="A room."))[-1].content == "A room."


@pytest.mark.usefixtures("mine")
def test_what_lacks_a_method_of_its_protocol_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"memory\.kind = .*a Forgetful, which has no write"):
        build_memory("parts_of_mine:Forgetful", template=PromptTemplate())
    with pytest.raises(ConfigError, match=r"prompt\.template = .*must make a .*PromptTemplate"):
        build_template(
            "parts_of_mine:not_one", system="", instruction="", list_actions=True, reply_prefix=""
        )
    with pytest.raises(
        ConfigError, match=r"actions\.format = .*broken': KeyError: 'no such voice'"
    ):
        build_parser("parts_of_mine:broken")


def test_a_parser_of_ones_own_reads_replies_and_says_how_to_write_them(mine: str) -> None:
    parser = build_parser(f"{mine}:Shouting", reply_prefix="I say ")

    assert parser.instruction == "Shout."
    assert parser.parse("go").text == "I SAY GO"


def test_a_template_of_ones_own_gets_the_settings_and_lays_out_the_past(mine: str) -> None:
    template = build_template(
        f"{mine}:Bare", system="Be brief.", instruction="", list_actions=False, reply_prefix=""
    )

    assert template.past_line(Observation(text="A room."), "left") == "left"
    assert template.system_messages() == (Message(role="system", content="Be brief."),)


def test_every_built_in_memory_and_parser_is_made_by_its_name() -> None:
    for kind in MEMORIES:
        assert build_memory(kind, size=1, template=PromptTemplate()).num_remembered == 0
    for form in ActionFormat:
        asked = "Call one of" if form is ActionFormat.TOOL_CALL else "Write one action"
        assert build_parser(form).instruction.startswith(asked)


def test_what_is_made_of_a_built_in_part_is_handed_over_as_it_is() -> None:
    def make(*, size: int) -> int:
        return size

    assert build_component("a", {"a": make}, setting="s", needs=("x",), arguments={"size": 3}) == 3


def test_a_module_in_the_working_folder_is_found_there_and_by_child_processes(
    tmp_path: Path,
) -> None:
    (tmp_path / "parts_of_mine.py").write_text(MINE, encoding="utf-8")
    child = (
        "from longhaul_core.components import find_component as f;"
        "print(f('parts_of_mine:double', {}, setting='s', takes=('value',))(4))"
    )
    code = (
        "import os, subprocess, sys;"
        "from longhaul_core.components import find_component as f;"
        "f('parts_of_mine:double', {}, setting='s', takes=('value',)); os.chdir('/');"
        f"subprocess.run([sys.executable, '-P', '-c', {child!r}], check=True)"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout == "8\n"
