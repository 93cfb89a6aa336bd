"""MiniWoB++ as a Gymnasium environment: small tasks on web pages, in a real browser."""

from io import BytesIO
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray
from PIL import Image

from longhaul_envs.browser.chromium import BrowserSession, BrowserSettings, chromium_executable
from longhaul_envs.extras import required
from longhaul_envs.miniwob import tasks as task_list
from longhaul_envs.miniwob.actions import Action, parse
from longhaul_envs.miniwob.expert import advice
from longhaul_envs.miniwob.page import WINDOW, Look, MiniWoBPage
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import picture_space
from longhaul_envs.task_lists import content_hash

__all__ = ["MiniWoB"]

_STEP_SECONDS = 1.0
"""Of the page's clock."""


class MiniWoB(PackagedEnv[Any, task_list.MiniWoBOptions]):
    """Use a small web page to reach a goal.

    Task:
        A page of the `miniwob` package and a seed; the observation has the instruction and a line
        for each element that is seen.
    Action:
        See `longhaul_envs.miniwob.tasks.ACTIONS`. What is not understood, or cannot be done,
        changes nothing and takes no time.
    Reward:
        `binary`: 1.0 for the step that ends the episode with success, otherwise 0. `page`: the
        page's own at the end, in [-1, 1].
    Episode end:
        Terminated when the page says so. Never truncated here.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing. Without it
        the seed draws a page and is the page's seed, of whatever split.
    Info:
        `anchor_state`: a hash of the document, of what is typed, ticked, selected and scrolled,
        and of the focus. `success`. `action_accepted`.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        required("playwright.async_api", "web")
        super().__init__(**options)
        if self._shows_pictures:
            self.observation_space = picture_space()
        self._session = BrowserSession(
            BrowserSettings(executable=chromium_executable(self.options.chromium))
        )
        self._page = MiniWoBPage()
        self._look: Look | None = None
        self._name = ""

    def expert_action(self) -> str | None:
        """What a hand-written way of the page's kind does next; None where there is none."""
        look = self._playing()
        return advice(self._name, look.utterance, look.tree)

    def render(self) -> NDArray[np.uint8]:
        """The task's part of the page, 210 by 160 pixels."""
        self._playing()
        with Image.open(BytesIO(self._session.run(self._page.picture()))) as image:
            return np.asarray(image.convert("RGB"))

    def prepare(self) -> None:
        """Start the browser and begin to open the next episode's page, still without a task."""
        self._look = None
        self._session.prepare(self._page.open, viewport=WINDOW)

    def close(self) -> None:
        """Close the page; the browser ends with the last environment that uses it."""
        self._look = None
        self._session.close()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            self._name, page_seed = task_list.parse_task_id(str(options["task_id"]))
        else:
            names = self.options.tasks or tuple(task_list.known_contents())
            self._name = names[int(self.np_random.integers(len(names)))]
            page_seed = int(self.np_random.integers(10**6))
        self._session.begin(self._page.open, viewport=WINDOW)
        limited = self.options.time_limit
        self._look = self._session.run(
            self._page.begin(self._name, seed=page_seed, time_limit=limited)
        )
        return self._observed(self._look, refusal=""), self._info(self._look, accepted=True)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self._playing()
        if before.done:
            raise ResetNeeded("the episode is over; reset before the next step")
        understood = parse(action)
        refusal = (
            understood
            if isinstance(understood, str)
            else self._session.run(self._carried_out(understood))
        )
        look = self._look = before if refusal else self._session.run(self._page.look())
        observed = self._observed(look, refusal=refusal)
        return (
            observed,
            self._reward(look),
            look.done,
            False,
            self._info(look, accepted=not refusal),
        )

    async def _carried_out(self, action: Action) -> str:
        refusal = await self._page.do(action)
        if not refusal:
            await self._page.pass_time(_STEP_SECONDS)
        return refusal

    @property
    def _shows_pictures(self) -> bool:
        return self.options.observation == "tree_and_image"

    def _playing(self) -> Look:
        if self._look is None:
            raise ResetNeeded("reset before the first step")
        return self._look

    def _observed(self, look: Look, *, refusal: str) -> object:
        text = f"Goal: {look.utterance}\n{'The task is over.' if look.done else look.tree}"
        if refusal:
            text += f"\nNot done: {refusal}."
        if not self._shows_pictures:
            return text
        return {"text": text, "picture": self._session.run(self._page.picture())}

    def _reward(self, look: Look) -> float:
        if not look.done:
            return 0.0
        if self.options.reward == "binary":
            return float(self._is_success(look))
        return look.timed_reward if self.options.time_limit else look.raw_reward

    def _is_success(self, look: Look) -> bool:
        return look.done and look.raw_reward >= self.options.threshold

    def _info(self, look: Look, *, accepted: bool) -> dict[str, Any]:
        state = "" if look.done else look.state  # after the end the page may still move
        return {
            "anchor_state": content_hash(f"{look.utterance}\n{look.done}\n{state}"),
            "success": self._is_success(look),
            "action_accepted": accepted,
        }
