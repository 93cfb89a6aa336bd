"""WebArena's scores: an answer, an address and what pages hold, compared as its authors do.

The rules are those of `evaluation_harness/evaluators.py` of WebArena. Where they ask a language
model, a judge of the run's own is asked instead, and without one the episode fails: a score of 0
would say that the agent was wrong.
"""

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import parse_qs, quote, urlsplit

from longhaul_core.errors import EnvironmentFailure, message_of
from longhaul_envs.browser.fence import Fence
from longhaul_envs.webarena.schema import (
    Evaluation,
    HelperCall,
    Target,
    WebArenaTask,
    helper_call,
)

if TYPE_CHECKING:
    from playwright.async_api import APIResponse, Page

__all__ = ["Judge", "Scorer", "answer_matches", "includes", "url_matches"]

_MEMBER_ROLE = """account => {
  const names = [...document.querySelectorAll(
    "td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
  const index = names.findIndex((name) => name.outerText === account);
  return document.querySelectorAll("td.col-max-role span")[index]?.outerText ?? "";
}"""


_APART = "()[]{}<>;@#$%&?!*"
"""What NLTK's tokenizer, which the authors ask, parts from a word on both sides."""
_EDGE = rf"[\s\"`{re.escape(_APART)}]"
_BEFORE = rf"(?:^|(?<={_EDGE})|(?<=--)|(?<=\.\.)|(?<=(?<!\w)'))"
_AFTER = rf"(?=$|{_EDGE}|--|[,:](?!\d)|'(?!\w)|'s(?![\w-])|\.(?:\.|[\"')\]}}>]*(?:\s|$)))"
"""Where a word of a sentence begins and ends for NLTK's tokenizer; `-5` and `5,000` are words."""


class Judge(Protocol):
    """Says whether an answer means the same as a reference."""

    def __call__(self, *, question: str, reference: str, answer: str) -> bool:
        """Whether it does. For a task that cannot be done, the reference is the reason why."""
        ...


def url_matches(reference: str, url: str) -> bool:
    """Whether `url` holds one of the references (`A |OR| B`), and its query theirs."""
    references = [urlsplit(one.rstrip("/")) for one in reference.split(" |OR| ")]
    found = urlsplit(url.rstrip("/"))
    place = (found.netloc + found.path).rstrip("/")
    wanted: dict[str, set[str]] = {}
    for one in references:
        for key, values in parse_qs(one.query).items():
            wanted.setdefault(key, set()).update(values)
    given = parse_qs(found.query)
    return any((one.netloc + one.path).rstrip("/") in place for one in references) and all(
        values & set(given.get(key, ())) for key, values in wanted.items()
    )


def answer_matches(reference: str, answer: str) -> bool:
    """Whether they are equal but for quotes around them, the spaces there, and case."""
    return _clean(reference) == _clean(answer)


def includes(reference: str, answer: str, *, as_word: bool = False) -> bool:
    """Whether the answer holds the reference; one character, with `as_word`, as a word alone."""
    wanted, given = _clean(reference), _clean(answer)
    if as_word and len(wanted) == 1 and wanted not in _APART:
        return bool(re.search(f"{_BEFORE}{re.escape(wanted)}{_AFTER}", given))
    return wanted in given


