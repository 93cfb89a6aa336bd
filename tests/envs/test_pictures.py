"""Pictures, from an environment to the messages of a call."""

import asyncio
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from PIL import Image

from fakes import ScriptedPolicy, make_agent
from longhaul_core.gym import GymEnvironmentSpec, ProcessPool, thread_environments
from longhaul_core.memory import FullHistory, PromptTemplate
from longhaul_core.rollout import EpisodeLimits, EpisodeSpec, run_episode
from longhaul_core.types import Picture, Split, Trajectory
from longhaul_envs.check import check_environment
from longhaul_envs.contract.episodes import pictures_are_as_described
from longhaul_envs.contract.subject import Subject
from longhaul_envs.pictures import is_observation_space, picture_space, png, text_picture
from longhaul_envs.sources import environment_source
from longhaul_envs.text import text_space
from picture_world import ENVIRONMENT_ID, plain

CARDS_AND_BOXES = ("Sokoban", "NumberLine", "Blackjack", "EZPoints", "Points24")
SPEC = GymEnvironmentSpec(environment_id=ENVIRONMENT_ID, import_modules=("picture_world",))


def test_an_environment_that_shows_pictures_is_found_in_order() -> None:
    assert check_environment(ENVIRONMENT_ID, import_modules=["picture_world"], num_tasks=1) == []


@pytest.mark.parametrize(
    ("environment_id", "with_pictures"),
    [
        *((f"longhaul/{name}-v0", "image") for name in CARDS_AND_BOXES),
        (ENVIRONMENT_ID, None),
    ],
)
def test_an_environment_that_shows_pictures_describes_that(
    environment_id: str, with_pictures: str | None
) -> None:
    options = {} if with_pictures is None else {"observation": with_pictures}

    def shows_pictures(options: dict[str, object]) -> bool:
        return (
            environment_source(
                GymEnvironmentSpec(
                    environment_id=environment_id,
                    options=options,
                    import_modules=("picture_world",),
                )
            )
            .describe()
            .shows_pictures
        )

    assert shows_pictures({**options})
    assert with_pictures is None or not shows_pictures({})


@pytest.mark.parametrize("name", CARDS_AND_BOXES)
def test_pictures_are_at_most_as_large_as_an_environment_says(name: str) -> None:
    spec = GymEnvironmentSpec(
        environment_id=f"longhaul/{name}-v0", options={"observation": "image"}
    )
    source = environment_source(spec)
    described = source.describe()
    subject = Subject(
        spec=spec,
        description=described,
        is_gym=True,
        tasks={},
        starts=(),
        sample=source.tasks(Split.TRAIN)[:2],
        horizon=1,
    )
    assert described.picture_pixels is not None
    smaller = replace(described, picture_pixels=described.picture_pixels // 2)

    assert list(pictures_are_as_described(subject)) == []
    assert list(pictures_are_as_described(replace(subject, description=smaller)))


def test_tasks_without_a_list_are_shared_out_by_what_their_pictures_show() -> None:
    shades = GymEnvironmentSpec(environment_id="tests/Shades-v0", import_modules=("picture_world",))
    source = environment_source(shades)
    environment: Any = shades.make()
    seen: dict[Split, set[bytes]] = {
        split: {environment.reset(seed=task.seed)[0]["picture"] for task in source.tasks(split)}
        for split in Split
    }

    assert [len(seen[split]) for split in Split] == [len(source.tasks(split)) for split in Split]
    shown = [picture for pictures in seen.values() for picture in pictures]
    assert len(shown) == len(set(shown)) > 100


def test_a_picture_goes_from_a_worker_process_into_the_messages_of_its_call() -> None:
    (task,) = environment_source(SPEC).tasks(Split.VALIDATION)
    agent = replace(
        make_agent(ScriptedPolicy(["red", "green"])),
        build_memory=lambda: FullHistory(template=PromptTemplate()),
    )

    async def play() -> Trajectory:
        async with ProcessPool(SPEC, num_workers=1) as pool:
            outcome = await run_episode(
                EpisodeSpec(task=task, seed=0),
                agent=agent,
                make_environment=pool,
                limits=EpisodeLimits(horizon=3, max_prompt_tokens=1000),
            )
        assert isinstance(outcome, Trajectory), outcome
        return outcome

    trajectory = asyncio.run(play())

    shown = Picture.of(plain("green"))
    first, second = (step.calls[0] for step in trajectory.steps)
    text = "Which colour is it?\nActions: red | green | blue"
    assert first.messages[-1].content == (text, shown)
    assert [message.pictures for message in second.messages] == [(shown,), (), (shown,)]
    assert [picture.data for picture in first.messages[-1].pictures] == [plain("green")]
    assert first.sampled is not None
    assert bytes(first.sampled.prompt_tokens).decode() == f"user: {text}"  # a reader of text alone
    assert trajectory.success
    assert trajectory.final_observation.pictures == (shown,)


def test_threads_and_processes_show_the_same() -> None:
    (task,) = environment_source(SPEC).tasks(Split.TRAIN)

    async def starts() -> list[object]:
        seen: list[object] = []
        async with ProcessPool(SPEC, num_workers=1) as pool:
            for make in (thread_environments(SPEC), pool):
                environment = make(task)
                await environment.open()
                seen.append(await environment.reset(task))
                await environment.close()
        return seen

    first, second = asyncio.run(starts())
    assert first == second


def test_a_png_has_the_pixels_that_it_was_made_of() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=(5, 7, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(BytesIO(png(pixels)))), pixels)
    assert png(pixels) == png(pixels.copy())


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 2), np.uint8), ((2, 2, 4), np.uint8), ((2, 2, 3), np.float32)]
)
def test_other_arrays_than_red_green_and_blue_bytes_are_refused(
    shape: tuple[int, ...], dtype: type[np.uint8]
) -> None:
    with pytest.raises(ValueError, match=r"uint8 of shape \(height, width, 3\), got"):
        png(np.zeros(shape, dtype=dtype))


