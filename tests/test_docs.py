"""The documentation is held to the program: fields, commands, exit codes, words, links."""

import re
import tomllib
from functools import cache
from pathlib import Path

import typer.main

from longhaul_core import errors
from longhaul_core.discovery import installed_environments
from longhaul_trainer.cli.exit_codes import EXIT_CODE_HELP, ExitCode
from longhaul_trainer.cli.main import app
from longhaul_trainer.config import parse_config
from longhaul_trainer.config.fields import config_fields
from longhaul_trainer.config.reference import PART, reference_markdown

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "guides"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/**/*.md")])
TOML_BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#:\s]*#[^)\s]+)\)")
PATH = re.compile(r"`((?:packages|apps|tests|docs|configs|examples|benchmarks)/[\w./-]*)`")


def pages_with(pattern: re.Pattern[str]) -> list[tuple[Path, str]]:
    """Every match of `pattern` in the documentation, and where it stands."""
    return [(page, found) for page in PAGES for found in pattern.findall(page.read_text("utf-8"))]


def commands() -> set[str]:
    """Everything that can be typed after `trainer`, e.g. `runs cancel`."""
    root = typer.main.get_command(app)
    found: set[str] = set()
    for name, command in getattr(root, "commands", {}).items():
        found.add(name)
        found |= {f"{name} {inner}" for inner in getattr(command, "commands", {})}
    return found


def test_the_configuration_guide_has_every_field_as_it_is() -> None:
    tables = PART.read(GUIDES / "configuration.md")

    assert tables == reference_markdown(), (
        "write it anew: python -m longhaul_trainer.config.reference docs/guides/configuration.md"
    )
    assert [name for name in config_fields() if f"| `{name}` |" not in tables] == []


def test_every_run_that_a_page_shows_can_be_trained() -> None:
    runs = [
        (page, block)
        for page, block in pages_with(TOML_BLOCK)
        if "num_training_steps" in tomllib.loads(block)
    ]

    for page, block in runs:
        parse_config(block, source=str(page))
    assert len({page for page, _ in runs}) > 3


def test_every_command_is_in_the_guide_and_every_command_of_the_guide_is_there() -> None:
    guide = (GUIDES / "command_line.md").read_text("utf-8")
    rows = re.findall(r"^\| `trainer ([a-z-]+(?: [a-z][a-z-]*)?)", guide, re.MULTILINE)

    assert set(rows) == commands()


def test_exit_codes_are_told_the_same_in_code_help_and_guide() -> None:
    guide = (GUIDES / "command_line.md").read_text("utf-8")
    in_guide = {int(code) for code in re.findall(r"^\| (\d+) \|", guide, re.MULTILINE)}
    in_help = {int(code) for code in re.findall(r"\b(\d+) ", EXIT_CODE_HELP)}

    assert in_guide == in_help == {code.value for code in ExitCode}


def test_every_packaged_environment_has_its_place_in_the_guide() -> None:
    guide = (GUIDES / "environments.md").read_text("utf-8")

    assert [name for name in installed_environments() if name not in guide] == []


def test_the_tree_of_errors_is_drawn_whole() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.LonghaulError)
    }

    assert len(classes) > 5
    assert [name for name in classes if name not in (errors.__doc__ or "")] == []


def test_every_link_leads_to_a_file() -> None:
    links = pages_with(LINK)

    assert len(links) > 100
    assert [
        f"{page.relative_to(ROOT)}: {target}"
        for page, target in links
        if not (page.parent / target).exists()
    ] == []


def test_the_index_of_decisions_has_each_record_once_under_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    records = sorted(set(folder.glob("0*.md")) - {folder / "0000-template.md"})
    headings = [record.read_text("utf-8").partition("\n")[0] for record in records]
    rows = re.findall(
        r"^\| \[(\d{4})\]\((\S+)\) \| (.+?) \|",
        (folder / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )

    assert len(records) > 20
    assert [(f"# {number}. {title}", name) for number, name, title in rows] == [
        (heading, record.name) for heading, record in zip(headings, records, strict=True)
    ]


@cache
def anchors_of(page: Path) -> set[str]:
    """What a link may name behind `#`: each heading, as GitHub writes it."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = [
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    ]
    return {re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in headings}


def leads_to_a_heading(page: Path, target: str) -> bool:
    """Whether what `page` links to has the heading that stands behind `#`."""
    file, _, anchor = target.partition("#")
    linked = page.parent / file if file else page
    return linked.exists() and anchor in anchors_of(linked)


def test_every_anchor_is_a_heading_of_its_page() -> None:
    anchors = pages_with(ANCHOR)

    assert len(anchors) > 20
    assert [
        f"{page.relative_to(ROOT)}: {target}"
        for page, target in anchors
        if not leads_to_a_heading(page, target)
    ] == []


def test_every_path_that_a_page_names_exists() -> None:
    named = pages_with(PATH)

    assert len(named) > 100
    assert [
        f"{page.relative_to(ROOT)}: {path}" for page, path in named if not (ROOT / path).exists()
    ] == []


def test_the_glossary_is_in_order_so_that_a_word_can_be_found() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    terms = re.findall(r"^\| ([^|]+?) \|", glossary, re.MULTILINE)[1:]

    words = [term.split(",")[0].removesuffix(" (G)") for term in terms]
    assert len(words) > 40
    assert words == sorted(words, key=str.casefold)
