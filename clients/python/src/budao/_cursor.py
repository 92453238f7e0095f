"""The position of one client in a history: which frames are new, repeated or missing. No I/O."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ._event import Cursor, Event
from ._fault import Fault


class FrameStatus(Enum):
    NEW = "new"
    DUPLICATE = "duplicate"
    #: Frames up to `CursorTracker.missing_to` are missing, and the server may still have them.
    GAP = "gap"
    OTHER_EPOCH = "other_epoch"


class CursorTracker:
    """Judges each frame of a session. The cursor moves for new frames only."""

    def __init__(self, session_id: str, cursor: Cursor = Cursor()) -> None:
        self.session_id = session_id
        self.cursor = cursor
        self.missing_to = 0
        # The last frame that exists, as the previous heartbeat said.
        self._promised = 0

    def classify(self, event: Event) -> FrameStatus:
        seq = event.seq
        if seq is None:
            return self._heartbeat(event)
        epoch = event.frame.get("epoch")
        if isinstance(epoch, str) and epoch != self.cursor.epoch:
            if self.cursor.epoch:
                return FrameStatus.OTHER_EPOCH
            self.cursor = Cursor(epoch, self.cursor.seq)
        if seq <= self.cursor.seq:
            return FrameStatus.DUPLICATE
        prev = event.frame.get("prev")
        if isinstance(prev, int) and prev > self.cursor.seq:
            self.missing_to = prev
            return FrameStatus.GAP
        self.cursor = Cursor(self.cursor.epoch, seq)
        return FrameStatus.NEW

    def _heartbeat(self, event: Event) -> FrameStatus:
        """A heartbeat names the last frame. It may overtake that frame, but not by a whole heartbeat."""
        if event.name != "system.heartbeat":
            return FrameStatus.NEW
        promised, self._promised = self._promised, 0
        if promised > self.cursor.seq:
            self.missing_to = promised
            return FrameStatus.GAP
        heads = event.metadata.get("heads")
        for head in heads if isinstance(heads, list) else []:
            if isinstance(head, dict) and head.get("session_id") == self.session_id:
                self._promised = _number(head.get("last_frame_seq"))
        return FrameStatus.NEW

    def resumed(self, answer: Event) -> Fault | None:
        """Takes in the answer to a reconnect. A fault says which part of the history cannot be had."""
        meta = answer.metadata
        epoch = str(meta.get("epoch", ""))
        status = meta.get("status")
        if status == "gap":
            lost = meta.get("lost")
            return self.give_up(max((_number(n) for n in lost or ()), default=0), str(meta.get("reason", "unknown")))
        if status == "expired":
            head = _number(meta.get("head"))
            self.cursor = Cursor(self.cursor.epoch, max(self.cursor.seq, head))
            facts = {"session": self.session_id, "oldest_seq": head + 1}
            return Fault("history_expired", "The history this client had seen has expired.", facts=facts)
        if status == "epoch_mismatch":
            facts = {"session": self.session_id, "epoch": self.cursor.epoch, "expected_epoch": epoch}
            self.cursor = Cursor(epoch, 0)
            return Fault("epoch_mismatch", "The session's history was replaced.", facts=facts)
        if not self.cursor.epoch:
            self.cursor = Cursor(epoch, self.cursor.seq)
        return None

    def give_up(self, to: int, reason: str) -> Fault:
        """Moves the cursor behind frames that cannot be had."""
        first = self.cursor.seq + 1
        self.cursor = Cursor(self.cursor.epoch, max(self.cursor.seq, to))
        facts = {"session": self.session_id, "from_seq": first, "to_seq": to, "reason": reason}
        return Fault("history_gap", f"Events {first} to {to} are no longer available ({reason}).", facts=facts)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
