"""WebShop as an environment: its pages and links, its splits, and what sessions share."""

import os
from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.play import Episode, act, expert_policy, play, start
from longhaul_envs.webshop import tasks as task_list
from longhaul_envs.webshop.environment import WebShop
from longhaul_envs.webshop.shop import Shop
from longhaul_envs.webshop.tasks import WebShopOptions, open_shop
from webshop_files import write_files


@pytest.fixture(scope="module")
def shop() -> Shop:
    return open_shop(WebShopOptions())


def walked(environment: WebShop, *actions: str) -> tuple[str, dict[str, Any]]:
    """What the last of `actions` shows; each must be accepted."""
    text, info = "", {}
    for action in actions:
        text, _, _, _, info = environment.step(action)
        assert info["action_accepted"], action
    return text, info


def begun(**options: Any) -> WebShop:  # noqa: ANN401
    environment = WebShop(**options)
    start(environment, environment.tasks(Split.TEST)[0])
    return environment


def clickable(info: dict[str, Any]) -> list[str]:
    return [action.removeprefix("click[")[:-1] for action in info["admissible_actions"]]


def test_pages_of_results_have_ten_products_and_lead_both_ways() -> None:
    environment = begun()
    _, info = walked(environment, "search[lamp]")
    first = clickable(info)
    assert first[:2] == ["back to search", "next >"]
    assert len(first) == 2 + 10
    _, info = walked(environment, "click[next >]")
    second = clickable(info)
    assert second[:3] == ["back to search", "< prev", "next >"]
    assert not set(first[2:]) & set(second[3:])
    _, info = walked(environment, *["click[next >]"] * 3)
    assert clickable(info)[:2] == ["back to search", "< prev"]
    assert "next >" not in clickable(info)
    _, info = walked(environment, *["click[< prev]"] * 4)
    assert clickable(info) == first


def test_an_item_page_has_its_sub_pages_options_and_the_way_back() -> None:
    environment = begun(show_attributes=True)
    results, info = walked(environment, "search[brush set]")
    asin = clickable(info)[2]
    _, info = walked(environment, f"click[{asin.upper()}]")
    product = open_shop(environment.options).product(asin.upper())
    values = [value for values in product.options.values() for value in values]
    buttons = ["back to search", "< prev", "description", "features", "reviews", "attributes"]
    assert clickable(info) == [*buttons, "buy now", *values]

    for page, shown in (
        ("description", [product.description]),
        ("features", list(product.features)),
        ("attributes", list(product.attributes)),
        ("reviews", [review.body for review in product.reviews] or ["No reviews found"]),
    ):
        text, info = walked(environment, f"click[{page}]")
        assert all(line in text for line in shown)
        assert clickable(info) == ["back to search", "< prev"]
        walked(environment, "click[< prev]")
    text, _ = walked(environment, "click[< prev]")
    assert text == results


