// A session as a file for a bug report: what happened when and with which code, without what was said.

/** Names whose texts are ours, not the user's: they stay. */
const KEPT = new Set([
  "event", "session_id", "seq", "prev", "epoch", "event_id", "timestamp", "step_id", "action", "status", "tool", "tool_name", "call_id", "error_code", "kind", "category", "severity", "error_type",
  "errorType", "recovery_strategy", "recovery_action", "due_at", "hold_reason", "model", "stop_reason", "content_type", "operation", "stage", "scope", "reason", "state", "next", "retry_of", "question_id",
  "task_id", "child_session_id", "parent_session_id", "trace_id", "from_model", "to_model", "change_reason", "language", "protocol_version", "server_version", "created_at", "expires_at", "close_code",
  "remedy", "code", "type", "event_name", "permission_mode", "started_at", "last_code", "opened_at", "updated_at",
]);

/** A value with every text replaced by its length, except for names, codes and times. */
export function scrubbed(value, name = "") {
  if (typeof value === "string") return KEPT.has(name) && value.length <= 200 ? value : `[${value.length} characters]`;
  if (Array.isArray(value)) return value.map((child) => scrubbed(child, name));
  if (typeof value !== "object" || value === null) return value;
  // Arguments and data of tools have names of their own, which may say as much as their values.
  if (["args", "tool_args", "arguments", "data", "example", "provided_value", "todos"].includes(name)) return `[${JSON.stringify(value).length} characters of JSON]`;
  return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, scrubbed(child, key)]));
}

/** The lines of the file: what made it, the session, each event. */
export function bundleOf({ session, frames, server }) {
  const head = { bundle: 1, made_at: new Date().toISOString(), server, browser: navigator.userAgent, language: document.documentElement.lang, zone: Intl.DateTimeFormat().resolvedOptions().timeZone };
  const lines = [head, { session: scrubbed(session) }, ...frames.map(({ channel, ...frame }) => scrubbed(frame)), { end: frames.length }];
  return lines.map((line) => JSON.stringify(line)).join("\n") + "\n";
}
