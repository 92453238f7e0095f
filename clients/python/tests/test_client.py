"""The client against the real server, over connections that break."""

from __future__ import annotations

import asyncio
import random
from typing import Any, AsyncIterator, Callable, Iterator

import pytest

from budao import (
    Client,
    ConnectionLoss,
    Cursor,
    Decision,
    Event,
    Fault,
    FinalAnswer,
    PartialAnswer,
    Question,
    Rejected,
    Session,
    ToolResult,
    TurnCancelled,
    TurnFailed,
    sync,
)
from harness import TOKEN, Proxy, TestServer

STEP = '[[step]]\ndelay_ms = 5\n[[step.call]]\ntool = "fs_glob"\narguments = { pattern = "*.toml" }\n'
SCRIPT = f'order = "history"\n{STEP * 30}[[step]]\ntext = "All done."\nrepeat = "forever"\n'
WRITE = '[[step]]\n[[step.call]]\ntool = "fs_write"\narguments = { path = "done.txt", content = "done" }\n'
ASKING = f'order = "history"\n{WRITE}[[step]]\ntext = "Written."\nrepeat = "forever"\n'
FAST: dict[str, Any] = {"token": TOKEN, "retry_base": 0.005, "retry_max": 0.05}


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    server = TestServer(script=SCRIPT)
    yield server
    server.stop()


def ids(events: list[Event]) -> list[str | None]:
    return [event.event_id for event in events if event.seq is not None]


async def until_answer(events: AsyncIterator[Event], look: Callable[[Event, list[Event]], Any] = lambda event, heard: None) -> list[Event]:
    heard = []
    async for event in events:
        heard.append(event)
        look(event, heard)
        if isinstance(event, FinalAnswer):
            return heard
    raise AssertionError("the events ended before the answer")


async def history(server: TestServer, session_id: str) -> list[str | None]:
    """What a fresh client gets of the same session."""
    async with await Client(server.url, **FAST).attach(session_id) as session:
        return ids(await until_answer(session.events()))


def test_five_lines_are_enough(server: TestServer) -> None:
    async def main() -> None:
        async with await Client(server.url, token=TOKEN).create(language="en") as session:
            answer = await session.run("go")
            assert answer.answer == "All done."
            assert session.cursor.seq > 0

    asyncio.run(main())


def test_cuts_after_every_few_events_lose_nothing_and_repeat_nothing(server: TestServer) -> None:
    async def main() -> None:
        async with Proxy(lambda: server.port) as proxy, await Client(proxy.url, **FAST).create() as session:
            await session.send("go")
            cuts = 0

            def look(event: Event, heard: list[Event]) -> None:
                nonlocal cuts
                if event.seq is not None and len(ids(heard)) % 7 == 0:
                    cuts += 1
                    proxy.cut_all()

            heard = await until_answer(session.events(), look)
            assert cuts >= 5
            lost = [event for event in heard if isinstance(event, ConnectionLoss)]
            assert lost and all(event.fault is not None and event.fault.code == "ERR_CONN_001" for event in lost)
            assert ids(heard) == await history(server, session.id)

    asyncio.run(main())


def test_connections_cut_at_random_bytes_lose_nothing_and_repeat_nothing(server: TestServer) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)

    async def main() -> None:
        random_bytes = random.Random(seed)
        # The cuts grow, so that every run comes to an end.
        async with Proxy(lambda: server.port, lambda n: 100 + random_bytes.randrange(600) * (n + 1)) as proxy:
            async with await Client(proxy.url, **FAST).create() as session:
                await session.send("go")
                heard = await until_answer(session.events())
                assert proxy.accepted > 3
                assert ids(heard) == await history(server, session.id)

    for _ in range(5):
        asyncio.run(main())


def test_a_session_continues_behind_its_cursor(server: TestServer) -> None:
    async def main() -> None:
        client = Client(server.url, **FAST)
        async with await client.create() as session:
            await session.send("go")
            heard = await until_answer(session.events())
        placed = [event for event in heard if event.seq is not None]
        middle = placed[20]
        assert middle.seq is not None
        async with await client.attach(session.id, Cursor(middle.frame["epoch"], middle.seq)) as again:
            assert ids(await until_answer(again.events())) == ids(heard)[21:]

    asyncio.run(main())


def test_a_wrong_token_is_reported_at_once(server: TestServer) -> None:
    async def main() -> None:
        with pytest.raises(Fault) as caught:
            await Client(server.url, token="another-token").create()
        assert (caught.value.code, caught.value.kind, caught.value.remedy) == ("ERR_AUTH_002", "not_authenticated", "user")
        assert caught.value.advice

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_wrong_path_is_reported_at_once(server: TestServer) -> None:
    async def main() -> None:
        with pytest.raises(Fault) as caught:
            await Client(server.url + "/nothing", token=TOKEN).create()
        assert caught.value.kind == "bad_request"

    asyncio.run(asyncio.wait_for(main(), 60))


def test_tries_are_bounded_and_the_last_fault_is_told() -> None:
    async def main() -> None:
        with pytest.raises(Fault) as caught:
            await Client("ws://127.0.0.1:1/ws", tries=3, retry_base=0.001, retry_max=0.01).create()
        assert caught.value.kind == "connection_refused"

    asyncio.run(main())


