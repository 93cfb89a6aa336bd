"""Tests for `longhaul_trainer.cli`, through the program that people type."""

import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.table import Table
from typer.models import CommandInfo
from typer.testing import CliRunner

from longhaul_core.store.writer import StoreWriter
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.main import app, main
from longhaul_trainer.config import RunConfig, parse_config
from longhaul_trainer.models import prepare_model
from longhaul_trainer.run.directory import RunDirectory
from longhaul_trainer.run.offline import OFFLINE_ENVIRONMENT
from store_samples import run_started
from verl_process import process_variables

ROOT = Path(__file__).parents[3]
PROGRAM = ["-c", "from longhaul_trainer.cli.main import main; main()"]
HOLD = """
import sys, time
from pathlib import Path
from longhaul_trainer.run.directory import RunDirectory
with RunDirectory(path=Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    returncode: object
    stdout: str
    stderr: str


def trainer(*arguments: str, folder: Path, columns: int = 300) -> Ended:
    """What `trainer ARGUMENTS` says when it is called in `folder`; in this process."""
    stdout, stderr, returncode = io.StringIO(), io.StringIO(), None
    with process_variables(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "argv", ["trainer", *arguments])
        console_of.cache_clear()  # a console reads its width when it is made
        with redirect_stdout(stdout), redirect_stderr(stderr):
            try:
                main()
            except SystemExit as end:
                returncode = end.code
    console_of.cache_clear()
    return Ended(returncode=returncode or 0, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def trainer_process(
    *arguments: str, python: str, folder: Path
) -> "subprocess.CompletedProcess[str]":
    """As `trainer`, in a process of its own."""
    environment = os.environ | {"COLUMNS": "300", "PYTHONWARNINGS": "default"}
    return subprocess.run(
        [python, *PROGRAM, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )


def words(text: str) -> str:
    """The text on one line, without the frame around a message."""
    return " ".join(text.replace("│", " ").split())


def a_run(folder: Path) -> RunDirectory:
    """The folder of a run that was never trained."""
    return RunDirectory.create(
        RunConfig(
            num_training_steps=1,
            tasks_per_training_step=1,
            runs_directory=str(folder / "runs"),
            store=str(folder / "longhaul.db"),
        )
    )


def test_a_command_is_copied_from_a_narrow_terminal_in_one_line_and_a_table_fits_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    console_of.cache_clear()
    command = "trainer resume " + "/folder" * 30
    table = Table("what", "it is")
    table.add_row("a sentence", "that is longer than the terminal is wide")

    console_of("stdout").print(f"[dim]go on[/]  {command}")
    console_of("stdout").print(table)
    console_of.cache_clear()

    line, *rows = capsys.readouterr().out.splitlines()
    assert line == f"go on  {command}"
    assert max(map(len, rows)) <= 24


def test_a_good_description_is_summed_up(quick_python: str, tmp_path: Path) -> None:
    smoke = str(ROOT / "configs" / "smoke.toml")
    done = trainer_process("check", smoke, python=quick_python, folder=tmp_path)

    assert done.returncode == 0
    assert "8 tasks × 4 = 32 episodes of at most 6 to 8 steps" in done.stdout
    assert "2 a training step, 16 episodes each" in done.stdout
    assert "agent loops 1, in the trainer's process" in words(done.stdout)


def test_a_growing_horizon_is_summed_up_and_what_it_will_not_reach_is_noted(tmp_path: Path) -> None:
    done = trainer(
        "check",
        "default",
        "algorithm.rounds_ctrl.type=scaling_inter_stepwise",
        "algorithm.rounds_ctrl.rounds=[2,3,5]",
        "algorithm.rounds_ctrl.steps_scaling_inter=5",
        "rollout.horizon=5",
        "rollout.max_episode_tokens=900",
        "num_training_steps=10",
        folder=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert "32 episodes of at most 2 to 5 steps" in words(done.stdout)
    assert "num_training_steps = 10 ends at a horizon of 3, before rollout.horizon = 5" in words(
        done.stdout
    )
    # A full step is 192 + 10 = 202 tokens, and 900 / 202 = 4.46.
    assert "max_episode_tokens = 900 holds 4 full steps of 202 tokens" in words(done.stdout)


def test_agent_loops_without_room_for_a_group_are_noted(tmp_path: Path) -> None:
    gpus = ("resources.num_workers=8", "environment.num_workers=24")
    few = words(trainer("check", "default", *gpus, folder=tmp_path).stdout)
    many = words(trainer("check", "default", "rollout.agent_loops=6", folder=tmp_path).stdout)

    # 24 environments are room for three groups of 8; a training step has 4
    assert "on GPUs rollout.agent_loops is 3 for 8 engines: each agent loop has room for" in few
    assert "a whole group of 8 episodes in environment.num_workers = 24" in few
    assert "rollout.agent_loops = 6 leaves one 5 episodes at once of" in many


def test_checking_shows_every_environment_of_a_mixture(tmp_path: Path) -> None:
    (tmp_path / "mixed.toml").write_text(
        """
