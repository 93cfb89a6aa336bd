"""Tests for `longhaul_trainer.run.garbage`."""

import gc
import threading
import weakref

import pytest

from longhaul_trainer.run import garbage
from longhaul_trainer.run.garbage import (
    COLLECTION_SECONDS,
    nothing_collected,
    spare_what_is_loaded,
)


def test_a_collection_passes_by_what_was_loaded_and_collects_what_comes_later() -> None:
    loaded, before = _Ring(), gc.get_threshold()
    spare_what_is_loaded()
    try:
        assert not any(each is loaded for each in gc.get_objects())
        later = weakref.ref(_Ring())
        gc.collect()
        assert later() is None
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
    assert any(each is loaded for each in gc.get_objects())


def test_a_collection_waits_for_who_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_NEW_OBJECTS", 0)
    collecting = garbage._COLLECTING  # pyright: ignore[reportPrivateUsage]
    waited: list[bool] = []

    def seen(phase: str, about: dict[str, int]) -> None:
        if threading.current_thread() is threading.main_thread():
            waited.append(collecting.locked())

    gc.callbacks.append(seen)
    gc.disable()  # what Python collects by itself is not asked about
    try:
        garbage.collect_what_is_due()
    finally:
        gc.enable()
        gc.callbacks.remove(seen)
    assert waited
    assert all(waited)

    with nothing_collected():
        assert collecting.locked()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_is_young_is_collected_by_the_clock_and_not_while_it_is_made() -> None:
    before = gc.get_threshold()
    spare_what_is_loaded()
    spare_what_is_loaded()  # as in a process that begins to play twice
    try:
        collector = [each for each in threading.enumerate() if each.name == "garbage collector"]
        assert len(collector) == 1
        generations: list[int] = []

        def seen(phase: str, about: dict[str, int]) -> None:
            if phase == "start" and threading.current_thread() is not collector[0]:
                generations.append(about["generation"])

        gc.callbacks.append(seen)
        try:
            collected = threading.Event()
            ring = weakref.ref(_Ring(), lambda _: collected.set())
            kept = [[number] for number in range(50 * before[0])]
            assert not generations, "the collector looked at what was being made"
        finally:
            gc.callbacks.remove(seen)
        assert collected.wait(60 * COLLECTION_SECONDS)
        assert ring() is None
        assert len(kept) == 50 * before[0]
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


class _Ring:
    def __init__(self) -> None:
        self.itself = self
