"""WebShop's own files, read as the authors' loader reads them."""

import json
import os
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.play import expert_policy, play
from longhaul_envs.webshop import files as webshop_files
from longhaul_envs.webshop.catalogue import Review
from longhaul_envs.webshop.environment import WebShop
from longhaul_envs.webshop.files import Files, read_catalogue
from webshop_files import PRODUCTS, write_files


def files_of(folder: Path, *, human: bool = False, num_products: int = 0) -> Files:
    names = write_files(folder)
    return Files(
        products=names["products"],
        attributes=names["attributes"],
        human_goals=str(folder / "items_human_ins.json") if human else "",
        reviews=names["reviews"],
        num_products=num_products,
    )


def test_a_product_is_what_its_pages_and_the_reward_need(tmp_path: Path) -> None:
    (first, _), (second, _), (third, _) = read_catalogue(files_of(tmp_path))

    assert first.query == "headphones"
    assert first.features == ("NOISE CANCELLING for flights", "40 hours")
    assert (first.price, first.price_tag) == (59.99, "$59.99")
    assert first.options == {"color": ("black | red", "ivory")}
    assert first.attributes == ("noise cancelling", "long battery")
    assert first.rating == "4.5"
    assert first.reviews == (Review("Good", "5.0", "They last."), Review("Hm", "2.0", ""))
    assert first.searched == (
        "alder wireless headphones with case headphones for long days. noise cancelling for "
        "flights color: black | red, ivory"
    )
    assert second.price_tag == "$10.0 to $1020.5"
    assert 10 <= second.price <= 1020.5
    assert second.features == ("One feature",)
    assert (third.price, third.price_tag, third.options) == (100.0, "$100.0", {})


def test_synthetic_goals_are_every_combination_of_options(tmp_path: Path) -> None:
    (_, goals), (_, none), (_, [plain]) = read_catalogue(files_of(tmp_path))

    assert [goal.options for goal in goals] == [("black | red",), ("ivory",)]
    limit = goals[0].price_limit
    assert limit in (70.0, 80.0, 90.0) or limit == 100.0
    assert goals[1].instruction == (
        "Find me wireless headphones that are noise cancelling with color: ivory, and price lower "
        f"than {limit:.2f} dollars"
    )
    assert none == []
    assert plain.instruction.startswith("Find me mint tea, caffeine free, and price lower than 1")


def test_human_goals_are_what_people_wrote_if_they_name_an_attribute(tmp_path: Path) -> None:
    (_, goals), *others = read_catalogue(files_of(tmp_path, human=True))

    assert [goal.id for goal in goals] == ["B000000001/0"]
    assert goals[0].instruction.startswith("i want headphones for my flight, and price lower than")
    assert goals[0].options == ("ivory",)
    assert [goals for _, goals in others] == [[], []]


def test_an_array_is_read_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(read_catalogue(files_of(tmp_path)))
    for size in (1, 7, 100):
        monkeypatch.setattr(webshop_files, "_CHUNK", size)
        assert list(read_catalogue(files_of(tmp_path))) == whole


def test_the_first_products_of_the_file_may_be_enough_and_doubles_are_left_out(
    tmp_path: Path,
) -> None:
    files = files_of(tmp_path, num_products=2)
    assert [product.asin for product, _ in read_catalogue(files)] == ["B000000001", "B000000002"]
    Path(files.products).write_text(json.dumps([*PRODUCTS[:1], *PRODUCTS[:1]]), encoding="utf-8")
    assert len(list(read_catalogue(files))) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"asin": "B"}', "must hold a JSON array of objects"),
        ("[1, 2]", "must hold a JSON array of objects"),
        ('[{"asin": "B000000001"', "items_shuffle_1000.json"),
        ('[{"asin": "B000000001"}]', "product 'B000000001' is not as WebShop has it: KeyError"),
    ],
)
def test_a_file_that_is_something_else_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    files = files_of(tmp_path)
    Path(files.products).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        list(read_catalogue(files))


def test_a_missing_file_is_named_with_where_it_comes_from(tmp_path: Path) -> None:
    missing = str(tmp_path / "items_shuffle.json")
    with pytest.raises(ConfigError, match=r"setup\.sh"):
        WebShop(products=missing, attributes=missing).tasks(Split.TRAIN)


def test_a_shop_of_the_files_is_played_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_DATA", str(tmp_path / "data"))
    shop = WebShop(**write_files(tmp_path, num_fillers=20))
    tasks = [task for split in Split for task in shop.tasks(split)]

    assert len(tasks) == 2 + 1 + 2 * 20
    assert all(play(shop, task, expert_policy, horizon=10).success for task in tasks)
    shop.close()


@pytest.mark.skipif(
    not os.environ.get("LONGHAUL_TEST_DATA"),
    reason="LONGHAUL_TEST_DATA/webshop has WebShop's files where a user fetched them",
)
@pytest.mark.parametrize("goals", ["", "items_human_ins.json"])
def test_the_real_files_are_read_and_their_goals_can_be_bought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goals: str
) -> None:
    folder = Path(os.environ["LONGHAUL_TEST_DATA"]) / "webshop"
    monkeypatch.setenv("LONGHAUL_DATA", str(tmp_path))
    shop = WebShop(
        products=str(folder / "items_shuffle_1000.json"),
        attributes=str(folder / "items_ins_v2_1000.json"),
        human_goals=str(folder / goals) if goals else "",
    )
    episodes = [play(shop, task, expert_policy, horizon=15) for task in shop.tasks(Split.TEST)[:50]]
    shop.close()

    assert sum(episode.success for episode in episodes) >= 45