def test_an_unknown_session_is_refused(server: TestServer) -> None:
    async def main() -> None:
        with pytest.raises(Rejected):
            await Client(server.url, **FAST).attach("01890000-0000-7000-8000-000000000000")

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_refusal_names_the_field_and_does_not_end_the_session(server: TestServer) -> None:
    async def main() -> None:
        async with await Client(server.url, **FAST).create() as session:
            with pytest.raises(Rejected) as caught:
                await session.send("  ")
            assert caught.value.facts["field"] == "content"
            assert caught.value.code.startswith("ERR_VAL_")
            assert (await session.run("go")).answer == "All done."

    asyncio.run(main())


def test_a_command_under_one_id_happens_once(server: TestServer) -> None:
    async def main() -> None:
        async with await Client(server.url, **FAST).create() as session:
            await session.ask("user.message", "go", command_id="once")
            await until_answer(session.events())
            again = await session.ask("user.message", "go", command_id="once")
            assert again.metadata["status"] == "accepted"

    asyncio.run(main())


def test_a_run_survives_kill_9_of_the_server() -> None:
    async def main() -> None:
        victim = TestServer(script=SCRIPT)
        async with Proxy(lambda: victim.port) as proxy, await Client(proxy.url, **FAST).create() as session:
            heard: list[Event] = []
            async for event in session.stream("go"):
                heard.append(event)
                if event.seq is not None and len(ids(heard)) == 25:
                    victim.crash()
                    victim = TestServer(script=SCRIPT, home=victim.home)
            assert isinstance(heard[-1], FinalAnswer)
            numbers = [event.seq for event in heard if event.seq is not None]
            assert numbers == sorted(set(numbers))
        victim.stop()

    asyncio.run(main())


def test_a_callback_approves_a_call_also_after_kill_9() -> None:
    async def main() -> None:
        victim = TestServer(script=ASKING)
        asked: list[Question] = []

        async def approve(question: Question) -> Decision:
            nonlocal victim
            asked.append(question)
            victim.crash()
            victim = TestServer(script=ASKING, home=victim.home)
            return Decision(True, note="only this file")

        async with Proxy(lambda: victim.port) as proxy, await Client(proxy.url, **FAST).create(approve=approve) as session:
            answer = await session.run("go")
        assert answer.answer == "Written."
        assert (victim.home / "done.txt").read_text() == "done"
        assert [(question.tool, question.arguments["path"]) for question in asked] == [("fs_write", "done.txt")]
        victim.stop()

    asyncio.run(main())


def test_without_a_callback_a_call_is_declined() -> None:
    async def main() -> None:
        asking = TestServer(script=ASKING)
        results: list[ToolResult] = []
        async with await Client(asking.url, **FAST).create() as session:
            await session.run("go", on_event=lambda event: results.append(event) if isinstance(event, ToolResult) else None)
        assert [result.succeeded for result in results] == [False]
        assert not (asking.home / "done.txt").exists()
        asking.stop()

    asyncio.run(main())


def test_cancel_ends_a_run_and_the_session_goes_on() -> None:
    async def main() -> None:
        counting = TestServer(model="demo")
        async with await Client(counting.url, **FAST).create() as session:

            async def cancel_at_first_text() -> None:
                async for event in session.stream("count slowly to 60"):
                    if isinstance(event, PartialAnswer):
                        await session.cancel("enough")

            await cancel_at_first_text()
            assert "done" in (await session.run("say done")).answer
            asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(session.cancel()))
            with pytest.raises(TurnCancelled):
                await session.run("count slowly to 60")
        counting.stop()

    asyncio.run(main())


def test_a_failed_run_raises_its_fault_with_code_and_advice() -> None:
    async def main() -> None:
        failing = TestServer(script='[[step]]\nfault = "model_authentication"\nrepeat = "forever"\n')
        async with await Client(failing.url, **FAST).create() as session:
            with pytest.raises(TurnFailed) as caught:
                await session.run("go")
        assert (caught.value.code, caught.value.remedy) == ("ERR_AUTH_001", "user")
        failing.stop()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_slow_reader_holds_the_connection_back_and_gets_everything(server: TestServer) -> None:
    async def main() -> None:
        async with await Client(server.url, inbox=2, **FAST).create() as session:
            await session.send("go")
            heard = await until_answer(session.events(), lambda event, all_of: None)
            assert ids(heard) == await history(server, session.id)

    asyncio.run(main())


def test_the_sync_face_does_the_same(server: TestServer) -> None:
    with sync.Client(server.url, token=TOKEN).create() as session:
        seen = [type(event).__name__ for event in session.stream("go")]
        assert seen[-1] == "FinalAnswer" and "ToolCall" in seen
        assert session.run("again").answer == "All done."


def test_closing_ends_the_events(server: TestServer) -> None:
    async def main() -> None:
        session: Session = await Client(server.url, **FAST).create()
        await session.close()
        assert [event async for event in session.events()][-1:] != [None]
        with pytest.raises(Fault):
            await session.send("too late")

    asyncio.run(main())


def test_a_token_is_in_no_representation() -> None:
    client = Client("ws://127.0.0.1:7333/ws", token="a-secret-token")
    assert "a-secret" not in repr(client) + repr(client.settings)
