"""Failures as the server's fault catalog names them: a code, advice, and who has the next move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from ._catalog import KINDS

if TYPE_CHECKING:
    from ._event import Event

#: The advice for faults that this side raises, by kind; the texts are the catalog's.
_ADVICE: dict[str, tuple[str, ...]] = {
    "connection_lost": ("Wait: the client connects again and goes on where it was",),
    "connection_refused": ("Check that the server is running, and that its address is right",),
    "not_authenticated": ("Send a valid token", "Ask the operator for a new token if the old one has expired"),
    "not_allowed": ("Use an account or a role that has the right",),
    "bad_request": ("Correct the address of the server; it ends with /ws",),
    "history_gap": ("Read on after the gap; what follows is complete",),
    "history_expired": ("Start a new session",),
    "epoch_mismatch": ("Drop what you have: the session is loaded again from the beginning",),
    "request_timed_out": ("Check that the server is reachable, then send the command again",),
}


class Fault(Exception):
    """A failure. `code` finds it in the documentation and with `budao explain`."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        code: str | None = None,
        advice: tuple[str, ...] | None = None,
        facts: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        #: The name of the kind: `connection_lost`, `model_rate_limited` …
        self.kind = kind
        #: A sentence for people.
        self.message = message
        #: What can be done, the most specific first.
        self.advice = _ADVICE.get(kind, ()) if advice is None else advice
        #: Details of this kind.
        self.facts: dict[str, Any] = dict(facts or {})
        #: Seconds until the next attempt, if it is known.
        self.retry_after = retry_after
        known = KINDS.get(kind)
        #: The permanent code: `ERR_CONN_001`.
        self.code = code or (known[0] if known else "")
        #: Who has the next move: `runtime`, `model`, `user` or `operator`; empty if this client does not know the kind.
        self.remedy = known[1] if known else ""

    @property
    def trace_id(self) -> str | None:
        """The trace, to find the fault in the server's log."""
        value = self.facts.get("trace_id")
        return value if isinstance(value, str) else None

    @staticmethod
    def facts_of(metadata: Mapping[str, Any], message: str) -> "dict[str, Any]":
        """The arguments of a fault from the metadata of a frame."""
        wait = metadata.get("retry_after_ms")
        advice = metadata.get("recommendations")
        return {
            "kind": str(metadata.get("kind", "")),
            "message": message,
            "code": str(metadata.get("error_code", "")),
            "advice": tuple(str(line) for line in advice) if isinstance(advice, list) else (),
            "facts": dict(metadata),
            "retry_after": wait / 1000 if isinstance(wait, (int, float)) else None,
        }

    @classmethod
    def of(cls, metadata: Mapping[str, Any], message: str) -> "Fault":
        """The fault that the metadata of a frame describes."""
        return cls(**cls.facts_of(metadata, message))


class Rejected(Fault):
    """The server refused a command, which had no effect. `facts` names the field and the rule."""

    @classmethod
    def by(cls, event: "Event") -> "Rejected":
        message = event.content if isinstance(event.content, str) else event.text
        return cls(**cls.facts_of(event.metadata, message))


class TurnFailed(Fault):
    """The run of a message failed. `Session.retry` continues it from where it stood."""

    @classmethod
    def by(cls, event: "Event") -> "TurnFailed":
        return cls(**cls.facts_of(event.metadata, event.text))


class TurnCancelled(Exception):
    """The run of a message was cancelled."""
