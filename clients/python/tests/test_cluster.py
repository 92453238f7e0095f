"""The client against three servers that share one database, behind a balancer that sends each connection to the next one."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Iterator

import pytest

from budao import Client, Event, FinalAnswer, Session
from harness import Proxy, TestServer
from postgres import PostgresServer
from test_client import FAST, SCRIPT, ids

SERVERS, SESSIONS, MESSAGES, KILLS = 3, 4, 2, 6


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    database = PostgresServer()
    yield database
    database.stop()


class Cluster:
    """Servers on one database. A killed one starts again; the balancer does not know which ones live."""

    def __init__(self, database: PostgresServer, seed: int) -> None:
        self._journal = database.url
        self._choose = random.Random(seed)
        self._turns = itertools.count()
        self.servers = [self._start() for _ in range(SERVERS)]

    def _start(self, home: Path | None = None) -> TestServer:
        return TestServer(script=SCRIPT, home=home, journal=self._journal, args=["--permission", "auto"])

    def next_port(self) -> int:
        return self.servers[next(self._turns) % SERVERS].port

    async def kill_one(self) -> None:
        index = self._choose.randrange(SERVERS)
        killed = self.servers[index]
        killed.crash()
        self.servers[index] = await asyncio.to_thread(self._start, killed.home)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


async def converse(session: Session, heard: list[Event], progress: asyncio.Semaphore) -> list[str]:
    """Sends the messages, one after the other, and returns their answers. Every event is progress."""
    answers = []
    for number in range(MESSAGES):
        async for event in session.stream(f"go {number}"):
            heard.append(event)
            progress.release()
        assert isinstance(heard[-1], FinalAnswer)
        answers.append(heard[-1].answer)
    return answers


def test_behind_a_balancer_nothing_is_lost_or_repeated_though_servers_are_killed(database: PostgresServer) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)

    async def main() -> None:
        cluster = Cluster(database, seed)
        progress = asyncio.Semaphore(0)

        async def kill() -> int:
            """One server after each share of the events that a run without kills has."""
            for _ in range(KILLS):
                for _ in range(SESSIONS * MESSAGES * 60 // (KILLS + 1)):
                    await progress.acquire()
                await cluster.kill_one()
            return KILLS

        async with Proxy(cluster.next_port) as balancer:
            client = Client(balancer.url, **FAST)
            sessions = [await client.create() for _ in range(SESSIONS)]
            heard: list[list[Event]] = [[] for _ in sessions]
            killing = asyncio.ensure_future(kill())
            answers = await asyncio.gather(*(converse(session, events, progress) for session, events in zip(sessions, heard)))
            assert answers == [["All done."] * MESSAGES] * SESSIONS
            assert await killing == KILLS and balancer.accepted > SESSIONS
            for session, events in zip(sessions, heard):
                await session.close()
                numbers = [event.seq for event in events if event.seq is not None]
                assert numbers == sorted(set(numbers)), f"an event was repeated or out of order (seed {seed})"
                assert ids(events) == await complete(client, session.id), f"an event was lost (seed {seed})"
        cluster.stop()

    asyncio.run(asyncio.wait_for(main(), 230))


async def complete(client: Client, session_id: str) -> list[str | None]:
    """The whole history up to the last answer, as a fresh client gets it from one of the servers."""
    events = []
    async with await client.attach(session_id) as session:
        async for event in session.events():
            events.append(event)
            if sum(isinstance(one, FinalAnswer) for one in events) == MESSAGES:
                break
    return ids(events)
