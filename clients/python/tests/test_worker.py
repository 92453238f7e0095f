"""Workers against the real server: what the model is told, and what happens once when things break."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any, Callable

import pytest

from budao import Client, Event, Interruption, Rejected, Session, ToolContext, ToolError, ToolOutput, ToolResult, Worker, sync, tool
from harness import IMPATIENT, PATIENT, TOKEN, Proxy, TestServer

FAST: dict[str, Any] = {"token": TOKEN, "retry_base": 0.005, "retry_max": 0.05}
AUTO = ["--permission", "auto"]


def script(*calls: tuple[str, dict[str, Any]]) -> str:
    """A model that makes these calls, one in each step, and then answers."""
    steps = [f"[[step]]\n[[step.call]]\ntool = {json.dumps(name)}\narguments = '{json.dumps(arguments)}'\n" for name, arguments in calls]
    return f'order = "history"\n{"".join(steps)}[[step]]\ntext = "All done."\nrepeat = "forever"\n'


async def results(session: Session, text: str = "go") -> list[ToolResult]:
    return [event async for event in session.stream(text) if isinstance(event, ToolResult)]


def rendered(server: TestServer, event: ToolResult, audience: str) -> str:
    """A failed call as the server renders it for the model or for the operator."""
    address = f"http://127.0.0.1:{server.port}/v1/sessions/{event.session_id}/faults/{event.seq}"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        return json.dumps(json.load(answer)[audience])


def run(main: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(main(), 200))


def test_an_error_reaches_the_model_as_its_author_wrote_it_and_no_other_does() -> None:
    secret = "/srv/vault/key.pem"

    @tool
    def lend(book: str) -> str:
        """Lends a book."""
        raise ToolError(f"{book} is lent out.", advice=["Ask for another book", "Wait a week"], data={"back": "Monday"})

    @tool
    def find(book: str) -> str:
        """Finds a book."""
        raise FileNotFoundError(f"no such file: {secret}, password=hunter2")

    async def main() -> None:
        server = TestServer(script=script(("lend", {"book": "Faust"}), ("find", {"book": "Faust"})), args=AUTO, env=IMPATIENT)
        client = Client(server.url, **FAST)
        async with Worker(client, [lend, find]), await client.create() as session:
            told = await results(session)
            frames = json.dumps([dict(event.frame) for event in told])
        lent, broken = [await asyncio.to_thread(rendered, server, event, "model") for event in told]
        assert "Faust is lent out." in lent and "Ask for another book" in lent and "Monday" in lent
        assert not told[1].succeeded
        for text in (secret, "hunter2", "FileNotFoundError", "Traceback"):
            assert text not in broken and text not in frames
        operator = await asyncio.to_thread(rendered, server, told[1], "operator")
        assert "FileNotFoundError" in operator and "hunter2" not in operator
        server.stop()

    run(main)


def test_arguments_that_do_not_fit_never_reach_the_function() -> None:
    called: list[str] = []

    @tool(read_only=True)
    def stock(item: str) -> dict[str, int]:
        """Counts."""
        called.append(item)
        return {"pieces": 3}

    async def main() -> None:
        server = TestServer(script=script(("stock", {"itm": 7}), ("stock", {"item": "B-1"})), env=IMPATIENT)
        client = Client(server.url, **FAST)
        async with Worker(client, [stock]), await client.create() as session:
            wrong, right = await results(session)
        assert (wrong.succeeded, wrong.fault and wrong.fault.code) == (False, "ERR_VAL_002")
        assert right.succeeded and json.loads(right.content) == {"pieces": 3}
        assert called == ["B-1"]
        server.stop()

    run(main)


def test_a_cancelled_run_cancels_coroutines_and_threads() -> None:
    began, ended = threading.Event(), threading.Event()

    @tool(read_only=True)
    async def wait(context: ToolContext) -> None:
        """Waits."""
        context.progress("waiting")
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    @tool(read_only=True)
    def block(context: ToolContext) -> None:
        """Blocks."""
        began.set()
        context.progress("blocking")
        context.cancelled.wait(600)
        ended.set()
        context.check()

    async def main() -> None:
        for name in ("wait", "block"):
            ended.clear()
            server = TestServer(script=script((name, {})), env=IMPATIENT)
            client = Client(server.url, **FAST)
            async with Worker(client, [wait, block]), await client.create() as session:
                last: Event | None = None
                async for event in session.stream("go"):
                    last = event
                    if isinstance(event, ToolOutput):
                        await session.cancel()
                assert isinstance(last, Interruption)
                await asyncio.to_thread(ended.wait, 60)
                assert ended.is_set()
            server.stop()

    run(main)


def test_a_call_survives_kill_9_of_the_server_and_runs_once() -> None:
    ran: list[str] = []

    async def main() -> None:
        held, free = asyncio.Event(), asyncio.Event()

        @tool
        async def pay(n: int, context: ToolContext) -> int:
            """Pays."""
            ran.append(context.idempotency_key)
            held.set()
            await free.wait()
            return n

        victim = TestServer(script=script(("pay", {"n": 7})), args=AUTO, env=PATIENT)
        async with Proxy(lambda: victim.port) as proxy:
            client = Client(proxy.url, **FAST)
            async with Worker(client, [pay]), await client.create() as session:
                running = asyncio.ensure_future(results(session))
                await held.wait()
                victim.crash()
                victim = TestServer(script=script(("pay", {"n": 7})), args=AUTO, home=victim.home, env=PATIENT)
                free.set()
                (result,) = await running
        assert result.succeeded and result.content == "7"
        assert len(ran) == 1
        victim.stop()

    run(main)


def test_connections_of_a_worker_cut_at_random_bytes_run_every_call_once() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    ran: list[int] = []

    @tool
    def pay(n: int) -> int:
        """Pays."""
        ran.append(n)
        return n

    async def main() -> None:
        choose = random.Random(seed)
        calls = [("pay", {"n": n}) for n in range(20)]
        server = TestServer(script=script(*calls), args=AUTO, env=PATIENT)
        async with Proxy(lambda: server.port, lambda n: 600 + choose.randrange(900) * (n + 1)) as proxy:
            async with Worker(Client(proxy.url, **FAST), [pay]), await Client(server.url, **FAST).create() as session:
                told = await results(session)
            assert proxy.accepted > 3
        assert [(event.succeeded, event.content) for event in told] == [(True, str(n)) for n in range(20)]
        assert ran == list(range(20))
        server.stop()

    run(main)


def test_a_result_that_is_too_large_or_not_json_is_an_error_that_says_so() -> None:
    @tool(read_only=True)
    def large() -> str:
        """Gives much."""
        return "x" * 50_000_000

    @tool(read_only=True)
    def odd() -> object:
        """Gives no JSON."""
        return object()

    async def main() -> None:
        server = TestServer(script=script(("large", {}), ("odd", {})), env=IMPATIENT)
        client = Client(server.url, **FAST)
        async with Worker(client, [large, odd]), await client.create() as session:
            big, strange = await results(session)
        assert not big.succeeded and "too large" in json.dumps(big.metadata["error"])
        assert not strange.succeeded
        server.stop()

    run(main)


def test_a_number_that_json_cannot_express_is_an_error_that_names_its_place() -> None:
    @tool(read_only=True)
    def mean() -> dict[str, list[dict[str, float]]]:
        """A mean."""
        return {"of": [{"a/b": float("nan")}]}

    @tool(read_only=True)
    def total() -> float:
        """A total."""
        return float("inf")

    @tool(read_only=True)
    def word() -> str:
        """A word that is no number."""
        return "NaN"

    async def main() -> None:
        server = TestServer(script=script(("mean", {}), ("total", {}), ("word", {})), env=IMPATIENT)
        client = Client(server.url, **FAST)
        async with Worker(client, [mean, total, word]), await client.create() as session:
            of_mean, of_total, of_word = await results(session)
        assert of_mean.metadata["error"] == "Its result has NaN at /of/0/a~1b, which JSON cannot express. The work itself was done; only its answer was lost."
        assert of_total.metadata["error"] == "Its result has Infinity at /, which JSON cannot express. The work itself was done; only its answer was lost."
        assert of_word.content == "NaN"
        server.stop()

    run(main)


def test_offers_that_are_not_allowed_are_refused_at_once() -> None:
    @tool(name="fs_read")
    def shadow() -> None:
        """Shadows a tool of the server."""

    @tool(read_only=True)
    def mine() -> str:
        """Is mine."""
        return "mine"

    async def main() -> None:
        server = TestServer(script=script(("mine", {})), env=IMPATIENT)
        with pytest.raises(Rejected) as caught:
            await Worker(Client(server.url, **FAST), [shadow]).start()
        assert "fs_read" in json.dumps(caught.value.facts)
        tokens = server.home / "tokens"
        tokens.write_text("an-ordinary-token acme ann\n")
        other = TestServer(script=script(("mine", {})), args=["--token-file", str(tokens)], env=IMPATIENT)
        ordinary = Client(other.url, token="an-ordinary-token")
        with pytest.raises(Rejected):
            await Worker(ordinary, [mine]).start()
        async with await ordinary.create() as session, Worker(ordinary, [mine], session_id=session.id):
            assert [event.content for event in await results(session)] == ["mine"]
        server.stop()
        other.stop()

    run(main)


WORKER = """
import os, sys, time
from budao import CANNOT_TELL, DID_NOT_HAPPEN, Client, ToolContext, Worker, happened, tool

