"""The page about credit and truth has what its program prints."""

from pathlib import Path

import credit_truth

from longhaul_core.advantages.estimators import ESTIMATORS

PAGE = Path(__file__).parents[2] / "docs" / "credit_truth.md"


def test_the_page_judges_every_estimator_by_every_policy() -> None:
    written = PAGE.read_text("utf-8").partition(credit_truth.BEGIN)[2]
    tables = written.partition(credit_truth.END)[0]
    played = [world.name for world in credit_truth.WORLDS if f"### {world.name}\n" in tables]
    num_tables = len(played) * len(credit_truth.STRENGTHS)

    assert played

    header = f"| estimator | {' | '.join(credit_truth.COLUMNS)} |"
    assert tables.count(header) == num_tables
    for name, estimator in ESTIMATORS.items():
        row = f"| {name}, exact critic |" if estimator.needs_critic else f"| {name} |"
        assert tables.count(row) == num_tables, name
    for control in ("shuffled truth", "planted right", "planted wrong"):
        assert tables.count(f"| *{control}* |") == num_tables, control
    assert tables.count("**Sampled against exact**") == len(played)
