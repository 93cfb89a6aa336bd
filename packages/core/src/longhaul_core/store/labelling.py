"""Labels that a person puts on episodes and steps, changes and takes away again.

Apart from `StoreWriter`, which only adds: a label is a person's own, and is put right when it was
wrong. Its key is the episode, the step, its name and its author; nobody changes another's.
"""

from sqlalchemy import Delete, Engine, delete

from longhaul_core.errors import StoreError
from longhaul_core.store.models import LabelRow
from longhaul_core.store.records import Label
from longhaul_core.store.session import write_transaction
from longhaul_core.store.writing.changes import write_changes
from longhaul_core.store.writing.measurements import write_labels

__all__ = ["put_label", "remove_label"]


def put_label(engine: Engine, label: Label) -> None:
    """Put a label into the store, in the place of one with the same key.

    Args:
        engine: Of a store that may be written.
        label: Its name and author must not be empty.

    Raises:
        StoreError: The store refused; its episode is not there, or a text is too long.
    """
    if not label.name.strip() or not label.author.strip():
        raise StoreError(
            f"a label needs a name and an author, got {label.name!r}, {label.author!r}"
        )
    with write_transaction(engine) as connection:
        connection.execute(_with_key_of(label))
        write_labels(connection, [label])
        write_changes(connection, [label], new_episodes=())


def remove_label(engine: Engine, label: Label) -> None:
    """Take away the label with this one's key; there may be none.

    Raises:
        StoreError: The store refused.
    """
    with write_transaction(engine) as connection:
        connection.execute(_with_key_of(label))
        write_changes(connection, [label], new_episodes=())


def _with_key_of(label: Label) -> Delete:
    return delete(LabelRow).where(
        LabelRow.episode_id == label.episode_id,
        LabelRow.step_index == (-1 if label.step_index is None else label.step_index),
        LabelRow.name == label.name,
        LabelRow.author == label.author,
    )
