"""Writes the questions into the guide: `python -m longhaul_core.sql_box.cookbook.guide FILE`."""

import sys
from pathlib import Path

from longhaul_core.page_part import PagePart
from longhaul_core.sql_box.cookbook import Question, questions

__all__ = ["PART", "questions_markdown"]

PART = PagePart("questions")
"""Of the guide."""


def questions_markdown() -> str:
    """A section for each question."""
    return "\n".join(_section(question) for question in questions()).strip()


def _section(question: Question) -> str:
    names = ", ".join(f"`{one.name}`" for one in question.parameters)
    about = f"`{question.name}`, with {names}." if names else f"`{question.name}`."
    note = f" {question.note}" if question.note else ""
    return f"### {question.question}\n\n{about}{note}\n\n```sql\n{question.sql}\n```\n"


if __name__ == "__main__":
    PART.write(Path(sys.argv[1]), questions_markdown())
