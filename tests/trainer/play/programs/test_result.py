"""What a program says its episode was worth."""

import math

import numpy as np
import pytest

from longhaul_trainer.play.programs.result import Result, printed_result, result_of


@pytest.mark.parametrize(
    ("printed", "result"),
    [
        ("0.5", Result(reward=0.5)),
        ("thinking\n1\n\n", Result(reward=1.0)),
        ('{"reward": -2, "success": true}', Result(reward=-2.0, success=True)),
        ('{"success": true}', Result(success=True)),
        ('{"reward": 0.5}\n{"success": true}\ndone', Result(reward=0.5, success=True)),
        ('{"reward": 0.5, "success": false}\n{"success": true}', Result(reward=0.5, success=True)),
        ('{"success": "maybe"}\n{"reward": 0.5}', Result(reward=0.5)),
        (
            '{"step_rewards": [0, 0.5], "success": false}',
            Result(success=False, step_rewards=(0.0, 0.5)),
        ),
        ('{"reward": 1}\nbye\n', Result(reward=1.0)),
        ('{"reward": 1}\r\n{"reward": 2, "episode": 7}\r\n', Result(reward=2.0)),
        ('50 %\r{"reward": 1, "said": "one\u2028two"}\n', Result(reward=1.0)),
        ('7\n{"loss": 3}\n{"reward": 1}\n8 tests\n', Result(reward=1.0)),
    ],
)
def test_the_last_line_that_is_a_result_is_the_result(printed: str, result: Result) -> None:
    assert printed_result(printed) == result


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "\n \n",
        "1\nbye",  # a number further up may be anything
        "true",
        '"1"',
        "null",
        "[1]",
        '{"loss": 1}',
        '{"reward": 1',
        '"reward": 1}',  # the beginning was cut
        "{" * 100_000,
        "9" * 10_000,  # more digits than Python reads
    ],
)
def test_a_line_that_says_nothing_of_a_reward_is_no_result(printed: str) -> None:
    assert printed_result(printed) is None


@pytest.mark.parametrize(
    ("printed", "named"),
    [
        ("NaN", "nan"),
        ("Infinity", "inf"),
        ("1e999", "inf"),
        ('{"reward": "1"}', "reward must be a number, got '1'"),
        ('{"reward": true}', "reward must be a number, got True"),
        ('{"reward": null}', "no reward"),
        ('{"reward": 1, "success": 1}', "success must be true or false, got 1"),
        ('{"step_rewards": 1}', "step_rewards must be a list"),
        ('{"step_rewards": [0, NaN]}', r"step_rewards\[1\] must be a finite number"),
        ('{"reward": 1}\n{"reward": NaN}', "finite"),
        (
            '{"reward": -2e30}',
            "finite number, at most 1e[+]30 in size, got -2e[+]30",
        ),
    ],
)
def test_a_result_that_is_no_reward_is_refused_with_what_it_is(printed: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        printed_result(printed)


def test_what_a_function_returns_may_be_of_numpy() -> None:
    assert result_of(np.float32(0.5)) == Result(reward=0.5)
    assert result_of({"reward": np.int64(2), "success": True}) == Result(reward=2.0, success=True)
    assert result_of(None) is None


@pytest.mark.parametrize("value", ["1", [1], True, math.nan, {"solved": True}, object()])
def test_a_function_that_returns_something_else_is_told_so(value: object) -> None:
    with pytest.raises(ValueError, match=r"must be a|has no reward"):
        result_of(value)
