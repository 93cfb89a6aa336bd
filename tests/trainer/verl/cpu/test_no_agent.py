"""Tests for `longhaul_trainer.verl.cpu.no_agent`."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from longhaul_trainer.verl.cpu import no_agent


def test_it_says_as_rays_minimal_agent_does_that_no_port_is_in_use_and_ends_with_its_node(
    tmp_path: Path,
) -> None:
    ray: Any = import_module("ray._raylet")
    node = ray.NodeID.from_random().hex()
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    for name in no_agent.PORTS:
        ray.persist_port(str(theirs), node, name, -1)
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-IS", no_agent.__file__, f"--session-dir={ours}", f"--node-id={node}"],
        stdin=read,
    ) as agent:
        os.close(read)

        found = [
            ray.wait_for_persisted_port(str(ours), node, name, timeout_ms=60_000)
            for name in no_agent.PORTS
        ]
        lived = agent.poll() is None
        os.close(write)
        agent.wait(60)

    assert found == [-1, -1, -1]
    assert lived
    assert agent.returncode == 0
    assert {one.name: one.read_bytes() for one in ours.iterdir()} == {
        one.name: one.read_bytes() for one in theirs.iterdir()
    }
