"""Events of a session. A known event has a class with typed fields; an unknown one is a plain :class:`Event`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping

from ._fault import Fault


@dataclass(frozen=True)
class Cursor:
    """How far a client is in a session's history: keep it to come back later, also in another process."""

    #: The incarnation of the history; empty if it is not known yet.
    epoch: str = ""
    #: The last position that arrived; 0 is before the first.
    seq: int = 0


@dataclass(frozen=True)
class Event:
    """One frame of the protocol."""

    #: The frame as the server sent it.
    frame: Mapping[str, Any] = field(repr=False)
    #: The frame's name: `agent.final_answer`.
    name: str
    #: The failure that this event reports, if it reports one.
    fault: Fault | None

    @property
    def session_id(self) -> str | None:
        return _text_or_none(self.frame.get("session_id"))

    @property
    def seq(self) -> int | None:
        """The position in the session's history; `None` on frames that are not part of it."""
        value = self.frame.get("seq")
        return value if isinstance(value, int) else None

    @property
    def event_id(self) -> str | None:
        return _text_or_none(self.frame.get("event_id"))

    @property
    def step_id(self) -> str | None:
        return _text_or_none(self.frame.get("step_id"))

    @property
    def content(self) -> Any:
        return self.frame.get("content")

    @property
    def metadata(self) -> Mapping[str, Any]:
        value = self.frame.get("metadata")
        return value if isinstance(value, dict) else {}

    @property
    def text(self) -> str:
        """The sentence for people; empty if there is none."""
        value = self.frame.get("show_content")
        if isinstance(value, str):
            return value
        return self.content if isinstance(self.content, str) else ""

    @property
    def answers(self) -> str | None:
        """The id of the command that this event answers. Events of a run name their command too, and answer nothing."""
        if self.seq is not None and self.name != "agent.session_created":
            return None
        named = self.frame.get("command_id", self.metadata.get("command_id"))
        return _text_or_none(named)

    @property
    def is_refusal(self) -> bool:
        return self.name.startswith("error.") or self.name == "system.error"

    @property
    def command_id(self) -> str | None:
        """The command that began the run of this event."""
        return _text_or_none(self.metadata.get("command_id"))


@dataclass(frozen=True)
class Notice(Event):
    """`system.notice`: something about the connection or the session; `action` says what."""

    action: str = ""


@dataclass(frozen=True)
class PartialAnswer(Event):
    """A piece of the answer. If `abandoned`, the attempt failed: discard the text of this step."""

    delta: str = ""
    step: int = 0
    abandoned: bool = False


@dataclass(frozen=True)
class ToolCall(Event):
    """A tool starts."""

    tool: str = ""
    call_id: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1


@dataclass(frozen=True)
class ToolOutput(Event):
    """Output of a running tool, as a delta."""

    call_id: str = ""
    delta: str = ""


@dataclass(frozen=True)
class ToolResult(Event):
    """The one result of a call. A failed one has its `fault`."""

    tool: str = ""
    call_id: str = ""
    succeeded: bool = False


@dataclass(frozen=True)
class Question(Event):
    """A person must decide before a tool runs or a plan starts."""

    question_id: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    digest: str = ""


@dataclass(frozen=True)
class FinalAnswer(Event):
    """The end of a run that answered. `answer` is its whole text."""

    answer: str = ""
    turn: int = 0
    steps: int = 0
    total_tokens: int = 0


@dataclass(frozen=True)
class Interruption(Event):
    """The end of a run that was cancelled."""

    turn: int = 0


@dataclass(frozen=True)
class TurnFailure(Event):
    """The end of a run that failed, with its `fault`."""

    turn: int = 0


@dataclass(frozen=True)
class FaultReport(Event):
    """`error.*`: a failure, a retry or a recovery in a run, or of this connection."""


@dataclass(frozen=True)
class ConnectionLoss(FaultReport):
    """Made by this client: the connection was lost, or a part of the history cannot be had."""


#: The events that end a run.
TurnEnd = (FinalAnswer, Interruption, TurnFailure)


def parse(data: str | bytes) -> Event | None:
    """The event in a text frame; `None` if it is none."""
    try:
        frame = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(frame, dict) or not isinstance(frame.get("event"), str):
        return None
    return of_frame(frame)


def of_frame(frame: Mapping[str, Any]) -> Event:
    """The typed event of a frame. Fields of a wrong type get their default value."""
    name = str(frame["event"])
    found = frame.get("metadata")
    meta: Mapping[str, Any] = found if isinstance(found, dict) else {}
    content = frame.get("content")
    delta = content if isinstance(content, str) else ""
    shown = frame.get("show_content")
    fault = Fault.of(meta, shown if isinstance(shown, str) else delta) if "error_code" in meta else None
    base = (frame, name, fault)
    if name == "agent.partial_answer":
        return PartialAnswer(*base, delta, _number(meta, "step"), meta.get("abandoned") is True)
    if name == "system.notice":
        return Notice(*base, _text(meta, "action"))
    if name == "agent.tool_call":
        return ToolCall(*base, _text(meta, "tool_name"), _text(meta, "call_id"), _map(meta, "args"), _number(meta, "attempt"))
    if name == "agent.tool_output":
        return ToolOutput(*base, _text(meta, "call_id"), delta)
    if name == "agent.tool_result":
        return ToolResult(*base, _text(meta, "tool_name"), _text(meta, "call_id"), meta.get("status") == "success")
    if name == "agent.user_confirm":
        step, tool, arguments = str(frame.get("step_id") or ""), _text(meta, "tool_name"), _map(meta, "tool_args")
        return Question(*base, step, tool, arguments, _text(meta, "reason"), _text(meta, "digest"))
    if name == "agent.final_answer":
        return FinalAnswer(*base, delta, _number(meta, "turn"), _number(meta, "steps"), _number(meta, "total_tokens"))
    if name == "agent.interrupted":
        return Interruption(*base, _number(meta, "turn"))
    if name == "agent.error":
        return TurnFailure(*base, _number(meta, "turn"))
    if name.startswith("error.") or name == "system.error":
        return FaultReport(*base)
    return Event(*base)


def of_fault(fault: Fault, session_id: str) -> ConnectionLoss:
    """The event that announces a fault of this side."""
    frame = {
        "event": "error.connection_lost",
        "session_id": session_id,
        "content": fault.message,
        "show_content": fault.message,
        "metadata": {**fault.facts, "source": "client", "error_code": fault.code, "kind": fault.kind},
    }
    return ConnectionLoss(frame, "error.connection_lost", fault)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _text(meta: Mapping[str, Any], name: str) -> str:
    value = meta.get(name)
    return value if isinstance(value, str) else ""


def _number(meta: Mapping[str, Any], name: str) -> int:
    value = meta.get(name)
    return value if isinstance(value, int) else 0


def _map(meta: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = meta.get(name)
    return value if isinstance(value, dict) else {}
