"""A package of AppWorld's shape, with a world of its own: what its adapter is played against.

Written into the environment of an interpreter of its own, as AppWorld is. It has the names, the
arguments and the output of `appworld` 0.1.3 that the driver uses, and runs code for real.
"""

import json
import sys
import venv
from pathlib import Path

PACKAGE = """
import contextlib, io, os, signal, traceback
from pathlib import Path
from types import SimpleNamespace


class AppWorld:
    def __init__(self, task_id, experiment_name, timeout_seconds=100):
        root = Path(os.environ["APPWORLD_ROOT"])
        folder = root / "data" / "tasks" / task_id
        if not folder.is_dir():
            raise Exception(f"The task directory ({folder}) doesn't exist.")
        person = dict(first_name="Ada", last_name="Lovelace", email="ada@example.com",
                      phone_number="1815", password="hidden")
        self.task = SimpleNamespace(instruction="Pay 3 dollars to Charles.", supervisor=person,
                                    datetime="2023-05-18T12:00:00")
        self.base_output_directory = str(root / "experiments" / "outputs" / experiment_name)
        Path(self.base_output_directory, "tasks", task_id).mkdir(parents=True)
        self.paid, self.completed, self.seconds = [], False, timeout_seconds
        supervisor = SimpleNamespace(complete_task=self._complete)
        self.names = {"apis": SimpleNamespace(pay=self.paid.append, supervisor=supervisor)}

    def _complete(self, answer=None):
        self.completed = True

    def execute(self, code):
        def late(number, frame):
            raise TimeoutError(f"Execution timed out after {self.seconds} seconds.")

        printed = io.StringIO()
        signal.signal(signal.SIGALRM, late)
        signal.alarm(self.seconds)
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, self.names)
        except Exception as error:
            last = traceback.format_exception_only(error)[-1]
            return "Execution failed. Traceback:\\n" + last
        finally:
            signal.alarm(0)
        return printed.getvalue() or "Execution successful."

    def task_completed(self):
        return self.completed

    def evaluate(self, suppress_errors=True):
        tests = {"paid": self.paid == [3], "no more": len(self.paid) < 2}
        passes = [{"requirement": name} for name, passed in tests.items() if passed]
        failures = [{"requirement": name} for name, passed in tests.items() if not passed]
        verdict = {"success": not failures, "difficulty": 1, "num_tests": 2,
                   "passes": passes, "failures": failures}
        return SimpleNamespace(to_dict=lambda stats_only: verdict)

    def close(self):
        self.names.clear()
"""

DATASETS = {
    "train": ["aaaaaaa_1", "aaaaaaa_2"],
    "dev": ["bbbbbbb_1"],
    "test_normal": ["ccccccc_1", "ddddddd_1"],
    "test_challenge": ["eeeeeee_1"],
}


def make_python(folder: Path) -> str:
    """An environment whose interpreter has the stand-in; the interpreter."""
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    package = folder / "lib" / version / "site-packages" / "appworld"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE, encoding="utf-8")
    return str(folder / "bin" / "python")


def write_data(root: Path) -> str:
    """AppWorld's data folder in its layout, with the tasks of `DATASETS`; its root."""
    datasets = root / "data" / "datasets"
    datasets.mkdir(parents=True)
    for name, ids in DATASETS.items():
        (datasets / f"{name}.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
        for task_id in ids:
            folder = root / "data" / "tasks" / task_id
            folder.mkdir(parents=True)
            specs = {"instruction": f"Pay 3 dollars to Charles ({task_id}).", "datetime": "2023"}
            (folder / "specs.json").write_text(json.dumps(specs), encoding="utf-8")
    return str(root)
