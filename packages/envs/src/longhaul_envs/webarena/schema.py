"""WebArena's tasks as its authors write them in JSON, with the sites' addresses put in.

Nothing of a task file runs in this process. What a file may ask for besides text is a table: the
helpers below, by name and with plain arguments, and expressions that the page itself evaluates.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from longhaul_core.errors import ConfigError
from longhaul_envs.task_lists import content_hash

__all__ = [
    "SITES",
    "Evaluation",
    "HelperCall",
    "Target",
    "TaskFile",
    "WebArenaTask",
    "helper_call",
    "load_tasks",
]

SITES = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "MAP", "WIKIPEDIA", "HOMEPAGE")
"""As the authors name them: `__REDDIT__` in a task file, `reddit` in its `sites`."""

_HELPERS: Mapping[str, tuple[str, ...]] = {
    "shopping_get_latest_order_url": (),
    "shopping_get_sku_latest_review_author": ("text",),
    "shopping_get_sku_latest_review_rating": ("text",),
    "reddit_get_post_url": ("text",),
    "gitlab_get_project_memeber_role": ("page", "text"),  # spelt so by the authors
}
_URL_HELPERS = frozenset(("shopping_get_latest_order_url", "reddit_get_post_url"))
_MAX_FILE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class HelperCall:
    """A helper of the authors' that a task names."""

    name: str
    text: str | None
    """Its one argument, if it takes any; `__last_url__` stands for the last page's address."""


def helper_call(written: str, *, gives_url: bool) -> HelperCall:
    """What `func:name('argument')` stands for; nothing of it is executed.

    Raises:
        ValueError: If it is no call of a known helper with arguments of the right kind.
    """
    source = written.removeprefix("func:")
    try:
        call = ast.parse(source, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{written[:200]!r} is no call of a helper") from error
    name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
    if not isinstance(call, ast.Call) or name not in _HELPERS or call.keywords:
        raise ValueError(f"{written[:200]!r} calls none of {', '.join(sorted(_HELPERS))}")
    if (name in _URL_HELPERS) is not gives_url:
        raise ValueError(f"{name} is no {'address' if gives_url else 'locator'}")
    kinds = tuple(
        "page"
        if isinstance(argument, ast.Name) and argument.id == "__page__"
        else "text"
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        else "other"
        for argument in call.args
    )
    if kinds != _HELPERS[name]:
        raise ValueError(f"{name} takes {_HELPERS[name]}, got {kinds}")
    texts = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
    return HelperCall(name, texts[0] if texts else None)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Target(_Part):
    """A place that must hold something at the end."""

    url: str
    """`last`, an address, or a helper."""
    locator: str
    """An expression of the page, a helper, or nothing for the whole page."""
    required_contents: dict[Literal["exact_match", "must_include"], str | list[str]]
    prep_actions: tuple[str, ...] = ()

    def model_post_init(self, context: object) -> None:
        """Refuse what cannot be scored before anybody plays it."""
        if self.url.startswith("func"):
            helper_call(self.url, gives_url=True)
        if self.locator.startswith("func:"):
            helper_call(self.locator, gives_url=False)
        elif self.locator.strip() and not self.locator.startswith(("document.", "[...document.")):
            raise ValueError(f"unknown locator {self.locator[:200]!r}")
        exact = self.required_contents.get("exact_match", "")
        if not self.required_contents or not isinstance(exact, str):
            raise ValueError("required_contents must hold exact_match, a text, or must_include")
        if "exact_match" not in self.required_contents and isinstance(
            self.required_contents["must_include"], str
        ):
            raise ValueError("must_include is a list of texts")


def _present(value: object) -> object:
    return {} if value is None else value


class ReferenceAnswers(_Part):
    """What an answer is compared with."""

    exact_match: str | None = None
    must_include: tuple[str, ...] | None = None
    fuzzy_match: Literal["N/A"] | tuple[str, ...] | None = None


class Evaluation(_Part):
    """How a task is scored: by all of its types."""

    eval_types: tuple[Literal["string_match", "url_match", "program_html"], ...] = Field(
        min_length=1
    )
    reference_answers: Annotated[ReferenceAnswers, BeforeValidator(_present)] = ReferenceAnswers()
    reference_url: str | None = None
    program_html: Annotated[tuple[Target, ...], BeforeValidator(lambda value: value or ())] = ()
    string_note: str | None = None
    url_note: Literal["GOLD in PRED"] = "GOLD in PRED"


class _Geolocation(_Part):
    latitude: float
    longitude: float


class WebArenaTask(_Part):
    """One task."""

    task_id: int
    sites: tuple[str, ...]
    intent: str
    start_url: str
    intent_template: str = ""
    require_login: bool = False
    storage_state: str | None = None
    geolocation: _Geolocation | None = None
    evaluation: Evaluation = Field(alias="eval")

    @property
    def start_urls(self) -> list[str]:
        """The addresses of the tabs that it begins with."""
        return self.start_url.split(" |AND| ")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """A file of tasks, read."""

    tasks: Mapping[str, WebArenaTask]
    """By id, those whose sites are all given."""
    data_hash: str
    """Of the file, without the sites' addresses."""


def load_tasks(path: Path, sites: Mapping[str, str]) -> TaskFile:
    """The tasks of a file of the authors' form: a list, or one task.

    Args:
        path: The file.
        sites: Name of each site that is hosted, to its address.

    Raises:
        ConfigError: If it cannot be read, a task is not of that form, or no task can be played on
            these sites.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{path} has more than {_MAX_FILE_BYTES} bytes")
        raw = path.read_text(encoding="utf-8")
        text = raw
        for name, address in sites.items():
            text = text.replace(f"__{name}__", json.dumps(address.rstrip("/"))[1:-1])
        listed: object = json.loads(text)
        tasks = _TASKS.validate_python(listed if isinstance(listed, list) else [listed])
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"no WebArena tasks in {path}: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path} is no file of WebArena tasks: {error}") from error
    given = {name.lower() for name in sites}
    playable = {
        str(task.task_id): task
        for task in tasks
        if {site.lower() for site in task.sites} <= given and "__" not in task.start_url[:2]
    }
    if not playable:
        needed = sorted({site.upper() for task in tasks for site in task.sites})
        raise ConfigError(
            f"no task of {path} can be played on the sites that are given "
            f"({', '.join(sorted(sites)) or 'none'}); its tasks need {', '.join(needed)}"
        )
    return TaskFile(tasks=playable, data_hash=content_hash(raw))


_TASKS = TypeAdapter(tuple[WebArenaTask, ...])
