"""The direction of imports, held by a test.

uv puts every member into one environment, so Python will happily import what a package
never declared. This is the check that does not. The rules read as ARCHITECTURE.md's.
"""

import ast
import itertools
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_IMPORT: dict[str, frozenset[str]] = {
    "longhaul": frozenset(),
    "longhaul_core": frozenset(),
    "longhaul_envs": frozenset({"longhaul_core"}),
    "longhaul_trainer": frozenset({"longhaul_core", "longhaul_envs"}),
    "longhaul_viewer": frozenset({"longhaul_core", "longhaul_api", "longhaul_envs"}),
    "longhaul_api": frozenset({"longhaul_core"}),
}
"""Workspace packages that each package may import, besides itself."""

FENCED: dict[str, tuple[str, ...]] = {
    "verl": ("longhaul_trainer/verl/",),
    "vllm": ("longhaul_trainer/verl/",),
    "ray": ("longhaul_trainer/verl/", "longhaul_envs/server/ray_workers.py"),
    "transfer_queue": ("longhaul_trainer/verl/",),
    "torch": ("longhaul_trainer/",),
    "transformers": ("longhaul_trainer/",),
    "streamlit": ("longhaul_viewer/",),
    "plotly": ("longhaul_viewer/",),
    "fastapi": ("longhaul_api/", "longhaul_envs/server/"),
    "renderers": ("longhaul_trainer/rendering/",),
}
"""Third-party modules, and the only folders that may import them."""

ZSTD = frozenset({"backports", "compression"})
"""zstd: a package before Python 3.14, and in the standard library from it on."""
CORE_NEEDS = frozenset({"numpy", "pydantic", "sqlalchemy", "gymnasium"}) | ZSTD
"""All that the core may import from outside the standard library."""
CORE_EXTRAS: dict[str, str] = {
    "psycopg": "longhaul_core/sql_box/child/postgresql.py",
    "pyarrow": "longhaul_core/sql_box/files.py",
    "uvicorn": "longhaul_core/http_server.py",
}
"""What its extras bring, and the one file that may import it."""

LAYERS_OF_CORE: dict[str, frozenset[str]] = {
    "advantages": frozenset({"errors"}),
    "audit": frozenset({"store", "errors"}),
    "described.py": frozenset(),
    "types.py": frozenset({"described"}),
    "text.py": frozenset(),
    "errors.py": frozenset({"text", "types"}),
}
"""Parts of the core that stay apart, and which parts of it they may import: the bottom, and the
audit, which would agree with any mistake in code that it shared."""

FLOORS_OF_TRAINER: tuple[tuple[str, ...], ...] = (
    ("losses", "models"),
    ("config", "rendering"),
    ("gateway", "run"),
    ("play", "training"),
    ("verl",),
    ("preflight",),
    ("cli",),
)
"""The trainer's folders, each of which imports from floors below its own."""

SOURCES = sorted([*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("apps/*/src/**/*.py")])


def inside_source(path: Path) -> Path:
    """A source file's path from its package's name on, e.g. `longhaul_core/types.py`."""
    parts = path.relative_to(ROOT).parts
    return Path(*parts[parts.index("src") + 1 :])


@cache
def parsed(path: Path) -> ast.Module:
    """The file's tree, which several rules read."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_modules(path: Path) -> set[str]:
    """Dotted names imported anywhere in the file, inside functions included."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def top_level(names: set[str]) -> set[str]:
    """First parts of dotted names."""
    return {name.partition(".")[0] for name in names}


def broad_handlers(path: Path) -> list[str]:
    """Functions with an `except` that catches everything, and does not raise it again as it is.

    Cleaning up and raising again (`except BaseException: …; raise`) swallows nothing.
    """
    found: list[str] = []

    def visit(node: ast.AST, function: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ExceptHandler) and _swallows(child):
                found.append(function)
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            visit(child, child.name if is_function else function)

    visit(parsed(path), "<module>")
    return found


def _swallows(handler: ast.ExceptHandler) -> bool:
    last, caught = handler.body[-1], handler.type
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    if caught is None:
        return True
    members = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        isinstance(member, ast.Name) and member.id in {"Exception", "BaseException"}
        for member in members
    )


