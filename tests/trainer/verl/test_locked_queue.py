"""Tests for `longhaul_trainer.verl.locked_queue`: who lacks the key is not read."""

import asyncio
import pickle
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import zmq

from longhaul_core.errors import LonghaulError
from longhaul_trainer.verl.locks import Key, Socket
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

SHOWN = b"TQ_STORAGE_"
"""How a client of a storage unit begins its name; it drops all others."""


class Opened:
    """A file that is made where this is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self._path), "w")


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Generator[dict[str, Any]]:
    """A controller and a storage unit as a run's actors hold them."""
    from longhaul_trainer.verl import locked_queue

    monkeypatch.setattr(locked_queue, "_own_address", lambda: "127.0.0.1")  # without a Ray
    made = started(locked_queue.LockedController, locked_queue.LockedStorageUnit)
    yield made
    made["storage"].shutdown()  # a controller ends with its process alone


def started(controller_class: Any, storage_class: Any) -> dict[str, Any]:  # noqa: ANN401
    from transfer_queue.sampler import SequentialSampler

    return {
        "controller": controller_class(sampler=SequentialSampler()),
        "storage": storage_class({"num_data_storage_units": 1}),
    }


def doors(made: dict[str, Any]) -> list[str]:
    """Every address that the servers listen at."""
    infos = [server.get_zmq_server_info() for server in made.values()]
    return [info.to_addr(port) for info in infos for port in info.ports]


@contextmanager
def connected_to(address: str, unlock: Callable[[Socket], None]) -> Generator[Socket]:
    """A client's socket; whoever is refused cannot even send for ever."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger, socket.sndtimeo, socket.rcvtimeo = 0, 1_000, 1_000
        socket.identity = SHOWN + b"stranger"
        unlock(socket)
        socket.connect(address)
        yield socket


def answers(
    address: str, frames: list[bytes], *, unlock: Callable[[Socket], None] = lambda _: None
) -> bool:
    """Whether a message with these frames is answered within a second."""
    with connected_to(address, unlock) as socket:
        try:
            socket.send_multipart(frames)
            socket.recv_multipart()
        except zmq.Again:
            return False
        return True


def poisoned(path: Path) -> list[bytes]:
    from transfer_queue.utils.serial_utils import _PICKLE_FALLBACK_SENTINEL as marker

    return [marker, pickle.dumps(Opened(path))]


def test_a_strangers_message_is_unpickled_by_no_server_and_the_same_message_with_the_key_is(
    servers: dict[str, Any], tmp_path: Path
) -> None:
    for number, address in enumerate(doors(servers)):
        path = tmp_path / str(number)

        assert not answers(address, poisoned(path))
        assert not answers(address, poisoned(path), unlock=Key.drawn().unlock)
        assert not path.exists()

    # The message is what it should be: it does its harm where the key is right.
    info = servers["storage"].get_zmq_server_info()
    path = tmp_path / "with the key"
    assert answers(info.to_addr("put_get_socket"), poisoned(path), unlock=info.ip.key.unlock)
    assert path.exists()


def test_who_knows_the_public_half_of_a_key_alone_is_not_read(
    servers: dict[str, Any], tmp_path: Path
) -> None:
    info = servers["storage"].get_zmq_server_info()
    address, own, path = info.to_addr("put_get_socket"), Key.drawn(), tmp_path / "written"

    def with_half_a_key(socket: Socket) -> None:
        socket.curve_serverkey = info.ip.key.public
        socket.curve_publickey, socket.curve_secretkey = own.public, own.secret

    assert not answers(address, poisoned(path), unlock=with_half_a_key)
    assert not path.exists()


def test_rows_come_back_as_they_were_put_by_who_was_given_the_address_by_ray(
    servers: dict[str, Any],
) -> None:
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from transfer_queue.client import TransferQueueClient

    infos = {name: server.get_zmq_server_info() for name, server in servers.items()}
    infos = pickle.loads(pickle.dumps(infos))  # as Ray hands it on
    client = TransferQueueClient(client_id="client", controller_info=infos["controller"])
    storage: Any = OmegaConf.create(
        {"zmq_info": {"unit": infos["storage"]}}, flags={"allow_objects": True}
    )
    client.initialize_storage_manager(manager_type="SimpleStorage", config=storage)
    rows = TensorDict({"tokens": torch.arange(12).reshape(4, 3)}, batch_size=4)
    try:
        meta = asyncio.run(client.async_put(data=rows, partition_id="train"))
        back = asyncio.run(client.async_get_data(meta))
    finally:
        client.close()

    tokens: Any = back["tokens"]
    assert torch.equal(torch.stack(tokens.unbind()), rows["tokens"])


def test_an_address_shows_its_key_to_nobody_who_prints_it(servers: dict[str, Any]) -> None:
    for server in servers.values():
        info = server.get_zmq_server_info()
        key = info.ip.key

        printed = (
            f"{info} {info.to_dict()} {info.ip!r} {key} {info.to_addr(next(iter(info.ports)))}"
        )
        assert "127.0.0.1" in printed
        for half in (key.public, key.secret):
            assert half.decode() not in printed


def test_an_address_without_a_key_is_not_asked() -> None:
    from longhaul_trainer.verl.locked_queue import locked_socket

    with zmq.Context() as context, pytest.raises(LonghaulError, match=r"192\.0\.2\.1 .* no key"):
        locked_socket(context, zmq.DEALER, "192.0.2.1")


def test_transfer_queue_itself_unpickles_what_a_stranger_sends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Why there are locks: once this fails, upstream has its own (docs/upstream)."""
    from transfer_queue import controller
    from transfer_queue.storage import simple_storage
    from transfer_queue.utils import zmq_utils

    from longhaul_trainer.verl import locked_queue

    for module in (controller, simple_storage):
        monkeypatch.setattr(module, "get_node_ip_address", lambda: "127.0.0.1")
    for module in (controller, simple_storage, zmq_utils):
        monkeypatch.setattr(module, "create_zmq_socket", locked_queue._make_socket)
    made = started(locked_queue._Controller, locked_queue._StorageUnit)
    try:
        for number, address in enumerate(doors(made)):
            path = tmp_path / str(number)
            answers(address, poisoned(path))
            assert path.exists()
    finally:
        made["storage"].shutdown()
