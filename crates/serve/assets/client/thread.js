// Made from clients/typescript/src by scripts/page.mjs. Do not edit.
// The thread of a history as one client hears it: what is new, what is repeated, what is missing. Pure.
import { Fault } from "./fault.js";
export class Thread {
    session;
    cursor;
    /** The last frame there was, as the heartbeat before said. */
    promised = 0;
    constructor(session, cursor = { epoch: "", seq: 0 }) {
        this.session = session;
        this.cursor = cursor;
    }
    /** Judges a frame; the cursor moves only for what is new. */
    hear(event) {
        const { seq, prev, epoch } = event;
        if (seq === undefined)
            return this.beat(event);
        if (epoch !== undefined && epoch !== this.cursor.epoch) {
            if (this.cursor.epoch !== "")
                return { is: "other_epoch" };
            this.cursor = { ...this.cursor, epoch };
        }
        if (seq <= this.cursor.seq)
            return { is: "repeat" };
        if (prev !== undefined && prev > this.cursor.seq)
            return { is: "torn", to: prev };
        this.cursor = { ...this.cursor, seq };
        return { is: "new" };
    }
    /** A heartbeat names the last frame there is. It may overtake that frame, but not by a whole heartbeat. */
    beat(event) {
        if (event.event !== "system.heartbeat")
            return { is: "new" };
        const to = this.promised;
        this.promised = 0;
        if (to > this.cursor.seq)
            return { is: "torn", to };
        const heads = event.metadata?.["heads"];
        const list = Array.isArray(heads) ? heads : [];
        this.promised = list.find((head) => head.session_id === this.session)?.last_frame_seq ?? 0;
        return { is: "new" };
    }
    /** Takes in the answer to a resume; a fault says what of the history cannot be had. */
    resumed(answer) {
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
                if (this.cursor.epoch === "")
                    this.cursor = { ...this.cursor, epoch };
                return undefined;
        }
    }
    /** Skips the events between the current position and `to`, which are lost. */
    giveUp(to, reason) {
        const from = this.cursor.seq + 1;
        this.cursor = { ...this.cursor, seq: Math.max(this.cursor.seq, to) };
        const facts = { session: this.session, from_seq: from, to_seq: to, reason };
        return new Fault("history_gap", `Events ${from} to ${to} are no longer available (${reason}).`, facts);
    }
}
