// Made from clients/typescript/src by scripts/page.mjs. Do not edit.
// A client of the session server: connects, comes back after a cut, misses nothing, repeats nothing.
export { Client } from "./client.js";
export { Session } from "./session.js";
export { Fault, Rejected, TurnCancelled, TurnFailed } from "./fault.js";
