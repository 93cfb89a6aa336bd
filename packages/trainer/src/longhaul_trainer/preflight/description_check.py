"""Is everything there that a run's description names? Looked up before anything starts.

Environment, tasks, model, parts of the user's own, trackers and settings of verl are looked up
each for itself, so that one which is not there hides no other. The training stack is imported for
none of it. Torch is for a loss of the user's own, which is tried on a few tokens, and transformers
for a model that is a folder: its chat template is tried on the prompts that the run would compose.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from longhaul_core.actions import ActionFormat, build_parser
from longhaul_core.components import is_own
from longhaul_core.errors import (
    ConfigError,
    MemoryFailure,
    RendererFailure,
    StoreError,
    attributed_to,
)
from longhaul_core.memory import MemoryContext, PromptTemplate, build_template
from longhaul_core.policy import Shortenable
from longhaul_core.rollout import build_acting
from longhaul_core.types import Call, CreditedBy, Message, Observation, Picture, Split, Task
from longhaul_envs.pictures import png
from longhaul_envs.published import PUBLISHED
from longhaul_trainer.config import LossConfig, MixedEnvironmentConfig, RunConfig
from longhaul_trainer.config.estimator_settings import own_estimator
from longhaul_trainer.config.machine import ALL_LINEAR
from longhaul_trainer.models.chat_template import chat_template_text
from longhaul_trainer.models.prepare import BUILT_IN_MODELS, prepare_model
from longhaul_trainer.models.vision import reads_pictures, require_processor
from longhaul_trainer.play.environments import (
    descriptions_of,
    memory_builder,
    prompt_template,
    published_prompt,
    require_demonstrations,
    source_of,
    task_stream,
)
from longhaul_trainer.play.programs.of_run import grader_of, program_of, upstreams_of
from longhaul_trainer.play.reward_shaping import load_reward_shaping
from longhaul_trainer.play.runners.token import token_of
from longhaul_trainer.preflight.environment_check import require_playable
from longhaul_trainer.preflight.resources.model_size import model_size, size_or_none

if TYPE_CHECKING:
    from longhaul_trainer.rendering.renderer import ChatTemplateRenderer

SureOf = Callable[..., bool]
"""Whether the values of some keys, or sections, are those that were described."""


def problems_of(
    config: RunConfig,
    *,
    trains: bool = True,
    deeply: bool = False,
    here: bool = True,
    sure_of: SureOf = lambda *_: True,
) -> list[str]:
    """What is named and is not there, or cannot be used; one line each.

    Args:
        config: The run.
        trains: Whether it is trained, and not its model evaluated alone.
        deeply: List the environment's tasks too, which may take a reset for each.
        here: Whether it is to run on this machine: elsewhere the models' files may be, if their
            shapes are known.
        sure_of: What is not sure is not looked up.
    """
    problems: list[str] = []
    if trains and sure_of("model.dtype", "optimizer.learning_rate"):
        problems += config.training_problems()
    is_playable = False
    if sure_of("environment", "environments", "agent", "tasks"):
        of_player = _problems(lambda: require_player(config))
        problems += of_player
        is_playable = not of_player
    if is_playable and deeply and sure_of("validation", "sampling", "tasks"):
        problems += _problems(lambda: _require_tasks(config))  # both panels too
    if sure_of("model"):
        missing = _problems(lambda: require_model(config.model.path, setting="model.path"))
        known = config.imitation.new_model_layers or size_or_none(config.model.path)
        of_model = [] if not here and known else missing
        problems += of_model
        problems += [] if missing else _problems(lambda: require_target_modules(config))
        if not of_model and sure_of("rollout"):
            problems += _problems(lambda: require_context(config))
        problems += _problems(lambda: require_picture_reading(config))
        if is_playable and sure_of("environment", "environments"):
            problems += _problems(lambda: require_pictures_to_be_read(config))
            problems += _problems(lambda: require_tools_to_be_called(config))
        if not missing and is_playable and sure_of("prompt", "memory", "actions", "environments"):
            problems += _problems(lambda: require_chat_template(config))
    critic = config.critic.path
    if critic is not None and sure_of("critic") and (here or size_or_none(critic) is None):
        problems += _problems(lambda: require_model(critic, setting="critic.path"))
    shaping = config.algorithm.reward_shaping
    if shaping is not None and sure_of("algorithm"):
        problems += _problems(lambda: load_reward_shaping(shaping))
    problems += _problems_of_own_parts(config, sure_of)
    if sure_of("trackers"):
        problems += [_missing(tracker) for tracker in config.trackers if not _is_there(tracker)]
    if config.verl and sure_of("verl"):
        problems += _problems(lambda: _require_settings_of_verl(config, trains=trains))
    return [*dict.fromkeys(problems)]  # the chat template is tried on what the parts compose


def _require_tasks(config: RunConfig) -> None:
    if not config.imitation.imitates:
        task_stream(config)
    if not config.imitation.sources:
        return
    from longhaul_trainer.run.demonstrations import Demonstrations  # imports SQLAlchemy

    try:
        chosen = Demonstrations.chosen(config)
    except StoreError as error:
        raise ConfigError(f"imitation.sources: {error}") from error
    require_demonstrations(config, chosen.tasks)


def _problems_of_own_parts(config: RunConfig, sure_of: SureOf) -> list[str]:
    """Parts of the user's own are imported and made once, each for itself."""
    name, problems = config.algorithm.name, list[str]()
    if is_own(name) and sure_of("algorithm.name"):
        problems += _problems(lambda: own_estimator(name))
    if is_own(config.loss.kind) and sure_of("loss"):
        problems += _problems(lambda: _try_loss(config.loss))
    if is_own(config.agent.kind) and sure_of("agent"):
        problems += _problems(lambda: build_acting(config.agent.kind))
    if config.agent.is_program:
        return problems
    for entry in config.played_environments if sure_of("environments") else ():
        problems += _problems_of_own_parts_of(entry, sure_of)
    return problems


