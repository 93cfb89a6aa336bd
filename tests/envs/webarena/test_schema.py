"""Files of tasks: what is read, what is refused, and that nothing of them is executed."""

import json
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_envs.webarena.schema import HelperCall, helper_call, load_tasks
from longhaul_envs.webarena.tasks import source

TASK = {
    "sites": ["shopping"],
    "task_id": 7,
    "require_login": True,
    "storage_state": "./.auth/shopping_state.json",
    "start_url": "__SHOPPING__/a",
    "geolocation": None,
    "intent_template": "Buy {{thing}}",
    "instantiation_dict": {"thing": "a lamp"},
    "intent": "Buy a lamp",
    "require_reset": False,
    "eval": {
        "eval_types": ["program_html"],
        "reference_answers": None,
        "reference_url": None,
        "program_html": [
            {
                "url": "__SHOPPING__/cart",
                "locator": "",
                "required_contents": {"must_include": ["lamp"]},
            }
        ],
    },
    "intent_template_id": 3,
}


def written(folder: Path, *tasks: object) -> Path:
    path = folder / "tasks.json"
    path.write_text(json.dumps(tasks), encoding="utf-8")
    return path


def with_target(**changes: object) -> dict[str, object]:
    target = {"url": "last", "locator": "", "required_contents": {"must_include": ["x"]}}
    return {**TASK, "eval": {"eval_types": ["program_html"], "program_html": [target | changes]}}


def test_addresses_of_sites_are_put_in(tmp_path: Path) -> None:
    file = load_tasks(written(tmp_path, TASK), {"SHOPPING": 'http://a.test/"x/'})
    read = file.tasks["7"]
    assert read.start_urls == ['http://a.test/"x/a']
    assert read.evaluation.program_html[0].url == 'http://a.test/"x/cart'


def test_the_hash_is_that_of_the_file_whatever_the_addresses(tmp_path: Path) -> None:
    path = written(tmp_path, TASK)
    hashes = {load_tasks(path, {"SHOPPING": f"http://{host}.test"}).data_hash for host in "ab"}
    assert len(hashes) == 1
    other = load_tasks(written(tmp_path, {**TASK, "intent": "x"}), {"SHOPPING": "http://a.test"})
    assert other.data_hash not in hashes


@pytest.mark.parametrize(
    ("call", "gives_url", "found"),
    [
        (
            "func:reddit_get_post_url('__last_url__')",
            True,
            HelperCall("reddit_get_post_url", "__last_url__"),
        ),
        (
            "func:shopping_get_latest_order_url()",
            True,
            HelperCall("shopping_get_latest_order_url", None),
        ),
        (
            "func:gitlab_get_project_memeber_role(__page__, 'ann')",
            False,
            HelperCall("gitlab_get_project_memeber_role", "ann"),
        ),
    ],
)
def test_a_helper_is_read_as_a_name_and_its_argument(
    call: str, gives_url: bool, found: HelperCall
) -> None:
    assert helper_call(call, gives_url=gives_url) == found


@pytest.mark.parametrize(
    "target",
    [
        {"url": "func:__import__('os').system('touch executed')"},
        {"url": "func:open('executed', 'w')"},
        {"url": "func:shopping_get_latest_order_url(open('executed', 'w'))"},
        {"url": "func:reddit_get_post_url(__last_url__)"},
        {"url": "func:reddit_get_post_url('a', 'b')"},
        {"url": "func:'a' + 'b'"},
        {"url": "func:" + "(" * 5_000},
        {"locator": "func:shopping_get_latest_order_url()"},
        {"locator": "lambda: open('executed', 'w')"},
        {"locator": "window.x"},
        {"required_contents": {}},
        {"required_contents": {"must_include": "x"}},
        {"required_contents": {"exact_match": ["x"]}},
        {"required_contents": {"looks_like": ["x"]}},
    ],
)
def test_what_a_task_may_not_ask_for_is_refused_before_it_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: dict[str, object]
) -> None:
    path = written(tmp_path, with_target(**target))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is no file of WebArena tasks"):
        load_tasks(path, {"SHOPPING": "http://a.test"})
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"eval": {"eval_types": ["vibes"]}},
        {"eval": {"eval_types": []}},
        {"eval": {"eval_types": ["url_match"], "url_note": "EXACT"}},
        {"task_id": "seven"},
        {"sites": "shopping"},
    ],
)
def test_a_task_of_another_form_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="is no file of WebArena tasks"):
        load_tasks(written(tmp_path, {**TASK, **change}), {"SHOPPING": "http://a.test"})


def test_a_file_that_is_missing_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no WebArena tasks in"):
        load_tasks(tmp_path / "missing.json", {"SHOPPING": "http://a.test"})
    (tmp_path / "tasks.json").write_text("[{", encoding="utf-8")
    with pytest.raises(ConfigError, match="no WebArena tasks in"):
        load_tasks(tmp_path / "tasks.json", {"SHOPPING": "http://a.test"})


def test_sites_that_are_not_hosted_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\(REDDIT\); its tasks need SHOPPING"):
        load_tasks(written(tmp_path, TASK), {"REDDIT": "http://a.test"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"WebArena is played on sites that you host: .*environment_docker.*REDDIT"),
        ({"flavour": "salt"}, "no option 'flavour'"),
        ({"sites": {"FORUM": "http://a.test"}}, "no site is called 'FORUM'"),
        ({"sites": {"REDDIT": "file:///a"}}, "must begin with http"),
        ({"reachable": ["10.0.0.1"]}, "must begin with http"),
        ({"viewport": [10, 10]}, r"from 100 to 4000, got \[10, 10\]"),
        ({"viewport": [800]}, r"from 100 to 4000, got \[800\]"),
        ({"shop_admin": ["a"]}, "a name and a password"),
        ({"pause_seconds": -1}, "pause_seconds must lie in"),
        ({"page_seconds": 0}, "page_seconds must lie in"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(
    options: dict[str, object], message: str
) -> None:
    given = {"tasks_file": "x.json", "sites": {"REDDIT": "http://a.test"}} if options else {}
    with pytest.raises(ConfigError, match=message):
        source({**given, **options})