num_training_steps = 2
tasks_per_training_step = 4
validation = { num_tasks = 4, test_num_tasks = 4 }
model = { path = "tiny" }
[[environments]]
id = "longhaul/TextCraft-v0"
weight = 3
[[environments]]
id = "longhaul/Sokoban-v0"
horizon = 4
memory = { kind = "none" }
""",
        encoding="utf-8",
    )

    shown = words(trainer("check", "mixed.toml", folder=tmp_path).stdout)
    wrong = (
        'environments=[{id="longhaul/TextKraft-v0"},{id="longhaul/Sokoban-v0",options={size=99}}]'
    )
    refused = words(trainer("check", "mixed.toml", wrong, folder=tmp_path).stderr)

    assert "environment 1 longhaul/TextCraft-v0, 75% of the tasks, memory window" in shown
    assert "environment 2 longhaul/Sokoban-v0, 25% of the tasks, memory none" in shown
    assert "at most 4 steps" in shown
    assert "environments[0].id = 'longhaul/TextKraft-v0'" in refused
    assert "environments[1].options: longhaul/Sokoban-v0" in refused


def test_checking_needs_no_training_stack(quick_python: str, tmp_path: Path) -> None:
    """With a table for verl, whose settings are read from its files."""
    setting = "verl.actor_rollout_ref.actor.fsdp_config.offload_policy=true"
    code = (
        f"import sys; sys.argv = ['trainer', 'check', 'default', '{setting}']\n"
        "from longhaul_trainer.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'transformers', 'verl', 'vllm', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [quick_python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_what_is_missing_is_told_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from longhaul_trainer.cli.main import main

        def tell(*commands):
            for command in commands:
                sys.argv = ["trainer", *command.split()]
                try:
                    main()
                except SystemExit as end:
                    assert end.code in (2, 4), end.code

        heavy = {"torch", "transformers", "verl", "vllm", "ray", "tensordict", "pandas"}
        tell("check gone.toml", "train gone.toml", "resume gone", "evaluate gone")
        print(sorted({*heavy, "sqlalchemy"} & set(sys.modules)))
        tell("audit last", "runs sizes", "export last --format verl", "query tables")
        tell("import gone.jsonl --format verl", "resume last --store gone.db", "data fetch gone")
        print(sorted(heavy & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stdout.splitlines()[-2:] == ["[]", "[]"], done.stderr


def test_a_recipe_is_checked_without_its_model_which_a_training_needs(tmp_path: Path) -> None:
    named = "model.path=models/Qwen2.5-1.5B-Instruct"

    checked = trainer("check", "default", named, folder=tmp_path)
    trained = trainer("train", "default", named, folder=tmp_path)

    assert checked.returncode == 0, checked.stderr
    assert "model.path = 'models/Qwen2.5-1.5B-Instruct' has no weights here" in checked.stdout
    assert trained.returncode == 2
    assert "models/Qwen2.5-1.5B-Instruct' is not a folder" in words(trained.stderr)


@pytest.mark.parametrize("opened", [os.pipe, pty.openpty], ids=["pipe", "terminal"])
def test_a_command_whose_output_nobody_reads_goes_on(
    opened: Callable[[], tuple[int, int]], quick_python: str, tmp_path: Path
) -> None:
    ours, theirs = opened()
    with subprocess.Popen(
        [quick_python, *PROGRAM, "check", str(ROOT / "configs" / "smoke.toml")],
        cwd=tmp_path,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(ours)
        os.close(theirs)
        _, errors = process.communicate()

    assert (process.returncode, errors) == (0, "")


def test_a_wrong_description_exits_with_2_and_no_traceback(
    quick_python: str, tmp_path: Path
) -> None:
    wrong = ("check", "default", "rollout.group_size=0", "horizon=0")
    done = trainer_process(*wrong, python=quick_python, folder=tmp_path)

    assert done.returncode == 2
    assert "rollout.group_size = 0: must be greater than or equal to 1" in words(done.stderr)
    assert "did you mean 'rollout.horizon'?" in words(done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_wrong_command_line_exits_with_2(tmp_path: Path) -> None:
    assert trainer("check", folder=tmp_path).returncode == 2
    assert trainer("fly", folder=tmp_path).returncode == 2


def test_an_unknown_environment_exits_with_2(tmp_path: Path) -> None:
    done = trainer("check", "default", "environment.id=longhaul/TextCroft-v0", folder=tmp_path)

    assert done.returncode == 2
    assert "TextCraft" in done.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("validation.num_tasks=100000", "got 100000"),
        ("environment.options.sees=far", "environment.options"),
        ("verl.trainer.nodes=3", "did you mean 'trainer.nnodes'?"),
    ],
)
def test_what_a_description_names_is_looked_up(setting: str, message: str, tmp_path: Path) -> None:
    done = trainer("check", "default", setting, folder=tmp_path)

    assert done.returncode == 2
    assert message in words(done.stderr)


def test_every_problem_is_told_in_one_round(tmp_path: Path) -> None:
    done = trainer(
        "check",
        "default",
        "rollout.horizon=0",
        "rollout.group_size=1",
        "engine.max_batched_tokens=4",
        "tasks_per_training_step=100000",
        "validation.num_tasks=99999",
        "model.path=gone",
        "verl.trainer.nodes=3",
        folder=tmp_path,
    )

    assert done.returncode == 2
    assert "the default run has 7 problems:" in done.stderr
    for told in (
        "rollout.horizon = 0",
        'leaves nothing to compare to algorithm.name = "gigpo"',
        "engine.max_batched_tokens = 4",
        "has 1024 training tasks",
        "got 99999",
        "model.path = 'gone' is not a folder",
        "did you mean 'trainer.nnodes'?",
    ):
        assert told in words(done.stderr)


def test_training_refuses_a_model_without_a_chat_template_before_it_makes_anything(
    tmp_path: Path,
) -> None:
    model = Path(shutil.copytree(prepare_model("tiny"), tmp_path / "model"))
    (model / "chat_template.jinja").unlink()

    done = trainer("train", "default", "model.path=model", folder=tmp_path)

    assert done.returncode == 2
    assert "chat_template is not set" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_resolved_description_reads_back_as_the_same_run(tmp_path: Path) -> None:
    done = trainer("check", "default", "seed=5", "--toml", folder=tmp_path)

    assert tomllib.loads(done.stdout)["seed"] == 5
    assert parse_config(done.stdout).seed == 5


def test_a_setting_where_the_file_should_be_is_shown_its_place(tmp_path: Path) -> None:
    done = trainer("check", "seed=5", folder=tmp_path)

    assert done.returncode == 2
    assert "`default seed=5`" in done.stderr


def test_training_refuses_a_wrong_description_before_it_makes_anything(tmp_path: Path) -> None:
    done = trainer("train", "default", "rollout.horizon=0", folder=tmp_path)

    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_training_refuses_a_machine_that_is_too_small_before_it_makes_anything(
    tmp_path: Path,
) -> None:
    done = trainer("train", "default", "engine.memory_gib=1e6", folder=tmp_path)

    assert done.returncode == 3
    assert "GiB needed" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_training_refuses_a_store_it_cannot_use_before_it_makes_a_run(tmp_path: Path) -> None:
    (tmp_path / "longhaul.db").write_text("not a database" * 1000, encoding="utf-8")

    done = trainer("train", str(ROOT / "configs" / "smoke.toml"), folder=tmp_path)

    assert done.returncode == 4
    assert not (tmp_path / "runs").exists()


def test_the_doctor_says_all_and_exits_with_3_where_the_machine_is_too_small(
    tmp_path: Path,
) -> None:
    done = trainer("doctor", "default", "engine.memory_gib=1e6", folder=tmp_path)

    assert done.returncode == 3
    for name in ("packages", "memory", "processors", "disk", "shared memory", "open files"):
        assert name in done.stdout
    assert "→ end other programs" in done.stdout


def recipe_on(machine: str) -> list[str]:
    configs = ROOT / "configs"
    return [str(configs / "recipes" / "gigpo.toml"), str(configs / "machines" / f"{machine}.toml")]


def test_check_prints_what_a_run_takes_and_so_does_train_before_it_begins(tmp_path: Path) -> None:
    shutil.copytree(prepare_model("tiny"), tmp_path / "model")
    files = recipe_on("qwen2.5-1.5b-1x80gb")

    checked = trainer("check", *files, "model.path=model", folder=tmp_path)
    # this machine has no GPU that could carry it
    refused = trainer("train", *files, "model.path=model", folder=tmp_path)

    printed = words(checked.stdout)
    assert checked.returncode == 0, checked.stderr
    for part in ("GPUs 1 of about", "7 by Ray's count", "checkpoints of", "4096 open files"):
        assert part in printed
    assert "time a training step about" in printed
    assert "on 1 × H100 (assumed)" in printed
    assert refused.returncode == 3
    assert "takes 1 GPU of" in words(refused.stdout)
    assert refused.stdout.rstrip().endswith("a training step")
    assert not (tmp_path / "runs").exists()


def test_the_summary_fits_a_terminal_of_eighty_columns(tmp_path: Path) -> None:
    shutil.copytree(prepare_model("tiny"), tmp_path / "model")
    files = recipe_on("qwen2.5-7b-8x80gb")

    done = trainer("check", *files, "model.path=model", folder=tmp_path, columns=80)

    lines = done.stdout.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert any(line.startswith("time ") for line in lines)


def test_a_width_of_0_is_an_unknown_one(tmp_path: Path) -> None:
    done = trainer("runs", folder=tmp_path, columns=0)

    assert done.returncode == 4
    assert "there is no store at" in words(done.stderr)


def test_a_folder_whose_name_is_not_utf8_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"stra\xe9")
    folder.mkdir()

    done = trainer("train", str(ROOT / "configs" / "smoke.toml"), folder=folder)

    assert done.returncode == 2
    assert "stra\\udce9/runs' is not UTF-8; rename the folder" in words(done.stderr)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("256, resource.getrlimit(files)[1]", r"good +open files +hard limit"),
        ("256, 256", "hard limit 256, 4096 needed"),
    ],
)
def test_the_doctor_judges_how_many_open_files_a_program_may_ask_for(
    limit: str, found: str, quick_python: str, tmp_path: Path
) -> None:
    limited = (
        f"import resource; files = resource.RLIMIT_NOFILE; resource.setrlimit(files, ({limit}))"
    )
    done = subprocess.run(
        [quick_python, "-c", f"{limited}; {PROGRAM[1]}", "doctor"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert re.search(found, done.stdout), done.stdout


def test_a_run_that_is_not_there_exits_with_2_and_says_what_is(tmp_path: Path) -> None:
    run = a_run(tmp_path)

    done = trainer("resume", "nothing", folder=tmp_path)

    assert done.returncode == 2
    assert run.run_id in done.stderr


def test_a_run_is_resumed_by_the_store_that_names_it(quick_python: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "far")
    named = {"runs_directory": str(run.path.parent)}
    with StoreWriter(tmp_path / "other.db") as writer:
        writer.write([replace(run_started(run.run_id), config_json=json.dumps(named))])
        writer.write([replace(run_started("gone"), config_json="{}")])

    with run.locked():  # so that it is found and goes no further
        resume = ("resume", run.run_id, "--store", "other.db", "--skip-doctor")
        found = trainer_process(*resume, python=quick_python, folder=tmp_path)
    gone = trainer("resume", "gone", "--store", "other.db", folder=tmp_path)

    assert (found.returncode, gone.returncode) == (3, 2)
    assert f"in use by process {os.getpid()}" in words(found.stderr)
    assert "the folder of gone, which other.db names, is not on this machine" in words(gone.stderr)


def test_a_run_that_another_process_works_on_is_refused_with_its_id_and_host(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        done = trainer("resume", "last", folder=tmp_path)
    finally:
        holder.kill()
        holder.communicate()

    assert done.returncode == 3
    assert f"in use by process {holder.pid} on {os.uname()[1]}" in words(done.stderr)


def test_weights_that_a_run_has_not_kept_cannot_be_evaluated(tmp_path: Path) -> None:
    a_run(tmp_path)

    done = trainer("evaluate", "last", folder=tmp_path)

    assert done.returncode == 2
    assert "holds no best or final weights" in words(done.stderr)


def test_nothing_goes_out_to_a_network_by_itself_and_the_users_word_stays() -> None:
    code = (
        "import json, os, sys; sys.argv = ['trainer', '--version']\n"
        "from longhaul_trainer.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(dict(os.environ)))"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in OFFLINE_ENVIRONMENT
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment | {"WANDB_MODE": "online"},
    )

    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["WANDB_MODE"] == "online"
    for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        assert seen[name] == "1"
    assert seen["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.parametrize(
    "command", ["train", "resume", "evaluate", "audit", "check", "doctor", "runs"]
)
def test_help_says_what_the_exit_codes_mean(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--help"])

    assert done.exit_code == 0
    assert "130 cancelled" in words(done.stdout)


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda one: one.callback.__name__)
def test_help_has_the_first_sentence_of_a_command_as_it_was_written(command: CommandInfo) -> None:
    """A word in square brackets would be taken for markup, and left out."""
    assert command.callback is not None
    first = (command.callback.__doc__ or "").split("\n\n")[0]
    name = command.name or command.callback.__name__.replace("_", "-")

    done = CliRunner().invoke(app, [name, "--help"])

    assert first
    assert words(first) in words(done.stdout)
