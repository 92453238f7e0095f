// Made from clients/typescript/src by scripts/page.mjs. Do not edit.
// What can go wrong on this side of the line, in the words of the server's fault catalog.
/** The kinds a client meets by itself; code and name are the catalog's. */
const CODES = {
    connection_lost: "ERR_CONN_001",
    history_gap: "ERR_CONN_002",
    history_expired: "ERR_CONN_003",
    epoch_mismatch: "ERR_CONN_004",
    request_timed_out: "ERR_TIMEOUT_001",
};
const STRATEGIES = {
    connection_lost: "reconnect_with_state",
    history_gap: "escalate_to_user",
    history_expired: "create_new_session",
    epoch_mismatch: "escalate_to_user",
    request_timed_out: "retry",
};
/** A failure of the line or of the history behind it. */
export class Fault extends Error {
    kind;
    facts;
    code;
    constructor(kind, message, facts = {}) {
        super(message);
        this.kind = kind;
        this.facts = facts;
        this.name = "Fault";
        this.code = CODES[kind];
    }
    /** The event that announces it: a page that shows `error.*` events shows this one too. */
    toEvent(sessionId) {
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
/** The server said no; `event` is its answer, with code, field and advice. */
export class Rejected extends Error {
    event;
    constructor(event) {
        super(typeof event.content === "string" ? event.content : (event.show_content ?? event.event));
        this.event = event;
        this.name = "Rejected";
    }
}