def test_options_stay_chosen_until_the_item_is_left() -> None:
    environment = begun()
    _, info = walked(environment, "search[brush set]")
    asin = clickable(info)[2]
    _, info = walked(environment, f"click[{asin}]")
    name, values = next(iter(open_shop(environment.options).product(asin.upper()).options.items()))
    text, _ = walked(environment, f"click[{values[0]}]", "click[reviews]", "click[< prev]")
    assert f"{name} (chosen: {values[0]})" in text
    text, _ = walked(environment, f"click[{values[-1]}]")
    assert f"{name} (chosen: {values[-1]})" in text
    text, again = walked(environment, "click[< prev]", f"click[{asin}]")
    assert f"{name} (chosen: none)" in text
    assert again["anchor_state"] == info["anchor_state"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_files(tmp_path_factory.mktemp("files"), num_fillers=20)


def test_the_sep_form_is_the_authors_simple_text(tiny: dict[str, Any]) -> None:
    environment = WebShop(**tiny, observation="sep", show_attributes=True)
    text, info = environment.reset(options={"task_id": "B000000001/1"})
    instruction = open_shop(environment.options).goal("B000000001/1").instruction
    assert text == f"WebShop [SEP] Instruction: [SEP] {instruction} [SEP] Search"
    assert "admissible_actions" not in info

    same, _, _, _, info = environment.step("click[search]")  # listed there, and does nothing
    assert (same, info["action_accepted"]) == (text, True)
    head = f"Instruction: [SEP] {instruction} [SEP] Back to Search [SEP] "
    text, _ = walked(environment, "search[alder case]")
    assert environment.step("click[search]")[4]["action_accepted"] is False
    assert text == (
        f"{head}Page 1 (Total results: 1) [SEP] B000000001 [SEP] "
        "Alder Wireless Headphones with Case [SEP] $59.99"
    )
    text, _ = walked(environment, "click[b000000001]")
    item = (
        f"{head}< Prev [SEP] color [SEP] black | red [SEP] ivory [SEP] "
        "Alder Wireless Headphones with Case [SEP] Price: $59.99 [SEP] Rating: 4.5 [SEP] "
        "Description [SEP] Features [SEP] Reviews [SEP] Attributes [SEP] Buy Now"
    )
    assert text == item
    text, _ = walked(environment, "click[reviews]")
    assert text == f'{head}< Prev [SEP] "Good" [SEP] 5.0 [SEP] They last. [SEP] "Hm" [SEP] 2.0'
    text, _ = walked(environment, "click[< prev]", "click[attributes]")
    assert text == (
        f"{head}< Prev [SEP] noise cancelling [SEP] long battery [SEP] electronics [SEP] "
        "headphones [SEP] Electronics \u203a Headphones \u203a Over-Ear"
    )
    text, _ = walked(environment, "click[< prev]", "click[ivory]")
    assert text == item  # which option is chosen cannot be seen in it
    text, reward, terminated, _, info = environment.step("click[Buy Now]")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert info["score"].options == 1.0


def test_what_a_sep_page_does_not_have_is_no_part_of_it(tiny: dict[str, Any]) -> None:
    environment = WebShop(**tiny, observation="sep")
    environment.reset(options={"task_id": "B000000003/0"})
    walked(environment, "search[another]", "click[b000000003]")
    for page in ("reviews", "features"):
        text, _ = walked(environment, f"click[{page}]")
        assert text.endswith("[SEP] Back to Search [SEP] < Prev")
        walked(environment, "click[< prev]")


@pytest.mark.parametrize(("asked", "paid"), [("values", 1.0), ("pairs", 2 / 3)])
def test_by_the_authors_text_of_a_pair_the_right_option_may_not_be_found(
    tmp_path: Path, asked: str, paid: float
) -> None:
    """What is chosen stands for `black`, and `('color', 'blackish')` has no such word."""
    files = write_files(tmp_path, num_fillers=20)
    products = Path(files["products"])
    products.write_text(products.read_text("utf-8").replace("Black/Red", "Blackish"), "utf-8")
    environment = WebShop(**files, asked=asked)
    environment.reset(options={"task_id": "B000000001/0"})
    walked(environment, "search[alder case]", "click[b000000001]", "click[blackish]")
    assert environment.step("click[buy now]")[1] == pytest.approx(paid)


def test_the_wrong_option_costs_a_part_of_the_reward(tiny: dict[str, Any]) -> None:
    """One attribute, one option and the price: two of three."""
    for reward_form, paid in (("score", 2 / 3), ("success", 0.0)):
        environment = WebShop(**tiny, reward=reward_form)
        environment.reset(options={"task_id": "B000000001/1"})
        walked(environment, "search[alder case]", "click[b000000001]", "click[black | red]")
        _, reward, terminated, _, info = environment.step("click[buy now]")
        assert reward == pytest.approx(paid)
        assert terminated
        assert not info["success"]


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("", "Not understood"),
        ("search", "Not understood"),
        ("search lamp]", "Not understood"),
        ("buy[lamp]", "Not understood"),
        ("search[]", "1 to 1,000 characters, got 0"),
        ("search[" + "a " * 600 + "]", "1 to 1,000 characters, got 1,199"),
        ("click[buy now]", "nothing of that text to click"),
        ("click[search]", "nothing of that text to click"),
    ],
)
def test_what_cannot_be_done_changes_nothing_and_is_explained(action: str, said: str) -> None:
    environment = begun()
    before, first = environment.reset(options={"task_id": environment.tasks(Split.TEST)[0].task_id})
    text, reward, terminated, _, info = environment.step(action)

    assert said in text
    assert text.startswith(before)
    assert (reward, terminated, info["action_accepted"]) == (0.0, False, False)
    assert info["anchor_state"] == first["anchor_state"]


def test_a_search_is_for_the_search_page_alone() -> None:
    environment = begun()
    walked(environment, "search[lamp]")
    text, _, _, _, info = environment.step("search[tea]")
    assert not info["action_accepted"]
    assert "click[back to search] first" in text


def test_two_queries_with_the_same_results_are_one_state() -> None:
    anchors: list[str] = []
    for query in ("lamp", "  LAMP the "):
        environment = begun()
        anchors.append(walked(environment, f"search[{query}]")[1]["anchor_state"])
    assert anchors[0] == anchors[1]
    assert walked(begun(), "search[tea]")[1]["anchor_state"] != anchors[0]


