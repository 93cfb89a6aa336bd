"""Tests for `longhaul_trainer.training.metrics`."""

from dataclasses import replace

import pytest

from longhaul_trainer.training.metrics import episode_metrics
from longhaul_trainer.training.step_metadata import EpisodeMetadata, GroupName, episodes_in
from row_metadata import rows_of

HIT_RATE = "engine/prefix_cache_hit_rate"


def episode(*cached: int | None, prompt_tokens: int = 50) -> EpisodeMetadata:
    """One with a step for each number of cached tokens."""
    rows = rows_of(GroupName(1, 0), 0, [{"reward": 0.0} for _ in cached])
    (made,) = episodes_in(rows)
    return replace(
        made,
        steps=tuple(
            replace(step, prompt_tokens=prompt_tokens, cached_tokens=count)
            for step, count in zip(made.steps, cached, strict=True)
        ),
    )


def test_the_hit_rate_is_of_all_prompt_tokens_of_which_the_engine_says() -> None:
    played = [episode(0, 40), episode(10, None, prompt_tokens=100)]

    assert episode_metrics(played)[HIT_RATE] == pytest.approx((0 + 40 + 10) / (50 + 50 + 100))


def test_an_engine_that_does_not_say_has_no_hit_rate() -> None:
    assert HIT_RATE not in episode_metrics([episode(None, None)])


def test_observations_that_spell_a_control_token_are_counted_if_there_are_any() -> None:
    plain = episode(None, None)
    spelling = replace(plain, steps=(plain.steps[0], replace(plain.steps[1], spells_mark=True)))

    assert episode_metrics([plain, spelling])["episodes/spelled_marks_rate"] == 1 / 4
    assert "episodes/spelled_marks_rate" not in episode_metrics([plain])


def called(*continuations: str) -> EpisodeMetadata:
    """An episode of a program whose calls go on as named, a step each."""
    made = episode(*(None for _ in continuations))
    steps = (
        replace(step, continuations=(one,))
        for step, one in zip(made.steps, continuations, strict=True)
    )
    return replace(made, steps=tuple(steps))


def test_the_drift_rate_is_of_calls_that_go_on_from_earlier_ones() -> None:
    played = [called("start", "exact", "rewritten", "forked"), called("start", "exact", "changed")]

    found = {k: v for k, v in episode_metrics(played).items() if k.startswith("gateway/")}

    assert found == {
        "gateway/drift_rate": 3 / 5,
        "gateway/forked_rate": 1 / 5,
        "gateway/changed_rate": 1 / 5,
        "gateway/repeated_tokens_rate": 0.0,
        "gateway/overridden_rate": 0.0,
        "gateway/calls_per_episode": 7 / 2,
        "gateway/conversations_per_episode": 4 / 2,
    }


def test_repeated_tokens_are_a_share_of_all_that_programs_had_read() -> None:
    """Each step of `episode` reads the same number of tokens."""
    changed = called("start", "changed")
    steps = (changed.steps[0], replace(changed.steps[1], repeated_tokens=5))
    played = [replace(changed, steps=steps), called("start", "exact"), episode(None)]

    read = sum(step.prompt_tokens for one in played[:2] for step in one.steps)
    assert read > 0
    assert episode_metrics(played)["gateway/repeated_tokens_rate"] == 5 / read


def test_the_overridden_rate_is_of_all_calls() -> None:
    asking = called("start", "exact")
    steps = (replace(asking.steps[0], overridden_calls=1), asking.steps[1])
    played = [replace(asking, steps=steps), called("start", "exact")]

    assert episode_metrics(played)["gateway/overridden_rate"] == 1 / 4


def test_calls_that_all_begin_anew_have_no_drift_and_our_loop_has_no_gateway() -> None:
    assert "gateway/drift_rate" not in episode_metrics([called("start", "start")])
    assert not [name for name in episode_metrics([episode(0)]) if name.startswith("gateway/")]
