"""Prints what fixed policies score in the installed environments.

python benchmarks/environment_baselines.py
On all test tasks of some settings: random, the best constant action and the best position,
chosen on validation tasks, and the expert.
python benchmarks/environment_baselines.py --expert [ID...] [--only TEXT]
The table of `docs/guides/environments.md`: the expert and a random policy in every installed
environment, on at least 20 test tasks drawn over all families; what the expert failed by id. With
a text, such as `family custom`, the rows alone whose name has it.
python benchmarks/environment_baselines.py --pictures docs/images/environments.png [ID...]
A picture of each, some steps into a test task. Clients of other systems play TextCraft, which our
server plays in their protocols; WebArena shows the small forum of the tests.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from longhaul_core.discovery import installed_environments
from longhaul_core.environment import EnvironmentSource
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.tasks import Panel
from longhaul_core.types import Split
from longhaul_envs.baselines import (
    BaselineScore,
    baseline_scores,
    drawn_over_families,
    expert_score,
)
from longhaul_envs.miniwob.expert import SOLVED
from longhaul_envs.pictures import text_picture
from longhaul_envs.players import opened
from longhaul_envs.sources import environment_source

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from environment_server import running_server
from web_sites import running_site

SETTINGS: list[tuple[str, dict[str, object], int]] = [
    ("longhaul/TextCraft-v0", {"depth": 1}, 6),
    ("longhaul/TextCraft-v0", {"depth": 1, "distractors": 6}, 6),
    ("longhaul/TextCraft-v0", {"depth": 2}, 12),
    ("longhaul/TextCraft-v0", {"depth": 2}, 20),
    ("longhaul/TextCraft-v0", {"depth": 3}, 30),
    ("longhaul/TextCraft-v0", {"depth": 4, "num_variants": 32}, 50),
    ("longhaul/BabyAI-v0", {"levels": ["GoToObj"]}, 6),
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocalS8N4"]}, 4),
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocal"]}, 4),
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocal"], "actions": "primitive"}, 20),
    ("longhaul/BabyAI-v0", {"levels": ["PickupLoc"]}, 6),
    ("longhaul/BabyAI-v0", {"levels": ["PutNextLocal"]}, 20),
    ("longhaul/BabyAI-v0", {"levels": ["UnlockLocal"]}, 12),
    ("longhaul/BabyAI-v0", {"levels": ["GoToSeq"]}, 40),
    ("longhaul/BabyAI-v0", {"levels": ["BossLevel"]}, 50),
    ("longhaul/Sokoban-v0", {"size": 5, "min_pushes": 1}, 10),
    ("longhaul/Sokoban-v0", {"size": 6, "num_boxes": 1}, 20),
    ("longhaul/Sokoban-v0", {"size": 6, "num_boxes": 2}, 30),
    ("longhaul/Sokoban-v0", {"size": 8, "num_boxes": 3}, 50),
]
"""Environment id, options, horizon."""

NUM_CHOSEN_ON = 64
"""Validation tasks, at most, on which the best constant policies are chosen."""


NUM_DRAWN = 20
"""Test tasks that an expert plays, or one of each family where there are more."""

EXPERT_SETTINGS: Mapping[str, Sequence[Mapping[str, object]]] = {
    "longhaul/ALFWorld-v0": [{"task_types": [number]} for number in range(1, 7)],
    "longhaul/BabyAI-v0": [{"levels": ["all"]}],
    "longhaul/Maze-v0": [{"mazes": ["random"], "height": 15, "width": 15, "min_steps": 20}],
    "longhaul/MiniWoB-v0": [{"tasks": sorted(SOLVED)}],
    "longhaul/Sokoban-v0": [{"size": 6, "num_boxes": 2}, {"size": 8, "num_boxes": 3}],
    "longhaul/TextCraft-v0": [
        *({"depth": depth} for depth in (1, 2, 3)),
        {"depth": 4, "num_variants": 32},
    ],
    "longhaul/TextWorld-v0": [
        {"family": "cooking"},
        *(
            {"family": family, "num_eval_games": NUM_DRAWN}
            for family in ("coin", "treasure", "simple", "custom")
        ),
    ],
    "longhaul/WebShop-v0": [{"search_proposals": 4}],
}
"""Options under which experts play, where an environment's defaults are not all of it."""
EXPERT_HORIZONS: Mapping[str, int] = {"longhaul/ScienceWorld-v0": 300}
"""Longest episode of an expert, where it is not `DEFAULT_HORIZON`."""
DEFAULT_HORIZON = 100

