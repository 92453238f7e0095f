"""One reconnecting WebSocket connection, and the commands that wait for their answers on it.

The rules are those of docs/clients.md: growing waits, close codes that end the client, silence, a bounded backlog.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Awaitable, Callable, Mapping, Protocol
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI

from ._event import Event, parse
from ._fault import Fault, Rejected
from ._schema import json_text

#: Close codes after which a reconnect can succeed.
_RESUMABLE = frozenset({1001, 1005, 1006, 1011, 1012, 1013, 4408, 4429})
#: Seconds for the connection and the upgrade, and for writing one frame.
_CONNECT = _SEND = 10.0
#: Upper bound for a received message.
_FRAME_BYTES = 64 * 1024 * 1024
#: Upper bound for unanswered commands of one connection.
_PENDING = 1024


@dataclass(frozen=True)
class Settings:
    """The options of a client, with their defaults. Times are in seconds."""

    url: str
    token: str | None = field(default=None, repr=False)
    language: str | None = None
    #: Waits between tries: the first, the longest, and how many tries.
    retry_base: float = 0.25
    retry_max: float = 30.0
    tries: int = 1000
    #: How long a connection may be silent before it counts as lost.
    silence: float = 40.0
    #: How long a command waits for its answer, over all reconnects.
    reply: float = 120.0
    #: Events that wait for their reader before the client stops reading the connection.
    inbox: int = 256

    def wait(self, attempt: int) -> float:
        """The wait before a try: base · 2^(attempt − 1), with a jitter of a tenth, between base and max."""
        plain = self.retry_base * float(2 ** min(attempt - 1, 30))
        return min(max(plain * random.uniform(0.9, 1.1), self.retry_base), self.retry_max)


class Handler(Protocol):
    """The owner of a connection."""

    def greet(self) -> None:
        """A connection is open: send what comes first."""

    def take(self, event: Event) -> None:
        """One event arrived. Raises `Dropped` to give the connection up and reconnect."""

    def lost(self, fault: Fault, was_established: bool) -> None:
        """A connection ended; another try may follow."""

    def over(self, error: BaseException | None) -> None:
        """No further try follows."""

    async def room(self) -> None:
        """Returns when another event may be read."""


class Dropped(Exception):
    """The handler gives this connection up; the client reconnects."""


class Refused(Exception):
    """A reconnect would end in the same way."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Lost(Exception):
    """A reconnect can succeed, after `hint` seconds at the earliest."""

    def __init__(self, fault: Fault, hint: float = 0.0) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.hint = hint


class Connection:
    """Connects, serves its handler and reconnects until `stop`."""

    def __init__(self, settings: Settings, handler: Handler) -> None:
        self._settings = settings
        self._handler = handler
        self._outgoing: deque[str] = deque()
        self._has_outgoing = asyncio.Event()
        self._socket: ClientConnection | None = None
        self._is_established = False
        self._come_back = 0.0
        self._heard_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="budao-connection")

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def send(self, frame: Mapping[str, Any]) -> None:
        """Queues a frame if there is a connection. What is not sent is sent again after the next greeting."""
        if self._socket is not None:
            self._outgoing.append(json_text(frame))
            self._has_outgoing.set()

    def established(self) -> None:
        """The server accepted us on this connection: the count of tries begins anew."""
        self._is_established = True

    def come_back_after(self, seconds: float) -> None:
        """The server stops and says when it is back."""
        self._come_back = seconds

    async def stop(self) -> None:
        """Closes the connection; the task has ended when this returns."""
        self._is_stopped = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        attempt = 0
        try:
            # Before Python 3.12, `wait_for` loses a cancellation that comes together with its result.
            while not self._is_stopped:
                hint = 0.0
                self._is_established = False
                try:
                    await self._serve()
                except Refused as end:
                    self._handler.lost(end.fault, self._is_established)
                    return self._handler.over(end.fault)
                except _Lost as end:
                    fault, hint = end.fault, end.hint
                if self._is_established:
                    attempt = 0
                self._handler.lost(fault, self._is_established)
                attempt += 1
                if attempt >= self._settings.tries:
                    return self._handler.over(fault)
                hint, self._come_back = max(hint, self._come_back), 0.0
                if not self._is_stopped:
                    await asyncio.sleep(max(self._settings.wait(attempt), min(hint, 300.0)))
            self._handler.over(None)
        except asyncio.CancelledError:
            self._handler.over(None)
            raise
        except Exception as error:  # a bug of the handler must not leave its callers waiting
            self._handler.over(error)
            raise

    async def _serve(self) -> None:
        """Serves one connection to its end, which it raises."""
        socket = await self._open()
        self._outgoing.clear()
        self._socket = socket
        self._heard_at = asyncio.get_running_loop().time()
        helpers = [asyncio.ensure_future(self._write(socket)), asyncio.ensure_future(self._watch(socket))]
        try:
            self._handler.greet()
            async for message in socket:
                self._heard_at = asyncio.get_running_loop().time()
                event = parse(message)
                if event is None:
                    continue
                self._handler.take(event)
                await self._room()
            raise _ended(socket)
        except ConnectionClosed:
            raise _ended(socket) from None
        except Dropped as drop:
            raise _Lost(_loss(1006, str(drop))) from None
        finally:
            self._socket = None
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await _close(socket)

    async def _room(self) -> None:
        """A slow reader is not a silent connection."""
        await self._handler.room()
        self._heard_at = asyncio.get_running_loop().time()

    async def _open(self) -> ClientConnection:
        settings = self._settings
        headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else None
        host = urlsplit(settings.url).hostname or ""
        options: dict[str, Any] = {"proxy": None} if host in ("127.0.0.1", "localhost", "::1") else {}
        try:
            return await connect(
                settings.url,
                additional_headers=headers,
                open_timeout=_CONNECT,
                close_timeout=1.0,
                ping_interval=None,
                max_size=_FRAME_BYTES,
                compression=None,
                **options,
            )
        except InvalidStatus as error:
            raise _refusal(error, settings.url) from None
        except (InvalidURI, ValueError) as error:
            facts = {"field": "url", "endpoint": settings.url}
            raise Refused(Fault("bad_request", f"Not a WebSocket address: {error}", facts=facts)) from None
        except Exception as error:  # whatever a network does; each is a try that failed
            facts = {"endpoint": settings.url, "cause": str(error)}
            raise _Lost(Fault("connection_refused", f"No connection to {settings.url}.", facts=facts)) from None

    async def _write(self, socket: ClientConnection) -> None:
        """Sends queued frames in their order, until the connection is given up."""
        while self._socket is socket:  # a cancellation can be lost in `wait_for`, see `_run`
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            while self._outgoing:
                text = self._outgoing.popleft()
                try:
                    await asyncio.wait_for(socket.send(text), _SEND)
                except ConnectionClosed:
                    return
                except asyncio.TimeoutError:
                    socket.transport.abort()
                    return

    async def _watch(self, socket: ClientConnection) -> None:
        """Ends a silent connection."""
        loop = asyncio.get_running_loop()
        while True:
            left = self._heard_at + self._settings.silence - loop.time()
            if left <= 0 and not self._is_reader_slow():
                return socket.transport.abort()
            await asyncio.sleep(max(left, self._settings.silence / 10))

    def _is_reader_slow(self) -> bool:
        return getattr(self._handler, "is_full", False)


