"""What the benchmark of 1,024 episodes computes by, and what it measures with."""

import time
from collections.abc import Iterator

import pytest
from scale_hardware import MODELS, Gpu, Hardware, Model
from scale_meters import DRIVER, Meter, Stopwatch
from scale_world import MOVES, Rooms

LARGE, SMALL = MODELS


def hardware(
    model: Model = LARGE, *, prompt_tokens: int = 2000, reply_tokens: int = 150
) -> Hardware:
    return Hardware(
        model=model, prompt_tokens=prompt_tokens, reply_tokens=reply_tokens, concurrency=1024
    )


def test_the_engines_play_what_the_arithmetic_says() -> None:
    eight = hardware()

    # 2 x 7.62e9 x 2000 operations at 0.36 x 989e12 a second
    prompt = 0.0856
    # the weights and 128 sequences of 2,075 tokens of 57,344 bytes, at 0.7 x 3.35e12 bytes a second
    decoding = 150 * 0.01299 / 128
    assert eight.busy_seconds == pytest.approx(prompt + decoding, rel=1e-3)
    assert eight.steps_per_second == pytest.approx(8 / (prompt + decoding), rel=1e-3)


def test_longer_prompts_and_replies_take_longer_and_a_smaller_model_plays_more() -> None:
    usual = hardware().steps_per_second

    assert hardware(prompt_tokens=4000).steps_per_second < usual
    assert hardware(reply_tokens=300).steps_per_second < usual
    assert hardware(SMALL).steps_per_second > 4 * usual


def test_a_training_step_is_learned_by_all_gpus() -> None:
    eight = hardware()

    alone = Gpu().learning_seconds(LARGE, num_tokens=51_200 * 2150)
    assert eight.learning_seconds(num_rows=51_200) == pytest.approx(alone / 8)


class Clock:
    """Processor seconds that are spent by calling `spend`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


class Work:
    clock: Clock

    def outer(self) -> str:
        self.clock.spend(1.0)
        self.inner()
        self.inner()
        return "done"

    def inner(self) -> None:
        self.clock.spend(10.0)

    @classmethod
    def made(cls) -> str:
        cls.clock.spend(0.5)
        return cls.__name__


def test_a_function_is_charged_without_what_it_calls_that_is_watched_too() -> None:
    class Watched(Work):
        """Its functions are replaced."""

        clock = Clock()

        outer, inner, made = Work.outer, Work.inner, Work.__dict__["made"]

    stopwatch = Stopwatch(clock=Watched.clock)
    for name in ("outer", "inner", "made"):
        stopwatch.watch(Watched, name, name)

    assert Watched().outer() == "done"
    assert Watched.made() == "Watched"

    spent = stopwatch.result()
    assert [spent[name][:2] for name in ("outer", "inner", "made")] == [
        (1, 1.0),
        (2, 20.0),
        (1, 0.5),
    ]


@pytest.fixture
def meter() -> Iterator[Meter]:
    with Meter() as running:
        yield running


def test_a_process_is_charged_with_what_it_took_since_the_last_look(meter: Meter) -> None:
    meter.since_last()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass

    use = meter.since_last()[DRIVER]
    assert use.processor_seconds >= 0.15
    assert use.peak_bytes > 0
    assert meter.since_last()[DRIVER].processor_seconds < use.processor_seconds


def test_episodes_of_a_group_meet_again_and_others_do_not() -> None:
    def texts(seed: int, moves: tuple[str, ...]) -> list[str]:
        world = Rooms(num_steps=3, num_words=20)
        first, _ = world.reset(seed=seed)
        return [first, *(world.step(move)[0] for move in moves)]

    north = texts(1, MOVES[:1] * 2)

    assert texts(1, MOVES[:1] * 2) == north
    assert texts(1, ("south", "west"))[0] == north[0]
    assert not set(texts(2, MOVES[:1] * 2)) & set(north)
    assert len(set(north)) == 3


def test_an_episode_of_the_world_has_its_steps_and_is_paid_at_the_end() -> None:
    world = Rooms(num_steps=3, num_words=20)
    world.reset(seed=1)

    results = [world.step("nowhere") for _ in range(3)]

    assert [over for _, _, over, _, _ in results] == [False, False, True]
    assert [reward for _, reward, _, _, _ in results] == [0.0, 0.0, 1.0]
    assert results[-1][-1]["success"]
