"""Writes the questions into the guide: `python -m longhaul_core.sql_box.cookbook.guide FILE`."""

import sys
from pathlib import Path

from longhaul_core.sql_box.cookbook import questions

__all__ = ["with_questions"]

BEGIN, END = "<!-- questions -->", "<!-- end of questions -->"


def with_questions(page: str) -> str:
    """The page with the questions between its two marks as they are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = [
        f"### {each.question}\n\n"
        f"`{each.name}`"
        + (
            f", with {', '.join(f'`{one.name}`' for one in each.parameters)}. "
            if each.parameters
            else ". "
        )
        + f"{each.note}\n\n```sql\n{each.sql}\n```\n"
        for each in questions()
    ]
    body = "\n".join(section.replace(". \n", ".\n") for section in sections)
    return f"{before}{BEGIN}\n\n{body}\n{END}{after}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(with_questions(file.read_text("utf-8")), "utf-8")
