"""The limit of open files of our own processes, and of the user's programs."""

import subprocess
import sys

RAISE = (
    "import resource, subprocess, sys\n"
    "from longhaul_core.open_files import raise_open_files, users_open_files\n"
    "raise_open_files()\n"
    "raise_open_files()\n"
    "print(*resource.getrlimit(resource.RLIMIT_NOFILE), *users_open_files(), flush=True)\n"
    "if sys.argv[1:]: subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
)


def after_a_login_with(limit: str) -> str:
    """What a program prints of its limits, and then one that it starts, below a shell's."""
    started = [sys.executable, "-c", RAISE, RAISE]
    return subprocess.run(
        ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", *started],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_program_and_what_it_starts_may_open_what_the_hard_limit_allows() -> None:
    assert after_a_login_with("-Sn 64; ulimit -Hn 2000") == "2000 2000 64 2000\n" * 2


def test_a_limit_that_is_raised_already_is_the_users_too() -> None:
    assert after_a_login_with("-n 300") == "300 300 300 300\n" * 2