def _try_loss(settings: LossConfig) -> None:
    from longhaul_trainer.training.loss_trial import try_own_loss  # loads torch

    try_own_loss(settings)


def _problems_of_own_parts_of(entry: MixedEnvironmentConfig, sure_of: SureOf) -> list[str]:
    actions, prompt = entry.actions, entry.prompt
    problems: list[str] = []
    if is_own(entry.memory.kind) and sure_of("memory"):
        problems += _problems(memory_builder(entry, template=PromptTemplate()))
    if is_own(actions.format) and sure_of("actions"):
        problems += _problems(
            lambda: build_parser(actions.format, require_thinking=actions.require_thinking)
        )
    if prompt.template in PUBLISHED and sure_of("prompt") and sure_of("memory"):
        problems += _problems(lambda: published_prompt(entry))
    if is_own(prompt.template) and sure_of("prompt"):
        problems += _problems(
            lambda: build_template(
                prompt.template,
                system=prompt.system or "",
                instruction=prompt.instruction or "",
                list_actions=prompt.list_actions,
                reply_prefix=prompt.reply_prefix,
                instruction_place=prompt.instruction_place,
            )
        )
    return problems


def require_named(config: RunConfig, *, trains: bool = True) -> None:
    """Refuse a run that names what is not there, or that no training can be made of.

    Args:
        config: The run.
        trains: Whether it is trained, and not its model evaluated alone.

    Raises:
        ConfigError: All of it at once.
    """
    problems = problems_of(config, trains=trains)
    if problems:
        raise ConfigError("\n".join(problems))


