"""The same clients for programs without `asyncio`: one background thread runs the connections of all of them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, Callable, Coroutine, Iterator, Mapping, TypeVar

from . import _client, _session, _worker
from ._event import Cursor, Event, FinalAnswer, Question
from ._session import Approve, Decision
from ._worker import ToolLike

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _background() -> asyncio.AbstractEventLoop:
    """The loop of the background thread, which is started on first use."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="budao", daemon=True).start()
        return _loop


def _wait(work: Coroutine[Any, Any, T]) -> T:
    future: Future[T] = asyncio.run_coroutine_threadsafe(work, _background())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class Client:
    """A server by its address; the options are those of `budao.Client`."""

    def __init__(self, url: str, *, token: str | None = None, **options: Any) -> None:
        self._inner = _client.Client(url, token=token, **options)

    def create(self, *, approve: Approve | None = None, **options: Any) -> "Session":
        return Session(_wait(self._inner.create(approve=approve, **options)))

    def attach(self, session_id: str, cursor: Cursor | None = None, *, approve: Approve | None = None) -> "Session":
        return Session(_wait(self._inner.attach(session_id, cursor, approve=approve)))

    def worker(self, tools: ToolLike, **options: Any) -> "Worker":
        return Worker(_worker.Worker(self._inner, tools, **options))


class Session:
    """A session; each method waits for its result."""

    def __init__(self, inner: _session.Session) -> None:
        self._inner = inner

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def cursor(self) -> Cursor:
        return self._inner.cursor

    def send(self, text: str, *, images: list[Mapping[str, str]] | None = None) -> str:
        return _wait(self._inner.send(text, images=images))

    def run(self, text: str, *, approve: Approve | None = None, on_event: Callable[[Event], None] | None = None) -> FinalAnswer:
        return _wait(self._inner.run(text, approve=approve, on_event=on_event))

    def stream(self, text: str, *, approve: Approve | None = None) -> Iterator[Event]:
        return _iterate(self._inner.stream(text, approve=approve))

    def events(self) -> Iterator[Event]:
        return _iterate(self._inner.events())

    def answer(self, question: Question | str, decision: bool | Decision) -> None:
        _wait(self._inner.answer(question, decision))

    def cancel(self, reason: str | None = None) -> None:
        _wait(self._inner.cancel(reason))

    def retry(self) -> None:
        _wait(self._inner.retry())

    def ask(self, event: str, content: Any = None, **fields: Any) -> Event:
        return _wait(self._inner.ask(event, content, **fields))

    def close(self) -> None:
        _wait(self._inner.close())

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Worker:
    """A worker in the background: `with client.worker([…]): …`."""

    def __init__(self, inner: _worker.Worker) -> None:
        self._inner = inner

    def start(self) -> None:
        _wait(self._inner.start())

    def drain(self) -> None:
        _wait(self._inner.drain())

    def stop(self) -> None:
        _wait(self._inner.stop())

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _iterate(events: Any) -> Iterator[Event]:
    """Gives the events of an asynchronous iterator, and closes it at the end."""
    try:
        while True:
            try:
                yield _wait(events.__anext__())
            except StopAsyncIteration:
                return
    finally:
        _wait(events.aclose())
