"""One connection, without a server: what a cancellation at an awkward moment leaves behind."""

from __future__ import annotations

import asyncio
from typing import Any

from budao._connection import Connection, Settings


class SlowSocket:
    """A socket whose `send` ends when the test says so."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def send(self, _: str) -> None:
        await self.may_end.wait()


async def write_and_give_up(turns: int) -> bool:
    """Gives a connection up some turns of the loop after a frame was sent. Returns whether its writer ended."""
    connection, socket = Connection(Settings("ws://127.0.0.1:1/ws"), None), SlowSocket()  # type: ignore[arg-type]
    there: Any = socket
    connection._socket = there
    writer = asyncio.ensure_future(connection._write(there))
    connection.send({"event": "user.message"})
    await asyncio.sleep(0.01)
    socket.may_end.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    connection._socket = None
    writer.cancel()
    ended, _ = await asyncio.wait({writer}, timeout=60)
    writer.cancel()
    return writer in ended


def test_a_lost_connection_is_given_up_though_a_frame_was_just_sent() -> None:
    async def main() -> list[bool]:
        return [await write_and_give_up(turns) for turns in range(6)]

    assert asyncio.run(main()) == [True] * 6
