"""Data is fetched whole and checked, or not at all. The server is the test's own."""

import errno
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from file_server import WORDS, Server, serving
from longhaul_core.errors import MachineError
from longhaul_envs.data import DataFile, DataSet, fetch, fetched_hashes, folder
from longhaul_envs.data_sets import DATA_SETS


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        yield one


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGHAUL_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def data_of(*files: DataFile) -> DataSet:
    return DataSet(
        name="words", environment="mine/Words-v0", summary="words", licence="CC0", files=files
    )


def nothing(name: str, num_bytes: int, expected: int | None) -> None:
    del name, num_bytes, expected


def everything_in(path: Path) -> dict[str, bytes]:
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file()
    }


def test_files_arrive_under_their_names_with_their_hashes(server: Server, root: Path) -> None:
    server.files["/levels.zip"] = zipped(top__a__1=b"x", top__2=b"y")
    plain = DataFile(url=server.url("words.txt"), sha256=hashlib.sha256(WORDS).hexdigest())
    packed = DataFile(url=server.url("levels.zip"), unpack=True, strip=1)
    seen: list[tuple[str, int, int | None]] = []

    def report(name: str, num_bytes: int, expected: int | None) -> None:
        seen.append((name, num_bytes, expected))

    hashes = fetch(data_of(plain, packed), report=report)

    found = everything_in(root / "words")
    record = json.loads(found.pop("fetched.json"))
    assert found == {"words.txt": WORDS, "a/1": b"x", "2": b"y"}
    assert hashes == record == fetched_hashes("words")
    assert hashes[packed.url] == hashlib.sha256(server.files["/levels.zip"]).hexdigest()
    assert ("words.txt", len(WORDS), len(WORDS)) in seen
    assert folder("words") == root / "words"


def test_a_second_fetch_asks_nobody(server: Server) -> None:
    data = data_of(DataFile(url=server.url("words.txt")))
    first = fetch(data, report=nothing)
    asked = len(server.requests)

    assert fetch(data, report=nothing) == first
    assert len(server.requests) == asked == 1


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_DATA", "/dev/null/data")

    with pytest.raises(MachineError, match=r"/dev/null/data: Not a directory; .* LONGHAUL_DATA"):
        fetch(data_of(DataFile(url=server.url("words.txt"))), report=nothing)


def test_another_content_than_the_publishers_is_not_kept(server: Server, root: Path) -> None:
    wrong = DataFile(url=server.url("words.txt"), sha256="0" * 64)

    with pytest.raises(MachineError, match=r"and 0000.* was expected"):
        fetch(data_of(wrong), report=nothing)

    assert not (root / "words").exists()
    assert fetch(data_of(replace(wrong, sha256=None)), report=nothing)


def test_a_file_without_a_known_hash_must_stay_as_it_was_first_fetched(
    server: Server, root: Path
) -> None:
    data = data_of(DataFile(url=server.url("words.txt")))
    first = fetch(data, report=nothing)
    shutil.rmtree(root / "words")
    assert fetch(data, report=nothing) == first

    shutil.rmtree(root / "words")
    server.files["/words.txt"] = b"other words"
    with pytest.raises(MachineError, match=r"and had [0-9a-f]{64} when it was first fetched here"):
        fetch(data, report=nothing)
    assert not (root / "words").exists()

    (root / ".words.sha256.json").unlink()
    assert fetch(data, report=nothing) != first


@pytest.mark.parametrize("broken", [b'{"http://', b"[1]", b'{"\xff": "0"}'])
def test_a_record_of_hashes_that_cannot_be_read_is_named(
    server: Server, root: Path, broken: bytes
) -> None:
    data = data_of(DataFile(url=server.url("words.txt")))
    fetch(data, report=nothing)
    (root / "words" / "fetched.json").write_bytes(broken)
    with pytest.raises(MachineError, match=r"words/fetched\.json holds no hashes"):
        fetch(data, report=nothing)

    shutil.rmtree(root / "words")
    record = root / ".words.sha256.json"
    record.write_bytes(broken)
    with pytest.raises(MachineError, match=r"\.words\.sha256\.json holds no hashes"):
        fetch(data, report=nothing)
    assert record.read_bytes() == broken
    assert not (root / "words").exists()


def test_a_lost_record_of_hashes_is_written_again_from_the_folder(
    server: Server, root: Path
) -> None:
    data = data_of(DataFile(url=server.url("words.txt")))
    first = fetch(data, report=nothing)
    record = root / ".words.sha256.json"
    record.unlink()

    fetch(data, report=nothing)

    assert json.loads(record.read_bytes()) == first
    assert [path.name for path in root.glob(".words.sha256.json*")] == [record.name]


