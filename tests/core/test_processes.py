"""What a process has started, and the memory that it holds."""

import os
import subprocess
import sys

from longhaul_core.processes import descendants, resident_bytes

HOLDS = "import sys; held = bytearray(50_000_000); print(1, flush=True); sys.stdin.read()"


def test_all_that_a_process_started_is_below_it_and_what_it_holds_is_counted() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLDS!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        below = descendants(process.pid)

        assert len(below) == 1
        assert process.pid in descendants(os.getpid())
        assert below[0] in descendants(os.getpid())
        assert resident_bytes(below) > 50_000_000
        assert resident_bytes((process.pid, *below)) > resident_bytes(below)
        process.communicate()

    assert descendants(process.pid) == []
    assert resident_bytes([process.pid, *below]) == 0
