// The thread of a history as one client hears it: what is new, what is repeated, what is missing. Pure.

import type { Frame } from "./event.js";
import { Fault } from "./fault.js";

/** How far a client is in a session's history: what to hand in when coming back, also after a reload. */
export interface Cursor {
  /** Which incarnation; empty if not known yet. */
  epoch: string;
  /** The last position that arrived; 0 is before the first. */
  seq: number;
}

export type Heard =
  | { is: "new" }
  | { is: "repeat" }
  /** Something up to `to` is missing, and the server may still have it. */
  | { is: "torn"; to: number }
  | { is: "other_epoch" };

export class Thread {
  /** The last frame there was, as the heartbeat before said. */
  private promised = 0;

  constructor(
    readonly session: string,
    public cursor: Cursor = { epoch: "", seq: 0 },
  ) {}

  /** Judges a frame; the cursor moves only for what is new. */
  hear(event: Frame): Heard {
    const { seq, prev, epoch } = event;
    if (seq === undefined) return this.beat(event);
    if (epoch !== undefined && epoch !== this.cursor.epoch) {
      if (this.cursor.epoch !== "") return { is: "other_epoch" };
      this.cursor = { ...this.cursor, epoch };
    }
    if (seq <= this.cursor.seq) return { is: "repeat" };
    if (prev !== undefined && prev > this.cursor.seq) return { is: "torn", to: prev };
    this.cursor = { ...this.cursor, seq };
    return { is: "new" };
  }

  /** A heartbeat names the last frame there is. It may overtake that frame, but not by a whole heartbeat. */
  private beat(event: Frame): Heard {
    if (event.event !== "system.heartbeat") return { is: "new" };
    const to = this.promised;
    this.promised = 0;
    if (to > this.cursor.seq) return { is: "torn", to };
    const heads = event.metadata?.["heads"];
    const list = Array.isArray(heads) ? (heads as { session_id?: string; last_frame_seq?: number }[]) : [];
    this.promised = list.find((head) => head.session_id === this.session)?.last_frame_seq ?? 0;
    return { is: "new" };
  }

  /** Takes in the answer to a resume; a fault says what of the history cannot be had. */
  resumed(answer: Frame): Fault | undefined {
    const meta = answer.metadata ?? {};
    const epoch = typeof meta["epoch"] === "string" ? meta["epoch"] : "";
    switch (meta["status"]) {
      case "gap": {
        const lost = Array.isArray(meta["lost"]) ? meta["lost"] : [];
        return this.giveUp(Math.max(0, ...lost.map(Number)), String(meta["reason"] ?? "unknown"));
      }
      case "expired": {
        const head = Number(meta["head"] ?? 0);
        this.cursor = { ...this.cursor, seq: Math.max(this.cursor.seq, head) };
        const facts = { session: this.session, oldest_seq: head + 1 };
        return new Fault("history_expired", "The history this client had seen has expired.", facts);
      }
      case "epoch_mismatch": {
        const facts = { session: this.session, epoch: this.cursor.epoch, expected_epoch: epoch };
        this.cursor = { epoch, seq: 0 };
        return new Fault("epoch_mismatch", "The session's history was replaced.", facts);
      }
      default:
        if (this.cursor.epoch === "") this.cursor = { ...this.cursor, epoch };
        return undefined;
    }
  }

  /** Skips the events between the current position and `to`, which are lost. */
  giveUp(to: number, reason: string): Fault {
    const from = this.cursor.seq + 1;
    this.cursor = { ...this.cursor, seq: Math.max(this.cursor.seq, to) };
    const facts = { session: this.session, from_seq: from, to_seq: to, reason };
    return new Fault("history_gap", `Events ${from} to ${to} are no longer available (${reason}).`, facts);
  }
}
