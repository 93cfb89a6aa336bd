"""Tests for `longhaul_core.health`."""

import pytest

from longhaul_core.health import warnings_of

WELL = {
    "groups/without_signal": 4.0,
    "groups/count": 8.0,
    "episodes/invalid_action_rate": 0.1,
    "actor/entropy": 0.8,
    "agreement/logprob_difference_mean": 0.01,
    "sight/logprob_change_mean": 0.05,
}


def test_a_run_that_goes_well_is_left_in_peace() -> None:
    assert warnings_of(WELL) == []


@pytest.mark.parametrize(
    ("metric", "at_the_limit", "beyond", "words"),
    [
        ("groups/without_signal", 6.4, 6.5, "gave no signal"),
        ("episodes/invalid_action_rate", 0.5, 0.51, "actions are invalid"),
        ("actor/entropy", 0.005, 0.0049, "entropy is 0.0049"),
        ("agreement/logprob_difference_mean", 0.1, 0.11, "sampler and learner differ"),
        ("sight/logprob_change_mean", 1e-5, 9e-6, "policy is blind"),
    ],
)
def test_each_sign_of_trouble_is_named_once_its_limit_is_passed(
    metric: str, at_the_limit: float, beyond: float, words: str
) -> None:
    assert warnings_of(WELL | {metric: at_the_limit}) == []
    (warning,) = warnings_of(WELL | {metric: beyond})
    assert words in warning.message
    assert warning.metric == metric
    assert warning.advice


def test_everything_wrong_is_said_at_once() -> None:
    collapsed = {
        "groups/without_signal": 8.0,
        "groups/count": 8.0,
        "episodes/invalid_action_rate": 1.0,
        "actor/entropy": 0.0,
        "agreement/logprob_difference_mean": 3.0,
        "sight/logprob_change_mean": 0.0,
    }

    assert len(warnings_of(collapsed)) == 5


def test_what_was_not_measured_is_not_judged() -> None:
    assert warnings_of({}) == []
    assert warnings_of({"groups/without_signal": 0.0, "groups/count": 0.0}) == []
