"""The judgement of frames, without a connection: new, repeated, missing."""

from __future__ import annotations

import random
from typing import Any

from budao import Cursor
from budao._cursor import CursorTracker, FrameStatus
from budao._event import Event, of_frame, parse


def frame(seq: int, prev: int, epoch: str = "e1") -> Event:
    return of_frame({"event": "agent.thinking", "seq": seq, "prev": prev, "epoch": epoch})


def answer(**metadata: Any) -> Event:
    return of_frame({"event": "system.notice", "metadata": metadata})


def at(seq: int) -> CursorTracker:
    return CursorTracker("s", Cursor("e1", seq))


def test_a_filtered_position_is_no_gap_and_a_missing_frame_is() -> None:
    tracker = at(4)
    assert tracker.classify(frame(7, 4)) is FrameStatus.NEW
    assert tracker.classify(frame(9, 8)) is FrameStatus.GAP
    assert (tracker.cursor.seq, tracker.missing_to) == (7, 8)
    assert tracker.give_up(8, "missing").code == "ERR_CONN_002"
    assert tracker.classify(frame(9, 8)) is FrameStatus.NEW


def test_the_server_names_a_gap_and_the_cursor_moves_behind_it() -> None:
    tracker = at(4)
    gap = tracker.resumed(answer(status="gap", lost=[5, 20], reason="count"))
    assert gap is not None
    assert gap.facts == {"session": "s", "from_seq": 5, "to_seq": 20, "reason": "count"}
    assert tracker.classify(frame(21, 20)) is FrameStatus.NEW


def test_another_epoch_is_reported_and_never_mixed_in() -> None:
    tracker = at(4)
    assert tracker.classify(frame(5, 4, "e2")) is FrameStatus.OTHER_EPOCH
    fault = tracker.resumed(answer(status="epoch_mismatch", epoch="e2"))
    assert fault is not None and fault.kind == "epoch_mismatch"
    assert tracker.cursor == Cursor("e2", 0)


def test_the_second_heartbeat_reveals_lost_frames_of_an_idle_connection() -> None:
    heartbeat = of_frame({"event": "system.heartbeat", "metadata": {"heads": [{"session_id": "s", "last_frame_seq": 6}]}})
    tracker = at(4)
    assert tracker.classify(heartbeat) is FrameStatus.NEW
    assert tracker.classify(frame(6, 4)) is FrameStatus.NEW, "it was only overtaken"
    assert tracker.classify(heartbeat) is FrameStatus.NEW
    tracker.cursor = Cursor("e1", 4)
    assert tracker.classify(heartbeat) is FrameStatus.GAP


def test_any_order_of_cuts_and_replays_gives_every_frame_once() -> None:
    # Method: after each range, rewind to a random earlier frame and send from there again.
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choose = random.Random(seed)
    for _ in range(200):
        tracker, received, reached = CursorTracker("s"), [], 10
        ranges = [range(1, 11)]
        for _ in range(choose.randrange(20)):
            start = max(1, reached - choose.randrange(50))
            reached = min(50, reached + 3)
            ranges.append(range(start, reached + 1))
        for seq in [seq for one in [*ranges, range(1, 51)] for seq in one]:
            if tracker.classify(frame(seq, seq - 1)) is FrameStatus.NEW:
                received.append(seq)
        assert received == list(range(1, 51))


def test_what_is_no_event_is_skipped() -> None:
    broken: list[str | bytes] = ["", "{", "[]", "7", '{"event": 7}', "[" * 100_000, b"\xff"]
    assert [data for data in broken if parse(data) is not None] == []
    odd = parse('{"event": "agent.tool_call", "metadata": {"args": 7, "attempt": "x", "tool_name": null}, "seq": "1"}')
    assert odd is not None and (odd.seq, odd.metadata["args"]) == (None, 7)
