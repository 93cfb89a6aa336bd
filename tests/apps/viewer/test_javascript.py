"""The viewer's scripts outside a browser: their logic, in modules that Node reads as they are."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

import longhaul_viewer
from longhaul_core.store import StoreWriter, maintenance, open_store
from longhaul_core.store.queries import search_steps
from longhaul_core.types import Message, Observation, ToolCall
from longhaul_viewer.components.modules import script
from steps import with_call
from store_samples import make_record, make_trajectory, run_started

UNIT_TESTS = Path(__file__).parent / "js"
COMPONENTS = Path(longhaul_viewer.__file__).parent / "components"


def test_the_modules_of_the_scripts_pass_their_unit_tests(installed_node: str) -> None:
    files = {file.name.removesuffix(".test.mjs"): file for file in UNIT_TESTS.glob("*.test.mjs")}
    assert files.keys() == {module.stem for module in COMPONENTS.rglob("*.mjs")}
    # In one process, which takes a fifth of `node --test`.
    imports = "".join(f"import {json.dumps(file.as_uri())}\n" for file in files.values())
    run = subprocess.run(
        [installed_node, "--input-type=module", "--eval", imports], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", ["group_view.js", "play_view.js", "replay/replay.js"])
def test_a_script_and_its_modules_are_one_module(
    installed_node: str, tmp_path: Path, name: str
) -> None:
    whole = tmp_path / "whole.mjs"
    whole.write_text(script(COMPONENTS / name), encoding="utf-8")
    # No name is declared twice.
    run = subprocess.run([installed_node, "--check", whole], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "line", ['import { a as b } from "./a.mjs"', 'import * as a from "./a.mjs"', 'import "./a.mjs"']
)
def test_an_import_that_joining_would_lose_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.mjs").write_text("export const a = 1 // one", encoding="utf-8")
    for name, source in (("right", 'import { a } from "./a.mjs"\n'), ("wrong", f"{line}\n")):
        (tmp_path / f"{name}.js").write_text(f"{source}a\n", encoding="utf-8")

    assert script(tmp_path / "right.js").splitlines() == ["export const a = 1 // one", "a"]
    with pytest.raises(ValueError, match="cannot be joined"):
        script(tmp_path / "wrong.js")


def test_the_text_index_finds_what_the_replay_finds(tmp_path: Path) -> None:
    known = json.loads((UNIT_TESTS / "searches.json").read_text(encoding="utf-8"))
    says, last = known["sayings"], known["last"]
    made = make_trajectory(rewards=(0.0,) * (len(says) + 1))
    steps = [
        replace(with_call(step, reply="r", messages=()), observation=Observation(text=said))
        for step, said in zip(made.steps, (*says, last["observation"]), strict=True)
    ]
    look = ToolCall(**last["tool_call"])
    thought = Message(role="assistant", content="", reasoning=last["reasoning"], tool_calls=(look,))
    steps[-1] = with_call(steps[-1], reply=last["reply"], messages=(thought,))
    url = str(tmp_path / "store.db")
    with StoreWriter(url) as writer:
        writer.write([run_started(), make_record(replace(made, steps=tuple(steps)))])
    engine = open_store(url)
    maintenance.index_text(engine)
    with Session(engine) as session:
        found = {
            words: sorted(hit.step_index for hit in search_steps(session, words=words).rows)
            for words in known["searches"]
        }
    engine.dispose()
    assert found == {words: each["found"] for words, each in known["searches"].items()}
    assert {len(steps) for steps in found.values()} == {0, 1, 2}
