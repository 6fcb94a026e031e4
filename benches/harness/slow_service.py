"""A service that takes its time for each request, and works on a few at once: more have to wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Callable

# Status line and headers without a length, and the body.
Reply = tuple[str, bytes]


class SlowService:
    """Answers on a port of its own, in a thread of this process."""

    def __init__(self, reply: Callable[[str], Reply], seconds: float, at_once: int) -> None:
        self.reply, self.seconds, self.at_once = reply, seconds, at_once
        self.requests, self.port = 0, 0
        self.loop = asyncio.new_event_loop()
        self.listening = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[SlowService]:
        thread = threading.Thread(target=self.loop.run_until_complete, args=[self.serve()], daemon=True)
        thread.start()
        self.listening.wait()
        try:
            yield self
        finally:
            self.loop.call_soon_threadsafe(self.ended.set)
            thread.join()
            self.loop.close()

    async def serve(self) -> None:
        self.ended, self.permits = asyncio.Event(), asyncio.Semaphore(self.at_once)
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.listening.set()
        await self.ended.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client closes its connections, or this process ends.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.split(b" ", 2)
                self.requests += 1
                async with self.permits:
                    await asyncio.sleep(self.seconds)
                lines, body = self.reply(path.decode())
                content = b"" if method == b"HEAD" else body
                writer.write(f"HTTP/1.1 {lines}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + content)
                await writer.drain()
        writer.close()


async def fetch_all(port: int, chains: list[list[str]], at_once: int) -> None:
    """Sends all requests of the chains, those of one chain one after the other, over so many connections."""
    waiting = iter(chains)

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for chain in waiting:
            for request in chain:
                writer.write(f"{request} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                if request.startswith("GET"):
                    length = head.lower().split(b"content-length: ")[1].split(b"\r")[0]
                    await reader.readexactly(int(length))
        writer.close()

    await asyncio.gather(*(work() for _ in range(at_once)))