def _clean(text: str) -> str:
    text = text.strip()
    for mark in ("'", '"'):
        if text.startswith(mark) and text.endswith(mark):
            text = text[1:-1]
            break
    return text.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """Scores an episode at its end."""

    fence: Fence
    shopping: str
    """Address of the shop, whose helpers ask it for its newest orders and reviews."""
    admin: tuple[str, str]
    """Name and password of the shop's administrator, for those helpers."""
    judge: Judge | None

    async def score(self, task: WebArenaTask, *, answer: str, page: "Page") -> float:
        """1.0 if every kind of the task's evaluation holds, otherwise 0.0.

        It may open other pages in `page`.

        Raises:
            EnvironmentFailure: If it cannot be known: a judge is needed and there is none, or a
                page or a helper cannot be reached.
        """
        evaluation = task.evaluation
        for kind in evaluation.eval_types:
            if kind == "string_match":
                holds = self._answer_holds(task.intent, evaluation, answer.strip())
            elif kind == "url_match":
                holds = url_matches(evaluation.reference_url or "", page.url)
            else:
                holds = await self._pages_hold(evaluation, page)
            if not holds:
                return 0.0
        return 1.0

    def _answer_holds(self, intent: str, evaluation: Evaluation, answer: str) -> bool:
        references = evaluation.reference_answers
        cleaned = _clean(answer)  # once more than what it is compared with, as the authors do
        exact, includes_all = references.exact_match, references.must_include or ()
        if exact is not None and not answer_matches(exact, cleaned):
            return False
        if not all(includes(one, cleaned, as_word=len(includes_all) == 1) for one in includes_all):
            return False
        if references.fuzzy_match == "N/A":
            return answer_matches("N/A", cleaned) or self._judged(
                intent, evaluation.string_note or "", answer
            )
        return all(
            self._judged(intent, reference, answer) if answer else not reference
            for reference in references.fuzzy_match or ()
        )

    def _judged(self, question: str, reference: str, answer: str) -> bool:
        if self.judge is None:
            raise EnvironmentFailure(
                "WebArena scores this task by a fuzzy match, which needs a judge: name one in the "
                "option `judge`, as module:name of a function that takes question=, reference= "
                "and answer= and returns whether they agree"
            )
        return bool(self.judge(question=question, reference=reference, answer=answer))

    async def _pages_hold(self, evaluation: Evaluation, page: "Page") -> bool:
        for target in evaluation.program_html:
            url = target.url
            if url.startswith("func"):
                call = helper_call(url, gives_url=True)
                url = await self._url_of(call, page)
            if url != "last":
                await self._open(page, url)
            if not _content_holds(target, html.unescape(await self._content(target, page))):
                return False
        return True

    async def _open(self, page: "Page", url: str) -> None:
        from playwright.async_api import Error

        refusal = self.fence.refusal(url)
        if refusal is not None:
            raise EnvironmentFailure(f"the task is scored by a page that is closed: {refusal}")
        try:
            await page.goto(url, wait_until="load")
        except Error as error:
            raise EnvironmentFailure(
                f"the task is scored by {url[:200]!r}, which does not open: {message_of(error)}"
            ) from error

    async def _content(self, target: Target, page: "Page") -> str:
        from playwright.async_api import Error

        if not target.locator.strip():
            return await page.content()
        if target.locator.startswith("func:"):
            call = helper_call(target.locator, gives_url=False)
            if call.name == "gitlab_get_project_memeber_role":
                return await _member_role(page, call.text or "")
            return await self._latest_review(call, page)
        try:
            for preparation in target.prep_actions:
                await page.evaluate(f"() => {preparation}")
        except Error:
            pass  # as the authors: what it was to prepare may be there already
        try:
            return str(await page.evaluate(f"() => {target.locator}") or "")
        except Error:
            return ""  # the page is another one than the task asks for, which is the agent's doing

    async def _url_of(self, call: HelperCall, page: "Page") -> str:
        if call.name == "shopping_get_latest_order_url":
            orders = await self._ask_shop(
                page,
                "/rest/V1/orders?searchCriteria[sortOrders][0][field]=created_at"
                "&searchCriteria[sortOrders][0][direction]=DESC&searchCriteria[pageSize]=1",
            )
            number = int(orders["items"][0]["increment_id"])
            return f"{self.shopping}/sales/order/view/order_id/{number}/"
        url = (call.text or "").replace("__last_url__", page.url)
        parts = urlsplit(url)
        words = parts.path.split("/")
        if len(words) < 4 or words[1] != "f":
            return url
        return f"{parts.scheme}://{parts.netloc}/f/{words[2]}/{words[3]}/"

    async def _latest_review(self, call: HelperCall, page: "Page") -> str:
        """Who wrote the newest review of an article, or how it rates it in percent."""
        path = f"/rest/V1/products/{quote(call.text or '', safe='')}/reviews"
        reviews = await self._ask_shop(page, path)
        if not reviews:
            return ""
        if call.name == "shopping_get_sku_latest_review_author":
            return str(reviews[-1]["nickname"])
        return str(reviews[-1]["ratings"][0]["percent"])

    async def _ask_shop(self, page: "Page", path: str) -> Any:  # noqa: ANN401  the shop's JSON
        """What the shop's interface answers its administrator.

        It is asked by Playwright, beside the browser: at the one address that the run has given,
        and following no redirect.
        """
        from playwright.async_api import Error

        requests = page.context.request
        name, password = self.admin
        try:
            token = await _json_of(
                await requests.post(
                    f"{self.shopping}/rest/default/V1/integration/admin/token",
                    data={"username": name, "password": password},
                    max_redirects=0,
                )
            )
            headers = {"Authorization": f"Bearer {token}"}
            return await _json_of(
                await requests.get(f"{self.shopping}{path}", headers=headers, max_redirects=0)
            )
        except Error as error:
            raise EnvironmentFailure(
                f"the shop does not answer its administrator: {message_of(error)}"
            ) from error


def _content_holds(target: Target, content: str) -> bool:
    required = target.required_contents
    if "exact_match" in required:
        return answer_matches(cast("str", required["exact_match"]), content)
    return all(
        any(includes(one, content) for one in alternatives.split(" |OR| "))
        for alternatives in required["must_include"]
    )


async def _member_role(page: "Page", account: str) -> str:
    """The role that GitLab's page of members shows for an account; empty if there is none."""
    return str(await page.evaluate(_MEMBER_ROLE, f"@{account}"))


async def _json_of(response: "APIResponse") -> Any:  # noqa: ANN401  whatever the shop answers
    if not response.ok:
        raise EnvironmentFailure(
            f"the shop answered its administrator with status {response.status}"
        )
    return await response.json()
