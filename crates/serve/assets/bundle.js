// A session as a file for a bug report: what happened when and with which code, without what was said. Only what is
// listed here stays, each at its place and only with a value that cannot be anybody's text.

const like = (pattern) => (value) => (typeof value === "string" && pattern.test(value) ? value : undefined);
const oneOf = (...words) => (value) => (words.includes(value) ? value : undefined);
const count = (value) => (["number", "boolean"].includes(typeof value) ? value : undefined);
/** A text whose length may stay. */
const text = () => undefined;
const all = (names, check) => Object.fromEntries(names.split(" ").map((name) => [name, check]));

const uuid = like(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
const epoch = like(/^[0-9a-f]{8}$/);
const eventId = like(/^[0-9a-f-]{36}\.[0-9a-f]{8}\.\d+$/);
const time = like(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z$/);
const code = like(/^ERR_[A-Z]+_\d{3}$/);
/** Names of models are the operator's. */
const model = like(/^[A-Za-z0-9][\w.:/@-]{0,79}$/);

/** Ids and names that a model, a client or a tool server chose: each has a number, the same wherever it stands. */
const numbered = (value, numbers) => {
  if (typeof value !== "string") return undefined;
  if (!numbers.has(value)) numbers.set(value, `#${numbers.size + 1}`);
  return numbers.get(value);
};
const BUILT_IN = oneOf(..."fs_read fs_write fs_edit fs_multi_edit fs_glob fs_grep bash_run bash_logs bash_kill todo_read todo_write task_run wake_at timers_list timer_cancel".split(" "));
const tool = (value, numbers) => BUILT_IN(value) ?? numbered(value, numbers);
const numberedList = (value, numbers) => (Array.isArray(value) ? value.map((one) => numbered(one, numbers)) : undefined);
const howMany = (value) => (Array.isArray(value) ? value.length : undefined);
const object = (fields) => (value, numbers) => (typeof value === "object" && value !== null && !Array.isArray(value) ? kept(value, fields, numbers) : undefined);

const COUNTS = all(
  "step steps turn attempt attempts max_attempts next_attempt retry_after_ms recovery_time_ms timeout_ms elapsed_ms wait_ms execution_time_ms generation_time_ms total_time_ms waiting_before " +
    "streaming is_streaming is_final final_response abandoned word_count total_length total_bytes total_turns total_messages task_count completed failed images missed queued confirmed edited restart by_model " +
    "in_doubt retryable recoverable auto_retry input_tokens output_tokens total_tokens cached_tokens estimated_tokens tokens_before tokens_after messages cost session_cost retry_of forked_at " +
    "close_code last_event_seq uptime_ms from_seq to_seq oldest_seq head_seq resent timeout_seconds replayed last_seq",
  count,
);
const ACTIONS = "call_noted call_reconciled call_reconciling cancelling child_ended child_opened confirmation_answered doubt_settled history_compacted message_withdrawn model_changed replanning request_held session_resumed settings_changed task_stopping timer_cancelled timer_set todos_changed turn_retried";
const STATES = "idle running waiting_for_decision closed failed";
const usage = object(all("input_tokens output_tokens total_tokens cached_tokens", count));

/** What every frame may have in its metadata. */
const METADATA = {
  ...COUNTS,
  ...all("call_id question_id task_id command_id timer_id parent_call_id", numbered),
  ...all("tool tool_name", tool),
  ...all("session_id child_session_id parent_session_id forked_from", uuid),
  ...all("timestamp created_at expires_at due_at next_at at rate_limit_reset", time),
  ...all("error_code recovery_error", code),
  ...all("metrics stats", usage),
  ...all("args tool_args data error note cause session_name message question summary plan_summary reason close_reason", text),
  action: oneOf(...ACTIONS.split(" ")),
  status: (value) => oneOf("running", "success", "partial_success", "failed", "cancelled")(value) ?? count(value),
  severity: oneOf("info", "low", "medium", "warn", "error", "critical"),
  stage: oneOf("planning", "solving", "aggregation"),
  stop_reason: oneOf("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "failed", "tool_use", "other"),
  hold_reason: oneOf("rate_limit", "outage", "capacity"),
  recovery_action: oneOf("retry", "change_model", "compact_history"),
  change_reason: oneOf("gate_shut", "tries_used", "patience_exceeded", "context_too_long", "unknown_model", "quota_spent", "content_filtered", "unusable", "returned"),
  content_type: oneOf("text", "json"),
  answer_type: oneOf("text", "json"),
  permission_mode: oneOf("auto", "approval", "readonly"),
  outcome: oneOf("happened", "did_not_happen", "left_to_model"),
  completion_status: oneOf("completed", "error"),
  scope: oneOf("tool", "plan", "elicitation"),
  mode: oneOf("plan", "in_run"),
  next: oneOf("retry_same", "retry_changed", "stop"),
  language: oneOf("en", "zh"),
  currency: like(/^[A-Z]{3}$/),
  trace_id: like(/^[0-9a-f]{32}$/),
  sealed_calls: numberedList,
  remembered_tools: howMany,
  fault_counts: object(all("faults recovered not_recovered", count)),
};

/** What only some events may have: elsewhere the same names have texts of people, clients and tools. */
const OF_EVENT = {
  "agent.session_created": { model },
  "agent.session_end": { reason: oneOf("user_request", "error") },
  "agent.timeout": { reason: oneOf("question_expired") },
  "agent.thinking": { model },
  "agent.final_answer": { model },
  "agent.interrupted": { model },
  "error.recovery_started": { from_model: model, to_model: model },
  "system.notice": { from_model: model, to_model: model },
};

const FRAME = {
  ...all("seq prev", count),
  ...all("content show_content", text),
  event: like(/^(agent|user|system|error|plan|solver|aggregate|pipeline)\.[a-z_]{1,40}$/),
  session_id: uuid,
  step_id: numbered,
  epoch,
  event_id: eventId,
  timestamp: time,
};

const SESSION = {
  ...all("head turns queued input_tokens output_tokens faults recovered not_recovered", count),
  ...all("questions doubts timers remembered_tools", howMany),
  ...all("title last_text detail", text),
  session_id: uuid,
  forked_from: uuid,
  epoch,
  model,
  code,
  language: METADATA.language,
  // Of the session, or of the answer that says why there is none.
  status: (value) => oneOf(...STATES.split(" "))(value) ?? count(value),
};

/** The listed fields of an object. What is listed and has another value than it may is replaced by its length. */
function kept(value, fields, numbers) {
  const found = Object.entries(value).filter(([name, child]) => Object.hasOwn(fields, name) && child !== null);
  return Object.fromEntries(found.map(([name, child]) => [name, fields[name](child, numbers) ?? lengthOf(child)]));
}

function lengthOf(value) {
  return typeof value === "string" ? `[${value.length} characters]` : `[${JSON.stringify(value).length} characters of JSON]`;
}

/** A frame without anybody's text. `numbers` has the ids that stand in the file as numbers. */
export function scrubbedFrame(frame, numbers = new Map()) {
  const metadata = object({ ...METADATA, ...(Object.hasOwn(OF_EVENT, frame.event) ? OF_EVENT[frame.event] : {}) });
  return kept(frame, { ...FRAME, metadata }, numbers);
}

/** The state of a session without anybody's text. */
export const scrubbedSession = (session) => kept(session, SESSION, new Map());

/** The lines of the file: what made it, the session, each event. */
export function bundleOf({ session, frames, server }) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const head = { bundle: 1, made_at: new Date().toISOString(), server, browser: navigator.userAgent, language: document.documentElement.lang, zone };
  const numbers = new Map();
  const lines = [head, { session: scrubbedSession(session) }, ...frames.map((frame) => scrubbedFrame(frame, numbers)), { end: frames.length }];
  return lines.map((line) => JSON.stringify(line)).join("\n") + "\n";
}
