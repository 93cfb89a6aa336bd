"""Figures of the memory lab, worked by hand and by their definitions."""

from collections.abc import Sequence
from itertools import takewhile
from statistics import linear_regression

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import make_task
from longhaul_core.types import (
    Call,
    Message,
    Observation,
    SampledTokens,
    Step,
    StopReason,
    Trajectory,
)
from longhaul_trainer.play.memory_lab.figures import (
    EpisodeFigures,
    LostWord,
    figures_of,
    lost_words,
    num_kept_tokens,
    summed_up,
    words_of,
)

TEXT = st.lists(st.integers(0, 2), max_size=12)


def call(
    prompt: Sequence[int],
    reply: Sequence[int] = (9,),
    *,
    shows: str = "",
    purpose: str = "act",
    dropped: int = 0,
) -> Call:
    return Call(
        messages=(Message(role="user", content=shows),),
        reply="",
        sampled=SampledTokens(
            prompt_tokens=tuple(prompt),
            action_tokens=tuple(reply),
            behavior_logprobs=None,
            policy_version=0,
        ),
        purpose=purpose,
        dropped_exchanges=dropped,
    )


def episode(
    *calls: tuple[Call, ...], seen: Sequence[Observation] = (), actions: Sequence[str] = ()
) -> Trajectory:
    return Trajectory(
        task=make_task(),
        sample_index=0,
        seed=0,
        horizon=9,
        steps=tuple(
            Step(
                index=place,
                observation=seen[place] if seen else Observation(text="room"),
                calls=of_step,
                action=actions[place] if actions else "go",
                action_valid=True,
                reward=0.0,
            )
            for place, of_step in enumerate(calls)
        ),
        stop_reason=StopReason.TASK_SOLVED,
        success=True,
        final_observation=Observation(text=""),
        started_at=0.0,
        duration_seconds=0.0,
    )


def test_what_an_earlier_prompt_and_its_reply_began_with_is_kept_by_hand() -> None:
    again = episode(
        (call([1, 2, 3], reply=[7]),),
        (call([1, 2, 3, 7, 4], reply=[7]),),  # 4 of 5: the first prompt and its reply
        (call([1, 2, 8, 8, 8, 8], dropped=2),),  # 2 of 6
    )

    found = figures_of(again, recorded=again, episode_id="e")

    assert found.prompt_lengths == (3, 5, 6)
    assert (found.num_prompt_tokens, found.num_kept_tokens) == (14, 6)
    assert (found.num_steps, found.num_shortened) == (3, 1)
    # Another episode of the group began with the same prompt: all of it but its last token.
    twin = figures_of(again, recorded=again, episode_id="f", first_of_group=[1, 2, 3, 6])
    assert twin.num_kept_tokens == 6 + 2


def test_calls_of_plans_are_paid_for_and_are_no_prompts_of_actions() -> None:
    again = episode((call([1, 2], purpose="plan"), call([5, 5, 5])), (call([1, 2, 9, 9]),))

    found = figures_of(again, recorded=again, episode_id="e")

    assert found.prompt_lengths == (3, 4)
    assert (found.num_prompt_tokens, found.num_kept_tokens) == (2 + 3 + 4, 3)


@given(prompt=TEXT, earlier=st.lists(TEXT, max_size=4))
def test_the_longest_shared_beginning_is_kept_but_for_the_last_token(
    prompt: list[int], earlier: list[list[int]]
) -> None:
    shared = [
        len(list(takewhile(lambda pair: pair[0] == pair[1], zip(prompt, text, strict=False))))
        for text in earlier
    ]
    expected = max(0, min(max(shared, default=0), len(prompt) - 1))
    assert num_kept_tokens(prompt, [np.array(text) for text in earlier]) == expected


def test_a_word_is_lost_if_it_was_observed_and_read_and_is_not_read_here() -> None:
    seen = [
        Observation(text="A GREEN key-7 lies here."),
        Observation(text="A wall.", admissible_actions=("unlock", "use")),
        Observation(text="A door."),
    ]
    actions = ["look", "unlock", "use green key-7 at the door 3"]
    everything = "A GREEN key-7 lies here. A wall. > unlock > use A door. 3 words."
    recorded = episode(*((call([1], shows=everything),) for _ in seen), seen=seen, actions=actions)
    again = episode(
        (call([1], shows="A GREEN key-7 lies here."),),
        (call([1], shows="A wall."),),
        (call([1], shows="A door. Many words."),),
    )

    # `use` and `3` were in no observation's text; `at` and `the` were not even read.
    assert list(lost_words(again, recorded=recorded, episode_id="e")) == [
        LostWord("e", 2, "green", 0),
        LostWord("e", 2, "key-7", 0),
    ]
    assert list(lost_words(recorded, recorded=recorded, episode_id="e")) == []


def test_a_word_that_the_stored_prompt_did_not_show_is_none_that_was_lost() -> None:
    seen = [Observation(text="green"), Observation(text="wall")]
    recorded = episode(
        (call([1], shows="green"),), (call([1], shows="wall"),), seen=seen, actions=["a", "green"]
    )
    again = episode((call([1], shows=""),), (call([1], shows=""),))
    assert list(lost_words(again, recorded=recorded, episode_id="e")) == []


def test_signs_are_no_words_and_case_tells_none_apart() -> None:
    assert words_of(["Take the half-open KEY_1 (no. 12.5)!", "+ - ="]) == {
        "take",
        "the",
        "half-open",
        "key_1",
        "no",
        "12.5",
    }


def figures(*lengths: int, num_steps: int = 0, lost: tuple[LostWord, ...] = ()) -> EpisodeFigures:
    return EpisodeFigures(
        prompt_lengths=lengths,
        num_steps=num_steps or len(lengths),
        num_shortened=1,
        num_prompt_tokens=sum(lengths),
        num_kept_tokens=10,
        num_compared=len(lengths),
        lost=lost,
    )


def test_episodes_add_up_by_hand() -> None:
    lost = (LostWord("e", 2, "green", 0), LostWord("e", 2, "key", 1), LostWord("e", 1, "key", 0))
    found = summed_up([figures(10, 12, 14, lost=lost), figures(50, 50, num_steps=5)])

    assert found.mean_tokens == pytest.approx(136 / 5)
    assert found.high_tokens == 50
    # Slopes within episodes: (-1·10 + 1·14 − ½·50 + ½·50) / (1 + 1 + ¼ + ¼)
    assert found.growth == pytest.approx(4 / 2.5)
    assert found.kept_share == pytest.approx(20 / 136)
    assert (found.episode_tokens, found.computed_tokens) == (68, 58)
    assert (found.num_prompts, found.num_shortened, found.num_unreached) == (5, 2, 3)
    assert (len(found.lost), found.num_losing) == (3, 2)


@given(lengths=st.lists(st.integers(1, 1000), min_size=2, max_size=30))
def test_the_growth_of_one_episode_is_the_slope_of_least_squares(lengths: list[int]) -> None:
    slope, _ = linear_regression(range(len(lengths)), lengths)
    assert summed_up([figures(*lengths)]).growth == pytest.approx(slope, abs=1e-9)


def test_single_prompts_do_not_grow() -> None:
    assert summed_up([figures(10), figures(20)]).growth is None
