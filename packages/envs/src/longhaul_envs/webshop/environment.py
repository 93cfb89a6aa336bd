"""WebShop as a Gymnasium environment of text."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture
from longhaul_envs.webshop import tasks as task_list
from longhaul_envs.webshop.catalogue import Goal
from longhaul_envs.webshop.expert import mistaken, next_action, parts_of
from longhaul_envs.webshop.nouns import noun_finder
from longhaul_envs.webshop.proposals import proposed_queries
from longhaul_envs.webshop.reward import score
from longhaul_envs.webshop.shop import Shop
from longhaul_envs.webshop.site import Page, Place, links
from longhaul_envs.webshop.views import plain_text, sep_text

__all__ = ["WebShop"]

_MAX_QUERY = 1000
"""Characters."""


class WebShop(PackagedEnv[str, task_list.WebShopOptions]):
    """Find and buy the product that an instruction asks for.

    Task:
        An instruction: a kind of product, attributes, options to choose, and a price limit.
    Action:
        `search[WORDS]` on the search page, at most 1,000 characters; `click[TEXT]` on others, in
        any case. Anything else changes nothing.
    Reward:
        For `click[buy now]`, the score of what was bought, from 0 to 1
        (`longhaul_envs.webshop.reward`), or 1 for a score of 1 and 0 for any other with
        `reward = "success"`; 0 for every other step.
    Episode end:
        Terminated by `click[buy now]`. Never truncated here.
    Seed:
        `options={"task_id": ...}` chooses the goal, and the seed then decides nothing. Without it
        the seed draws one of the training split.
    Info:
        `admissible_actions`: what can be clicked; on the search page the proposed queries, or no
        such key where `search_proposals` is 0, since any query is accepted. `anchor_state`: the
        goal's id and the place. `success`: the score is 1. `action_accepted`. After the purchase
        also `score`, with its parts.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._nouns = noun_finder(self.options.nouns)
        self._shop: Shop | None = None
        self._goal: Goal | None = None
        self._place = Place(page=Page.DONE)
        self._links: dict[str, Place] = {}

    def expert_action(self) -> str | None:
        """The next action on the way to the product that the goal was made of."""
        if self._shop is None or self._goal is None or self._place.over:
            return None
        return next_action(
            self._place,
            self._goal,
            self._shop,
            proposals=self._proposals(self._goal),
            show_attributes=self.options.show_attributes,
        )

    def goal_parts(self) -> tuple[str, ...]:
        """The product, and each option that is to be chosen."""
        if self._shop is None or self._goal is None:
            return ()
        return parts_of(self._goal, self._shop)

    def mistaken_action(self, part: str) -> str | None:
        """The next action on the way to another product, or to another value of an option."""
        if self._shop is None or self._goal is None or self._place.over:
            return None
        other = mistaken(self._goal, self._shop, part)
        if other is None:
            return None
        return next_action(
            self._place,
            other,
            self._shop,
            proposals=self._proposals(self._goal),
            show_attributes=self.options.show_attributes,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if self._shop is None:
            self._shop = task_list.open_shop(self.options)
        if options is not None and "task_id" in options:
            self._goal = self._shop.goal(str(options["task_id"]))
        else:
            authors = self.options.split == "authors"
            self._goal = self._shop.drawn(self.np_random, authors=authors)
        self._go_to(Place(), self._shop)
        return self._observe(self._shop, self._goal), self._info(self._goal, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._shop is None or self._goal is None or self._place.over:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        refused = self._act(action, self._shop)
        info = self._info(self._goal, accepted=not refused)
        reward = 0.0
        if self._place.over:
            wanted = self._shop.product(self._goal.asin)
            scored = score(
                self._shop.product(self._place.asin),
                dict(self._place.options),
                goal=self._goal,
                wanted=wanted,
                nouns=self._nouns,
                option_names=sorted(wanted.options) if self.options.asked == "pairs" else None,
            )
            info |= {"score": scored, "success": scored.total >= 1}
            by_success = self.options.reward == "success"
            reward = float(info["success"]) if by_success else scored.total
        text = self._observe(self._shop, self._goal)
        return f"{text}\n{refused}" if refused else text, reward, self._place.over, False, info

    def render(self) -> NDArray[np.uint8]:
        if self._shop is None or self._goal is None:
            return text_picture("")
        page = plain_text(
            self._place,
            self._goal.instruction,
            self._shop.product,
            show_attributes=self.options.show_attributes,
        )
        return text_picture("\n".join([page, "", *(f"[{text}]" for text in self._links)]))

    def close(self) -> None:
        self._shop, self._goal, self._links = None, None, {}

    def _act(self, action: str, shop: Shop) -> str:
        """Do it; what is wrong with it, in words, or nothing."""
        kind, bracket, rest = action.strip().partition("[")
        kind, written = kind.strip().lower(), rest[:-1].strip()
        if kind not in ("search", "click") or not bracket or not rest.endswith("]"):
            return "Not understood. Write search[WORDS] or click[TEXT]."
        is_bar = written.lower() == "search" and self._place.page is Page.SEARCH
        if kind == "click" and is_bar and self.options.observation == "sep":
            return ""  # the authors list it, and it changes nothing
        if kind == "click":
            following = self._links.get(written.lower())
            if following is None:
                return "There is nothing of that text to click here."
            self._go_to(following, shop)
            return ""
        if self._place.page is not Page.SEARCH:
            return "There is no search bar here; click[back to search] first."
        if not 1 <= len(written) <= _MAX_QUERY:
            return f"A search takes 1 to {_MAX_QUERY:,} characters, got {len(written):,}."
        self._go_to(Place(page=Page.RESULTS, results=shop.search(written)), shop)
        return ""

    def _go_to(self, place: Place, shop: Shop) -> None:
        self._place = place
        self._links = links(place, shop.product, show_attributes=self.options.show_attributes)

    def _observe(self, shop: Shop, goal: Goal) -> str:
        view = sep_text if self.options.observation == "sep" else plain_text
        return view(
            self._place,
            goal.instruction,
            shop.product,
            show_attributes=self.options.show_attributes,
        )

    def _info(self, goal: Goal, *, accepted: bool) -> dict[str, Any]:
        info: dict[str, Any] = {
            "anchor_state": f"{goal.id} {self._place.key}",
            "success": False,
            "action_accepted": accepted,
        }
        proposals = self._proposals(goal)
        if self._place.page is not Page.SEARCH:
            info["admissible_actions"] = [f"click[{text}]" for text in self._links]
        elif proposals:
            info["admissible_actions"] = [f"search[{query}]" for query in proposals]
        return info

    def _proposals(self, goal: Goal) -> list[str]:
        return proposed_queries(goal.instruction, self.options.search_proposals)