def misdirected_imports(inside: Path, modules: set[str]) -> set[str]:
    """Which of the `modules` that a source file imports its package or its folder may not."""
    package, imports = inside.parts[0], top_level(modules)
    upward = (imports & MAY_IMPORT.keys()) - MAY_IMPORT[package] - {package}
    fenced = {
        module
        for module in imports & FENCED.keys()
        if not inside.as_posix().startswith(FENCED[module])
    }
    return upward | fenced


def undeclared_by_the_core(inside: Path, modules: set[str]) -> set[str]:
    """Which of the `modules` that a file of the core imports it does not declare."""
    if inside.parts[0] != "longhaul_core":
        return set()
    extras = {name for name, file in CORE_EXTRAS.items() if inside.as_posix() == file}
    known = CORE_NEEDS | extras | sys.stdlib_module_names | {"longhaul_core"}
    return top_level(modules) - known


def across_layers_of_the_core(inside: Path, modules: set[str]) -> set[str]:
    """Which parts of the core a part that stays apart imports although it may not."""
    if inside.parts[0] != "longhaul_core" or inside.parts[1] not in LAYERS_OF_CORE:
        return set()
    part = inside.parts[1]
    inner = {name.split(".")[1] for name in modules if name.startswith("longhaul_core.")}
    return inner - LAYERS_OF_CORE[part] - {part.removesuffix(".py")}


def up_the_floors_of_the_trainer(inside: Path, modules: set[str]) -> set[str]:
    """Which folders of the trainer a file there imports from its own floor or from above it."""
    if inside.parts[0] != "longhaul_trainer" or inside.name == inside.parts[1]:
        return set()
    own = inside.parts[1]
    floor_of = {folder: at for at, floor in enumerate(FLOORS_OF_TRAINER) for folder in floor}
    inner = {name.split(".")[1] for name in modules if name.startswith("longhaul_trainer.")}
    return {
        folder for folder in (inner & floor_of.keys()) - {own} if floor_of[folder] >= floor_of[own]
    }


def test_there_is_source_to_look_at() -> None:
    assert len(SOURCES) > 50


def test_every_package_is_under_the_rules() -> None:
    packages = {inside_source(path).parts[0] for path in SOURCES}

    assert packages == MAY_IMPORT.keys()


def module_name(inside: Path) -> str:
    """The dotted name of a source file."""
    return ".".join(inside.with_suffix("").parts).removesuffix(".__init__")


