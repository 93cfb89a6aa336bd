"""Tests for `longhaul_trainer.training.stages`."""

import threading
import time

from longhaul_trainer.training.stages import StageClock


def test_a_stage_knows_its_name_its_training_step_and_its_beginning() -> None:
    clock = StageClock()
    before = time.monotonic()
    clock.enter("episodes", training_step=7)

    assert (clock.stage.name, clock.stage.training_step) == ("episodes", 7)
    assert before <= clock.stage.started <= time.monotonic()


def test_the_end_of_a_training_step_is_told_with_its_metrics() -> None:
    clock = StageClock()
    clock.finished(training_step=1, metrics={})  # nobody listens
    heard: list[tuple[int, dict[str, float]]] = []
    clock.on_finished = lambda step, metrics: heard.append((step, dict(metrics)))
    clock.finished(training_step=2, metrics={"episodes/mean_return": 0.5})

    assert heard == [(2, {"episodes/mean_return": 0.5})]


def test_a_warning_is_told_to_who_listens() -> None:
    clock = StageClock()
    clock.warn(1, "nobody listens")
    heard: list[tuple[int, str]] = []
    clock.on_warning = lambda step, text: heard.append((step, text))
    clock.warn(2, "look here")

    assert heard == [(2, "look here")]


def test_a_watching_thread_always_sees_a_whole_stage() -> None:
    clock = StageClock()
    clock.enter("stage 0", training_step=0)
    ended = threading.Event()
    seen: set[int] = set()
    torn: list[str] = []

    def watch() -> None:
        while not ended.is_set():
            stage = clock.stage
            seen.add(stage.training_step)
            if stage.name != f"stage {stage.training_step}":
                torn.append(stage.name)

    watcher = threading.Thread(target=watch)
    watcher.start()
    step = 0
    while len(seen) < 20 and watcher.is_alive():
        step += 1
        clock.enter(f"stage {step}", training_step=step)
    ended.set()
    watcher.join()

    assert len(seen) >= 20
    assert torn == []
