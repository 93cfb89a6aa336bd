"""The smoke configuration on a Ray cluster of two nodes, both on this machine. Several minutes."""

import os
import secrets
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ports import free_port
from training.launching import (
    FORKED_TRAINER,
    SMOKE,
    Launched,
    audit,
    finish,
    run,
    trainer,
    wait_until,
)
from training.test_smoke_run import LOGPROB_BOUND
from training.variety import assert_advantages_vary, assert_rewards_vary
from variation import assert_both_signs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

NODE = ("--block", "--num-gpus=1", "--num-cpus=16", "--object-store-memory=268435456")
"""A logical GPU stands for a training worker."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Address of two nodes; they are ended by their process ids."""
    # Ray's sockets are below the folder, and a socket's path is short.
    folder = Path("/tmp") / f"ray-{secrets.token_hex(4)}"
    log = tmp_path_factory.mktemp("cluster")
    address = f"127.0.0.1:{free_port()}"
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    nodes: list[subprocess.Popen[str]] = []

    def start(name: str, *arguments: str) -> None:
        ray = str(Path(sys.executable).with_name("ray"))
        with (log / f"{name}.txt").open("wb") as output:
            nodes.append(
                subprocess.Popen(
                    [ray, "start", *arguments, *NODE], stdout=output, stderr=output, text=True
                )
            )
        wait_until(nodes[-1], lambda: "Ray runtime started" in (log / f"{name}.txt").read_text())

    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        # Ray reads whether it needs a token while it is imported: the trainers are no forks.
        patch.setenv(FORKED_TRAINER, sys.executable)
        try:
            port = address.partition(":")[2]
            start(
                *("head", "--head", "--include-dashboard=false"),
                *(f"--port={port}", f"--temp-dir={folder}"),
            )
            start("second", f"--address={address}")
            yield address
        finally:
            for node in reversed(nodes):
                node.terminate()
            for node in nodes:
                node.wait(60)


@pytest.fixture(scope="module")
def trained(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("two-nodes")
    process = trainer(
        folder,
        "train",
        str(SMOKE),
        f"resources.ray_address={cluster}",
        "resources.num_nodes=2",
        "num_training_steps=2",
        "validation.num_tasks=2",
        "validation.before=false",
        "validation.every=0",
        "checkpoint.every=2",
    )
    launched = finish(process, folder, limit_seconds=1500)
    assert launched.returncode == 0, launched.output
    return launched


def test_a_cluster_that_is_too_small_is_refused_by_its_numbers(
    cluster: str, tmp_path: Path
) -> None:
    refused = run(
        tmp_path,
        *("train", str(SMOKE), f"resources.ray_address={cluster}", "resources.num_nodes=3"),
    )

    assert refused.returncode == 3
    assert "needs 3 Ray nodes with 1 GPUs and 6 CPUs" in " ".join(refused.output.split())


def test_a_rank_on_each_node_trains(trained: Launched) -> None:
    rows = trained.query(
        "SELECT training_step, rank, count(*) FROM call_loss_inputs WHERE trained GROUP BY 1, 2"
    )

    assert [row[:2] for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert trained.query("SELECT status FROM runs") == [("finished",)]


def test_the_episodes_of_both_nodes_are_credited_by_what_they_earned(trained: Launched) -> None:
    assert_rewards_vary(trained)
    assert_advantages_vary(trained, training_steps=(1, 2))
    for rank in (0, 1):
        read = trained.query("SELECT advantage_low FROM call_loss_inputs WHERE rank = ?", rank)
        assert_both_signs(advantage for (advantage,) in read)


def test_the_engines_of_both_nodes_have_the_learners_weights(trained: Launched) -> None:
    rows = trained.query(
        "SELECT value FROM metrics WHERE name = 'agreement/logprob_difference_mean'"
    )

    assert len(rows) == 2
    assert all(0 < value < LOGPROB_BOUND for (value,) in rows), rows


def test_the_audit_finds_nothing(trained: Launched) -> None:
    audit(trained)


def test_the_cluster_outlives_the_run_and_carries_the_next(cluster: str, trained: Launched) -> None:
    script = (
        "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); "
        "print(sum(n['Alive'] for n in ray.nodes()), len(ray.util.list_named_actors(True)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, cluster],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
    )

    assert done.stdout.split() == ["2", "0"]
