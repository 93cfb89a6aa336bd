"""The contract's audit of rewards finds a WebShop that pays for options that nobody asked for."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.types import Split
from longhaul_envs.contract.rewards import AuditedPart, audited_parts
from longhaul_envs.contract.subject import Subject
from longhaul_envs.sources import environment_source
from longhaul_envs.webshop import environment
from longhaul_envs.webshop.catalogue import Goal, Product
from longhaul_envs.webshop.nouns import NounFinder
from longhaul_envs.webshop.reward import Score, mentions, score


def audited() -> list[AuditedPart]:
    source = environment_source(GymEnvironmentSpec(environment_id="longhaul/WebShop-v0"))
    assert isinstance(source, GymSource)
    listed = {split: source.tasks(split)[:4] for split in Split}
    return audited_parts(
        Subject(
            spec=source.spec,
            description=source.describe(),
            is_gym=True,
            tasks=listed,
            starts=[],
            sample=[task for tasks in listed.values() for task in tasks],
            horizon=30,
        )
    )


def test_every_kind_of_part_is_mistaken_and_pays_less() -> None:
    parts = audited()
    assert {part.name.split()[0] for part in parts if part.num_mistaken} == {"product", "option"}
    assert [part.paid for part in parts if part.paid] == []


def test_a_formula_that_pays_for_options_which_a_listing_mentions_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The formula of this environment until it was compared with the authors'."""

    def old_score(
        bought: Product,
        options: Mapping[str, str],
        *,
        goal: Goal,
        wanted: Product,
        nouns: NounFinder,
        option_names: None,
    ) -> Score:
        del option_names
        named = tuple(value for value in options.values() if mentions(bought, value))
        asked = replace(goal, options=named)
        return score(bought, options, goal=asked, wanted=wanted, nouns=nouns)

    monkeypatch.setattr(environment, "score", old_score)
    found = [what for part in audited() for what in part.paid]

    assert any("which has another 'option color', and 1 for" in what for what in found)