def effect(n, context):
    with open(sys.argv[2], "a") as ledger:
        ledger.write(f"{context.idempotency_key} {n} {context.attempt}\\n")
    while os.path.exists(sys.argv[3]):
        time.sleep(0.01)
    return n

@tool
def pay(n: int, context: ToolContext) -> int:
    "Pays."
    return effect(n, context)

@tool(idempotent=True)
def note(n: int, context: ToolContext) -> int:
    "Notes."
    return effect(n, context)

def find_booking(n: int, context: ToolContext):
    with open(sys.argv[2] + ".asked", "a") as questions:
        questions.write(f"{context.idempotency_key} {n}\\n")
    if os.path.exists(sys.argv[2] + ".lost"):
        return CANNOT_TELL
    with open(sys.argv[2]) as ledger:
        found = any(line.startswith(f"{context.idempotency_key} {n} ") for line in ledger)
    return happened({"receipt": n}) if found else DID_NOT_HAPPEN

@tool(reconcile=find_booking)
def book(n: int, context: ToolContext) -> dict[str, int]:
    "Books."
    with open(sys.argv[2] + ".begun", "a") as begun:
        begun.write(f"{n}\\n")
    while os.path.exists(sys.argv[3] + ".early"):
        time.sleep(0.01)
    return {"receipt": effect(n, context)}

