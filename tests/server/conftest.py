"""Fixtures of the server's tests: one shared server with a simulated engine, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
from sim_server import SimServer, sim_server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[SimServer]:
    """Answers at a token per millisecond; 8 rows, contexts of 1024 tokens."""
    with sim_server(step_s=0.001) as running:
        yield running


@pytest.fixture(scope="session")
def http(server: SimServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def client(server: SimServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client
