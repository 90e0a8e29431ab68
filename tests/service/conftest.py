"""Asynchronous tests of the service run on asyncio, which the client is written for."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
