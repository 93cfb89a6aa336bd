"""Tasks of WebArena's form on the small sites of `web_sites`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["TASKS", "webarena_options"]


def webarena_options(folder: Path, address: str) -> dict[str, Any]:
    """Options of WebArena on the site at `address`; its tasks and a login are put into `folder`."""
    (folder / "tasks.json").write_text(json.dumps(TASKS), encoding="utf-8")
    cookie = {"name": "user", "value": "ann", "domain": "127.0.0.1", "path": "/"}
    cookie |= {"expires": -1, "httpOnly": False, "secure": False, "sameSite": "Lax"}
    state = {"cookies": [cookie], "origins": []}
    (folder / "reddit_state.json").write_text(json.dumps(state), encoding="utf-8")
    return {
        "tasks_file": str(folder / "tasks.json"),
        "auth_folder": str(folder),
        "sites": dict.fromkeys(("REDDIT", "SHOPPING", "GITLAB"), address),
        "shop_admin": ["admin", "secret"],
        "viewport": [800, 600],
        "pause_seconds": 0.2,
    }


def _task(
    number: int,
    intent: str,
    evaluation: Mapping[str, object],
    *,
    start: str = "__REDDIT__",
    site: str = "reddit",
    login: bool = False,
) -> dict[str, object]:
    """A task with all the keys that the authors' file has."""
    return {
        "sites": [site],
        "task_id": number,
        "require_login": login,
        "storage_state": "./.auth/reddit_state.json" if login else None,
        "start_url": start,
        "geolocation": None,
        "intent_template": f"{intent} {{{{which}}}}",
        "instantiation_dict": {"which": str(number)},
        "intent": intent,
        "require_reset": False,
        "eval": {
            "reference_answers": None,
            "reference_url": "",
            "program_html": [],
            **evaluation,
        },
        "intent_template_id": number,
    }


def _answered(references: Mapping[str, object]) -> dict[str, object]:
    return {
        "eval_types": ["string_match"],
        "reference_answers": references,
        "string_note": "posts have no prices",
    }


def _held(url: str, locator: str, contents: Mapping[str, object]) -> dict[str, object]:
    target = {"url": url, "locator": locator, "required_contents": contents}
    return {"eval_types": ["program_html"], "program_html": [target]}


INNER = "document.querySelector('.submission__inner').outerText"
TASKS = [
    _task(0, "How many posts?", _answered({"must_include": ["42", "2020"]})),
    _task(1, "Name the first book", _answered({"exact_match": "A first book"})),
    _task(2, "What is it about?", _answered({"fuzzy_match": ["ink"]})),
    _task(3, "What does it cost?", _answered({"fuzzy_match": "N/A"})),
    _task(
        4,
        "Open the books",
        {"eval_types": ["url_match"], "reference_url": "__REDDIT__/f/books |OR| __REDDIT__/books"},
    ),
    _task(
        5,
        "Search ink",
        {"eval_types": ["url_match"], "reference_url": "__REDDIT__/search?q=ink"},
    ),
    _task(
        6,
        "Post Hello",
        _held(
            "func:reddit_get_post_url('__last_url__')", INNER, {"must_include": ["x |OR| hello"]}
        ),
        login=True,
    ),
    _task(
        7,
        "Buy a lamp",
        _held(
            "func:shopping_get_latest_order_url()",
            "document.querySelector('.order-details-items.ordered').outerText",
            {"must_include": ["lamp"]},
        ),
        site="shopping",
        start="__SHOPPING__",
    ),
    _task(
        8,
        "Review it",
        _held(
            "last",
            "func:shopping_get_sku_latest_review_author('A 1')",
            {"exact_match": "ann"},
        ),
        site="shopping",
        start="__SHOPPING__",
    ),
    _task(
        9,
        "Invite ann",
        _held(
            "__GITLAB__/members",
            "func:gitlab_get_project_memeber_role(__page__, 'ann')",
            {"must_include": ["Guest"]},
        ),
        site="gitlab",
        start="__GITLAB__ |AND| __GITLAB__/members",
    ),
    _task(10, "Look down", _answered({"exact_match": "x"}), start="__REDDIT__/tall"),
    _task(11, "Mind the traps", _answered({"exact_match": "x"}), start="__REDDIT__/traps"),
    _task(12, "Elsewhere", _answered({"exact_match": "x"}), site="map", start="__MAP__"),
]
