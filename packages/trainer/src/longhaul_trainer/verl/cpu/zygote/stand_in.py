"""Takes the place of a Python interpreter: hands its command over, and lives as long as that.

Run as `python -IS stand_in.py ADDRESS [interpreter arguments]`, with the standard library
alone and as little of it as can be, so that it starts in some milliseconds. If nobody
answers at ADDRESS it becomes the plain interpreter, and the program only starts later.
"""

import array
import json
import os
import signal
import socket
import sys

MAX_DESCRIPTORS = 200
"""Linux passes at most 253 at once."""
NUMBER_BYTES = 4
"""A length, a process id or a wait status, as the two send it."""


def main() -> None:
    """Hand the command over, wait for its end, and end in the same way."""
    address, *arguments = sys.argv[1:]
    inherited = inherited_descriptors()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect("\0" + address)
        pid = handed_over(connection, arguments, inherited)
    except OSError:
        pid = None
    if pid is None:
        os.execv(sys.executable, [sys.executable, *arguments])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: pass_on(pid, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to every process itself
    for descriptor in inherited:
        if descriptor > 2:  # whoever reads their other end waits for the program to close them
            os.close(descriptor)
    end_like(received_number(connection))


def inherited_descriptors() -> list[int]:
    """Files that were open when this process began."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if os.get_inheritable(descriptor):
                found.append(descriptor)
        except OSError:  # the descriptor of the listing itself
            continue
    return sorted(found)


def handed_over(
    connection: socket.socket, arguments: list[str], descriptors: list[int]
) -> int | None:
    """The process that runs the command, or None if it is not for a zygote."""
    if len(descriptors) > MAX_DESCRIPTORS:
        return None
    command = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "descriptors": descriptors,
    }
    body = json.dumps(command).encode()
    passed = array.array("i", descriptors)
    connection.sendmsg(
        [len(body).to_bytes(NUMBER_BYTES, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)]
    )
    connection.sendall(body)
    return received_number(connection)  # comes when the imports are done


def received_number(connection: socket.socket) -> int | None:
    """The next number that the server sends, or None if it is gone."""
    answer = b""
    while len(answer) < NUMBER_BYTES:
        piece = connection.recv(NUMBER_BYTES - len(answer))
        if not piece:
            return None
        answer += piece
    return int.from_bytes(answer, "big")


def pass_on(pid: int, number: int) -> None:
    """Send the program a signal that was meant for it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def end_like(status: int | None) -> None:
    """Exit with the wait status of the program; without one it was killed."""
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:  # which no handler can be set for
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
