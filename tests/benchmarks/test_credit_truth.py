"""The page about credit and truth has what its program writes, and the program writes it."""

from pathlib import Path

import credit_truth
import pytest

from longhaul_core.advantages.estimators import ESTIMATORS
from longhaul_core.truth.tables import COLUMNS

PAGE = Path(__file__).parents[2] / "docs" / "credit_truth.md"
CONTROLS = ("planted right", "planted wrong", "shuffled truth")


def require_all_tables(tables: str) -> None:
    """Every estimator and control by every policy in every environment."""
    num_environments = len(credit_truth.ENVIRONMENTS)
    num_tables = num_environments * len(credit_truth.STRENGTHS)
    for environment in credit_truth.ENVIRONMENTS:
        assert tables.count(f"### {environment.name}\n") == 1
    assert tables.count(f"| estimator | {' | '.join(COLUMNS)} |") == num_tables
    for name, estimator in ESTIMATORS.items():
        row = f"| {name}, exact critic |" if estimator.needs_critic else f"| {name} |"
        assert tables.count(row) == num_tables, name
    for control in CONTROLS:
        assert tables.count(f"| *{control}* |") == num_tables, control
    assert tables.count("**Sampled against exact**") == num_environments


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["credit_truth.py", *arguments])
    credit_truth.main()


def test_the_page_judges_every_estimator_by_every_policy() -> None:
    require_all_tables(credit_truth.PART.read(PAGE))


def test_the_command_of_the_page_writes_its_tables_between_the_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- tables: begin -->\nold\n<!-- tables: end -->\n", "utf-8")

    run(monkeypatch, str(page), "--groups", "2", "--shuffles", "3", "--pairs", "8")

    require_all_tables(credit_truth.PART.read(page))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--groups", "1"], "--groups must be at least 2, got 1"),
        (["--shuffles", "0"], "--shuffles must be at least 1, got 0"),
        (["--pairs", "0"], "--pairs must be at least 1, got 0"),
        ([str(PAGE.with_name("glossary.md"))], "must have a line"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_played(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(credit_truth, "ENVIRONMENTS", [])

    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments)

    assert message in capsys.readouterr().err