def require_player(config: RunConfig, *, with_runners: bool = True) -> None:
    """Refuse a run whose environments, or whose program, grader or tasks, are not there.

    Args:
        config: The run.
        with_runners: Whether runners on other machines may play it.

    Raises:
        ConfigError: All of it at once.
    """
    if not config.agent.is_program:
        require_environments(config)
        return
    problems = [
        *_problems(lambda: _require_program(config, with_runners=with_runners)),
        *_problems(lambda: grader_of(config)),
        *_problems(lambda: upstreams_of(config)),
        *_problems(lambda: descriptions_of(config)),
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def _require_program(config: RunConfig, *, with_runners: bool) -> None:
    if config.agent.kind == "remote" and with_runners:
        token_of(config)  # what plays is on the runners' machines
    else:
        program_of(config).check()


def require_environments(config: RunConfig) -> None:
    """Refuse a run of whose environments one cannot be played as described.

    Raises:
        ConfigError: All of them at once.
    """
    problems: list[str] = []
    for place, entry in enumerate(config.played_environments):
        setting = f"environments[{place}]" if config.environments else "environment"
        try:
            require_playable(entry, setting=setting)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))


def require_model(path: str, *, setting: str) -> None:
    """Refuse what is no model; a built-in one is not written for it.

    Raises:
        ConfigError: If `path` is no built-in model and no folder that holds one.
    """
    if path in BUILT_IN_MODELS:
        return
    prepare_model(path, setting=setting)
    model_size(path, setting=setting)


def require_context(config: RunConfig) -> None:
    """Refuse calls that are longer than what the model reads: verl refuses to start its engine.

    Raises:
        ConfigError: With both lengths.
    """
    rollout, size = config.rollout, size_or_none(config.model.path)
    context = None if size is None else size.context_tokens
    longest_call = rollout.max_prompt_tokens + rollout.max_reply_tokens
    if context is not None and longest_call > context:
        raise ConfigError(
            "rollout.max_prompt_tokens + rollout.max_reply_tokens = "
            f"{rollout.max_prompt_tokens} + {rollout.max_reply_tokens} = {longest_call} is more "
            f"than model.path = {config.model.path!r} reads, {context} (its "
            "max_position_embeddings); lower one of them"
        )


def require_picture_reading(config: RunConfig) -> None:
    """Refuse a model that reads pictures and would not, and grey pictures for one that reads none.

    Raises:
        ConfigError: All of it at once.
    """
    path = config.model.path
    if not reads_pictures(path):
        if config.model.pictures == "grey":
            raise ConfigError(
                f'model.pictures = "grey": model.path = {path!r} reads no pictures, grey or not; '
                "name a model that reads them, or leave it out"
            )
        return
    reads = f"model.path = {path!r} reads pictures, and"
    problems = _problems(lambda: require_processor(path, setting="model.path"))
    if config.model.pictures == "never":
        problems.append(f'model.pictures = "never": {reads} is shown them; leave it out')
    if problems:
        raise ConfigError("\n".join(problems))


def require_pictures_to_be_read(config: RunConfig) -> None:
    """Refuse environments that show pictures to a model that reads none, unless the run agrees.

    Raises:
        ConfigError: All of them at once.
    """
    path = config.model.path
    if config.model.pictures == "never" or reads_pictures(path) or config.agent.is_program:
        return
    blind = [
        f"{entry.id} shows pictures, and model.path = {path!r} reads none: its prompts would hold "
        "the text alone; name a model that reads them, have the environment show text, or agree "
        'by model.pictures = "never"'
        for entry in config.played_environments
        if source_of(entry).describe().shows_pictures
    ]
    if blind:
        raise ConfigError("\n".join(blind))


def require_tools_to_be_called(config: RunConfig) -> None:
    """Refuse actions that are to be calls of tools where an environment offers none.

    Raises:
        ConfigError: All of them at once.
    """
    problems: list[str] = []
    for entry in () if config.agent.is_program else config.played_environments:
        if entry.actions.format != ActionFormat.TOOL_CALL:
            continue
        if not source_of(entry).describe().tools:
            problems.append(
                f'actions.format = "tool_call" calls tools, and {entry.id} offers none; set '
                'actions.format = "tags" or another form of words'
            )
        if entry.prompt.reply_prefix:
            problems.append(
                f"prompt.reply_prefix = {entry.prompt.reply_prefix!r} begins no call of a tool, "
                'which actions.format = "tool_call" asks for; leave it out'
            )
    if problems:
        raise ConfigError("\n".join(problems))


