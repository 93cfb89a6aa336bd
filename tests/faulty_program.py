"""A program that plays an episode, or breaks it in the way that its task names.

    python faulty_program.py < task.json

Standard library only, and little of it: it starts in milliseconds, and knows no vendor's client.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

MARK = "86397"
"""Seconds that a process sleeps which must not outlive its episode; nobody else sleeps as long."""


def post(url: str, body: dict[str, object]) -> bytes:
    """What is answered to a JSON body, over a bare socket."""
    host, _, path = url.removeprefix("http://").partition("/")
    content = json.dumps(body).encode()
    head = (
        f"POST /{path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {os.environ['LONGHAUL_KEY']}\r\nContent-Length: {len(content)}"
    )
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + content)
        head, _, answer = connection.makefile("rb").read().partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(f"{head.splitlines()[0]!r}: {answer!r}")
    return answer


def call(text: str = "What now?") -> str:
    """One call of the policy."""
    message = {"role": "user", "content": text}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    reply = json.loads(post(url, {"model": "auto", "messages": [message]}))
    return reply["choices"][0]["message"]["content"]


def report(path: str, said: dict[str, object]) -> None:
    """What our client posts."""
    post(f"{os.environ['LONGHAUL_URL']}/{path}", said)


def say(text: object) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def hang() -> None:
    """Wait for longer than any episode."""
    time.sleep(float(MARK))


def sleeper(*, in_session_of_its_own: bool) -> None:
    """Start a process that outlives this one, and holds its standard output."""
    subprocess.Popen(["sleep", MARK], start_new_session=in_session_of_its_own)


# Each is called with what the task names as its argument.


def play(calls: int) -> None:
    for number in range(calls):
        call(f"call {number}")
    say(json.dumps({"reward": 1.0, "success": True}))


def play_paid(calls: int) -> None:
    for number in range(calls):
        call(f"call {number}")
        report("step", {"reward": 0.5})


def paid_and_solved(_: object) -> None:
    call()
    report("step", {"reward": 0.25})
    say(json.dumps({"success": True}))


def solved_unpaid(_: object) -> None:
    call()
    say(json.dumps({"success": True}))


def crash_before(_: object) -> None:
    raise RuntimeError("crashed before any call")


def crash_between(_: object) -> None:
    call()
    raise RuntimeError("crashed between calls")


def crash_after(_: object) -> None:
    call()
    report("reward", {"value": 1.0})
    sys.exit(7)


def hang_after_call(_: object) -> None:
    call()
    say("waiting for what never comes")
    hang()


def ignore_sigterm(_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    call()
    hang()


def outlived_by_grandchild(_: object) -> None:
    call()
    sleeper(in_session_of_its_own=False)
    sleeper(in_session_of_its_own=True)
    if not os.fork():  # a daemon: its parent is gone, and its session is its own
        os.setsid()
        if not os.fork():
            os.execvp("sleep", ["sleep", MARK])
        os._exit(0)
    os.wait()
    say(1)


def flood(_: object) -> None:
    call()
    while True:
        os.write(1, b"x" * 65_536)


def long_line(num_bytes: int) -> None:
    call()
    say("x" * num_bytes)
    say(0.25)


def tiny_lines(number: int) -> None:
    call()
    for _ in range(number):
        os.write(1, b"\n")
    say(0.25)


def invalid_utf8(_: object) -> None:
    call()
    os.write(1, b"\xff\xfe\x00\n")
    os.write(2, b"\xc3\n")
    say(0.25)


def reward_twice(values: list[float]) -> None:
    call()
    for value in values:
        report("reward", {"value": value})


def contradict_itself(_: object) -> None:
    call()
    report("reward", {"value": 1.0})
    say(0.5)


def contradict_itself_at_a_limit(_: object) -> None:
    report("reward", {"value": 1.0})
    with contextlib.suppress(RuntimeError):
        while True:
            call()
    say(0.5)


def step_rewards(values: list[float]) -> None:
    call("one")
    call("two")
    say(json.dumps({"step_rewards": values}))


def stumble(second: str) -> None:
    call("one")
    with contextlib.suppress(RuntimeError):
        call(second)
    call("three")
    say(json.dumps({"step_rewards": [0.5, 2]}))


def send_much(num_bytes: int) -> None:
    call()
    with contextlib.suppress(RuntimeError):
        call("x" * num_bytes)
    call()
    say(0.25)


def send_nonsense(_: object) -> None:
    """To every kind of route, and to none; then play on."""
    host, _, path = os.environ["OPENAI_BASE_URL"].removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    head = f"Host: {host}\r\nAuthorization: Bearer {os.environ['LONGHAUL_KEY']}\r\n"
    below = ("/chat/completions", "/completions", "/responses", "/messages", "/models/auto", "/no")
    for request in (
        b"\x16\x03\x01\x02\x00 no HTTP at all\r\n\r\n",
        *(
            f"POST /{path}{route} HTTP/1.0\r\n{head}Content-Length: 9\r\n\r\n".encode() + body
            for route in below
            for body in (b'{"a": 1e9', b"\xff" * 9, b"[[[[[[[[[", b"{}       ")
        ),
        f"POST /{path}/chat/completions HTTP/1.0\r\n{head}Content-Length: 99\r\n\r\nhalf".encode(),
    ):
        with socket.create_connection((name, int(port)), timeout=60) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.makefile("rb").readline()
        if answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5")):
            raise RuntimeError(f"{request!r} got {answer!r}")
    call()
    say(0.25)


def leave_stream(_: object) -> None:
    """Go away when the first bytes of a stream are there."""
    host, _, path = os.environ["OPENAI_BASE_URL"].removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    message = {"role": "user", "content": "Tell me all."}
    body = json.dumps({"model": "auto", "messages": [message], "stream": True}).encode()
    head = (
        f"POST /{path}/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: Bearer {os.environ['LONGHAUL_KEY']}\r\nContent-Length: {len(body)}"
    )
    with socket.create_connection((name, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        connection.recv(16)
    call()
    say(0.25)


def wrong_key(_: object) -> None:
    call()
    own, os.environ["LONGHAUL_KEY"] = os.environ["LONGHAUL_KEY"], "lh-of-another-episode"
    with contextlib.suppress(RuntimeError):
        call()
    os.environ["LONGHAUL_KEY"] = own
    say(0.25)


def call_after_done(_: object) -> None:
    call()
    report("step", {"reward": 1.0, "done": True})
    call()


def go_on_after_done(_: object) -> None:
    call()
    report("step", {"reward": 1.0, "done": True})
    hang()


def no_reward(_: object) -> None:
    call()
    say("done, I think")


def not_a_number(_: object) -> None:
    call()
    say("NaN")


def no_call(_: object) -> None:
    say(1.0)


def delete_own_folder(_: object) -> None:
    call()
    shutil.rmtree(Path.cwd())
    shutil.rmtree(os.environ["TMPDIR"])
    say(1)


def locked_folder(_: object) -> None:
    call()
    Path("locked").mkdir()
    Path("locked/file").write_text("", encoding="utf-8")
    Path("locked").chmod(0)
    say(1)


def take_memory(num_bytes: int) -> None:
    call()
    held = b"x" * num_bytes
    hang()
    del held


def take_processes(number: int) -> None:
    call()
    for _ in range(number):
        sleeper(in_session_of_its_own=True)
    hang()


def kill_keeper(_: object) -> None:
    call()
    sleeper(in_session_of_its_own=True)
    os.kill(os.getppid(), signal.SIGKILL)
    hang()


def slow(seconds: float) -> None:
    call("one")
    time.sleep(seconds)
    call("two")
    say(json.dumps({"reward": 1.0, "success": True}))


def persist(path: str) -> None:
    """Call for ever; a line of the file for each answer, `yes` or `no`."""
    while True:
        answered = "yes"
        try:
            call()
        except RuntimeError:
            answered = "no"
        with Path(path).open("a", encoding="utf-8") as lines:
            lines.write(f"{answered}\n")
        time.sleep(0.05)


def show(_: object) -> None:
    call()
    say(json.dumps({"reward": 0, "environ": dict(os.environ), "folder": str(Path.cwd())}))


if __name__ == "__main__":
    task = json.load(sys.stdin)
    assert task == json.loads(Path(os.environ["LONGHAUL_TASK_FILE"]).read_text(encoding="utf-8"))
    fault: Callable[[object], None] = globals()[task["fault"]]
    fault(task.get("argument"))
