"""Replay of steps with several calls, pictures, tools, and calls without tokens."""

from base64 import b64encode
from html import escape

import pytest

from apps.conftest import HOSTILE, ProgramStore
from apps.viewer.test_pages import html_of, open_page
from longhaul_viewer.settings import STORE_VARIABLE


@pytest.fixture(autouse=True)
def shown_program(program: ProgramStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, program.url)


def replay(program: ProgramStore, **query: str) -> str:
    return html_of(open_page("replay", episode=program.episode_id, **query))


def encoded(data: bytes) -> str:
    return f'src="data:image/png;base64,{b64encode(data).decode()}"'


def test_the_call_that_acted_is_shown_first_and_every_other_is_a_link(
    program: ProgramStore,
) -> None:
    page = replay(program, step="0")
    for name in ("plan · planner", "act · walker", "remember", "judge · hosted/judge-1"):
        assert f">{name}</a>" in page
    assert "act · walker, 2 tokens, asks for tools" in page
    assert "<b>look</b>" in page
    assert ">5 calls<" in page


def test_pictures_of_observation_message_tool_and_end_are_shown(program: ProgramStore) -> None:
    room, chart, end = program.pictures.values()
    assert replay(program, step="0").count(encoded(room)) == 2
    assert encoded(chart) in replay(program, step="1")
    assert encoded(end) in replay(program, step="2")
    assert encoded(end) not in replay(program, step="1")


def test_a_call_without_tokens_says_so_and_a_step_without_calls_too(
    program: ProgramStore,
) -> None:
    judged = replay(program, step="0", call="3")
    assert "No tokens recorded" in judged
    assert "judge · hosted/judge-1, not trained" in judged
    assert "No tokens recorded" in replay(program, step="0", call="3", prompt="tokens")
    assert "No tokens recorded" not in replay(program, step="0", call="0")
    assert "No model chose the action" in replay(program, step="2")


def test_an_auxiliary_call_shows_its_share_of_the_credit(program: ProgramStore) -> None:
    page = replay(program, step="0", call="0")
    assert "Share of the advantage" in page
    assert ">0.5<" in page
    assert ">+0.25<" in page


def test_a_call_shows_what_the_engine_had_kept_and_its_own_times(program: ProgramStore) -> None:
    acting = replay(program, step="0", call="1")
    assert "Prompt tokens cached" in acting
    assert ">2 of 3<" in acting
    assert ">0.500 s<" in acting  # its queue, and all there was of the step's
    assert ">0.250 s<" in acting
    planning = replay(program, step="0", call="0")
    assert "Prompt tokens cached" not in planning
    assert ">0.000 s<" in planning


def test_markup_of_a_model_stays_text_in_messages_and_tool_calls(program: ProgramStore) -> None:
    page = replay(program, step="0", call="0")
    assert "<script" not in page
    assert "<img src=x" not in page
    assert page.count(escape(HOSTILE)) == 4  # a message, and three words of a tool call
