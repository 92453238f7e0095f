"""A session server on Python `websockets`, for `cargo xtask bench`: for each event it does what the reference server does.

An event is a dictionary, stamped with time, session, connection, number and what a person is shown; it goes into the
session's ring of events, into the queue of its connection, and is written as JSON by the connection's one writer. A run
streams as many pieces as the message asks for, then the whole answer. Nothing is kept on disk. What the reference leaves
out or gets wrong is right here: every piece is sent, and a replay is whole. It does no more for an event than it must.
"""

import asyncio
import json
import uuid
from collections import deque
from datetime import datetime

import websockets

PIECE = "x" * 200
QUEUED = 1000
KEPT = 20_000
"""The reference keeps 1000 and replays 200; a replay of all needs more."""

sessions = {}


class Session:
    def __init__(self, connection):
        self.id = str(uuid.uuid4())
        self.connection = connection
        self.events = deque(maxlen=KEPT)
        self.run = None


class Connection:
    def __init__(self, socket):
        self.id = str(uuid.uuid4())
        self.socket = socket
        self.seq = 0
        self.queue = asyncio.Queue(QUEUED)

    async def write(self):
        while True:
            event = await self.queue.get()
            await self.socket.send(json.dumps(event, ensure_ascii=False))

    async def emit(self, name, session, content=None, metadata=None, show=None):
        self.seq += 1
        event = {
            "event": name,
            "timestamp": datetime.now().isoformat(),
            "session_id": session.id if session else None,
            "content": content,
            "metadata": {**(metadata or {}), "connection_id": self.id},
            "show_content": show,
            "seq": self.seq,
            "event_id": f"{self.id}-{self.seq}",
        }
        if session:
            session.events.append(event)
        await self.queue.put(event)

    async def answer(self, session, pieces):
        """A run."""
        for number in range(pieces):
            metadata = {"is_streaming": True, "is_final": False, "word_count": len(PIECE.split())}
            show = PIECE if len(PIECE) <= 200 else PIECE[:199] + "…"
            await self.emit("agent.partial_answer", session, PIECE, metadata, show)
        whole = PIECE * pieces
        await self.emit("agent.final_answer", session, whole, None, whole)

    async def replay(self, session, after):
        """What was missed, stamped anew as the reference does."""
        for event in [event for event in session.events if event["seq"] > after]:
            self.seq += 1
            metadata = {**event["metadata"], "orig_seq": event["seq"], "orig_event_id": event["event_id"]}
            event = {**event, "metadata": metadata, "seq": self.seq, "event_id": f"{self.id}-{self.seq}"}
            await self.queue.put(event)
        await self.emit("system.notice", None, "replayed", {"action": "replay", "last_seq": self.seq})

    async def hear(self, text):
        asked = json.loads(text)
        name, session = asked["event"], sessions.get(asked.get("session_id"))
        if name == "user.create_session":
            session = Session(self)
            sessions[session.id] = session
            await self.emit("agent.session_created", session, "created", {"agent_name": "bench"})
        elif name == "user.message":
            session.run = asyncio.create_task(self.answer(session, int(asked["content"])))
        elif name == "user.reconnect":
            await self.replay(session, asked["content"]["last_seq"])


async def attend(socket):
    connection = Connection(socket)
    writer = asyncio.create_task(connection.write())
    await connection.emit("system.connected", None, "connected")
    try:
        async for text in socket:
            await connection.hear(text)
    except websockets.ConnectionClosed:
        pass
    finally:
        writer.cancel()


async def main():
    # As the reference sets it: frames of a mebibyte, pings twice a minute. No compression: none is asked for.
    async with websockets.serve(attend, "127.0.0.1", 0, max_size=2**20, ping_interval=30, ping_timeout=10) as server:
        host, port = server.sockets[0].getsockname()
        print(f"{host}:{port}", flush=True)
        await asyncio.Future()


asyncio.run(main())