def imports_between(sources: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Which of the modules each one imports as it is loaded or for its types; none in functions."""
    found: dict[str, set[str]] = {}
    for name, tree in sources.items():
        nodes, imported = deque[ast.AST]([tree]), set[str]()
        while nodes:
            node = nodes.popleft()
            if isinstance(node, ast.ImportFrom) and node.module:
                each = {f"{node.module}.{alias.name}" for alias in node.names}
                imported |= {one if one in sources else node.module for one in each}
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                nodes.extend(ast.iter_child_nodes(node))
        found[name] = (imported & sources.keys()) - {name}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    sources = {module_name(inside_source(path)): parsed(path) for path in SOURCES}

    imports = imports_between(sources)

    assert sum(map(len, imports.values())) > 1000
    list(TopologicalSorter(imports).static_order())  # raises CycleError, with the circle


def test_a_circle_is_seen_where_only_types_close_it() -> None:
    closing = "if TYPE_CHECKING:\n    from a.b import B\n"
    lazy = "def f():\n    from a.b import B\n"
    opening = ast.parse("from a.c import C\nimport a.d\n")
    modules = {"a.b": opening, "a.c": ast.parse(lazy), "a.d": ast.parse("")}

    assert imports_between(modules)["a.b"] == {"a.c", "a.d"}
    list(TopologicalSorter(imports_between(modules)).static_order())
    with pytest.raises(CycleError, match="cycle"):
        list(
            TopologicalSorter(imports_between(modules | {"a.c": ast.parse(closing)})).static_order()
        )


def test_the_trainer_has_folders_on_floors_and_no_loose_module() -> None:
    inside = [inside_source(path) for path in SOURCES]
    parts = {path.parts[1] for path in inside if path.parts[0] == "longhaul_trainer"}

    assert parts == {"__init__.py", *itertools.chain(*FLOORS_OF_TRAINER)}


Rule = Callable[[Path, set[str]], set[str]]

BREACHES: dict[Rule, list[tuple[str, str, str]]] = {
    misdirected_imports: [
        ("longhaul_core/a.py", "longhaul_envs.sources", "longhaul_envs"),
        ("longhaul_api/a.py", "longhaul_trainer", "longhaul_trainer"),
        ("longhaul_trainer/cli/a.py", "verl.trainer", "verl"),
        ("longhaul_envs/server/a.py", "ray", "ray"),
    ],
    undeclared_by_the_core: [
        ("longhaul_core/store/a.py", "pandas", "pandas"),
        ("longhaul_core/store/a.py", "psycopg.sql", "psycopg"),
    ],
    across_layers_of_the_core: [
        ("longhaul_core/types.py", "longhaul_core.errors", "errors"),
        ("longhaul_core/audit/rules/a.py", "longhaul_core.advantages.gigpo", "advantages"),
    ],
    up_the_floors_of_the_trainer: [
        ("longhaul_trainer/config/a.py", "longhaul_trainer.play.players", "play"),
        ("longhaul_trainer/play/a.py", "longhaul_trainer.training.credit", "training"),
    ],
}
"""Each rule over imports, and what breaks it: a file, a module there, and the fault found."""


@pytest.mark.parametrize("rule", BREACHES, ids=lambda rule: rule.__name__)
def test_every_source_file_keeps_the_rule(rule: Rule) -> None:
    faults = {
        inside_source(path).as_posix(): found
        for path in SOURCES
        if (found := rule(inside_source(path), imported_modules(path)))
    }

    assert faults == {}


@pytest.mark.parametrize("rule", BREACHES, ids=lambda rule: rule.__name__)
def test_the_rule_finds_what_breaks_it(rule: Rule) -> None:
    for file, module, fault in BREACHES[rule]:
        assert rule(Path(file), {module}) == {fault}, file


def test_only_the_boundaries_of_an_episode_and_of_ray_catch_everything() -> None:
    handlers = {
        (inside_source(path).as_posix(), function)
        for path in SOURCES
        for function in broad_handlers(path)
    }

    assert handlers == {
        ("longhaul_core/errors.py", "attributed_to"),
        ("longhaul_trainer/verl/cluster.py", "_bring_up"),  # Ray raises `Exception` itself
    }


def test_a_broad_handler_is_seen_wherever_it_hides(tmp_path: Path) -> None:
    file = tmp_path / "hidden.py"
    file.write_text(
        "try:\n    1\nexcept (ValueError, Exception):\n    2\n"
        "class A:\n    async def f(self):\n        try:\n            1\n"
        "        except:\n            2\n"
        "def g():\n    try:\n        1\n    except ValueError:\n        2\n"
        "def h():\n    try:\n        1\n    except BaseException:\n        2\n        raise\n",
        encoding="utf-8",
    )

    assert broad_handlers(file) == ["<module>", "f"]


def test_imports_inside_functions_and_of_submodules_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "hidden.py"
    file.write_text("def f():\n    from torch.nn import functional\n", encoding="utf-8")

    assert top_level(imported_modules(file)) == {"torch"}


@pytest.mark.parametrize(
    "module",
    [
        "longhaul_core",
        "longhaul_core.rollout",
        "longhaul_core.store.queries",
        "longhaul_envs.registry",
        "longhaul_api.app",
        "longhaul_viewer.data",
        "longhaul_viewer.data.play",
        "longhaul_trainer.cli.main",
        "longhaul_trainer.preflight.doctor",
    ],
)
def test_importing_what_runs_on_a_laptop_loads_no_training_stack(module: str) -> None:
    code = (
        f"import sys, {module};"
        "print(sorted({'torch', 'transformers', 'verl', 'vllm', 'ray'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"


def test_registering_the_packaged_environments_imports_none_of_them() -> None:
    """Each worker process does so as it starts."""
    code = (
        "import sys, longhaul_envs.registry;"
        "print([name for name in sys.modules"
        " if name.startswith('longhaul_envs.') and name.endswith('.environment')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"
