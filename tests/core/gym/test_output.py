"""What an environment prints reaches the log in part."""

import io

from longhaul_core.gym.output import BoundedOutput


def test_a_call_prints_up_to_the_limit_and_the_next_one_again() -> None:
    stream = io.StringIO()
    output = BoundedOutput(stream, limit=10)
    for _ in range(2):
        output.begin_call()
        print("abcdef", file=output)
        print("ghijkl" * 1000, file=output, flush=True)

    left_out = "\n[the rest that this call prints is left out]\n"
    assert stream.getvalue() == 2 * f"abcdef\nghi{left_out}"
