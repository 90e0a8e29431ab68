"""A small OpenAI server for tests of the load client: counts words as tokens, answers with the word "tok" max_tokens
times, and remembers what it was asked. Deliberately not Octavo's server, so that both must speak the protocol.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from octavo.server.metrics import COUNTERS

TEMPLATE_TOKENS = 7
TOKENS_PER_WORD = 2


@dataclass
class Stub:
    """`refuse` are body fields answered with 400; `fail_every` n: every n-th stream breaks off half-way; `hang_up`: the
    connection is closed after a stream, without a word."""

    refuse: frozenset[str] = frozenset()
    fail_every: int = 0
    hang_up: bool = False
    metrics: bool = True
    token_s: float = 0.0
    context_length: int | None = 4096
    port: int = 0
    base_url: str = ""
    streams: list[dict[str, Any]] = field(default_factory=list)
    active: int = 0
    most_active: int = 0
    useful: float = 10.0
    allocated: float = 20.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def prompt_tokens(self, body: dict[str, Any]) -> int:
        return TEMPLATE_TOKENS + TOKENS_PER_WORD * len(body["messages"][-1]["content"].split())


@contextmanager
def running(stub: Stub) -> Iterator[Stub]:
    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                card = {"id": "stub", "object": "model", "max_model_len": stub.context_length}
                self._whole(200, json.dumps({"object": "list", "data": [card]}))
            elif self.path == "/health":
                self._whole(200, "{}")
            elif self.path == "/metrics" and stub.metrics:
                self._whole(200, metrics_text(stub))
            else:
                self._whole(404, "{}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if stub.refuse & body.keys():
                self._whole(400, json.dumps({"error": {"message": "unknown field"}}))
            elif body.get("stream"):
                self._stream(body)
            else:
                self._whole(200, json.dumps({"choices": [], "usage": usage(stub, body)}))

        def _stream(self, body: dict[str, Any]) -> None:
            with stub.lock:
                stub.streams.append(body)
                broken = bool(stub.fail_every) and len(stub.streams) % stub.fail_every == 0
                stub.active += 1
                stub.most_active = max(stub.most_active, stub.active)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
            for _ in range(body["max_tokens"]):
                time.sleep(stub.token_s)
                self._event({"choices": [{"index": 0, "delta": {"content": "tok "}}]})
                if broken:
                    break
            with stub.lock:
                stub.active -= 1
                stub.useful += 97.0
                stub.allocated += 100.0
            if broken:
                self.close_connection = True
                return
            self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
            self._event({"choices": [], "usage": usage(stub, body)})
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
            self.close_connection = stub.hang_up

        def _event(self, event: dict[str, Any]) -> None:
            self._chunk(f"data: {json.dumps(event)}\n\n".encode())

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def _whole(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", stub.port), Answering)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    stub.base_url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def usage(stub: Stub, body: dict[str, Any]) -> dict[str, int]:
    prompt = stub.prompt_tokens(body)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": body["max_tokens"],
        "total_tokens": prompt + body["max_tokens"],
    }


def metrics_text(stub: Stub) -> str:
    """Octavo's own names, as the comparison of readings looks for them."""
    values = {
        "useful_slot_seconds": stub.useful,
        "allocated_slot_seconds": stub.allocated,
        "preemptions": len(stub.streams),
        "hit_tokens": 0,
    }
    return "".join(
        f"# TYPE octavo_{COUNTERS[stat][0]} counter\noctavo_{COUNTERS[stat][0]}_total {value}\n"
        for stat, value in values.items()
    )
