"""A small store of real trajectories; examples/demo has the runs and the command that made it."""

import lzma
from pathlib import Path

from longhaul_core.store.session import open_store
from longhaul_core.store.text_index import index_text

__all__ = ["unpack_demo"]

PACKED = Path(__file__).with_name("store.db.xz")


def unpack_demo(folder: Path) -> Path:
    """Write the demo store into a folder, in the form that this version reads, its text indexed.

    Args:
        folder: Exists.

    Returns:
        The store's file. It is the reader's own: labels may be written into it.
    """
    store = folder / "demo.db"
    store.write_bytes(lzma.decompress(PACKED.read_bytes()))
    engine = open_store(store)
    index_text(engine)
    engine.dispose()
    return store
