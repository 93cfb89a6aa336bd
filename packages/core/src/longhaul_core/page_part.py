"""The part of a Markdown page that a command writes, between two marks."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PagePart"]


@dataclass(frozen=True, slots=True)
class PagePart:
    """What stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

    name: str

    def read(self, page: Path) -> str:
        """The part as it is now, without blank lines around it.

        Raises:
            ValueError: The page lacks the marks.
        """
        return self._cut(page)[1].strip()

    def write(self, page: Path, text: str) -> None:
        """Put `text` there; what stands around the marks stays.

        Raises:
            ValueError: The page lacks the marks; nothing is written.
        """
        before, _, after = self._cut(page)
        page.write_text(f"{before}\n{text}\n{after}", encoding="utf-8")

    def _cut(self, page: Path) -> tuple[str, str, str]:
        """The page up to the first mark, between them, and from the second on."""
        begin, end = f"<!-- {self.name}: begin -->", f"<!-- {self.name}: end -->"
        text = page.read_text(encoding="utf-8")
        start, stop = text.find(begin), text.find(end)
        if not 0 <= start < stop:
            raise ValueError(f"{page} must have a line {begin} and after it a line {end}")
        start += len(begin)
        return text[:start], text[start:stop], text[stop:]
