"""What every packaged environment has beside its rules: options, a source, and a class to play.

Options, description and source stand in the environment's module of tasks, so that it is
described and listed without an instance, and without the modules that only playing it imports.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from gymnasium import Space

from longhaul_core.environment import Determinism, EnvironmentDescription, EnvironmentPrompt
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_core.types import Split, Task
from longhaul_envs.extras import required
from longhaul_envs.pictures import DrawnEnv
from longhaul_envs.task_lists import rules_version, stable_seed
from longhaul_envs.text import MAX_ACTION_CHARACTERS, text_space

__all__ = ["PackagedEnv", "PackagedOptions", "PackagedSource"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedOptions:
    """What can be chosen about an environment; the fields of a subclass, which checks them."""

    environment_id: ClassVar[str]
    episodes_per_process: ClassVar[int] = 1
    """See `EnvironmentDescription`."""
    rules: ClassVar[Sequence[str]] = ()
    """Options that change an episode, unlike those that only choose which tasks are listed."""

    @property
    def version(self) -> str:
        """The value of `Task.version`."""
        return rules_version("1", self, rules=self.rules)

    def task(
        self, task_id: str, split: Split, *, goal: str, seed: int | None = None, data_hash: str = ""
    ) -> Task:
        """A task under these options; its seed is a hash of the id unless one is given."""
        return Task(
            environment=self.environment_id,
            version=self.version,
            data_hash=data_hash,
            task_id=task_id,
            seed=stable_seed(task_id) if seed is None else seed,
            split=split,
            goal=goal,
        )

    def description(
        self,
        *,
        summary: str,
        prompt: EnvironmentPrompt,
        actions: str,
        determinism: Determinism = Determinism.EXACT,
        shows_pictures: bool = False,
        picture_pixels: int | None = None,
    ) -> EnvironmentDescription:
        """The environment under these options; see `EnvironmentDescription`."""
        return EnvironmentDescription(
            id=self.environment_id,
            version=self.version,
            summary=summary,
            prompt=prompt,
            actions=actions,
            episodes_per_process=self.episodes_per_process,
            determinism=determinism,
            shows_pictures=shows_pictures,
            picture_pixels=picture_pixels,
        )


Chosen = TypeVar("Chosen", bound=PackagedOptions)
Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class PackagedSource(Generic[Chosen]):
    """What an entry point of `longhaul.environments` names: of options, the source under them."""

    kind: type[Chosen]
    tasks: Callable[[Split, Chosen, int | None], tuple[Task, ...]]
    """The first tasks of a split, or all. The package of its module registers the environment."""
    describe: Callable[[Chosen], EnvironmentDescription]
    needs: Sequence[tuple[str, str]] = ()
    """Modules that must be installed, each with the extra that brings it."""

    def chosen(self, options: Mapping[str, object]) -> Chosen:
        """A table of options, checked.

        Raises:
            ConfigError: If there is no option of a name, or a value is refused.
        """
        return options_from(self.kind, options, environment_id=self.kind.environment_id)

    def __call__(self, options: Mapping[str, object]) -> GymSource:
        """The environment under `options`.

        Raises:
            ConfigError: See `chosen`; or a module that it needs is not installed.
        """
        chosen = self.chosen(options)
        for module, extra in self.needs:
            required(module, extra)
        description = self.describe(chosen)
        module = self.tasks.__module__
        package = module.rpartition(".")[0] or module
        return GymSource(
            GymEnvironmentSpec(
                environment_id=self.kind.environment_id, options=options, import_modules=(package,)
            ),
            describe=lambda: description,
            list_tasks=lambda split: self.tasks(split, chosen, None),
        )


class PackagedEnv(DrawnEnv[Seen], Generic[Seen, Chosen]):
    """The class of an environment, with the options, the prompt and the tasks of its source."""

    packaged: ClassVar[PackagedSource[Any]]
    options: Chosen
    episodes_per_process: ClassVar[int]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "packaged"):  # a base of several environments has none
            cls.episodes_per_process = cls.packaged.kind.episodes_per_process

    def __init__(self, *, render_mode: str | None = "rgb_array", **options: Any) -> None:  # noqa: ANN401
        """An instance under `options`, those of the source, whose actions are a line of text.

        Raises:
            ConfigError: There is no option of a name, or a value is refused.
        """
        self.options = self.packaged.chosen(options)
        self.render_mode = render_mode
        self.observation_space = cast("Space[Seen]", text_space())
        self.action_space = text_space(MAX_ACTION_CHARACTERS)

    @property
    def prompt(self) -> EnvironmentPrompt | None:
        """How the environment introduces itself under these options."""
        return self.packaged.describe(self.options).prompt

    def tasks(self, split: Split, limit: int | None = None) -> tuple[Task, ...]:
        """The first `limit` tasks of `split`, or all."""
        return self.packaged.tasks(split, self.options, limit)
