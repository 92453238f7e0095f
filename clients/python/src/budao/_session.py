"""A session: commands go out, events come in, and a connection that may come and go is between them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, AsyncIterator, Awaitable, Callable, Mapping, Union

from ._connection import Connection, Dropped, Pending, Refused, Settings, call, closed, new_id
from ._cursor import CursorTracker, FrameStatus
from ._event import (
    ConnectionLoss,
    Cursor,
    Event,
    FinalAnswer,
    Interruption,
    Question,
    TurnEnd,
    TurnFailure,
    of_fault,
)
from ._fault import Fault, Rejected, TurnCancelled, TurnFailed

#: Events that are buffered while a command waits for its answer and nobody reads.
_OVERFLOW = 16 * 1024


@dataclass(frozen=True)
class Decision:
    """The answer to a question. `arguments` replace those of the call; the model reads `note`."""

    approved: bool
    arguments: Mapping[str, Any] | None = None
    note: str | None = None


#: Decides about a question. A function that is not a coroutine function runs in a thread.
Approve = Callable[[Question], Union[bool, Decision, Awaitable[Union[bool, Decision]]]]


class Session:
    """A session on the server. Use `Client.create` and `Client.attach`; close it, or use `async with`."""

    def __init__(self, settings: Settings, session_id: str | None, cursor: Cursor, approve: Approve | None) -> None:
        self._settings = settings
        self._approve = approve
        self._tracker = CursorTracker(session_id, cursor) if session_id is not None else None
        self._taken = cursor
        self._pending = Pending(settings.reply)
        self._queue: deque[tuple[Event, Cursor]] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._error: BaseException | None = None
        self._is_over = False
        self._resume_id: str | None = None
        self._gap_at = -1
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answered: set[str] = set()
        self._connection = Connection(settings, self)
        self._connection.start()

    @property
    def id(self) -> str:
        """The session's id: with it and a cursor, everyone allowed can attach."""
        return self._tracker.session_id if self._tracker is not None else ""

    @property
    def cursor(self) -> Cursor:
        """The position of the last event that was given out."""
        return self._taken

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets go of the session. A run continues on the server."""
        await self._connection.stop()
        self.over(None)

    # What a program says.

    async def send(self, text: str, *, images: list[Mapping[str, str]] | None = None) -> str:
        """Sends a message, which is durable when this returns, and returns its id."""
        content: Any = text if images is None else {"text": text, "images": images}
        command_id = new_id()
        await self.ask("user.message", content, command_id=command_id)
        return command_id

    async def run(self, text: str, *, approve: Approve | None = None, on_event: Callable[[Event], None] | None = None) -> FinalAnswer:
        """Sends a message and returns its answer. Raises `TurnFailed` or `TurnCancelled`."""
        async for event in self.stream(text, approve=approve):
            if on_event is not None:
                on_event(event)
            if isinstance(event, FinalAnswer):
                end = event
            elif isinstance(event, TurnFailure):
                raise TurnFailed.by(event)
            elif isinstance(event, Interruption):
                raise TurnCancelled(event.text)
        return end

    async def stream(self, text: str, *, approve: Approve | None = None) -> AsyncIterator[Event]:
        """Sends a message and gives the events up to the end of its run, which is the last one."""
        command_id = await self.send(text)
        async for event in self.events():
            if isinstance(event, ConnectionLoss) and event.fault is not None and event.fault.kind != "connection_lost":
                raise event.fault
            yield event
            if isinstance(event, Question):
                await self._decide(event, approve or self._approve)
            if isinstance(event, TurnEnd) and event.command_id == command_id:
                return
        raise closed()

    async def events(self) -> AsyncIterator[Event]:
        """Past events first, then new ones, each once, in order. There is one reader."""
        while True:
            while not self._queue:
                if self._is_over:
                    if self._error is not None:
                        raise self._error
                    return
                self._changed.clear()
                await self._changed.wait()
            event, self._taken = self._queue.popleft()
            self._has_room.set()
            yield event

    async def answer(self, question: Question | str, decision: bool | Decision) -> None:
        """Answers a question. A question accepts one answer."""
        decided = decision if isinstance(decision, Decision) else Decision(decision)
        content: dict[str, Any] = {"confirmed": decided.approved}
        if decided.arguments is not None:
            content["arguments"] = dict(decided.arguments)
        if decided.note is not None:
            content["note"] = decided.note
        if isinstance(question, Question) and question.digest:
            content["digest"] = question.digest
        step_id = question if isinstance(question, str) else question.question_id
        await self.ask("user.response", content, step_id=step_id)

    async def cancel(self, reason: str | None = None) -> None:
        """Stops what runs. The session can be used further."""
        await self.ask("user.cancel", {"reason": reason} if reason else None)

    async def retry(self) -> None:
        """Continues the last run, which failed, from where it stood."""
        await self.ask("user.retry")

    async def withdraw(self, message_id: str) -> None:
        """Takes back a message that waits for its run."""
        await self.ask("user.withdraw", {"message": message_id})

    async def settle_doubt(self, call_id: str, outcome: str, *, result: Any = None, note: str | None = None) -> None:
        """Says what became of a call with an unknown outcome: `happened`, `did_not_happen` or `left_to_model`."""
        content = {"call_id": call_id, "outcome": outcome, "result": result, "note": note}
        await self.ask("user.settle_doubt", {key: value for key, value in content.items() if value is not None})

    async def ask(self, event: str, content: Any = None, *, command_id: str | None = None, **fields: Any) -> Event:
        """Sends any command of the protocol until it is answered, so that it takes effect once."""
        if self._is_over:
            raise self._error or closed()
        frame: dict[str, Any] = {"event": event, **fields, "command_id": command_id or new_id()}
        if content is not None:
            frame["content"] = content
        if self._tracker is not None:
            frame["session_id"] = self._tracker.session_id
        return await self._pending.ask(frame, self._send)

    async def wait_until_ready(self) -> None:
        """Returns when the server has accepted the session on this connection."""
        await asyncio.shield(self._ready)

    async def _decide(self, question: Question, approve: Approve | None) -> None:
        """Asks the program once for each question. Without a function to ask, the answer is no."""
        if question.question_id in self._answered:
            return
        self._answered.add(question.question_id)
        decision = Decision(False, note="this program cannot approve calls") if approve is None else await call(approve, question)
        try:
            await self.answer(question, decision)
        except Rejected:
            pass  # another client was faster, or the run has ended

    def _send(self, frame: dict[str, Any]) -> None:
        if self._resume_id is None:
            self._connection.send(frame)

    # What the connection says.

    def greet(self) -> None:
        if self._tracker is None:
            return self._send_again()
        cursor = self._tracker.cursor
        content: dict[str, Any] = {"last_seq": cursor.seq}
        if cursor.epoch:
            content["epoch"] = cursor.epoch
        if self._settings.language is not None:
            content["preferences"] = {"language": self._settings.language}
        self._resume_id = new_id()
        frame = {"event": "user.reconnect", "session_id": self.id, "command_id": self._resume_id, "content": content}
        self._connection.send(frame)

    def take(self, event: Event) -> None:
        if self._resume_id is not None and event.answers == self._resume_id:
            self._resume_id = None
            return self._resumed(event)
        if self._tracker is None and event.answers is not None and event.session_id is not None:
            self._tracker = CursorTracker(event.session_id)
            self._establish()
        status = self._tracker.classify(event) if self._tracker is not None else FrameStatus.NEW
        # Completes the command even for a duplicate: the answer to a repeated command is one.
        self._pending.settle(event)
        if event.metadata.get("action") == "shutdown":
            wait = event.metadata.get("retry_after_ms")
            self._connection.come_back_after(wait / 1000 if isinstance(wait, (int, float)) else 0.0)
        if status is FrameStatus.NEW:
            self._deliver(event)
        elif status is FrameStatus.OTHER_EPOCH:
            raise Dropped("the history was replaced")
        elif status is FrameStatus.GAP:
            self._gap(event)

    def lost(self, fault: Fault, was_established: bool) -> None:
        self._resume_id = None
        if was_established and self._tracker is not None:
            facts = {**fault.facts, "last_event_seq": self._tracker.cursor.seq}
            self._deliver(of_fault(Fault(fault.kind, fault.message, facts=facts), self.id))

    def over(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._error = error
        reason = error or closed()
        self._pending.fail(reason)
        if not self._ready.done():
            self._ready.set_exception(reason)
            self._ready.exception()  # the creator reports it
        self._changed.set()

    @property
    def is_full(self) -> bool:
        bound = _OVERFLOW if len(self._pending) > 0 or not self._ready.done() else self._settings.inbox
        return len(self._queue) >= bound

    async def room(self) -> None:
        while self.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def _send_again(self) -> None:
        for frame in self._pending.frames():
            self._connection.send(frame)

    def _resumed(self, event: Event) -> None:
        if event.is_refusal:
            if self._ready.done():
                self._deliver(event)
            raise Refused(Rejected.by(event))
        fault = self._tracker.resumed(event) if self._tracker is not None else None
        if fault is not None:
            self._deliver(of_fault(fault, self.id))
        self._establish()
        self._deliver(event)
        self._send_again()

    def _establish(self) -> None:
        self._connection.established()
        if not self._ready.done():
            self._ready.set_result(None)

    def _gap(self, event: Event) -> None:
        """A frame before this one never came. The client asks for it once; then it reports a gap."""
        tracker = self._tracker
        if tracker is None:
            return
        if self._gap_at != tracker.cursor.seq:
            self._gap_at = tracker.cursor.seq
            raise Dropped(f"frames up to {tracker.missing_to} are missing")
        self._deliver(of_fault(tracker.give_up(tracker.missing_to, "missing"), self.id))
        tracker.classify(event)
        self._deliver(event)

    def _deliver(self, event: Event) -> None:
        if not self._is_over:
            self._queue.append((event, self._tracker.cursor if self._tracker is not None else self._taken))
            self._changed.set()
