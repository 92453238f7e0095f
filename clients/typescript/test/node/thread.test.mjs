// The judgement of frames, without a line: what is new, repeated, missing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Thread } from "../../dist/thread.js";

const frame = (seq, prev, epoch = "e1") => ({ event: "agent.thinking", seq, prev, epoch });
const at = (seq) => new Thread("s", { epoch: "e1", seq });

test("a filtered position is no gap and a missing frame is", () => {
  const thread = at(4);
  assert.deepEqual(thread.hear(frame(7, 4)), { is: "new" });
  assert.deepEqual(thread.hear(frame(9, 8)), { is: "torn", to: 8 });
  assert.equal(thread.cursor.seq, 7);
  const gap = thread.giveUp(8, "missing");
  assert.equal(gap.kind, "history_gap");
  assert.deepEqual(thread.hear(frame(9, 8)), { is: "new" });
});

test("the server names a gap and the thread goes on behind it", () => {
  const thread = at(4);
  const gap = thread.resumed({ event: "x", metadata: { status: "gap", lost: [5, 20], reason: "count" } });
  assert.deepEqual(gap.facts, { session: "s", from_seq: 5, to_seq: 20, reason: "count" });
  assert.equal(gap.toEvent("s").metadata.error_code, "ERR_CONN_002");
  assert.deepEqual(thread.hear(frame(21, 20)), { is: "new" });
});

test("another epoch is told and never mixed in", () => {
  const thread = at(4);
  assert.deepEqual(thread.hear(frame(5, 4, "e2")), { is: "other_epoch" });
  const fault = thread.resumed({ event: "x", metadata: { status: "epoch_mismatch", epoch: "e2" } });
  assert.equal(fault.kind, "epoch_mismatch");
  assert.deepEqual(thread.cursor, { epoch: "e2", seq: 0 });
});

test("what was heard before is a repeat, and what has no position never is", () => {
  const thread = at(4);
  assert.deepEqual(thread.hear(frame(4, 3)), { is: "repeat" });
  assert.deepEqual(thread.hear({ event: "system.heartbeat" }), { is: "new" });
});