def test_the_space_of_pictures_holds_what_it_samples() -> None:
    space = picture_space()
    space.seed(3)
    sample = space.sample()
    assert sample in space
    assert {"text": "", "picture": b"GIF89a"} not in space
    space.seed(3)
    assert space.sample() == sample


def test_arrays_are_no_pictures_yet() -> None:
    array = Box(0, 255, shape=(2, 2, 3), dtype=np.uint8)
    assert is_observation_space(text_space())
    assert is_observation_space(picture_space())
    assert is_observation_space(Dict({"text": text_space()}))
    spaces: list[gymnasium.Space[Any]] = [
        array,
        Dict({"text": text_space(), "picture": array}),
        Dict({"text": text_space(), "image": picture_space()["picture"]}),
        Dict({"picture": picture_space()["picture"]}),
    ]
    assert not any(map(is_observation_space, spaces))


def test_text_is_drawn_the_same_each_time_a_line_of_22_pixels_for_each_80_columns() -> None:
    picture = text_picture("# @ .\n" + "word " * 40)

    assert picture.dtype == np.uint8
    assert picture.shape == (16 + 22 * 4, 976, 3)
    assert np.array_equal(picture, text_picture("# @ .\n" + "word " * 40))
    assert sha256(text_picture("Goal: héllo").tobytes()).hexdigest().startswith("39f6397628abf15c")


def test_other_scripts_and_control_characters_are_drawn_as_their_code_points() -> None:
    for strange, code in (("漢", "6F22"), ("\x00", "0000"), ("🚪", "1F6AA"), ("\ud800", "D800")):
        assert np.array_equal(text_picture(f"a{strange}b"), text_picture(f"a<U+{code}>b"))
    assert not np.array_equal(text_picture("漢"), text_picture("字"))
    assert np.array_equal(text_picture("e\u0301 “x”"), text_picture('é "x"'))


def test_of_a_long_text_the_last_line_counts_what_is_left_out() -> None:
    text = "\n".join(map(str, range(500)))
    picture = text_picture(text)

    assert picture.shape[0] == 16 + 22 * 120
    assert np.array_equal(picture[-30:], text_picture("x\n[381 more lines]")[-30:])
    assert text_picture("").shape == (16 + 22, 976, 3)
