"""TransferQueue, through which rows travel, behind locks.

TransferQueue unpickles all that arrives at its ports, which are open to everybody who reaches the
machine: one message runs code as the user of the run
(docs/upstream/transfer_queue.md). Here its controller and its storage units draw a key each, and
the address that they hand to their clients, by Ray, carries it. Importing this module is what
replaces TransferQueue's making of sockets in a process; an address can be read by no process that
has not imported it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import ray
import transfer_queue
import zmq
from omegaconf import DictConfig
from transfer_queue import controller, interface
from transfer_queue.storage import simple_storage
from transfer_queue.storage.bootstrap import simple_storage_bootstrap
from transfer_queue.storage.managers import base
from transfer_queue.utils import zmq_utils

from longhaul_core.errors import LonghaulError
from longhaul_trainer.verl.locks import Key

_controller_class: Any = controller.TransferQueueController
_storage_class: Any = simple_storage.SimpleStorageUnit
_Controller: Any = _controller_class.__ray_metadata__.modified_class
_StorageUnit: Any = _storage_class.__ray_metadata__.modified_class
_make_socket, _own_address = zmq_utils.create_zmq_socket, zmq_utils.get_node_ip_address


class LockedAddress(str):
    """A server's IP address, with the key that its ports ask for; printed, it is the address."""

    key: Key

    def __new__(cls, address: str, key: Key) -> LockedAddress:
        """The address of a server that has drawn `key`."""
        made = super().__new__(cls, address)
        made.key = key
        return made

    def __reduce__(self) -> tuple[type[LockedAddress], tuple[str, Key]]:
        return LockedAddress, (str(self), self.key)


def locked_address() -> LockedAddress:
    """This node's address with a new key, for a server that is about to listen."""
    return LockedAddress(_own_address(), Key.drawn())


def locked_socket(
    ctx: zmq.Context[Any], socket_type: int, ip: str, identity: bytes | None = None
) -> zmq.Socket[Any]:
    """A socket as TransferQueue makes it, which asks for the key of its server or shows it.

    Raises:
        LonghaulError: If the address carries no key.
    """
    if not isinstance(ip, LockedAddress):
        raise LonghaulError(
            f"the address {ip} of TransferQueue has no key, so anybody could have sent it; every "
            "process of a run must have the same version of longhaul_trainer"
        )
    socket = _make_socket(ctx, socket_type, ip, identity)
    if socket_type == zmq.ROUTER:
        ip.key.lock(socket)
    else:
        ip.key.unlock(socket)
    return socket


class LockedController(_Controller):
    """TransferQueue's controller; its process has imported this module."""


class LockedStorageUnit(_StorageUnit):
    """TransferQueue's storage unit; its process has imported this module."""


def _actor_of(locked: type, theirs: Any) -> Any:  # noqa: ANN401  Ray's own
    return ray.remote(**theirs._default_options)(locked)


def _replace() -> None:
    """Put ours where TransferQueue's modules look for theirs."""
    servers: tuple[Any, ...] = (controller, simple_storage)
    clients: tuple[Any, ...] = (base, zmq_utils)
    for module in servers:
        module.get_node_ip_address = locked_address
    for module in (*servers, *clients):
        module.create_zmq_socket = locked_socket
    interface.TransferQueueController = _actor_of(LockedController, _controller_class)
    simple_storage_bootstrap.SimpleStorageUnit = _actor_of(LockedStorageUnit, _storage_class)


_replace()


@contextmanager
def row_queue(settings: DictConfig) -> Generator[None]:
    """What rows travel by, while the block runs.

    Args:
        settings: verl's of `transfer_queue`.
    """
    transfer_queue.init(settings)
    try:
        yield
    finally:
        transfer_queue.close()
