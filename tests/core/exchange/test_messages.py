"""`messages` in Parquet: rows of other programs come in, ours go out as those would read them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.exchange.conftest import Import
from longhaul_core.errors import ConfigError, FormatError
from longhaul_core.exchange import export_episodes, format_named
from longhaul_core.store import StoreWriter
from longhaul_core.store.queries import EpisodeFilter
from longhaul_core.types import Message, Observation, Step, ToolCall
from steps import one_call_step, with_call
from store_samples import make_record, make_trajectory, run_started

parquet: Any = import_module("pyarrow.parquet")
arrow: Any = import_module("pyarrow")

Reading = Callable[[], AbstractContextManager[Session]]


def written(path: Path, rows: list[dict[str, Any]], **how: Any) -> Path:  # noqa: ANN401
    parquet.write_table(arrow.Table.from_pylist(rows), path, **how)
    return path


def turns(*texts: str) -> list[dict[str, str]]:
    roles = ["user", "assistant"] * len(texts)
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def test_each_answer_of_a_row_is_a_step(imported: Import, tmp_path: Path) -> None:
    rows = [
        {
            "messages": [
                {"role": "system", "content": "Walk."},
                *turns("at 3", "-", "at 2", "-", "0"),
            ]
        },
        {"messages": turns("at 1", "+"), "source": "somebody"},
    ]

    first, second = imported(written(tmp_path / "sft.parquet", rows), "messages")

    assert [step.action for step in first.steps] == ["-", "-"]
    assert [step.observation for step in first.steps] == ["at 3", "at 2"]
    assert [[message.text for message in step.calls[0].messages] for step in first.steps] == [
        ["Walk.", "at 3"],
        ["Walk.", "at 3", "-", "at 2"],
    ]
    assert [step.calls[0].reply for step in second.steps] == ["+"]


def test_a_file_of_many_row_groups_is_read_row_by_row(imported: Import, tmp_path: Path) -> None:
    rows = [{"messages": turns(f"at {number}", f"go {number}")} for number in range(300)]

    found = imported(written(tmp_path / "many.parquet", rows, row_group_size=70), "messages")

    assert len(found) == 300
    assert {one.steps[0].action for one in found} == {f"go {number}" for number in range(300)}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "at 3"}, r"row 2: column messages: Field required"),
        ({"messages": []}, r"row 2: column messages: List should have at least 1 item"),
        ({"messages": [{"role": "human", "content": ""}]}, r"row 2: column messages\.0\.role: "),
        (
            {"messages": [{"role": "user", "content": "at 3"}]},
            "row 2: column messages: there is none",
        ),
        ({"messages": turns("at 3", "-"), "tools": "[{"}, r"row 2: column tools: no JSON"),
    ],
)
def test_a_bad_row_is_named_with_its_column(
    imported: Import, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    first = {**dict.fromkeys(row), "messages": turns("at 3", "-")}

    with pytest.raises(FormatError, match=rf"bad\.parquet, {words}"):
        imported(written(tmp_path / "bad.parquet", [first, row]), "messages")


def test_what_is_no_parquet_is_refused(imported: Import, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 but no more")
    (tmp_path / "x.jsonl").write_text("{}")

    with pytest.raises(FormatError, match=r"cannot read .*x\.parquet as Parquet"):
        imported(tmp_path / "x.parquet", "messages")
    with pytest.raises(FormatError, match=r"Parquet alone is read, from \.parquet"):
        imported(tmp_path / "x.jsonl", "messages")
    with pytest.raises(FormatError, match="JSON alone is read"):
        imported(tmp_path / "x.parquet", "conversations")


def stored(writer: StoreWriter, *steps: Step) -> None:
    episodes = [
        replace(make_trajectory(sample_index=place), steps=steps, success=True) for place in (0, 1)
    ]
    writer.write([run_started(), *map(make_record, episodes)])
    writer.flush()


def exported(reading: Reading, path: Path) -> Path:
    pieces = export_episodes(
        reading, run_id="run", format=format_named("messages"), where=EpisodeFilter(run_id="run")
    )
    path.write_bytes(b"".join(pieces))
    return path


def walk(index: int, *, reply: str = "-") -> Step:
    return one_call_step(
        index,
        Observation(text=f"at {index}"),
        messages=(
            Message(role="system", content="Walk."),
            Message(role="user", content=f"at {index}"),
        ),
        reply=reply,
        action=reply,
        reward=0.5 * index,
        prompt_tokens=(1, 2),
        action_tokens=(3,),
        behavior_logprobs=(-0.5,),
    )


def test_a_row_of_ours_is_a_prompt_and_its_reply(
    writer: StoreWriter, reading: Reading, imported: Import, tmp_path: Path
) -> None:
    stored(writer, walk(0), walk(1, reply="+"))

    file = exported(reading, tmp_path / "ours.parquet")

    table = parquet.read_table(file)
    assert table.schema.field("messages").type == arrow.list_(
        arrow.struct([("role", arrow.string()), ("content", arrow.string())])
    )
    assert table.column("messages").to_pylist()[:2] == [
        [{"role": "system", "content": "Walk."}, *turns("at 0", "-")],
        [{"role": "system", "content": "Walk."}, *turns("at 1", "+")],
    ]
    again = imported(file, "messages", run_id="again")
    assert [[step.action for step in one.steps] for one in again] == [["-", "+"]] * 2
    assert [one.summary.episode_return for one in again] == [0.5, 0.5]
    assert [step.reward for step in again[0].steps] == [0.0, 0.5]


def test_what_a_text_cannot_say_is_refused_by_name(
    writer: StoreWriter, reading: Reading, tmp_path: Path
) -> None:
    asked = (ToolCall(id="1", name="go", arguments="{}"),)
    stored(writer, walk(0), with_call(walk(1), tool_calls=asked))

    with pytest.raises(ConfigError, match=r"step 1 of run/.*: a message has calls of tools"):
        exported(reading, tmp_path / "ours.parquet")
