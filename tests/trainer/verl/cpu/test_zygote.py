"""Tests for `longhaul_trainer.verl.cpu.zygote`."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from longhaul_trainer.verl.cpu.zygote import Zygote
from longhaul_trainer.verl.cpu.zygote.server import parsed
from other_processes import alive, wait_until

PRELOADED = "decimal"
"""A module that a plain interpreter has not imported when it begins."""
IS_WARM = f"import sys; print({PRELOADED!r} in sys.modules)"


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Generator[Zygote]:
    """One for all tests that do not end it."""
    with Zygote([PRELOADED], folder=tmp_path_factory.mktemp("warm")) as interpreter:
        yield interpreter


@pytest.fixture
def own(tmp_path: Path) -> Generator[Zygote]:
    with Zygote([PRELOADED], folder=tmp_path / "scratch") as interpreter:
        yield interpreter


def output(
    *command: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    input: str | None = None,
    pass_fds: tuple[int, ...] = (),
) -> str:
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        input=input,
        pass_fds=pass_fds,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_program_begins_with_its_imports_done(warm: Zygote) -> None:
    assert output(sys.executable, "-c", IS_WARM) == "False\n"
    assert output(warm.stand_in, "-c", IS_WARM) == "True\n"


def test_a_fork_of_a_zygote_has_its_imports_and_more_and_what_it_starts_only_the_first(
    warm: Zygote, tmp_path: Path
) -> None:
    shows = (
        "import multiprocessing.spawn, sys; "
        f"print([name in sys.modules for name in ({PRELOADED!r}, 'fractions')], "
        "os.fsdecode(multiprocessing.spawn.get_executable()))"
    )

    with Zygote(["fractions"], folder=tmp_path / "more", fork_of=warm) as more:
        found = output(more.stand_in, "-c", f"import os; {shows}")

    assert found == f"[True, True] {warm.stand_in}\n"
    assert output(warm.stand_in, "-c", f"import os; {shows}").startswith("[True, False]")


def test_it_sees_its_own_arguments_environment_and_folder(warm: Zygote, tmp_path: Path) -> None:
    program = (
        "import os, sys; print(sys.argv, os.getcwd(), os.environ['WORD'], 'HOME' in os.environ)"
    )
    found = output(
        warm.stand_in, "-c", program, "a b", "", cwd=tmp_path, env={"WORD": "x", "PATH": "/bin"}
    )

    assert found == f"['-c', 'a b', ''] {tmp_path} x False\n"


def test_files_and_modules_run_as_main(warm: Zygote, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, beside; print(__name__, sys.argv, beside.value)")
    (tmp_path / "beside.py").write_text("value = 7")

    assert output(warm.stand_in, program, "1") == f"__main__ ['{program}', '1'] 7\n"
    assert output(warm.stand_in, "-m", "calendar", "2000", "2").strip().startswith("February 2000")


def test_open_files_keep_their_numbers(warm: Zygote, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    high = fcntl.fcntl(writing, fcntl.F_DUPFD, 40)  # a free number; a taken one is somebody's
    try:
        program = f"import os; os.write({high}, b'hello')"
        output(warm.stand_in, "-c", program, pass_fds=(high,))
        assert os.read(reading, 10) == b"hello"
    finally:
        for descriptor in (reading, writing, high):
            os.close(descriptor)


def test_input_is_passed_on(warm: Zygote) -> None:
    assert output(warm.stand_in, "-c", "print(input()[::-1])", input="abc\n") == "cba\n"


@pytest.mark.parametrize(
    ("program", "returncode"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('in words')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(200)", 200),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_the_stand_in_ends_as_the_program_did(warm: Zygote, program: str, returncode: int) -> None:
    ended = subprocess.run([warm.stand_in, "-c", program], stderr=subprocess.DEVNULL, timeout=120)

    assert ended.returncode == returncode


def test_the_bars_of_a_program_that_is_killed_leave_no_semaphore(warm: Zygote) -> None:
    kind = "from tqdm import tqdm; print(type(tqdm.get_lock()).__name__)"

    assert output(sys.executable, "-c", kind) == "TqdmDefaultWriteLock\n"
    assert output(warm.stand_in, "-c", kind) == "RLock\n"


def test_what_a_program_leaves_to_its_end_is_done(warm: Zygote) -> None:
    program = "import atexit; atexit.register(print, 'bye'); print('hello', end=' ')"

    assert output(warm.stand_in, "-c", program) == "hello bye\n"


def test_a_program_can_take_a_name(warm: Zygote) -> None:
    pytest.importorskip("setproctitle")
    program = (
        "import setproctitle; setproctitle.setproctitle('a name of its own'); "
        "print(open('/proc/self/cmdline').read().strip(chr(0)))"
    )

    assert output(warm.stand_in, "-c", program) == "a name of its own\n"


PRINTS_AND_WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def started(warm: Zygote) -> tuple["subprocess.Popen[str]", int]:
    process = subprocess.Popen(
        [warm.stand_in, "-c", PRINTS_AND_WAITS], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as lines:
        return process, int(lines.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_stand_in_ends_the_program(warm: Zygote, number: signal.Signals) -> None:
    process, pid = started(warm)
    process.send_signal(number)

    assert process.wait(60) == -number
    wait_until(lambda: not alive(pid))


def test_a_killed_stand_in_takes_what_the_program_started_in_its_group(warm: Zygote) -> None:
    program = (
        "import subprocess, sys, time; "
        f"subprocess.Popen([sys.executable, '-c', {PRINTS_AND_WAITS!r}]); time.sleep(600)"
    )
    process = subprocess.Popen([warm.stand_in, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as lines:
        started_by_it = int(lines.readline())
    process.kill()

    assert process.wait(60) == -signal.SIGKILL
    wait_until(lambda: not alive(started_by_it))


def test_a_killed_program_ends_its_stand_in(warm: Zygote) -> None:
    process, pid = started(warm)
    os.kill(pid, signal.SIGKILL)

    assert process.wait(60) == -signal.SIGKILL


def test_closing_ends_every_program(own: Zygote) -> None:
    process, pid = started(own)
    own.close()

    assert process.wait(60) == -signal.SIGKILL
    wait_until(lambda: not alive(pid))


def test_the_plain_interpreter_takes_over_when_nobody_answers(own: Zygote) -> None:
    own.close()

    assert output(own.stand_in, "-c", IS_WARM) == "False\n"


def test_a_module_that_cannot_be_imported_costs_time_only(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Zygote(["no_such_module", PRELOADED], folder=tmp_path) as warm:
        assert output(warm.stand_in, "-c", IS_WARM) == "True\n"
    assert "no_such_module" in capfd.readouterr().err


def test_processes_of_a_program_are_warm_too(warm: Zygote, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, os, sys\n"
        "def work(queue):\n"
        f"    queue.put(({PRELOADED!r} in sys.modules, os.getpid()))\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    warm, pid = queue.get(timeout=60)\n"
        "    process.join(60)\n"
        "    print(warm, pid != os.getpid(), process.exitcode)\n"
    )

    assert output(warm.stand_in, program) == "True True 0\n"


def test_everything_dies_with_the_owner(tmp_path: Path) -> None:
    owner = tmp_path / "owner.py"
    owner.write_text(
        "import subprocess, sys, time\n"
        "from pathlib import Path\n"
        "from longhaul_trainer.verl.cpu.zygote import Zygote\n"
        f"warm = Zygote([], folder=Path({str(tmp_path)!r}))\n"
        f"subprocess.Popen([warm.stand_in, '-c', {PRINTS_AND_WAITS!r}])\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, owner], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as lines:
        pid = int(lines.readline())
    process.kill()
    process.wait(60)

    wait_until(lambda: not alive(pid))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-c", "pass", "-x"], ("-c", "pass", ["-x"])),
        (["-u", "-X", "utf8", "-m", "a.b", "c"], ("-m", "a.b", ["c"])),
        (["-W", "error", "-Bs", "file.py", "-c"], ("file", "file.py", ["-c"])),
    ],
)
def test_options_of_the_interpreter_are_passed_over(
    arguments: list[str], expected: tuple[str, str, list[str]]
) -> None:
    assert parsed(arguments) == expected


@pytest.mark.parametrize("arguments", [[], ["-u"], ["-c"]])
def test_a_command_without_a_program_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="no program"):
        parsed(arguments)
