"""Data that users fetch: where it lies, and how it gets there.

Nothing is downloaded by importing, describing or playing an environment, and nothing in tests but
from a server that the test starts. `trainer data fetch NAME` calls `fetch`.
"""

import fcntl
import hashlib
import http.client
import json
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from longhaul_core.addresses import proxy_variable, through_proxy
from longhaul_core.errors import MachineError

__all__ = ["DataFile", "DataSet", "fetch", "fetched_hashes", "folder"]

_RECORD = "fetched.json"
"""In the folder of a data set that was fetched: the hash of each file, by its address."""
_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 16 << 30
"""Of a file that is fetched, and of what an archive unpacks to: a few times the largest listed."""
_MOST_FILES = 2_000_000
"""In an archive."""
_NO_ANSWER_SECONDS = 60

Report = Callable[[str, int, int | None], None]
"""Told of each piece: the file's name, bytes so far, and bytes in all where the server says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file that can be fetched."""

    url: str
    sha256: str | None = None
    """64 hexadecimal digits; None where its publisher names none. What arrives first is then
    recorded, and what arrives later must be the same."""
    unpack: bool = False
    """Whether it is a zip archive, whose contents are kept instead of it."""
    strip: int = 0
    """Leading folders of an archive's names that are left out."""

    @property
    def name(self) -> str:
        """The last part of its address."""
        return PurePosixPath(self.url).name


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Files that an environment can use, and how they are had."""

    name: str
    """Of its folder, too."""
    environment: str
    """Id of the environment that reads it."""
    summary: str
    licence: str
    files: tuple[DataFile, ...] = ()
    """What `fetch` gets; none where a licence, a login or the size forbids it."""
    manual: str = ""
    """What a person does where there is nothing to fetch; `{folder}` stands for its folder."""

    def __post_init__(self) -> None:
        if bool(self.files) == bool(self.manual):
            raise ValueError(f"{self.name!r} needs files or a manual way, and not both")

    def manual_way(self) -> str:
        """The manual way, with the folder's path."""
        return self.manual.format(folder=folder(self.name))


def folder(name: str) -> Path:
    """The folder of the data set `name`: `$LONGHAUL_DATA/NAME`, or `~/.cache/longhaul/NAME`.

    It may not exist; whoever reads from it says what is missing and how to get it.
    """
    root = os.environ.get("LONGHAUL_DATA")
    return (Path(root) if root else Path.home() / ".cache" / "longhaul") / name


def fetched_hashes(name: str) -> Mapping[str, str] | None:
    """SHA-256 of each file that was fetched, by its address; None if `fetch` did not put it there.

    A person may have put the data there by hand.

    Raises:
        MachineError: If what `fetch` wrote about them cannot be read any more.
    """
    record = folder(name) / _RECORD
    if not record.is_file():
        return None
    return _hashes_in(record, remedy=f"remove {record.parent} and fetch it again")


