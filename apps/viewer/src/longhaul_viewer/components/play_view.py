"""An episode that a person plays: what is seen, what can be done, and what came of it.

One component of ours, so that keys act: a press is sent with the number of the step it is meant
for, and again if nothing came of it, so that none is lost and none acts twice.
"""

import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import streamlit as st
from streamlit.components.v2 import component

from longhaul_core.types import FailedEpisode, Message, Picture, Trajectory
from longhaul_viewer import links
from longhaul_viewer.components.modules import script
from longhaul_viewer.play.game import STEP_SECONDS, GameState

__all__ = ["Move", "play_view", "seen"]

_HERE = Path(__file__)
_COMPONENT = component(
    "longhaul_play",
    js=script(_HERE.with_suffix(".js")),
    css=_HERE.with_suffix(".css").read_text(encoding="utf-8"),
)


class Move(NamedTuple):
    """What the person wants to do."""

    episode: int
    step: int
    action: str


def play_view(
    data: Mapping[str, Any],
    *,
    key: str,
    on_move: Callable[[Move], None],
    on_leave: Callable[[], None],
) -> None:
    """Draw an episode.

    Args:
        data: From `seen`.
        key: Of the sitting.
        on_move: Called when the person acts.
        on_leave: Called when the person gives the episode up.
    """

    def moved() -> None:
        value = cast("dict[str, object] | None", st.session_state[key].get("move"))
        if value:
            on_move(Move(int(str(value["episode"])), int(str(value["step"])), str(value["action"])))

    _COMPONENT(
        key=key,
        data=dict(data),
        on_move_change=moved,
        on_leave_change=on_leave,
    )


def seen(state: GameState, *, environment: str, number: int, horizon: int) -> dict[str, Any]:
    """What the component draws of an episode.

    Args:
        state: As it stands.
        environment: Its id.
        number: 0-based, in its sitting.
        horizon: Most steps.
    """
    observation = state.observation
    return {
        "episode": number,
        "stage": state.stage,
        "environment": environment,
        "answer_seconds": STEP_SECONDS,
        "wait": state.wait
        and {
            "what": state.wait.what,
            "seconds": time.monotonic() - state.wait.since,
            "most_seconds": state.wait.most_seconds,
        },
        "step": len(state.turns),
        "horizon": horizon,
        "text": observation.text if observation else "",
        "pictures": [_address(one) for one in observation.pictures] if observation else [],
        "actions": observation.admissible_actions if observation else None,
        "turns": [
            {
                "action": turn.action,
                "reward": turn.reward,
                "reason": turn.reason,
            }
            for turn in state.turns
        ],
        "prompt": [_said(message) for message in state.messages],
        "outcome": _outcome(state),
        "replay": state.episode_id and links.address(links.REPLAY, episode=state.episode_id),
    }


def _said(message: Message) -> dict[str, Any]:
    parts = [
        {"text": part} if isinstance(part, str) else {"picture": _address(part)}
        for part in message.parts
    ]
    return {"role": message.role, "parts": parts}


def _outcome(state: GameState) -> dict[str, str] | None:
    if state.stage != "over":
        return None
    if state.problem:
        return {"tone": "bad", "words": "The store has not taken the episode", "why": state.problem}
    match state.outcome:
        case None:
            return {
                "tone": "plain",
                "words": "Left before the first step: nothing is stored",
                "why": "",
            }
        case FailedEpisode(message=message):
            return {"tone": "bad", "words": "The episode failed", "why": message}
        case Trajectory(success=True):
            return {"tone": "good", "words": "Solved", "why": ""}
        case Trajectory(stop_reason=reason):
            words = reason.value.replace("_", " ").capitalize()
            kind = "truncated" if reason.truncated else "the environment ended it"
            return {
                "tone": "plain",
                "words": f"Not solved: {words[0].lower()}{words[1:]}",
                "why": kind,
            }


def _address(picture: Picture) -> str:
    return f"data:{picture.media_type};base64,{b64encode(picture.data or b'').decode()}"