PICTURED: Mapping[str, Mapping[str, object]] = {
    "longhaul/BabyAI-v0": {"levels": ["BossLevel"]},
    "longhaul/Sokoban-v0": {"size": 8, "num_boxes": 3},
    "longhaul/TextCraft-v0": {"depth": 3},
}
"""Options of the pictures, where the defaults show less."""
WEB_TASKS: Sequence[Mapping[str, object]] = [
    {
        "sites": ["reddit"],
        "task_id": number,
        "require_login": False,
        "storage_state": None,
        "start_url": "__REDDIT__",
        "geolocation": None,
        "intent_template": template,
        "instantiation_dict": {},
        "intent": template,
        "require_reset": False,
        "intent_template_id": number,
        "eval": {
            "eval_types": ["string_match"],
            "reference_answers": {"exact_match": "A first book"},
            "reference_url": "",
            "program_html": [],
        },
    }
    for number, template in enumerate(("Name a book", "Name the first", "Name the newest"))
]
"""Tasks in WebArena's form, one for each split."""
NUM_PICTURED_STEPS = 3
TILE_WIDTH, TILE_HEIGHT, LABEL_HEIGHT, NUM_COLUMNS = 480, 320, 20, 3


def main() -> None:
    """Print what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expert", nargs="*", metavar="ID")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--pictures", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.expert is not None:
        print_experts(arguments.expert or list(installed_environments()), only=arguments.only)
    if arguments.pictures is not None:
        file, *ids = arguments.pictures
        sheet = contact_sheet(ids or list(installed_environments()))
        sheet.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)  # a third as large
    if arguments.expert is None and arguments.pictures is None:
        print_baselines()


def source_of(environment_id: str, options: Mapping[str, object]) -> EnvironmentSource:
    """The source of an installed environment."""
    return environment_source(GymEnvironmentSpec(environment_id=environment_id, options=options))


def print_experts(ids: Sequence[str], *, only: str) -> None:
    """Print a row for each setting of each environment, if its name has `only`, or why none."""
    print("| environment | test tasks | families | horizon | expert | random | seconds |")
    print("|---|---|---|---|---|---|---|")
    notes: list[str] = []
    for environment_id in ids:
        for options in EXPERT_SETTINGS.get(environment_id, [{}]):
            name = ", ".join([environment_id, *(f"{k} {v}" for k, v in options.items())])
            if only not in name:
                continue
            try:
                source = source_of(environment_id, options)
                tasks = drawn_over_families(source.tasks(Split.TEST), num_tasks=NUM_DRAWN)
            except ConfigError as error:
                notes.append(f"{name}: not played: {error}")
                continue
            if not isinstance(source, GymSource):
                notes.append(f"{name}: not played: it is served by another system")
                continue
            started = time.perf_counter()
            horizon = EXPERT_HORIZONS.get(environment_id, DEFAULT_HORIZON)
            scored = expert_score(source.spec, tasks, horizon=horizon)
            seconds = time.perf_counter() - started
            columns = (name, scored.num_tasks, scored.num_families, horizon)
            ends = (in_words(scored.expert), in_words(scored.random), f"{seconds:.0f}")
            print("|", " | ".join(map(str, (*columns, *ends))), "|", flush=True)
            if scored.failures:
                notes.append(f"{name}: the expert failed {', '.join(scored.failures)}")
    print(*notes, sep="\n")


def in_words(scored: BaselineScore | None) -> str:
    """Success rate and mean return."""
    if scored is None:
        return "none"
    return f"{scored.success_rate:.0%} (return {scored.mean_return:.2f})"


def contact_sheet(ids: Sequence[str]) -> Image.Image:
    """A picture of each environment, some steps into its first test task, under its id."""
    tiles: list[Image.Image] = []
    with small_servers() as options_of_clients:
        pictured = {**PICTURED, **options_of_clients}
        for environment_id in ids:
            try:
                picture = pictured_state(environment_id, pictured.get(environment_id, {}))
            except ConfigError as error:
                print(f"{environment_id}: no picture: {error}")
                continue
            tiles.append(tile(environment_id, picture))
    num_rows = -(-len(tiles) // NUM_COLUMNS)
    size = (TILE_WIDTH * NUM_COLUMNS, (TILE_HEIGHT + LABEL_HEIGHT) * num_rows)
    sheet = Image.new("RGB", size, color="white")
    for number, one in enumerate(tiles):
        row, column = divmod(number, NUM_COLUMNS)
        sheet.paste(one, (column * TILE_WIDTH, row * (TILE_HEIGHT + LABEL_HEIGHT)))
    return sheet


def pictured_state(environment_id: str, options: Mapping[str, object]) -> Image.Image:
    """The state some steps into the first test task; of a client, the text that it was shown."""
    task = source_of(environment_id, options).tasks(Split.TEST)[0]
    with opened(GymEnvironmentSpec(environment_id=environment_id, options=options)) as player:
        observation, is_over = player.start(task), False
        for _ in range(NUM_PICTURED_STEPS):
            advice = None if is_over else player.expert_action()
            if advice is None:
                break
            result = player.act(advice)
            observation, is_over = result.observation, result.terminated or result.truncated
        pixels = player.render()
        return Image.fromarray(text_picture(observation.text) if pixels is None else pixels)


@contextmanager
def small_servers() -> Generator[Mapping[str, Mapping[str, object]]]:
    """Servers of what needs one, until the block ends: options that name them, by environment."""
    ports = {name: free_port() for name in ("agentgym", "openenv", "ors")}
    address = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    textcraft: dict[str, object] = {
        "id": "longhaul/TextCraft-v0",
        "limits": {"num_workers": 1},
        "import_modules": [],
    }
    with tempfile.TemporaryDirectory() as folder, running_site() as site:
        tasks = Path(folder) / "tasks.json"
        tasks.write_text(json.dumps(WEB_TASKS), encoding="utf-8")
        with running_server(textcraft, folder=Path(folder), settings={"dialects": ports}):
            yield {
                "longhaul/AgentGym-v0": {"url": address["agentgym"], "task": "textcraft"},
                "longhaul/OpenEnv-v0": {"url": address["openenv"], "observation_field": "text"},
                "longhaul/ORS-v0": {"url": address["ors"]},
                "longhaul/WebArena-v0": {
                    "tasks_file": str(tasks),
                    "sites": {"REDDIT": site.address},
                    "viewport": (480, 320),
                },
            }


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def tile(label: str, picture: Image.Image) -> Image.Image:
    """A picture fitted into a tile: a tall one keeps its top, as a text does."""
    made = Image.new("RGB", (TILE_WIDTH, TILE_HEIGHT + LABEL_HEIGHT), color="white")
    ImageDraw.Draw(made).text((6, 5), label, fill="black", font=ImageFont.load_default_imagefont())
    inside = (TILE_WIDTH - 12, TILE_HEIGHT - 6)
    by_width = inside[0] / picture.width
    if picture.height * by_width > 2 * inside[1]:  # too tall to be read as a whole
        size = (inside[0], round(picture.height * by_width))
        picture = picture.resize(size, Image.Resampling.BOX).crop((0, 0, *inside))
    picture.thumbnail(inside)
    made.paste(picture, (6, LABEL_HEIGHT))
    return made


def print_baselines() -> None:
    """Print a line for each policy in each setting."""
    for environment_id, options, horizon in SETTINGS:
        spec = GymEnvironmentSpec(
            environment_id=environment_id,
            options=options,
            import_modules=("longhaul_envs.registry",),
        )
        started = time.perf_counter()
        source = environment_source(spec)
        tasks, others = source.tasks(Split.TEST), source.tasks(Split.VALIDATION)
        panel = Panel.spread(
            others, split=Split.VALIDATION, num_tasks=min(NUM_CHOSEN_ON, len(others))
        )
        print(f"\n{environment_id} {options}, horizon {horizon}, {len(tasks)} test tasks")
        for scored in baseline_scores(spec, tasks, chosen_on=panel.tasks, horizon=horizon):
            low, high = scored.success_interval
            print(
                f"  success {scored.success_rate:6.1%} ({low:.1%} to {high:.1%})  "
                f"return {scored.mean_return:6.3f}  steps {scored.mean_steps:5.1f}  {scored.policy}"
            )
        print(f"  ({time.perf_counter() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
