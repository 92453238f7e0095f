// Made from clients/typescript/src by scripts/page.mjs. Do not edit.
// One event as it arrives. Names and payloads are in protocol.ts, which is made from the server's schema.
/**
 * The command an event answers. What a run tells names its command too, but has a place in the history; only the
 * opening of a session is both.
 */
export function answers(event) {
    if (event.seq !== undefined && event.event !== "agent.session_created")
        return undefined;
    const named = event.command_id ?? event.metadata?.["command_id"];
    return typeof named === "string" ? named : undefined;
}
export function isRefusal(event) {
    return event.event.startsWith("error.") || event.event === "system.error";
}
/** The event in a text frame; undefined if it is none. */
export function parse(data) {
    try {
        const value = JSON.parse(String(data));
        const isEvent = typeof value === "object" && value !== null && "event" in value;
        return isEvent && typeof value.event === "string" ? value : undefined;
    }
    catch {
        return undefined;
    }
}