def fetch(data: DataSet, *, report: Report) -> Mapping[str, str]:
    """Get all files of `data`, check them and put them into its folder at once, or not at all.

    What is there already is left alone. A fetch that was cut short leaves nothing but a folder
    `.NAME.part` beside it, with which the next one begins anew. The hashes are kept beside it as
    well, in `.NAME.sha256.json`, which outlives the folder.

    Returns:
        SHA-256 of each file, by its address.

    Raises:
        MachineError: If the folder is there and was not fetched, nothing can be written beside it,
            another process fetches it, a server does not answer or ends too early, a file has
            another hash than it must, an archive cannot be unpacked, or hashes that were kept
            cannot be read.
    """
    target = folder(data.name)
    first = target.parent / f".{data.name}.sha256.json"
    present = fetched_hashes(data.name)
    if present is not None:
        if not first.exists():
            with suppress(OSError):  # the folder may be one that can only be read
                _write_whole(first, _as_record(present))
        return present
    if target.exists():
        raise MachineError(
            f"{target} exists and was not fetched by this program; use it as it is, or move it away"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise MachineError(
            f"data cannot be put into {target.parent}: {error.strerror}; name another folder with "
            "LONGHAUL_DATA"
        ) from error
    with _alone(target.parent / f".{data.name}.lock", data.name):
        part = target.parent / f".{data.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        contents = part / "contents"
        contents.mkdir(parents=True)
        recorded: dict[str, str] = {}
        if first.is_file():
            recorded = _hashes_in(first, remedy="remove it to take the files as they are now")
        hashes: dict[str, str] = {}
        for file in data.files:
            hashes[file.url] = digest = _fetched(file, part, report)
            _check(file, digest, recorded.get(file.url), record=first)
            _put(file, part, contents)
        (contents / _RECORD).write_bytes(_as_record(hashes))
        _write_whole(first, _as_record(hashes))
        contents.rename(target)
        shutil.rmtree(part)
    return hashes


def _as_record(hashes: Mapping[str, str]) -> bytes:
    return json.dumps(hashes, indent=1).encode()


def _hashes_in(record: Path, *, remedy: str) -> dict[str, str]:
    """What `_as_record` made.

    Raises:
        MachineError: If it is something else.
    """
    try:
        hashes = json.loads(record.read_bytes())
        if not isinstance(hashes, dict):
            raise TypeError(f"an object was expected, not {hashes!r:.40}")
    except (TypeError, ValueError) as error:
        raise MachineError(
            f"{record} holds no hashes of what was fetched: {error}; {remedy}"
        ) from error
    return {str(url): str(digest) for url, digest in cast("dict[object, object]", hashes).items()}


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file at once, or leave what is there."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _alone(lock: Path, name: str) -> Generator[None]:
    """Keep other processes from fetching the same; the lock ends with the process."""
    with lock.open("w", encoding="utf-8") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MachineError(f"another process fetches {name!r}; wait for it") from error
        yield


def _fetched(file: DataFile, part: Path, report: Report) -> str:
    """Fetch a file into `part`; its SHA-256."""
    try:
        with (
            urllib.request.urlopen(file.url, timeout=_NO_ANSWER_SECONDS) as answer,
            (part / file.name).open("wb") as out,
        ):
            return _copy(answer, out, file, report)
    except (OSError, urllib.error.URLError, http.client.HTTPException) as error:
        proxy = proxy_variable(file.url)
        advice = "try again" if proxy is None else through_proxy(proxy, file.url)
        raise MachineError(f"{file.url} could not be fetched: {error}; {advice}") from error


def _check(file: DataFile, digest: str, recorded: str | None, *, record: Path) -> None:
    if file.sha256 is not None:
        if digest != file.sha256:
            raise MachineError(
                f"{file.url} has SHA-256 {digest}, and {file.sha256} was expected: the file was "
                "changed on its way or by its publisher; nothing of it is kept"
            )
    elif recorded not in (None, digest):
        raise MachineError(
            f"{file.url} has SHA-256 {digest}, and had {recorded} when it was first fetched here: "
            "the file was changed on its way or by its publisher; nothing of it is kept. To take "
            f"it as it is now, remove {record}"
        )


def _put(file: DataFile, part: Path, contents: Path) -> None:
    if file.unpack:
        _unpack(part / file.name, contents, file)
    else:
        (part / file.name).rename(contents / file.name)


def _copy(answer: http.client.HTTPResponse, out: BinaryIO, file: DataFile, report: Report) -> str:
    length = answer.headers.get("Content-Length")
    expected = None if length is None else int(length)
    digest, num_bytes = hashlib.sha256(), 0
    while chunk := answer.read(_CHUNK_BYTES):
        digest.update(chunk)
        out.write(chunk)
        num_bytes += len(chunk)
        if num_bytes > _MOST_BYTES:
            raise OSError(f"it is longer than {_MOST_BYTES:,} bytes, the most that is fetched")
        report(file.name, num_bytes, expected)
    if expected is not None and num_bytes != expected:
        raise OSError(f"the connection ended after {num_bytes:,} of {expected:,} bytes")
    return digest.hexdigest()


def _unpack(archive: Path, contents: Path, file: DataFile) -> None:
    try:
        with zipfile.ZipFile(archive) as packed:
            _check_size(packed.infolist(), contents, file)
            for entry in packed.infolist():
                parts = PurePosixPath(entry.filename).parts
                if ".." in parts or PurePosixPath(entry.filename).is_absolute():
                    raise MachineError(f"{file.url} holds {entry.filename!r}, outside its folder")
                if entry.is_dir() or len(parts) <= file.strip:
                    continue
                path = contents.joinpath(*parts[file.strip :])
                path.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(entry) as source, path.open("wb") as out:
                    shutil.copyfileobj(source, out)
    except zipfile.BadZipFile as error:
        raise MachineError(f"{file.url} is no zip archive: {error}") from error


def _check_size(entries: Sequence[zipfile.ZipInfo], contents: Path, file: DataFile) -> None:
    """Refuse an archive that would fill the disk; no entry unpacks to more than it says."""
    num_bytes, free = sum(entry.file_size for entry in entries), shutil.disk_usage(contents).free
    if num_bytes > _MOST_BYTES or len(entries) > _MOST_FILES:
        raise MachineError(
            f"{file.url} would unpack to {len(entries):,} files of {num_bytes:,} bytes, more than "
            f"the {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes that are unpacked; nothing of it "
            "is kept. If it is what it should be, unpack it by hand"
        )
    if num_bytes > free:
        raise MachineError(
            f"{file.url} unpacks to {num_bytes:,} bytes, and {contents.parent} has {free:,} free: "
            "free space there, or name another folder with LONGHAUL_DATA"
        )
