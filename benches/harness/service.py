"""Services that the gateway talks to, in this process."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by its server's `answer`."""

    protocol_version = "HTTP/1.1"
    # Head and body in one write. The second of two would wait for the first one's acknowledgement, which takes 40 ms.
    wbufsize = -1

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = json.dumps(self.server.answer(self.command, self.path, body)).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PATCH = do_POST = do

    def log_message(self, *_: object) -> None:
        pass


class Service(http.server.ThreadingHTTPServer):
    """A service in this process, on a port of its own."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A gateway that ends resets its connections."""

    def answer(self, method: str, path: str, body: bytes) -> Any:
        raise NotImplementedError
