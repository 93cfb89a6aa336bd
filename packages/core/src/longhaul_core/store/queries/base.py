"""What questions are answered with: frozen dataclasses, whose fields choose the columns.

A column is declared in `models`, and named once more here: as a field of the answer that has it.
The API serves these classes as they are; the strings under fields become its descriptions.
"""

from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, SQLColumnExpression

from longhaul_core.described import Described
from longhaul_core.store.models import Base

__all__ = ["Answer", "columns"]


class Answer(Described):
    """Base of every answer that programs outside may get."""

    __slots__ = ()


def columns(
    answer: type[Any], *models: type[Base], **given: SQLColumnExpression[Any]
) -> list[ColumnElement[Any]]:
    """The columns that make an `answer`, in the order of its fields: `answer(*row)` reads a row.

    Args:
        answer: A dataclass or a named tuple.
        models: Tables; a field is the column of its name, in the first of them that has one.
        given: Values of the other fields; their names are the keys.

    Raises:
        TypeError: A field is no column of the models, and was not given either; or what was given
            is no field.
    """
    names: tuple[str, ...] = getattr(answer, "_fields", ()) or tuple(
        field.name for field in fields(answer)
    )
    if strays := sorted(set(given) - set(names)):
        raise TypeError(f"{answer.__name__} has no field {', '.join(strays)}")
    chosen: list[ColumnElement[Any]] = []
    for name in names:
        having = [model for model in models if name in model.__table__.columns]
        if name not in given and not having:
            raise TypeError(f"{answer.__name__}.{name} is no column of {models}, and is not given")
        chosen.append(given[name].label(name) if name in given else getattr(having[0], name))
    return chosen
