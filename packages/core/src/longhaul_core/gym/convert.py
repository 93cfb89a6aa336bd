"""What Gymnasium returns, as our nouns.

An observation is text, or a dictionary of `text` and `picture`: the bytes of a PNG, JPEG or WebP
file, or None where nothing is to be seen.

Keys of `info` that are read, all of them optional: `admissible_actions` (list of str),
`anchor_state` (str), `success` (bool), `action_accepted` (bool). An environment that
names no `success` is taken to have been solved if it terminated with a reward above 0.

Text is made well-formed: half of a surrogate pair, as Python reads a file name that is not
UTF-8, becomes U+FFFD.
"""

from collections.abc import Mapping
from typing import Protocol, SupportsFloat, cast, runtime_checkable

import gymnasium

from longhaul_core.environment import StepResult
from longhaul_core.text import well_formed
from longhaul_core.types import MediaType, Observation, Picture

__all__ = ["expert_action", "to_observation", "to_step_result"]


@runtime_checkable
class _HasExpert(Protocol):
    def expert_action(self) -> str | None: ...


def expert_action(environment: gymnasium.Env[str, str]) -> str | None:
    """What the environment's own expert would do now; None where it sees no way to success.

    Raises:
        TypeError: It has no expert.
    """
    bare = environment.unwrapped
    if not isinstance(bare, _HasExpert):
        raise TypeError(f"{type(bare).__name__} has no expert: define expert_action in it")
    return bare.expert_action()


def to_observation(seen: object, info: Mapping[str, object]) -> Observation:
    """The observation, with what `info` says about it.

    Raises:
        TypeError: If the observation or an entry of `info` has the wrong type.
        ValueError: If a picture is of none of the types that are read.
    """
    text, pictures = _text_and_pictures(seen)
    anchor_state = info.get("anchor_state")
    if not isinstance(anchor_state, str | None):
        raise TypeError(f"info['anchor_state'] must be text, got {type(anchor_state).__name__}")
    return Observation(
        text=well_formed(text),
        pictures=pictures,
        admissible_actions=_admissible_actions(info),
        anchor_state=None if anchor_state is None else well_formed(anchor_state),
    )


def to_step_result(
    seen: object,
    reward: SupportsFloat,
    *,
    terminated: object,
    truncated: object,
    info: Mapping[str, object],
) -> StepResult:
    """What one step brought.

    Raises:
        TypeError: If something has the wrong type.
        ValueError: If a picture is of no type that is read, or see `StepResult`.
    """
    reward, terminated = float(reward), bool(terminated)
    return StepResult(
        observation=to_observation(seen, info),
        reward=reward,
        terminated=terminated,
        truncated=bool(truncated),
        success=bool(info["success"]) if "success" in info else terminated and reward > 0,
        action_accepted=bool(info["action_accepted"]) if "action_accepted" in info else True,
    )


def _text_and_pictures(seen: object) -> tuple[str, tuple[Picture, ...]]:
    if isinstance(seen, str):
        return seen, ()
    if not isinstance(seen, Mapping):
        raise TypeError(
            f"observation must be text, or a dictionary of text and picture, got "
            f"{type(seen).__name__}"
        )
    entries = dict(cast("Mapping[str, object]", seen))
    text, picture = entries.pop("text", None), entries.pop("picture", None)
    if entries:
        raise TypeError(f"observation must hold text and picture alone, has {sorted(entries)}")
    if not isinstance(text, str):
        raise TypeError(f"observation['text'] must be text, got {type(text).__name__}")
    if picture is None:
        return text, ()
    if not isinstance(picture, bytes):
        raise TypeError(
            "observation['picture'] must be the bytes of an image file, got "
            f"{type(picture).__name__}; longhaul_envs.pictures.png makes them of an array"
        )
    return text, (Picture.of(picture, media_type=_media_type(picture)),)


def _media_type(data: bytes) -> MediaType:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError(
        f"observation['picture'] must be a PNG, JPEG or WebP file, begins with {data[:12]!r}"
    )


def _admissible_actions(info: Mapping[str, object]) -> tuple[str, ...] | None:
    listed = info.get("admissible_actions")
    if listed is None:
        return None
    if not isinstance(listed, list | tuple):
        raise TypeError(
            f"info['admissible_actions'] must be a list of text, got {type(listed).__name__}"
        )
    actions = tuple(cast("list[object]", listed))
    strays = [action for action in actions if not isinstance(action, str)]
    if strays:
        raise TypeError(f"info['admissible_actions'] must be a list of text, holds {strays[0]!r}")
    return tuple(well_formed(action) for action in cast("tuple[str, ...]", actions))
