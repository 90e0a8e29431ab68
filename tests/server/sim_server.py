"""A real HTTP server in a thread: the whole application over a loopback socket, a simulated engine in a real child
process, and a tiny tokenizer of single letters, so that texts in tests are readable.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import tokenizers
import uvicorn
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from octavo.server.app import create_app
from octavo.server.deps import Deps
from octavo.server.listen import listen
from octavo.service.client import EngineClient
from octavo.sim.lone import lone_run
from octavo.sim.model import FakeModel
from octavo.text.chat_template import ChatTemplate
from octavo.text.load import ModelText
from octavo.text.tokenizer import Tokenizer
from octavo.types import Request, SamplingParams

FACTORY = "octavo.sim.build:build_sim_engine"
MODEL = "test/model"
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
EOS = 0
PRINTABLE = [chr(code) for code in range(33, 127)] + ["Ġ"]  # Ġ is the space in the byte alphabet
OTHERS = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(PRINTABLE))
ASCII_VOCAB = len(SPECIAL) + len(PRINTABLE)  # a model of so many tokens writes printable ASCII only
FULL_VOCAB = ASCII_VOCAB + len(OTHERS)  # one token per byte: a model of so many reads any text
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}{% if shout %}!{% endif %}"
    "{% if refuse %}{{ raise_exception(refuse) }}{% endif %}"
    "{% if endless %}{% for i in range(1000000000) %}{% endfor %}{% endif %}"
)

T = TypeVar("T")


def tiny_text() -> ModelText:
    """A tokenizer in which each byte is a token, and a chat template of four special tokens."""
    pieces = SPECIAL + PRINTABLE + OTHERS
    engine = tokenizers.Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer = Tokenizer(engine, bos_id=None, eos_ids=[EOS], source="test")
    return ModelText(
        tokenizer=tokenizer,
        template=ChatTemplate(TEMPLATE, eos_token="<|end|>"),
        eos_ids=tokenizer.eos_ids,
        context_length=4096,
    )


def lone_text(prompt: str, *, vocab: int = ASCII_VOCAB, seed: int = 0, choice: int = 0, **params: Any) -> str:
    """What a request must be answered with, whatever else the server does: the lone run's tokens as text."""
    tokenizer = tiny_text().tokenizer
    tokens = tokenizer.encode(prompt, add_special=False)
    request = Request(id="alone", prompt=tokens, params=SamplingParams(**params), seed=seed)
    run = lone_run(request, FakeModel(vocab), max_len=1024, choice=choice)
    return tokenizer.decode(run.tokens)


def chat_prompt(*turns: str) -> str:
    """The prompt that TEMPLATE makes of alternating user and assistant turns."""
    roles = ("user", "assistant")
    return "".join(f"<|{roles[i % 2]}|>{turn}<|end|>" for i, turn in enumerate(turns)) + "<|assistant|>"


class SimServer:
    """A running server. `run` executes a coroutine function's result in the server's own event loop."""

    def __init__(self, deps: Deps, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.deps = deps
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._loop = loop

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that is called in the server's thread."""

        async def calling() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(calling(), self._loop).result(10)

    def ready(self) -> None:
        asyncio.run_coroutine_threadsafe(self.deps.client.ready(), self._loop).result(20)


@contextmanager
def sim_server(
    *, wait: bool = True, max_body: int = 1 << 20, send_buffer: int | None = None, **spec: Any
) -> Iterator[SimServer]:
    """`spec` holds fields of SimSpec. By default the server is ready, and no answer ends before max_tokens."""
    spec = {"vocab": ASCII_VOCAB, "eos_ids": (), **spec}
    client = EngineClient(FACTORY, spec, queue=spec.get("queue", 64))
    deps = Deps(client=client, text=tiny_text(), model=MODEL, root="test-root", max_body=max_body)
    listener = listen("127.0.0.1", 0)
    if send_buffer is not None:  # bytes; every connection inherits it
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    config = uvicorn.Config(create_app(deps), log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    started: list[asyncio.AbstractEventLoop] = []
    up = threading.Event()

    async def serve() -> None:
        started.append(asyncio.get_running_loop())
        up.set()
        await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="server")
    port = listener.getsockname()[1]
    thread.start()
    try:
        assert up.wait(10)
        sim = SimServer(deps, port, started[0])
        if wait:
            sim.ready()
        yield sim
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"
