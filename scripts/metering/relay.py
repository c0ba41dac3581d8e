"""A relay of TCP connections that can be cut."""
import asyncio
import contextlib


class Relay:
    """Relays connections to a port on loopback. While it is cut, open connections end and new ones are refused."""

    def __init__(self, target):
        self.target = target
        self.port = 0
        self.server = None
        self.writers = set()

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    def cut(self):
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()

    def restore(self):
        self.restarted = asyncio.ensure_future(self.start())

    async def serve(self, reader, writer):
        # Connections that are open at the end are cancelled.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target)
            both = {writer, target_writer}
            self.writers |= both
            await asyncio.gather(copy(reader, target_writer), copy(target_reader, writer), return_exceptions=True)
            self.writers -= both


async def copy(reader, writer):
    try:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    finally:
        writer.close()