def require_target_modules(config: RunConfig) -> None:
    """Refuse an adapter of layers that the model does not have.

    Raises:
        ConfigError: If a name is that of none of its matrices.
    """
    model = config.model
    if model.lora_rank == 0 or ALL_LINEAR in model.lora_target_modules:
        return
    layers = _LLAMA_LAYERS if model.path in BUILT_IN_MODELS else _layers_of(Path(model.path))
    unknown = [
        wanted
        for wanted in model.lora_target_modules
        if not any(f".{layer}".endswith(f".{wanted}") for layer in layers)
    ]
    if layers and unknown:
        names = sorted({layer.rpartition(".")[2] for layer in layers})
        raise ConfigError(
            f"model.lora_target_modules: {model.path} has no layer called "
            f"{', '.join(map(repr, unknown))}; it has {', '.join(names)}"
        )


_LLAMA_LAYERS = frozenset(
    {
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    }
)
"""Of the built-in models, which may not be written yet."""


def _layers_of(folder: Path) -> frozenset[str]:
    """Names of a model's layers that have a matrix; none where its files do not say."""
    import safetensors

    reader: Any = safetensors.safe_open  # typed in part
    found: set[str] = set()
    for file in folder.expanduser().glob("*.safetensors"):
        with reader(file, framework="numpy") as weights:
            found |= {
                name.removesuffix(".weight")
                for name in cast("list[str]", weights.keys())
                if ".layers." in name and len(weights.get_slice(name).get_shape()) == 2
            }
    return frozenset(found)


def require_chat_template(config: RunConfig) -> None:
    """Refuse a model whose chat template cannot write the prompts that the run composes.

    Raises:
        ConfigError: If its folder has no tokenizer or template that load, or the template refuses
            a prompt of the first steps or writes the time of day into it, or the memory cannot
            compose it.
    """
    path, variables = config.model.path, config.model.chat_template_kwargs
    template = chat_template_text(config.model.chat_template, Path.cwd())
    if path in BUILT_IN_MODELS and template is None and not variables:
        return
    advice = "put the tokenizer's files of a whole model into the folder"
    try:
        with attributed_to(RendererFailure, "its tokenizer cannot be loaded"):
            renderer_with = _renderers_of(prepare_model(path), template)
            morning, evening = (
                renderer_with(variables={**variables, "strftime_now": time.strftime})
                for time in (datetime(2026, 1, 1, hour, hour, hour, tzinfo=UTC) for hour in (8, 21))
            )
            renderers = {
                prefix: renderer_with(variables=variables, reply_prefix=prefix)
                for prefix in {entry.prompt.reply_prefix for entry in config.played_environments}
            }
        advice = "set model.chat_template to one that takes them"
        pictures = [_A_PICTURE] if reads_pictures(path) else []
        if config.agent.is_program:
            (renderer, *_) = renderers.values()
            for asked in (_A_QUESTION, *pictures):
                with attributed_to(RendererFailure, "its chat template refuses a question"):
                    renderer.render_chat(asked)
            _refuse_clock(morning.render_chat(_A_QUESTION), evening.render_chat(_A_QUESTION))
            return
        advice += ", or change [prompt] and [memory], which compose them"
        for entry in config.played_environments:
            renderer = renderers[entry.prompt.reply_prefix]
            calls = entry.actions.format == ActionFormat.TOOL_CALL
            tools = source_of(entry).describe().tools if calls else ()
            for prompt in (*pictures, *_first_prompts(entry)):
                roles = ", ".join(message.role for message in prompt)
                refused = f"its chat template refuses messages of {roles}"
                with attributed_to(RendererFailure, refused):
                    renderer.render(prompt)
                    if tools:
                        renderer.render_chat(prompt, tools=tools)
                _refuse_clock(morning.render(prompt), evening.render(prompt))
    except RendererFailure as error:
        raise ConfigError(f"model.path = {path!r}: {error}; {advice}") from error


