"""Levels of the Boxoban data set, read from its authors' files.

A file holds levels like

    ; 17
    ##########
    #   $   .#
    …

one character a cell: `#` wall, `@` player, `$` box, `.` target, `*` box on target, `+` player on
target, a blank floor. The files of a set lie in folders `train`, `valid` and `test`; where a set
has no `test`, half of `valid` is it, and where it has no folders at all (`hard`), a hash of the
content divides. A level that stands in two folders, turned or mirrored or as it is, is listed in
test or validation and not in training.

Guez, Mirza, Gregor et al. 2018, https://github.com/google-deepmind/boxoban-levels
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.sokoban.board import Board, Position, symmetric_forms
from longhaul_envs.task_lists import content_hash, split_of

__all__ = ["SETS", "level_at", "level_ids", "parse_levels"]

SETS = ("unfiltered", "medium", "hard")
_FOLDERS = {Split.TRAIN: "train", Split.VALIDATION: "valid", Split.TEST: "test"}

Start = tuple[Board, Position]


def parse_levels(text: str, *, source: str) -> tuple[Start, ...]:
    """The levels of a file, in its order.

    Raises:
        ConfigError: If a level is no square of known characters with one player and as many boxes
            as targets, at least one.
    """
    levels: list[Start] = []
    for number, block in enumerate(text.split(";")[1:]):
        rows = [line for line in block.splitlines()[1:] if line.strip()]
        levels.append(_level(rows, where=f"level {number} of {source}"))
    if not levels:
        raise ConfigError(f"{source} holds no level: each begins with a line like '; 0'")
    return tuple(levels)


def _level(rows: list[str], *, where: str) -> Start:
    size = len(rows)
    cells = "".join(rows)
    if any(len(row) != size for row in rows) or set(cells) - set("#@$.*+ "):
        raise ConfigError(f"{where} is no square of '#', '@', '$', '.', '*', '+' and blanks")

    def where_are(symbols: str) -> frozenset[int]:
        return frozenset(cell for cell, symbol in enumerate(cells) if symbol in symbols)

    players, boxes, targets = where_are("@+"), where_are("$*"), where_are(".*+")
    if len(players) != 1 or len(boxes) != len(targets) or not boxes:
        raise ConfigError(
            f"{where} has {len(players)} players, {len(boxes)} boxes and {len(targets)} targets; "
            "it needs 1 player, and as many boxes as targets"
        )
    edge = [*range(size), *range(size * (size - 1), size * size)]
    edge += [row * size + side for row in range(size) for side in (0, size - 1)]
    if any(cells[cell] != "#" for cell in edge):
        raise ConfigError(f"{where} has a gap in the wall around it")
    (player,) = players
    return Board(size, frozenset(range(size * size)) - where_are("#"), targets), Position(
        player, boxes
    )


@cache
def level_at(root: Path, name: str) -> Start:
    """The level that a name such as `unfiltered/train/000/17` stands for: its file and its place.

    Raises:
        ConfigError: If there is no such file, or no such place in it.
    """
    file, _, place = name.rpartition("/")
    if ".." in Path(file).parts or Path(file).is_absolute():
        raise ConfigError(f"{name!r} lies outside the folder {root}")
    levels = _levels_in(root / f"{file}.txt")
    if not place.isdecimal() or int(place) >= len(levels):
        raise ConfigError(f"{root / file}.txt has {len(levels)} levels, and no level {place!r}")
    return levels[int(place)]


@cache
def level_ids(root: Path, level_set: str, most: int) -> Mapping[Split, tuple[str, ...]]:
    """Names of the levels of each split, the first `most` of its files in their order.

    Raises:
        ConfigError: If the files are not there, or a split is left without a level.
    """
    if not (root / level_set).is_dir():
        raise ConfigError(
            f"there are no Boxoban levels in {root / level_set}; `trainer data fetch boxoban` "
            "fetches them, or says how to get them"
        )
    owners: dict[str, Split] = {}
    found: dict[Split, tuple[str, ...]] = {}
    for split in (Split.TEST, Split.VALIDATION, Split.TRAIN):  # what is held out goes first
        names: list[str] = []
        for name, content in _of_split(root / level_set, split):
            if len(names) == most:
                break
            if owners.setdefault(content, split) is split:
                names.append(f"{level_set}/{name}")
        if not names:
            raise ConfigError(f"{root / level_set} has no level for split {split.value!r}")
        found[split] = tuple(names)
    return found


def _of_split(base: Path, split: Split) -> Iterator[tuple[str, str]]:
    """Names within `base`, with contents that a level's turns and reflections share."""
    folders = {one: base / name for one, name in _FOLDERS.items() if (base / name).is_dir()}
    held_out = Split.VALIDATION if split is Split.TEST and split not in folders else split
    for path in sorted(folders.get(held_out, base).glob("*.txt")):
        file = path.relative_to(base).with_suffix("").as_posix()
        for place, (board, start) in enumerate(_levels_in(path)):
            content = content_hash(min(symmetric_forms(board.rows(start))))
            if _owner(content, held_out, folders) is split:
                yield f"{file}/{place}", content


def _owner(content: str, folder: Split, folders: Mapping[Split, Path]) -> Split:
    """The split of a level that lies in the folder of a split, where there are folders."""
    if not folders:
        return split_of(content)
    if folder is Split.VALIDATION and Split.TEST not in folders:
        return Split.TEST if int(content[-1], 16) % 2 else Split.VALIDATION
    return folder


@cache
def _levels_in(path: Path) -> tuple[Start, ...]:
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as Boxoban levels: {error}") from error
    return parse_levels(text, source=str(path))