def test_a_record_that_cannot_be_written_leaves_the_one_that_was_there(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of(DataFile(url=server.url("words.txt")))
    fetch(data, report=nothing)
    record = root / ".words.sha256.json"
    before = record.read_bytes()
    shutil.rmtree(root / "words")
    write = Path.write_bytes

    def half(path: Path, content: bytes) -> int:
        write(path, content[:5])
        if path.name.startswith(record.name):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left"):
        fetch(data, report=nothing)
    assert record.read_bytes() == before
    assert not (root / "words").exists()


def test_a_connection_that_ends_early_leaves_no_data_set(server: Server, root: Path) -> None:
    server.half.add("/words.txt")
    server.waits.set()
    data = data_of(DataFile(url=server.url("words.txt")))

    with pytest.raises(MachineError, match=r"ended after 4,000 of 8,000 bytes; try again"):
        fetch(data, report=nothing)
    assert not (root / "words").exists()

    server.half.clear()
    fetch(data, report=nothing)
    assert (root / "words" / "words.txt").read_bytes() == WORDS


@pytest.mark.parametrize(
    ("name", "said"), [("gone.txt", "404"), ("words.txt.zip", "is no zip archive")]
)
def test_what_cannot_be_had_or_unpacked_is_named(server: Server, name: str, said: str) -> None:
    server.files["/words.txt.zip"] = WORDS
    with pytest.raises(MachineError, match=said):
        fetch(data_of(DataFile(url=server.url(name), unpack=True)), report=nothing)


def test_a_server_that_is_not_there_is_named(server: Server) -> None:
    del server
    with pytest.raises(MachineError, match=r":9/words\.txt could not be fetched"):
        fetch(data_of(DataFile(url="http://127.0.0.1:9/words.txt")), report=nothing)


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(MachineError, match="went through the proxy of http_proxy"):
        fetch(data_of(DataFile(url="http://words.example/words.txt")), report=nothing)


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_an_archive_cannot_write_outside_its_folder(server: Server, root: Path, name: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, b"x")
    server.files["/levels.zip"] = buffer.getvalue()

    with pytest.raises(MachineError, match="outside its folder"):
        fetch(data_of(DataFile(url=server.url("levels.zip"), unpack=True)), report=nothing)
    assert [path.name for path in root.parent.rglob("outside")] == []


def test_an_archive_that_unpacks_to_too_much_is_refused(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(2_000))
        archive.writestr("b", bytes(2_000))
    server.files["/bomb.zip"] = buffer.getvalue()
    bomb = data_of(DataFile(url=server.url("bomb.zip"), unpack=True))

    monkeypatch.setattr("longhaul_envs.data._MOST_BYTES", 3_999)
    with pytest.raises(MachineError, match=r"bomb.zip would unpack to 2 files of 4,000 bytes"):
        fetch(bomb, report=nothing)
    assert not (root / "words").exists()
    monkeypatch.setattr("longhaul_envs.data._MOST_BYTES", 4_000)
    monkeypatch.setattr("longhaul_envs.data._MOST_FILES", 1)
    with pytest.raises(MachineError, match=r"more than the 1 files or 4,000 bytes"):
        fetch(bomb, report=nothing)
    monkeypatch.setattr("longhaul_envs.data._MOST_FILES", 2)
    fetch(bomb, report=nothing)


def test_a_file_that_does_not_end_is_given_up(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhaul_envs.data._MOST_BYTES", len(WORDS) - 1)
    with pytest.raises(MachineError, match="could not be fetched: it is longer than"):
        fetch(data_of(DataFile(url=server.url("words.txt"))), report=nothing)
    assert not (root / "words").exists()


def test_what_a_person_put_there_is_left_alone(server: Server, root: Path) -> None:
    (root / "words").mkdir(parents=True)
    (root / "words" / "mine.txt").write_text("mine", encoding="utf-8")

    with pytest.raises(MachineError, match="was not fetched by this program"):
        fetch(data_of(DataFile(url=server.url("words.txt"))), report=nothing)

    assert everything_in(root / "words") == {"mine.txt": b"mine"}


PROGRAM = """
import sys
from longhaul_envs.data import DataFile, DataSet, fetch
files = (DataFile(url=sys.argv[1]),)
data = DataSet(name="words", environment="mine/Words-v0", summary="", licence="", files=files)
fetch(data, report=lambda *_: None)
"""


def test_a_fetch_that_is_killed_in_the_middle_is_begun_anew(server: Server, root: Path) -> None:
    server.half.add("/words.txt")
    data = data_of(DataFile(url=server.url("words.txt")))
    other = subprocess.Popen([sys.executable, "-c", PROGRAM, data.files[0].url], env=os.environ)
    assert server.in_the_middle.wait(60)

    with pytest.raises(MachineError, match="another process fetches 'words'"):
        fetch(data, report=nothing)
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert not (root / "words").exists()

    server.half.clear()
    fetch(data, report=nothing)
    assert (root / "words" / "words.txt").read_bytes() == WORDS
    assert not (root / ".words.part").exists()


def test_each_data_set_can_be_fetched_or_says_how_a_person_gets_it(root: Path) -> None:
    assert {"alfworld", "webshop", "webarena", "wiki", "appworld", "bird-sql", "boxoban"} <= set(
        DATA_SETS
    )
    for name, data in DATA_SETS.items():
        assert data.licence
        assert all(file.url.startswith("https://") for file in data.files)
        assert data.files or str(root / name) in data.manual_way()