def _renderers_of(folder: Path, template: str | None) -> Callable[..., ChatTemplateRenderer]:
    """Makes renderers of one model, whose tokenizer is loaded once."""
    from transformers import AutoTokenizer

    from longhaul_trainer.rendering.pictures import load_picture_reader
    from longhaul_trainer.rendering.renderer import ChatTemplateRenderer

    return partial(
        ChatTemplateRenderer,
        cast("Any", AutoTokenizer).from_pretrained(folder),
        pictures=load_picture_reader(folder),
        template=template,
    )


def _refuse_clock(morning: Sequence[int], evening: Sequence[int]) -> None:
    """Refuse a template by which a prompt is another one each second; a date may change a day.

    Raises:
        ConfigError: If a prompt of the morning is not that of the evening.
    """
    if morning != evening:
        raise ConfigError(
            "the chat template writes the time of day (strftime_now), so no prompt goes on from "
            "the one before; set model.chat_template_kwargs to what it reads instead, such as "
            '{ date_string = "1 Jan 2026" }, or model.chat_template to one without a clock'
        )


_A_QUESTION = (Message(role="user", content="Where am I?"),)
"""What any program may ask."""
_A_PICTURE = (
    Message(role="user", content=("Where am I?", Picture.of(png(np.zeros((56, 56, 3), np.uint8))))),
)
"""What an environment, or any program, may show a model that reads pictures."""


def _first_prompts(entry: MixedEnvironmentConfig) -> Generator[Sequence[Message]]:
    """Prompts of the first and of the second step, as the environment's memory composes them.

    Raises:
        ConfigError: If the memory, or the template that it writes with, raises.
    """
    template = prompt_template(entry, source_of(entry).describe())
    memory = memory_builder(entry, template=template)()
    seen = Observation(text="You are in a room.", admissible_actions=("look", "wait"))

    def composed() -> Sequence[Message]:
        with _refused(f"memory.kind = {entry.memory.kind!r}: compose"):
            return memory.compose(seen)

    yield composed()
    asked: list[Sequence[Message]] = []

    async def complete(
        prompt: Sequence[Message] | Shortenable,
        *,
        purpose: str = "remember",
        trained: bool = True,
        credit_share: float = 1.0,
        credited_by: CreditedBy = CreditedBy.NEXT_STEP,
        max_reply_tokens: int | None = None,
    ) -> Call:
        """Keep what the memory asks the model, and reply something."""
        messages = prompt.compose(0) if isinstance(prompt, Shortenable) else tuple(prompt)
        asked.append(messages)
        return Call(messages=messages, reply="A room.", sampled=None, trained=False)

    task = Task(
        environment=entry.id,
        version="",
        data_hash="",
        task_id="",
        seed=0,
        split=Split.TRAIN,
    )
    context = MemoryContext(task=task, complete=complete)
    with _refused(f"memory.kind = {entry.memory.kind!r}: write"):
        asyncio.run(memory.write(observation=seen, reply="look", action="look", context=context))
    yield from asked
    yield composed()


@contextmanager
def _refused(action: str) -> Generator[None]:
    """Turn what a part of the user's own raises into `ConfigError`."""
    try:
        with attributed_to(MemoryFailure, action):
            yield
    except MemoryFailure as error:
        raise ConfigError(str(error)) from error


def _is_there(tracker: str) -> bool:
    return importlib.util.find_spec(tracker) is not None


def _missing(tracker: str) -> str:
    package = {"mlflow": "longhaul-trainer[mlflow]"}.get(tracker, tracker)
    return (
        f'trackers: the package of "{tracker}" is not installed; install {package}, or leave it out'
    )


def _require_settings_of_verl(config: RunConfig, *, trains: bool) -> None:
    from longhaul_trainer.run.device import usable_gpus, wanted_device
    from longhaul_trainer.verl.settings import require_known_settings

    device = wanted_device(config, num_gpus=len(usable_gpus()))
    require_known_settings(config, device=device, only_validate=not trains)


def _problems(look_up: Callable[[], object]) -> list[str]:
    try:
        look_up()
    except ConfigError as error:
        return str(error).splitlines()
    return []