def test_after_the_purchase_a_step_is_refused() -> None:
    environment = begun()
    play(environment, environment.tasks(Split.TEST)[0], expert_policy, horizon=20)
    with pytest.raises(ResetNeeded):
        environment.step("click[back to search]")


@pytest.mark.parametrize("options", [{}, {"search_proposals": 4}])
def test_the_expert_buys_every_goal_of_the_test_split_for_reward_1(options: dict[str, Any]) -> None:
    environment = WebShop(**options)
    tasks = environment.tasks(Split.TEST)
    episodes = {task: play(environment, task, expert_policy, horizon=20) for task in tasks}

    assert len(tasks) >= 200
    assert [task.task_id for task, episode in episodes.items() if not solved(episode)] == []


def solved(episode: Episode) -> bool:
    return episode.success and episode.episode_return == 1.0


def test_proposed_queries_are_the_search_pages_only_listed_actions() -> None:
    environment = WebShop(search_proposals=3)
    first = start(environment, environment.tasks(Split.TEST)[0])
    assert first.admissible_actions is not None
    assert len(first.admissible_actions) == 3
    assert all(action.startswith("search[") for action in first.admissible_actions)
    assert act(environment, "search[anything else]").action_accepted


def test_no_two_splits_share_a_product_title_or_an_instruction(shop: Shop) -> None:
    titles: dict[str, Split] = {}
    instructions: dict[str, Split] = {}
    for split in Split:
        for goal in shop.goals(split, authors=False):
            assert titles.setdefault(shop.product(goal.asin).name.lower(), split) is split
            assert instructions.setdefault(goal.instruction, split) is split


def test_the_authors_split_is_by_place_in_their_shuffled_list(shop: Shop) -> None:
    options = WebShopOptions(split="authors")
    listed = {split: task_list.tasks(split, options) for split in Split}

    assert [len(listed[split]) for split in (Split.TEST, Split.VALIDATION, Split.TRAIN)] == [
        500,
        1000,
        500,
    ]
    ids = {task.task_id for tasks in listed.values() for task in tasks}
    assert len(ids) == 2000
    shared_titles = {goal.asin for goal in shop.goals(Split.TEST, authors=True)} & {
        goal.asin for goal in shop.goals(Split.TRAIN, authors=True)
    }
    assert shared_titles  # why it is not the default


def test_goals_of_two_products_of_one_title_are_in_one_split(tiny: dict[str, Any]) -> None:
    shop = open_shop(WebShopOptions(**tiny))
    of_title: dict[str, set[Split]] = {}
    for split in Split:
        for goal in shop.goals(split, authors=False):
            of_title.setdefault(shop.product(goal.asin).name, set()).add(split)
    assert len(of_title) == 22
    assert all(len(splits) == 1 for splits in of_title.values())


def test_a_seed_gives_one_catalogue_and_another_seed_another() -> None:
    hashes = [
        open_shop(WebShopOptions(num_products=20, catalogue_seed=seed)).data_hash for seed in (0, 1)
    ]
    assert hashes[0] != hashes[1]
    # on every machine; a change of it is a change of GENERATED_VERSION
    assert hashes[0] == "c89511001f04430fed2abb956c4cf4da"


def num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_sessions_of_a_process_share_one_shop_and_the_last_one_closes_it() -> None:
    options: dict[str, Any] = {"num_products": 40}
    WebShop(**options).tasks(Split.TEST)  # made, and closed again
    before = num_open_files()
    sessions = [WebShop(**options) for _ in range(8)]
    for session in sessions:
        session.reset(seed=0)
    held = num_open_files()
    sessions[0].close()
    assert num_open_files() == held
    for session in sessions:
        session.close()

    assert held > before
    assert held - before < 8
    assert num_open_files() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"products": "x.json"}, "products and attributes are given together"),
        ({"human_goals": "x.json"}, "human_goals and reviews are of the file"),
        ({"num_products": 3}, "num_products must be 0, or at least 20, got 3"),
        ({"split": "random"}, "split must be content or authors, got 'random'"),
        ({"observation": "html"}, "observation must be plain or sep, got 'html'"),
        ({"reward": 1}, "reward must be text, got 1"),
        ({"asked": "pairs"}, "of synthetic goals: name products"),
        ({"search_proposals": 9}, "search_proposals must be from 0 to 8, got 9"),
        ({"nouns": "spacy:en_no_such_model"}, "spacy"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WebShop(**options)
