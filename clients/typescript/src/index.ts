// A client of the session server: connects, comes back after a cut, misses nothing, repeats nothing.

export { Client, type ClientOptions, type CreateOptions } from "./client.js";
export { Session, type Approve, type Decision, type FinalAnswer, type Question, type RunOptions } from "./session.js";
export { Fault, Rejected, TurnCancelled, TurnFailed, type FaultKind } from "./fault.js";
export type { Cursor, Heard } from "./thread.js";
export type { Frame, SessionEvent } from "./event.js";
export type * from "./protocol.js";
