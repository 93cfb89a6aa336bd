"""Panels: fixed, evenly spread, and never trained on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import make_task
from longhaul_core.errors import ConfigError
from longhaul_core.tasks import Panel, refuse_shared_content
from longhaul_core.types import Split

VALIDATION = [make_task(100 + number, split=Split.VALIDATION) for number in range(10)]


def test_a_panel_is_spread_evenly_over_the_list() -> None:
    panel = Panel.spread(VALIDATION, split=Split.VALIDATION, num_tasks=4)
    assert [task.seed for task in panel.tasks] == [100, 102, 105, 107]


@given(num_listed=st.integers(1, 50), data=st.data())
def test_a_panel_never_repeats_a_task(num_listed: int, data: st.DataObject) -> None:
    num_tasks = data.draw(st.integers(1, num_listed))
    listed = [make_task(number, split=Split.TEST) for number in range(num_listed)]
    panel = Panel.spread(listed, split=Split.TEST, num_tasks=num_tasks)
    assert len(panel.tasks) == num_tasks
    assert len({task.seed for task in panel.tasks}) == num_tasks


@pytest.mark.parametrize("num_tasks", [0, 11])
def test_a_panel_that_cannot_be_filled_is_refused(num_tasks: int) -> None:
    with pytest.raises(ConfigError, match=rf"\[1, 10\].*got {num_tasks}"):
        Panel.spread(VALIDATION, split=Split.VALIDATION, num_tasks=num_tasks)


def test_a_task_of_another_split_is_refused() -> None:
    with pytest.raises(ConfigError, match="train/00001"):
        Panel(split=Split.TEST, tasks=(make_task(1),))


def test_a_panel_that_shares_content_with_training_is_refused_under_whatever_name() -> None:
    training = [make_task(number) for number in range(5)]
    copied = replace(training[3], split=Split.TEST, task_id="test/copy")
    panel = Panel(split=Split.TEST, tasks=(copied,))
    with pytest.raises(ConfigError, match=r"'test/copy'.*'train/00003'"):
        refuse_shared_content(training, panel)


def test_two_panels_that_share_content_are_refused() -> None:
    validation = Panel(split=Split.VALIDATION, tasks=tuple(VALIDATION))
    copied = replace(VALIDATION[0], split=Split.TEST)
    with pytest.raises(ConfigError, match="validation"):
        refuse_shared_content([], validation, Panel(split=Split.TEST, tasks=(copied,)))


def test_disjoint_panels_pass() -> None:
    panel = Panel(split=Split.VALIDATION, tasks=tuple(VALIDATION))
    refuse_shared_content([make_task(number) for number in range(5)], panel)


def test_tasks_of_equal_data_are_one_content_and_of_other_data_another() -> None:
    """Whatever their seeds; a program is given the data alone."""
    trained = replace(make_task(1), data='{"question": 1}')
    other = replace(trained, split=Split.VALIDATION, data='{"question": 2}')
    refuse_shared_content([trained], Panel(split=Split.VALIDATION, tasks=(other,)))

    copied = replace(trained, split=Split.VALIDATION, task_id="validation/7", seed=7)
    with pytest.raises(ConfigError, match="measure memory"):
        refuse_shared_content([trained], Panel(split=Split.VALIDATION, tasks=(copied,)))


def test_an_environment_can_name_content_more_sharply() -> None:
    training = [make_task(1)]
    panel = Panel(split=Split.TEST, tasks=(make_task(2, split=Split.TEST),))
    with pytest.raises(ConfigError, match="same content"):
        refuse_shared_content(training, panel, content=lambda task: "the same first state")
