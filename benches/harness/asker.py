"""Questions over one connection, a batch at a time, so that the client is not what takes long."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

from .client import TOKEN
from .error import BenchError
from .workload import GETPARAMS

# How many requests are sent before their answers are read.
BATCH = 32


class Asker:
    def __init__(self, port: int) -> None:
        # The first answer about 10,000 elements takes long.
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.head = (
            f"POST {GETPARAMS} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        )
        self.received = b""

    def ask(self, parameters: Iterable[str]) -> bytes:
        """Asks each question, which is the JSON of its parameters. Returns the last answer."""
        batch: list[bytes] = []
        last = b""
        for each in parameters:
            body = f'{{"applicationSetName":"scale","input":{{"parameters":{each}}}}}'
            batch.append(f"{self.head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            if len(batch) == BATCH:
                last = self.exchange(batch)
                batch = []
        return self.exchange(batch) if batch else last

    def exchange(self, batch: list[bytes]) -> bytes:
        self.socket.sendall(b"".join(batch))
        return [self.take_answer() for _ in batch][-1]

    def take_answer(self) -> bytes:
        while b"\r\n\r\n" not in self.received:
            self.receive()
        head, _, rest = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if not head.startswith(b"HTTP/1.1 200 ") or length is None:
            raise BenchError(f"the gateway answered {self.received[:1000].decode(errors='replace')}")
        parts, missing = [rest], int(length[1]) - len(rest)
        while missing > 0:
            self.received = b""
            self.receive()
            parts.append(self.received)
            missing -= len(self.received)
        whole = b"".join(parts)
        self.received = whole[int(length[1]) :]
        return whole[: int(length[1])]

    def receive(self) -> None:
        more = self.socket.recv(1 << 20)
        if not more:
            raise BenchError("the gateway closed the connection")
        self.received += more
