"""WebArena as a Gymnasium environment: tasks on whole web sites, in a real browser."""

from io import BytesIO
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray
from PIL import Image

from longhaul_envs.browser.chromium import BrowserSession, BrowserSettings, chromium_executable
from longhaul_envs.extras import required
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.task_lists import content_hash
from longhaul_envs.text import text_space
from longhaul_envs.webarena import tasks as task_list
from longhaul_envs.webarena.actions import parse
from longhaul_envs.webarena.schema import WebArenaTask
from longhaul_envs.webarena.scoring import Scorer
from longhaul_envs.webarena.tabs import Seen, Tabs

__all__ = ["WebArena"]

_MAX_ACTION_CHARACTERS = 10_000


class WebArena(PackagedEnv[str, task_list.WebArenaOptions]):
    """Reach an objective on web sites.

    Task:
        An objective, a page to begin with, and how the end is scored, all by a file of the
        authors' form. The observation has the objective, the address, the tabs and the page as an
        accessibility tree.
    Action:
        See `longhaul_envs.webarena.tasks.ACTIONS`. What is not understood, or cannot be done,
        changes nothing.
    Reward:
        1.0 for a `stop` after which all that the task asks for holds, otherwise 0.0.
    Episode end:
        Terminated by `stop`. Never truncated here: an episode that its horizon ends is not scored.
    Seed:
        Decides nothing but, without `options={"task_id": ...}`, the task.
    Info:
        `anchor_state`: a hash of the addresses and of what the page shows. `success`.
        `action_accepted`.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        required("playwright.async_api", "web")
        super().__init__(**options)
        chosen = self.options
        self.action_space = text_space(_MAX_ACTION_CHARACTERS)
        self._file = task_list.task_file(chosen)
        name, password = chosen.shop_admin
        self._scorer = Scorer(
            fence=chosen.fence,
            shopping=chosen.sites.get("SHOPPING", "").rstrip("/"),
            admin=(name, password),
            judge=task_list.judge_of(chosen),
        )
        settings = BrowserSettings(
            executable=chromium_executable(chosen.chromium), fence=chosen.fence
        )
        # an action waits for a page, and so may the scoring that follows it, for each target
        self._session = BrowserSession(settings, call_seconds=60 + 10 * chosen.page_seconds)
        self._tabs = Tabs(self._session, chosen)
        self._task: WebArenaTask | None = None
        self._seen: Seen | None = None
        self._over = True

    def render(self) -> NDArray[np.uint8]:
        """The window as it is now, of the size of `viewport`."""
        if self._task is None:
            raise ResetNeeded("reset before the first picture")
        with Image.open(BytesIO(self._session.run(self._tabs.picture()))) as image:
            return np.asarray(image.convert("RGB"))

    def prepare(self) -> None:
        """Start the browser. Cookies, place and pages are the task's, so a reset opens them."""
        self._task = None
        self._session.start()

    def close(self) -> None:
        """Close every tab; the browser ends with the last environment that uses it."""
        self._task = None
        self._session.close()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        names = list(self._file.tasks)
        drawn = names[int(self.np_random.integers(len(names)))]
        task_id = str((options or {}).get("task_id", drawn))
        if task_id not in self._file.tasks:
            raise ValueError(
                f"no WebArena task is called {task_id[:200]!r} in {self.options.tasks_file}"
            )
        task = self._task = self._file.tasks[task_id]
        state = task_list.storage_state_of(task, self.options)
        width, height = self.options.viewport
        self._session.begin(
            viewport={"width": width, "height": height},
            storage_state=None if state is None else str(state),
            **_geolocation(task),
        )
        self._session.run(self._tabs.open(task.start_urls))
        seen = self._seen = self._session.run(self._tabs.look())
        self._over = False
        return self._observed(task, seen), self._info(seen, success=False, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._task is None or self._seen is None or self._over:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        task, understood = self._task, parse(action)
        if isinstance(understood, str):
            return self._refused(task, self._seen, understood)
        if understood.verb == "stop":
            score = self._session.run(
                self._scorer.score(task, answer=understood.text, page=self._tabs.page)
            )
            self._over = True
            info = self._info(self._seen, success=score == 1.0, accepted=True)
            return f"Objective: {task.intent}\nThe task is over.", score, True, False, info
        refusal = self._session.run(self._tabs.do(understood))
        seen = self._seen = self._session.run(self._tabs.look())
        if refusal:
            return self._refused(task, seen, refusal)
        info = self._info(seen, success=False, accepted=True)
        return self._observed(task, seen), 0.0, False, False, info

    def _refused(
        self, task: WebArenaTask, seen: "Seen", reason: str
    ) -> tuple[str, float, bool, bool, dict[str, Any]]:
        text = f"{self._observed(task, seen)}\nNot done: {reason}."
        return text, 0.0, False, False, self._info(seen, success=False, accepted=False)

    def _observed(self, task: WebArenaTask, seen: "Seen") -> str:
        return f"Objective: {task.intent}\nURL: {seen.url}\n{seen.tabs}\n{seen.tree}"

    def _info(self, seen: "Seen", *, success: bool, accepted: bool) -> dict[str, Any]:
        return {
            "anchor_state": content_hash(f"{self._over}\n{seen.state}"),
            "success": success,
            "action_accepted": accepted,
        }


def _geolocation(task: WebArenaTask) -> dict[str, Any]:
    if task.geolocation is None:
        return {}
    place = {"latitude": task.geolocation.latitude, "longitude": task.geolocation.longitude}
    return {"geolocation": place, "permissions": ["geolocation"]}
