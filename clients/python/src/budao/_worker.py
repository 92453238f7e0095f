"""A worker: offers tools to the server, claims calls, runs them and reports one result for each.

A call runs only after its claim was accepted, so it runs in one process. A result is sent until the server has
answered, also after a reconnect. A call that this process holds survives a lost connection.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Sequence, Union

from ._client import Client
from ._connection import Connection, Dropped, Pending, Refused, closed, new_id
from ._event import Event
from ._fault import Fault, Rejected
from ._schema import NotFinite, json_text
from ._tool import CallCancelled, Reconciliation, Tool, ToolContext, ToolError, tool as make_tool

log = logging.getLogger("budao.worker")

#: Upper bounds for the text of a traceback, and for the progress of one call.
_DETAIL_CHARS = 16 * 1024
_PROGRESS_BYTES = 64 * 1024
#: How often a result is sent to a server that is busy.
_RESULT_TRIES = 20
#: Seconds between two progress frames of a call.
_PROGRESS_PAUSE = 0.1
#: Room for the envelope of a result in the server's largest frame.
_ENVELOPE = 4 * 1024

CallKey = tuple[str, str, int]


@dataclass
class OpenCall:
    """A call that this process claims, runs or reports."""

    key: CallKey
    tool: Tool[Any, Any]
    frame: Event
    context: ToolContext
    claimed: bool = False
    #: Why the call was cancelled; the server accepts no result after `deadline` and `over`.
    reason: str = ""
    task: asyncio.Task[None] | None = None
    running: asyncio.Future[Any] | None = None
    text: str = ""
    sent: int = 0
    timer: asyncio.TimerHandle | None = None
    limit: asyncio.TimerHandle | None = None


class Worker:
    """Runs tools for the agents of a server. `async with`, or `run()` until it is stopped."""

    def __init__(
        self,
        client: Client,
        tools: Iterable[Union[Tool[Any, Any], Callable[..., Any]]],
        *,
        name: str = "worker",
        capacity: int = 16,
        session_id: str | None = None,
    ) -> None:
        """`name` is shared by all processes with the same functions; `capacity` bounds the calls at the same time.

        With `session_id`, the tools are for that session only; without it, for all sessions of the tenant.
        """
        listed = [one if isinstance(one, Tool) else make_tool(one) for one in tools]
        self.tools: dict[str, Tool[Any, Any]] = {one.name: one for one in listed}
        if len(self.tools) != len(listed):
            raise ValueError("two tools have the same name")
        self.name = name
        self.worker_id = str(uuid.uuid4())
        self._client = client
        self._capacity = capacity
        self._session_id = session_id
        self._calls: dict[CallKey, OpenCall] = {}
        self._offer_id: str | None = None
        self._is_draining = False
        self._frame_bytes = 1024 * 1024
        self._threads: ThreadPoolExecutor | None = None
        self._connection: Connection | None = None

    # For its user.

    async def start(self) -> None:
        """Connects and offers the tools; they are offered when this returns. Raises `Rejected` if the server refuses."""
        loop = asyncio.get_running_loop()
        self._pending = Pending(None)
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._idle = asyncio.Event()
        self._idle.set()
        self._lost = asyncio.Event()
        self._threads = ThreadPoolExecutor(self._capacity, thread_name_prefix="budao-tool")
        self._connection = Connection(self._client.settings, self)
        self._connection.start()
        await asyncio.shield(self._ready)

    async def drain(self) -> None:
        """Takes no new calls, waits until the open ones have ended, and disconnects."""
        self._is_draining = True
        if self._connection is not None and not self._ended.done():
            asking = asyncio.ensure_future(self._ask_to_drain())
            # A server that is gone offers no calls either, so a worker without open calls does not wait for its answer.
            self._lost.clear()
            lost = asyncio.ensure_future(self._lost.wait())
            await asyncio.wait({asking, lost}, return_when=asyncio.FIRST_COMPLETED)
            lost.cancel()
            await self._idle.wait()
            asking.cancel()
        await self._idle.wait()
        await self.stop()

    async def _ask_to_drain(self) -> None:
        try:
            await self._ask("user.drain_worker", {"worker_id": self.worker_id})
        except Fault as fault:
            log.warning("drain refused, code=%s", fault.code)

    async def stop(self) -> None:
        """Disconnects at once. Calls that still run are cancelled; their outcomes are unknown to the server."""
        tasks = [call.task for call in self._calls.values() if call.task is not None]
        for call in list(self._calls.values()):
            self._cancel(call, "over")
        if self._connection is not None:
            await self._connection.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def wait(self) -> None:
        """Returns when the worker has stopped; raises why, if the server refuses it."""
        await asyncio.shield(self._ended)

    async def __aenter__(self) -> "Worker":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Serves calls until SIGINT or SIGTERM, then drains. A second signal stops at once.

        `ready` is called when the tools are offered for the first time.
        """
        asyncio.run(self._serve(ready))

    async def _serve(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        signals: asyncio.Queue[int] = asyncio.Queue()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, signals.put_nowait, number)
        try:
            await self.start()
            log.info("worker offers tools, name=%s tools=%s", self.name, ",".join(self.tools))
            ready()
            ended = asyncio.ensure_future(self.wait())
            stopped = asyncio.ensure_future(signals.get())
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ended.result()
            draining = asyncio.ensure_future(self.drain())
            again = asyncio.ensure_future(signals.get())
            await asyncio.wait({draining, again}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self.stop()

    # For the connection.

    def greet(self) -> None:
        """Offers the tools, and names the calls that this process still holds."""
        held = [{"session_id": s, "step_id": c, "attempt": a} for s, c, a in self._calls]
        content = {
            "worker": self.name,
            "worker_id": self.worker_id,
            "capacity": self._capacity,
            "tools": [one.offer() for one in self.tools.values()],
            "holding": held,
        }
        self._offer_id = new_id()
        frame: dict[str, Any] = {"event": "user.offer_tools", "command_id": self._offer_id, "content": content}
        if self._session_id is not None:
            frame["session_id"] = self._session_id
        self._send_now(frame)

    def take(self, event: Event) -> None:
        if self._offer_id is not None and event.answers == self._offer_id:
            self._offer_id = None
            return self._offered(event)
        if event.name == "system.connected":
            size = event.metadata.get("frame_bytes_max")
            self._frame_bytes = size if isinstance(size, int) else self._frame_bytes
        elif event.name == "tool.call":
            self._called(event)
        elif event.name == "tool.cancel":
            self._told_to_cancel(event)
        elif event.metadata.get("action") == "shutdown" and self._connection is not None:
            wait = event.metadata.get("retry_after_ms")
            self._connection.come_back_after(wait / 1000 if isinstance(wait, (int, float)) else 0.0)
        else:
            self._pending.settle(event)

    def lost(self, fault: Fault, was_established: bool) -> None:
        self._offer_id = None
        self._lost.set()
        log.info("connection lost, code=%s open_calls=%d", fault.code, len(self._calls))

    def over(self, error: BaseException | None) -> None:
        reason = error or closed()
        self._pending.fail(reason)
        if not self._ready.done():
            self._ready.set_exception(reason)
            self._ready.exception()  # `start` reports it
        if not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
                self._ended.exception()  # `wait` reports it

    async def room(self) -> None:
        """Calls are bounded by the capacity, so that a worker can always read."""

    def _offered(self, event: Event) -> None:
        if event.is_refusal:
            fault = Rejected.by(event)
            if _passes(fault) and self._ready.done():
                raise Dropped(fault.message)
            raise Refused(fault)
        if self._connection is not None:
            self._connection.established()
        for frame in self._pending.frames():
            self._send_now(frame)
        if not self._ready.done():
            self._ready.set_result(None)

    # Calls.

    def _called(self, event: Event) -> None:
        meta = event.metadata
        key: CallKey = (event.session_id or "", event.step_id or "", int(meta.get("attempt", 1)))
        found = self.tools.get(str(meta.get("tool", "")))
        if found is None or key in self._calls or self._is_draining or len(self._calls) >= self._capacity:
            return
        context = ToolContext(
            session_id=key[0],
            call_id=key[1],
            attempt=key[2],
            idempotency_key=str(meta.get("idempotency_key", "")),
            traceparent=meta.get("traceparent"),
        )
        call = OpenCall(key, found, event, context)
        context._report = lambda text: self._report(call, text)
        self._calls[key] = call
        self._idle.clear()
        call.task = asyncio.get_running_loop().create_task(self._attend(call), name=f"budao-call-{key[1]}")

    async def _attend(self, call: OpenCall) -> None:
        """Claims a call, runs it and reports its result. Exactly one result follows an accepted claim."""
        try:
            await self._ask_about(call, "user.tool_claim", {})
            call.claimed = True
            content = await self._run(call)
            if call.reason in ("", "cancelled"):
                await self._deliver(call, content)
        except Rejected as fault:
            log.info("call is not ours, call=%s code=%s reason=%s", call.key[1], fault.code, fault.facts.get("constraint"))
        except Fault as fault:
            log.warning("call given up, call=%s code=%s", call.key[1], fault.code)
        finally:
            for timer in (call.timer, call.limit):
                if timer is not None:
                    timer.cancel()
            self._calls.pop(call.key, None)
            if not self._calls:
                self._idle.set()

    async def _deliver(self, call: OpenCall, content: dict[str, Any]) -> None:
        """Sends the result. A server that is busy gets it again a little later."""
        for attempt in range(_RESULT_TRIES):
            try:
                return await self._ask_about(call, "user.tool_result", content)
            except Rejected as fault:
                if not _passes(fault) or attempt + 1 == _RESULT_TRIES:
                    raise
                await asyncio.sleep(min(0.1 * 2**attempt, 5.0))

    async def _run(self, call: OpenCall) -> dict[str, Any]:
        """Runs the function and returns the content of the result."""
        limit = call.frame.metadata.get("deadline_ms")
        if isinstance(limit, (int, float)):
            call.context.deadline = time.monotonic() + limit / 1000
            call.limit = asyncio.get_running_loop().call_later(limit / 1000, self._cancel, call, "deadline")
        if call.reason:
            return {"error": {"progress": "not_begun", "detail": "cancelled before it began"}}
        try:
            return self._bounded(call, self._result(await self._invoke(call)))
        except ToolError as error:
            return self._bounded(call, {"error": _told(error)})
        except (asyncio.CancelledError, CallCancelled):
            if not call.reason:
                raise
            progress = "ended" if call.tool.read_only else "unconfirmed"
            return {"error": {"progress": progress, "detail": f"the call was cancelled ({call.reason})"}}
        except Exception:
            log.exception("tool failed, tool=%s call=%s", call.tool.name, call.key[1])
            return {"error": {"detail": traceback.format_exc()[-_DETAIL_CHARS:]}}

    async def _invoke(self, call: OpenCall) -> Any:
        """Calls the function: a coroutine function on the loop, any other in a thread."""
        function = call.tool.function
        if call.frame.metadata.get("purpose") == "reconcile":
            function = call.tool.reconcile or _cannot_tell
        arguments = call.frame.content if isinstance(call.frame.content, dict) else {}
        bound = call.tool.bind(function, arguments, call.context)
        if asyncio.iscoroutinefunction(function):
            call.running = asyncio.ensure_future(bound())
        else:
            # A thread cannot be cancelled: the function looks at its context, and the call waits for it.
            call.running = asyncio.get_running_loop().run_in_executor(self._threads, bound)
        return await call.running

    def _result(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Reconciliation):
            content: dict[str, Any] = {"reconciliation": value.verdict}
            return {**content, "result": value.result} if value.verdict == "happened" else content
        return {"result": value}

    def _bounded(self, call: OpenCall, content: dict[str, Any]) -> dict[str, Any]:
        """The content, or an error if it is not JSON or larger than the server's largest frame."""
        try:
            size = len(json_text(content).encode())
        except (TypeError, ValueError, RecursionError) as error:
            if isinstance(error, NotFinite):
                return {"error": {"message": f"Its {error}.", "progress": "done"}}
            log.exception("result is not JSON, tool=%s call=%s", call.tool.name, call.key[1])
            return {"error": {"progress": "done", "detail": f"the result of {call.tool.name} is not JSON: {traceback.format_exc()[-_DETAIL_CHARS:]}"}}
        most = self._frame_bytes - _ENVELOPE
        if size <= most:
            return content
        message = f"The call is done, but its result is too large: {size} bytes; at most {most} are passed on."
        return {"error": {"message": message, "advice": ["Ask for less at once"], "progress": "done"}}

    def _told_to_cancel(self, event: Event) -> None:
        attempt = int(event.metadata.get("attempt", 1))
        call = self._calls.get((event.session_id or "", event.step_id or "", attempt))
        if call is not None:
            self._cancel(call, str(event.metadata.get("reason", "cancelled")))

    def _cancel(self, call: OpenCall, reason: str) -> None:
        if call.reason not in ("", "cancelled"):
            return
        call.reason = reason
        call.context.cancelled.set()
        if isinstance(call.running, asyncio.Task):
            call.running.cancel()

    def _report(self, call: OpenCall, text: str) -> None:
        """Collects progress, from any thread."""
        self._loop().call_soon_threadsafe(self._collect, call, text)

    def _collect(self, call: OpenCall, text: str) -> None:
        room = _PROGRESS_BYTES - call.sent - len(call.text.encode())
        call.text += text.encode()[: max(room, 0)].decode(errors="ignore")
        if call.text and call.timer is None:
            call.timer = self._loop().call_later(_PROGRESS_PAUSE, self._flush, call)

    def _flush(self, call: OpenCall) -> None:
        call.timer = None
        text, call.text = call.text, ""
        call.sent += len(text.encode())
        self._send(self._about(call, "user.tool_output", {"delta": text}))

    async def _ask_about(self, call: OpenCall, event: str, content: dict[str, Any]) -> None:
        frame = self._about(call, event, content)
        frame["command_id"] = new_id()
        await self._pending.ask(frame, self._send)

    async def _ask(self, event: str, content: dict[str, Any]) -> None:
        await self._pending.ask({"event": event, "command_id": new_id(), "content": content}, self._send)

    def _about(self, call: OpenCall, event: str, content: dict[str, Any]) -> dict[str, Any]:
        session_id, step_id, attempt = call.key
        content = {"attempt": attempt, "worker_id": self.worker_id, **content}
        return {"event": event, "session_id": session_id, "step_id": step_id, "content": content}

    def _send(self, frame: dict[str, Any]) -> None:
        """Nothing is sent before the offer of this connection is accepted; then the pending commands are."""
        if self._offer_id is None:
            self._send_now(frame)

    def _send_now(self, frame: dict[str, Any]) -> None:
        if self._connection is not None:
            self._connection.send(frame)

    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._ended.get_loop()


def _passes(fault: Rejected) -> bool:
    """True if the server may accept the same command later."""
    return fault.facts.get("category") in ("transient", "resource")


def _told(error: ToolError) -> dict[str, Any]:
    """An author's error. The model reads message, advice and data; the operator also the traceback."""
    told: dict[str, Any] = {"message": error.message, "advice": error.advice, "progress": error.progress}
    if error.data is not None:
        told["data"] = error.data
    return {**told, "detail": "".join(traceback.format_exception(error))[-_DETAIL_CHARS:]}


def _cannot_tell(**_: Any) -> Reconciliation:
    return Reconciliation("cannot_tell")


ToolLike = Sequence[Union[Tool[Any, Any], Callable[..., Any]]]
