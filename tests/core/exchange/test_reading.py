"""Values of a file: each with its line, within limits, and nothing but JSON."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import FormatError
from longhaul_core.exchange import reading
from longhaul_core.exchange.reading import data_files, read_values

leaves = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20)
json_values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=3), max_size=6)


def written(folder: Path, content: bytes, name: str = "f.json") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@given(values=objects, indent=st.sampled_from([None, 1, 4]), ascii=st.booleans())
def test_an_array_and_lines_hold_the_same_values(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[object],
    indent: int | None,
    ascii: bool,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    array = json.dumps(values, indent=indent, ensure_ascii=ascii)
    lines = "\n\n".join(json.dumps(value, ensure_ascii=ascii) for value in values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_CHUNK", 7)  # values and characters are cut anywhere
        found = list(read_values(written(folder, array.encode())))
    assert [each.data for each in found] == values
    assert [each.data for each in read_values(written(folder, lines.encode(), "f.jsonl"))] == values


def test_each_value_knows_its_line(tmp_path: Path) -> None:
    array = '[\n  {"a": 1},\n  {"a":\n   2}, {"a": 3}\n]\n'
    found = read_values(written(tmp_path, array.encode()))
    assert [(each.place.line, each.data["a"]) for each in found] == [(2, 1), (3, 2), (4, 3)]
    found = read_values(written(tmp_path, b'\xef\xbb\xbf{"a": 1}\n\n{"a": 2}\n'))
    assert [(each.place.line, each.data["a"]) for each in found] == [(1, 1), (3, 2)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1}\n{"a": }\n', "line 2: no JSON: Expecting value at character 7"),
        (b'{"a": 1}\n{"a": NaN}\n', "line 2: no JSON: NaN is no number of JSON"),
        (b'[{"a": 1},\n Infinity]', "line 2: no JSON: Infinity is no number"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "line 2: is not UTF-8"),
        (b'[{"a": 1}\n {"a": 2}]', "line 2: the array has neither"),
        (b'[{"a": 1}', "line 1: the array has neither"),
        (b"[1]\n[2]", "line 2: more follows the end of the array"),
        (b'{"a":\n1}\n{"b": 2}', "line 3: more follows the JSON value"),
        (b'{"a": 1}\n' + b"[" * 200_000, "line 2: is nested too deeply"),
        (b"[" * 200_000, "line 1: is nested too deeply"),
        (b'{"a": 1}\n{"a": ' + b"9" * 5000 + b"}", "line 2: no JSON: Exceeds the limit"),
        (b"\x80\x04\x95", "line 1: is not UTF-8"),
    ],
)
def test_what_is_no_json_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(FormatError) as raised:
        list(read_values(written(tmp_path, content)))
    assert problem in str(raised.value)


@pytest.mark.parametrize("name", ["run.pkl", "run.pt", "run.npz", "run"])
def test_other_files_are_refused_unread(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, b"\x80\x04\x95", name)
    with pytest.raises(FormatError, match="JSON alone is read"):
        data_files(path)


def test_a_folder_is_read_by_the_numbers_in_its_names(tmp_path: Path) -> None:
    for name in ("step10/0.json", "step2/1.json", "step2/0.json", "step2/model.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path, b"[]", name)
    found = [str(path.relative_to(tmp_path)) for path in data_files(tmp_path)]
    assert found == ["step2/0.json", "step2/1.json", "step10/0.json"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="no file that ends in"):
        data_files(tmp_path / "empty")
    with pytest.raises(FormatError, match="there is no file"):
        data_files(tmp_path / "none.json")


def test_a_value_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_BYTES", 1000)
    monkeypatch.setattr(reading, "_CHUNK", 100)
    large = json.dumps({"a": "x" * 4000})
    for content in (f'{{"a": 1}}\n{large}\n', f'[\n{{"a": 1}},\n{large}]'):
        with pytest.raises(FormatError, match="larger than 1,000 bytes"):
            list(read_values(written(tmp_path, content.encode())))


@pytest.mark.parametrize("array", [True, False])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, array: bool) -> None:
    line = json.dumps({"a": "x" * 2000})
    content = f"[{','.join([line] * 8000)}]" if array else f"{line}\n" * 8000
    path = written(tmp_path, content.encode())
    tracemalloc.start()
    count = sum(1 for _ in read_values(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 8000
    assert peak < 8e6 < path.stat().st_size / 1.9