class Pending:
    """Commands without an answer. They keep their ids and their order across reconnects."""

    def __init__(self, reply: float | None) -> None:
        #: Seconds that a command waits for its answer; without a limit it waits as long as the connection tries.
        self._reply = reply
        self._commands: dict[str, tuple[dict[str, Any], asyncio.Future[Event]]] = {}

    def __len__(self) -> int:
        return len(self._commands)

    async def ask(self, frame: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> Event:
        """Sends a command until it is answered. Raises `Rejected`, or a fault if no answer comes in time."""
        if len(self._commands) >= _PENDING:
            raise Fault("request_timed_out", f"{_PENDING} commands wait for their answers.")
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        command_id = frame["command_id"]
        self._commands[command_id] = (frame, future)
        send(frame)
        try:
            return await asyncio.wait_for(future, self._reply)
        except asyncio.TimeoutError:
            limit = self._reply or 0.0
            message = f"No answer to {frame['event']} within {limit:g} s."
            raise Fault("request_timed_out", message, facts={"timeout_ms": int(limit * 1000)}) from None
        finally:
            self._commands.pop(command_id, None)

    def frames(self) -> list[dict[str, Any]]:
        """The frames to send again, oldest first."""
        return [frame for frame, _ in self._commands.values()]

    def settle(self, event: Event) -> bool:
        """Passes an answer to its command; false if no command waits for it."""
        command_id = event.answers
        found = self._commands.get(command_id) if command_id is not None else None
        if found is None:
            return False
        _, future = found
        if not future.done():
            if event.is_refusal:
                future.set_exception(Rejected.by(event))
            else:
                future.set_result(event)
        return True

    def fail(self, error: BaseException) -> None:
        for _, future in list(self._commands.values()):
            if not future.done():
                future.set_exception(error)


def new_id() -> str:
    return str(uuid.uuid4())


def closed() -> Fault:
    return Fault("connection_lost", "The connection was closed on this side.")


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a user's function: a coroutine function on the loop, any other in a thread."""
    if asyncio.iscoroutinefunction(function):
        return await function(*args)
    result = await asyncio.to_thread(function, *args)
    return await result if isinstance(result, Awaitable) else result


def _loss(code: int, reason: str) -> Fault:
    return Fault("connection_lost", "The connection was lost.", facts={"close_code": code, "close_reason": reason})


def _ended(socket: ClientConnection) -> Exception:
    code = socket.close_code if socket.close_code is not None else 1006
    fault = _loss(code, socket.close_reason or "")
    return _Lost(fault) if code in _RESUMABLE else Refused(fault)


def _refusal(error: InvalidStatus, url: str) -> Exception:
    """Classifies a refused upgrade. Only errors that need another address or token are final."""
    status = error.response.status_code
    facts = {"endpoint": url, "status": status}
    kinds = {401: "not_authenticated", 403: "not_allowed", 404: "bad_request", 400: "bad_request"}
    texts = {401: "The server does not accept this token.", 403: "The server does not allow this connection."}
    kind = kinds.get(status)
    if kind is not None:
        return Refused(Fault(kind, texts.get(status, f"{url} is not the server's socket ({status})."), facts=facts))
    hint = error.response.headers.get("Retry-After", "")
    fault = Fault("connection_refused", f"The server refused the connection ({status}).", facts=facts)
    return _Lost(fault, float(hint) if hint.isdigit() else 0.0)


async def _close(socket: ClientConnection) -> None:
    try:
        await asyncio.wait_for(socket.close(1000, "done"), 1.5)
    except (asyncio.TimeoutError, OSError, ConnectionClosed):
        socket.transport.abort()
