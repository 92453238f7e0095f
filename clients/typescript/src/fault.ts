// What can go wrong on this side of the line, in the words of the server's fault catalog.

import type { Frame } from "./event.js";

/** The kinds a client meets by itself; code and name are the catalog's. */
const CODES = {
  connection_lost: "ERR_CONN_001",
  history_gap: "ERR_CONN_002",
  history_expired: "ERR_CONN_003",
  epoch_mismatch: "ERR_CONN_004",
  request_timed_out: "ERR_TIMEOUT_001",
  not_authenticated: "ERR_AUTH_002",
  not_allowed: "ERR_PERM_008",
} as const;

const STRATEGIES: Record<FaultKind, string> = {
  connection_lost: "reconnect_with_state",
  history_gap: "escalate_to_user",
  history_expired: "create_new_session",
  epoch_mismatch: "escalate_to_user",
  request_timed_out: "retry",
  not_authenticated: "terminate",
  not_allowed: "escalate",
};

const ADVICE: Partial<Record<FaultKind, string[]>> = {
  not_authenticated: ["Send a valid token", "Ask the operator for a new token if the old one has expired"],
  not_allowed: ["Use an account or a role that has the right"],
  history_expired: ["Start a new session"],
};

export type FaultKind = keyof typeof CODES;

/** A failure of the line or of the history behind it. */
export class Fault extends Error {
  readonly code: string;
  /** What can be done, the most specific first. */
  readonly advice: string[];

  constructor(
    readonly kind: FaultKind,
    message: string,
    readonly facts: Record<string, unknown> = {},
  ) {
    super(message);
    this.name = "Fault";
    this.code = CODES[kind];
    this.advice = ADVICE[kind] ?? [];
  }

  /** The event that announces it: a page that shows `error.*` events shows this one too. */
  toEvent(sessionId: string): Frame {
    return {
      event: "error.connection_lost",
      session_id: sessionId,
      timestamp: new Date().toISOString(),
      content: this.message,
      show_content: this.message,
      metadata: {
        ...this.facts,
        source: "client",
        error_code: this.code,
        recoverable: this.kind === "connection_lost",
        recovery_strategy: STRATEGIES[this.kind],
      },
      fault: this,
    };
  }
}

/** A failure that the server reported; `event` is its frame. */
class ReportedFault extends Error {
  /** The permanent code: `budao explain CODE` explains it. */
  readonly code: string;
  readonly kind: string;
  readonly advice: string[];

  constructor(readonly event: Frame) {
    super(typeof event.content === "string" ? event.content : (event.show_content ?? event.event));
    const { error_code: code, kind, recommendations } = event.metadata ?? {};
    this.code = typeof code === "string" ? code : "";
    this.kind = typeof kind === "string" ? kind : "";
    this.advice = Array.isArray(recommendations) ? recommendations.map(String) : [];
  }
}

/** The server refused a command, which had no effect; `event` is its answer, with code, field and advice. */
export class Rejected extends ReportedFault {
  override readonly name = "Rejected";
}

/** The run of a message failed; `Session.retry` continues it from where it stood. */
export class TurnFailed extends ReportedFault {
  override readonly name = "TurnFailed";
}

/** The run of a message was cancelled. */
export class TurnCancelled extends Error {
  override readonly name = "TurnCancelled";
}
