"""A model hub in miniature, on the loopback interface: the two routes of the real one that a pull needs."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REVISION = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves `repos`: repository id -> file name -> contents. `requests` records (method, path).

    `cut_after` makes downloads break off after so many bytes.
    """

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self.cut_after: int | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._routes())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def info(self, repo: str) -> dict[str, Any]:
        files = [{"rfilename": name, "size": len(data)} for name, data in self.repos[repo].items()]
        return {"id": repo, "sha": REVISION, "tags": ["license:apache-2.0"], "siblings": files}

    def _routes(hub) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Routes(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                hub.requests.append((self.command, path))
                repo = path.removeprefix("/api/models/").split("/revision/")[0]
                if path.startswith("/api/models/") and repo in hub.repos:
                    return self.reply(json.dumps(hub.info(repo)).encode())
                repo, _, rest = path[1:].partition("/resolve/")
                data = hub.repos.get(repo, {}).get(rest.partition("/")[2])
                if data is None:
                    return self.reply(b"", 404, **{"X-Error-Code": "RepoNotFound"})
                return self.reply(data)

            def reply(self, data: bytes, status: int = 200, **headers: str) -> None:
                self.send_response(status)
                headers |= {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": REVISION}
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data[: hub.cut_after])

        return Routes