Worker(Client(sys.argv[1], token=os.environ["TOKEN"], retry_base=0.01, retry_max=0.1), [pay, note, book], name="money").run(ready=lambda: print("ready", flush=True))
"""


class WorkerProcess:
    """A worker in a process of its own, which can be killed. While `hold` exists, its calls do not end."""

    def __init__(self, url: str, home: Path) -> None:
        self.ledger, self.hold = home / "ledger", home / "hold"
        (home / "worker.py").write_text(WORKER)
        source = str(Path(__file__).parents[1] / "src")
        env = {**os.environ, "TOKEN": TOKEN, "PYTHONPATH": source}
        self.process = subprocess.Popen([sys.executable, str(home / "worker.py"), url, str(self.ledger), str(self.hold)], env=env, stdout=subprocess.PIPE)
        assert self.process.stdout is not None and self.process.stdout.readline() == b"ready\n"

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def lines_of(self, name: str) -> list[str]:
        file = self.ledger.with_name(self.ledger.name + name)
        return file.read_text().splitlines() if file.exists() else []

    async def until_called(self, count: int) -> None:
        while len(self.lines()) < count:
            await asyncio.sleep(0.02)

    async def until_begun(self, count: int) -> None:
        while len(self.lines_of(".begun")) < count:
            await asyncio.sleep(0.02)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


def test_a_worker_killed_in_a_call_leaves_doubt_only_where_the_outcome_is_unknown() -> None:
    async def main() -> None:
        server = TestServer(script=script(("pay", {"n": 1}), ("note", {"n": 2})), args=AUTO, env=IMPATIENT)
        hold = server.home / "hold"
        hold.touch()
        async with await Client(server.url, **FAST).create() as session:
            worker = WorkerProcess(server.url, server.home)
            running = asyncio.ensure_future(results(session))
            for count in (1, 2):
                await worker.until_called(count)
                worker.end(signal.SIGKILL)
                if count == 2:
                    hold.unlink()
                worker = WorkerProcess(server.url, server.home)
            paid, noted = await running
        assert paid.fault is not None and paid.fault.code == "ERR_TOOL_022"
        assert noted.succeeded and noted.content == "2"
        lines = [line.split() for line in worker.lines()]
        assert [(n, attempt) for _, n, attempt in lines] == [("1", "1"), ("2", "1"), ("2", "2")]
        assert lines[1][0] == lines[2][0], "the key is the same for every attempt"
        assert worker.end(signal.SIGTERM) == 0
        server.stop()

    run(main)


def test_a_worker_killed_after_the_effect_finds_the_outcome_when_it_comes_back() -> None:
    async def main() -> None:
        server = TestServer(script=script(("book", {"n": 1})), args=AUTO, env=IMPATIENT)
        hold = server.home / "hold"
        hold.touch()
        async with await Client(server.url, **FAST).create() as session:
            worker = WorkerProcess(server.url, server.home)
            running = asyncio.ensure_future(results(session))
            await worker.until_called(1)
            worker.end(signal.SIGKILL)
            worker = WorkerProcess(server.url, server.home)
            (booked,) = await running
        assert booked.succeeded and json.loads(booked.content) == {"receipt": 1}
        key = worker.lines()[0].split()[0]
        assert worker.lines() == [f"{key} 1 1"], "the effect is not repeated"
        assert worker.lines_of(".asked") == [f"{key} 1"], "the question has the key of the call"
        assert worker.end(signal.SIGTERM) == 0
        server.stop()

    run(main)


def test_a_worker_killed_before_the_effect_runs_the_call_again() -> None:
    async def main() -> None:
        server = TestServer(script=script(("book", {"n": 1})), args=AUTO, env=IMPATIENT)
        early = server.home / "hold.early"
        early.touch()
        async with await Client(server.url, **FAST).create() as session:
            worker = WorkerProcess(server.url, server.home)
            worker.ledger.touch()
            running = asyncio.ensure_future(results(session))
            await worker.until_begun(1)
            worker.end(signal.SIGKILL)
            early.unlink()
            worker = WorkerProcess(server.url, server.home)
            (booked,) = await running
        assert booked.succeeded and json.loads(booked.content) == {"receipt": 1}
        assert [line.split()[1:] for line in worker.lines()] == [["1", "2"]]
        assert len(worker.lines_of(".begun")) == 2
        assert worker.end(signal.SIGTERM) == 0
        server.stop()

    run(main)


def test_a_worker_that_cannot_tell_leaves_the_outcome_unknown() -> None:
    async def main() -> None:
        server = TestServer(script=script(("book", {"n": 1})), args=AUTO, env=IMPATIENT)
        for name in ("hold", "ledger.lost"):
            (server.home / name).touch()
        async with await Client(server.url, **FAST).create() as session:
            worker = WorkerProcess(server.url, server.home)
            running = asyncio.ensure_future(results(session))
            await worker.until_called(1)
            worker.end(signal.SIGKILL)
            worker = WorkerProcess(server.url, server.home)
            (booked,) = await running
        assert booked.fault is not None and booked.fault.kind == "outcome_unknown"
        assert len(worker.lines()) == 1 and len(worker.lines_of(".asked")) == 1
        assert worker.end(signal.SIGTERM) == 0
        server.stop()

    run(main)


def test_sigterm_drains_the_open_call_is_finished_and_the_next_one_goes_elsewhere() -> None:
    async def main() -> None:
        server = TestServer(script=script(("pay", {"n": 1}), ("pay", {"n": 2})), args=AUTO, env=IMPATIENT)
        hold = server.home / "hold"
        hold.touch()
        async with await Client(server.url, **FAST).create() as session:
            first = WorkerProcess(server.url, server.home)
            running = asyncio.ensure_future(results(session))
            await first.until_called(1)
            first.process.send_signal(signal.SIGTERM)
            second = WorkerProcess(server.url, server.home)
            hold.unlink()
            told = await running
        assert [event.content for event in told] == ["1", "2"]
        assert await asyncio.to_thread(first.process.wait, 60) == 0
        assert second.end(signal.SIGTERM) == 0
        server.stop()

    run(main)


def test_a_worker_without_open_calls_that_drains_ends_though_its_server_is_gone() -> None:
    @tool(read_only=True)
    def double(n: int) -> int:
        "Doubles."
        return 2 * n

    async def main() -> None:
        server = TestServer(script=script(), args=AUTO, env=IMPATIENT)
        worker = Worker(Client(server.url, **FAST), [double])
        await worker.start()
        server.crash()
        await asyncio.wait_for(worker.drain(), 60)
        await worker.wait()
        server.stop()

    run(main)


def test_the_sync_face_has_workers_too() -> None:
    @tool(read_only=True)
    def mine() -> str:
        """Is mine."""
        return "mine"

    server = TestServer(script=script(("mine", {})), env=IMPATIENT)
    client = sync.Client(server.url, token=TOKEN)
    with client.worker([mine]), client.create() as session:
        told = [event for event in session.stream("go") if isinstance(event, ToolResult)]
    assert [event.content for event in told] == ["mine"]
    server.stop()
