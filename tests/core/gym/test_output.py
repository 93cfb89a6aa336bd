"""What an environment prints reaches the log in part."""

import io
from typing import TextIO, cast

from longhaul_core.gym.output import BoundedOutput

LEFT_OUT = "\n[the rest that this call prints is left out]\n"


def test_a_call_prints_up_to_the_limit_and_the_next_one_again() -> None:
    stream = io.StringIO()
    output = BoundedOutput(stream, limit=10)
    for _ in range(2):
        output.begin_call()
        print("abcdef", file=cast(TextIO, output))
        output.writelines(["ghi", "jkl" * 1000])
        output.flush()

    assert stream.getvalue() == 2 * f"abcdef\nghi{LEFT_OUT}"


def test_a_call_that_prints_just_the_limit_leaves_nothing_out() -> None:
    stream = io.StringIO()
    output = BoundedOutput(stream, limit=5)
    output.write("hello")
    output.write("")
    assert stream.getvalue() == "hello"
    output.write("!")
    assert stream.getvalue() == f"hello{LEFT_OUT}"


def test_what_a_stream_has_beside_text_is_there() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    output = BoundedOutput(stream)
    output.buffer.write(b"bytes")
    assert (output.encoding, output.buffer) == ("utf-8", stream.buffer)
