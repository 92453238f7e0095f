"""Kills workers (Python and Node), the server and clients at random, and checks the effects in a ledger.

Goal: no effect of a tool that is not idempotent happens twice, no result is lost, every call has one end, and a call is in doubt
only if the process that claimed it was killed. Method: real processes; sessions with many calls run while SIGKILL hits one process
after the other; then the ledger that the functions wrote, the records of the sessions and what the clients were told are compared.
The seed decides who is killed and when; the order of everything else is that of the machine.
Usage: kills.py --kills 200 [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "python/src"), str(HERE.parent / "python/tests")]

from budao import Client, Cursor, Event, FinalAnswer, Session, ToolResult, TurnFailure  # noqa: E402
from harness import IMPATIENT, PROGRAM, TOKEN, Proxy, TestServer  # noqa: E402

CALLS, SESSIONS = 12, 4
#: Seconds that the last turns may take; a call that waits for its whole deadline fits in.
LAST_TURNS = 300
#: Attempts of a call whose processes were killed; then the call ends in doubt, idempotent or not.
TRIES = 3


def script(choose: random.Random) -> str:
    """A model that pays and notes in turns, two calls in each step, and then answers."""
    steps = []
    for _ in range(CALLS // 2):
        pair = [f"[[step.call]]\ntool = '{name}'\narguments = '{json.dumps({'n': choose.randrange(1000)})}'\n" for name in ("pay", "note")]
        steps.append("[[step]]\n" + "".join(pair))
    return f'order = "history"\n{"".join(steps)}[[step]]\ntext = "All done."\nrepeat = "forever"\n'


class Playground:
    """The processes that are killed, and what their clients were told."""

    def __init__(self, kills: int, seed: int) -> None:
        self.choose = random.Random(seed)
        self.script = script(self.choose)
        self.server = TestServer(script=self.script, args=["--permission", "auto"], env=IMPATIENT)
        self.ledger = self.server.home / "ledger"
        self.ledger.touch()
        self.kills_left = kills
        self.killed: Counter[str] = Counter()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.worker_ids: dict[int, str] = {}
        #: The ids of killed workers.
        self.gone: set[str] = set()
        #: The workers that claimed a call, in order, by session and call.
        self.claims: dict[tuple[str, str], list[str]] = {}
        self.sessions: dict[str, list[Event]] = {}

    def start_worker(self, index: int, url: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "TOKEN": TOKEN, "PYTHONPATH": str(HERE.parent / "python/src")}
        worker_id = self.worker_ids[index] = f"w-{index}-{len(self.gone)}"
        if index % 2 == 0:
            command = [sys.executable, str(HERE / "worker.py"), url, str(self.ledger), worker_id]
        else:
            command = ["node", str(HERE / "worker.mjs"), str(HERE.parent / "typescript/dist"), url, str(self.ledger), worker_id]
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=open(self.server.home / "workers.log", "ab"))

    async def kill_one(self, url: str) -> None:
        """Kills one process, or the connections of all clients, and starts what it killed again."""
        what = self.choose.choices(["python", "node", "server", "client"], [40, 40, 10, 10])[0]
        self.killed[what] += 1
        if what in ("python", "node"):
            index = self.choose.randrange(len(self.workers) // 2) * 2 + (what == "node")
            self.gone.add(self.worker_ids[index])
            self.workers[index].kill()
            self.workers[index].wait()
            self.workers[index] = self.start_worker(index, url)
        elif what == "server":
            self.server.crash()
            self.server = await asyncio.to_thread(TestServer, script=self.script, args=["--permission", "auto"], home=self.server.home, env=IMPATIENT)
        else:
            for abandon in list(self.abandoned.values()):
                abandon.set()

    async def play(self) -> None:
        self.abandoned: dict[int, asyncio.Event] = {}
        async with Proxy(lambda: self.server.port) as proxy:
            self.workers = [self.start_worker(index, proxy.url) for index in range(4)]
            # The server knows a tool once a worker has offered it, also while no worker is there.
            assert self.workers[0].stdout is not None
            await asyncio.to_thread(self.workers[0].stdout.readline)
            turns = [asyncio.ensure_future(self.run_sessions(index, proxy.url)) for index in range(SESSIONS)]
            try:
                while self.kills_left > 0:
                    await asyncio.sleep(self.choose.uniform(0.02, 0.3))
                    await self.kill_one(proxy.url)
                    self.kills_left -= 1
                await self.finish(turns)
                await asyncio.to_thread(self.read_claims)
            finally:
                for turn in turns:
                    turn.cancel()
                for worker in self.workers:
                    worker.kill()
                    worker.wait()

    async def finish(self, turns: "list[asyncio.Future[None]]") -> None:
        """Waits for the turns that still run. A turn without an end is shown with the place where its client waits."""
        _, unfinished = await asyncio.wait(turns, timeout=LAST_TURNS)
        for turn in turns:
            if turn in unfinished and isinstance(turn, asyncio.Task):
                turn.print_stack(file=sys.stdout)
        for task in asyncio.all_tasks() if unfinished else ():
            task.print_stack(limit=8, file=sys.stdout)
        if unfinished:
            raise SystemExit(f"{len(unfinished)} turns have no end; logs and journal: {self.server.home}")
        await asyncio.gather(*turns)

    async def run_sessions(self, index: int, url: str) -> None:
        """Runs one session after the other, until no kill is left."""
        while self.kills_left > 0:
            await self.run_session(index, Client(url, token=TOKEN, retry_base=0.01, retry_max=0.1))

    async def run_session(self, index: int, client: Client) -> None:
        """Follows one turn to its end. An abandoned client is replaced by a new one that continues at its cursor."""
        session = await client.create()
        message = await session.send("go")
        heard = self.sessions.setdefault(session.id, [])
        while True:
            abandon = self.abandoned[index] = asyncio.Event()
            follow = asyncio.ensure_future(self.follow(session, message, heard))
            leave = asyncio.ensure_future(abandon.wait())
            await asyncio.wait({follow, leave}, return_when=asyncio.FIRST_COMPLETED)
            if follow.done():
                leave.cancel()
                await session.close()
                return follow.result()
            follow.cancel()
            await asyncio.gather(follow, return_exceptions=True)
            session_id, cursor = session.id, self.cursor_of(heard)
            await session.close()
            session = await client.attach(session_id, cursor)

    def cursor_of(self, heard: list[Event]) -> Cursor:
        last = next((event for event in reversed(heard) if event.seq is not None), None)
        return Cursor(last.frame["epoch"], last.seq or 0) if last is not None else Cursor()

    async def follow(self, session: Session, message: str, heard: list[Event]) -> None:
        async for event in session.events():
            heard.append(event)
            if isinstance(event, (FinalAnswer, TurnFailure)) and event.command_id == message:
                return

    def read_claims(self) -> None:
        """Reads who claimed what from the records of all sessions."""
        command = [PROGRAM, "journal", "export", str(self.server.home / "journal.db")]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.server.home)}
        exported = subprocess.run(command, check=True, capture_output=True, env=env).stdout
        session_id = ""
        for line in exported.splitlines():
            record = json.loads(line)
            session_id = record.get("session", session_id)
            event = record.get("event")
            claim = event.get("tool_call_claimed") if isinstance(event, dict) else None
            if claim is not None:
                self.claims.setdefault((session_id, claim["call"]), []).append(claim["worker"])

    def check(self) -> str:
        """Compares the ledger with what the clients were told."""
        begun, ended = Counter[str](), Counter[str]()
        for line in self.ledger.read_text().splitlines():
            word, key, _ = line.split()
            (begun if word == "begin" else ended)[key] += 1
        outcomes: Counter[str] = Counter()
        problems: list[str] = []
        for session_id, heard in self.sessions.items():
            told = [event for event in heard if isinstance(event, ToolResult)]
            if len(told) != CALLS or len({event.call_id for event in told}) != CALLS:
                problems.append(f"{session_id}: {len(told)} results of {CALLS} calls")
            for event in told:
                key = f"{session_id}.{event.call_id}"
                code = event.fault.code if event.fault else "success"
                outcomes[f"{event.tool} {code}"] += 1
                if event.tool == "pay" and begun[key] > 1:
                    problems.append(f"{key}: begun {begun[key]} times")
                if event.succeeded and ended[key] == 0:
                    problems.append(f"{key}: succeeded, and never ended")
                if code == "ERR_TOOL_021" and begun[key] > 0:
                    problems.append(f"{key}: nobody took it, and it began")
                if not event.succeeded and code not in ("ERR_TOOL_021", "ERR_TOOL_022"):
                    problems.append(f"{key}: {code}")
                if code == "ERR_TOOL_022":
                    claims = self.claims.get((session_id, event.call_id), [])
                    if not claims or claims[-1] not in self.gone:
                        problems.append(f"{key}: in doubt, and {claims[-1:]} was not killed")
                    if event.tool == "note" and len(claims) < TRIES:
                        problems.append(f"{key}: idempotent, and in doubt after {len(claims)} claims")
        if problems:
            raise SystemExit("\n".join([*problems[:20], f"logs and journal: {self.server.home}"]))
        calls = sum(outcomes.values())
        return f"{sum(self.killed.values())} kills {dict(self.killed)}; {len(self.sessions)} sessions, {calls} calls: {dict(outcomes)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    print("seed", args.seed, flush=True)
    playground = Playground(args.kills, args.seed)
    asyncio.run(playground.play())
    print(playground.check())
    playground.server.stop()


main()
