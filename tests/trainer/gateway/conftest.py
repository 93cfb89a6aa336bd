"""What the tests of the gateway share: one gateway that is started."""

from collections.abc import Iterator

import pytest

from gateways import Stage


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with Stage() as one:
        yield one
