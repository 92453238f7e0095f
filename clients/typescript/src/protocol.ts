// Made from docs/protocol.schema.json by scripts/types.mjs. Do not edit.

/** The first frame of a connection: the server's name, version, capabilities and limits. */
export type SystemConnected = {
  event: "system.connected";
  session_id?: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    connection_id: string;
    server_name: string;
    server_version: string;
    protocol_version: string;
    server_time: string;
    capabilities: (string)[];
    heartbeat_interval_seconds: number;
    unobserved_run_seconds: number;
    session_ttl_hours: number;
    frame_bytes_max: number;
    json_depth_max: number;
  };
};

/** The connection is alive. `heads` has the last position of each observed session, so that an idle client detects missing frames. */
export type SystemHeartbeat = {
  event: "system.heartbeat";
  session_id?: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: null;
  metadata: {
    server_time: string;
    uptime: number;
    server_uptime_seconds: number;
    active_sessions: number;
    head?: number;
    heads: (Record<string, unknown>)[];
  };
};

/** A notice. `metadata.action` names its subject: the answer to a command, a resume, a replay, or a change in the session. */
export type SystemNotice = {
  event: "system.notice";
  seq?: number;
  prev?: number;
  epoch?: string;
  event_id?: string;
  session_id?: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    action: string;
    ok?: boolean;
    status?: string;
    command_id?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The server itself failed; no command caused it. */
export type SystemError = {
  event: "system.error";
  session_id?: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
  };
};

/** The state of a session, instead of events that are not sent. The frames that follow continue after `covers_seq`. */
export type SystemSnapshot = {
  event: "system.snapshot";
  session_id?: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    status: string;
    messages: (Record<string, unknown>)[];
    messages_left_out: number;
    todos: (unknown)[];
    pipeline?: unknown;
  };
  metadata: {
    epoch: string;
    covers_seq: number;
    event_id: string;
    turns: number;
    language: string;
  };
};

/** The session was opened. For the client that opened it, this is the answer. */
export type AgentSessionCreated = {
  event: "agent.session_created";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    agent_name: string;
    session_id: string;
    created_at: string;
    parent_session_id?: string;
    parent_call_id?: string;
    forked_from?: string;
    forked_at?: number;
    command_id?: string;
    language: string;
    model?: string;
    permission_mode: string;
    session_name?: string;
    remembered_tools?: (string)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The session ended: `reason` is `user_request` or `error`. A later message opens it again. */
export type AgentSessionEnd = {
  event: "agent.session_end";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    reason: string;
    completion_status: string;
    total_turns: number;
    stats: Record<string, unknown>;
    error_code?: string;
    error_type?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The answer to `user.request_state`. The state is opaque text. */
export type AgentStateExported = {
  event: "agent.state_exported";
  session_id?: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    command_id?: string;
    signed_state: string;
    state_size: number;
    exported_at: string;
    valid_until: string;
    epoch: string;
    seq: number;
    message_count: number;
    current_step: number;
  };
};

/** The answer to `user.reconnect_with_state` with a signed state: which frames follow. */
export type AgentStateRestored = {
  event: "agent.state_restored";
  session_id?: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    action: string;
    ok: boolean;
    status: string;
    command_id?: string;
    epoch: string;
    cursor: number;
    from: number;
    to: number;
    head: number;
    lost?: (number)[];
    reason?: string;
    recovery_strategy?: string;
    original_session_id: string;
    restored_at: string;
    restored_step: number;
    message_count: number;
    agent_name: string;
    previous_stage?: "planning" | "solving" | "aggregation";
    warnings: (unknown)[];
  };
};

/** A message was accepted and will be answered. All observers receive this frame, also when they resume later. */
export type UserMessage = {
  event: "user.message";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    command_id?: string;
    queued: boolean;
    mode?: string;
    confirm?: boolean;
    images?: number;
    timer_id?: string;
    due_at?: string;
    missed?: number;
    next_at?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** Tasks were accepted and will be solved. */
export type UserSolveTasks = {
  event: "user.solve_tasks";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    question: string;
    tasks: (Record<string, unknown>)[];
  };
  metadata: {
    command_id?: string;
    queued: boolean;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A model request starts (`streaming` false), or the model sends a part of its thinking (a delta). */
export type AgentThinking = {
  event: "agent.thinking";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    step: number;
    streaming: boolean;
    attempt?: number;
    model?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A part of an answer: a delta, to be appended. With `abandoned`, the text of this step is void and must be removed. */
export type AgentPartialAnswer = {
  event: "agent.partial_answer";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    is_streaming: boolean;
    is_final: boolean;
    word_count: number;
    step: number;
    abandoned?: boolean;
    attempt?: number;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A step ended that is not the last: its whole text, and the calls that it requests. */
export type AgentLlmMessage = {
  event: "agent.llm_message";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    messages: (Record<string, unknown>)[];
    total_messages: number;
  };
  metadata: {
    agent_name: string;
    step: number;
    total_length: number;
    final_response: boolean;
    stop_reason: string;
    input_tokens: number;
    output_tokens: number;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The whole answer. It is the last frame of its turn. */
export type AgentFinalAnswer = {
  event: "agent.final_answer";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    answer_type: string;
    turn: number;
    command_id?: string;
    stop_reason: string;
    steps: number;
    model?: string;
    generation_time_ms?: number;
    input_tokens: number;
    output_tokens: number;
    total_tokens: number;
    cached_tokens?: number;
    estimated_tokens?: number;
    cost?: number;
    session_cost?: number;
    currency?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The turn was stopped. It is the last frame of its turn. */
export type AgentInterrupted = {
  event: "agent.interrupted";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    turn: number;
    command_id?: string;
    stop_reason: string;
    steps: number;
    model?: string;
    generation_time_ms?: number;
    input_tokens: number;
    output_tokens: number;
    total_tokens: number;
    cached_tokens?: number;
    estimated_tokens?: number;
    cost?: number;
    session_cost?: number;
    currency?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The turn failed, with the reason. It is the last frame of its turn. */
export type AgentError = {
  event: "agent.error";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    turn: number;
    command_id?: string;
    stop_reason: string;
    steps: number;
    model?: string;
    generation_time_ms?: number;
    input_tokens: number;
    output_tokens: number;
    total_tokens: number;
    cached_tokens?: number;
    estimated_tokens?: number;
    cost?: number;
    session_cost?: number;
    currency?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A question was not answered in time; it counts as declined. */
export type AgentTimeout = {
  event: "agent.timeout";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id: string;
  show_content?: string;
  content: string;
  metadata: {
    reason: string;
    question_id: string;
    call_id: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A tool call starts, or starts again. */
export type AgentToolCall = {
  event: "agent.tool_call";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id: string;
  show_content?: string;
  content: string;
  metadata: {
    tool: string;
    tool_name: string;
    call_id: string;
    args: unknown;
    status: string;
    step?: number;
    attempt: number;
    repairs?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** Output of a running tool: a delta. */
export type AgentToolOutput = {
  event: "agent.tool_output";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id: string;
  show_content?: string;
  content: string;
  metadata: {
    call_id: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A call ended: `status` is `success` or `failed`. Once per call. */
export type AgentToolResult = {
  event: "agent.tool_result";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id: string;
  show_content?: string;
  content: string;
  metadata: {
    tool: string;
    tool_name: string;
    call_id: string;
    status: string;
    content_type: string;
    execution_time_ms: number;
    note?: string;
    total_bytes?: number;
    error?: string;
    in_doubt?: boolean;
    retryable?: boolean;
    next?: string;
    data?: unknown;
    error_code?: string;
    error_type?: string;
    recoverable?: boolean;
    recommendations?: (string)[];
    context?: Record<string, unknown>;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The user must decide. Answer with `user.response` and this `step_id`. */
export type AgentUserConfirm = {
  event: "agent.user_confirm";
  seq?: number;
  prev?: number;
  epoch?: string;
  event_id?: string;
  session_id?: string;
  timestamp: string;
  step_id: string;
  show_content?: string;
  content: string;
  metadata: {
    requires_confirmation: boolean;
    question_id: string;
    scope: string;
    options: (string)[];
    digest: string;
    expires_at: string;
    timeout_seconds: number;
    call_id?: string;
    reason?: string;
    resent?: boolean;
    tool_name?: string;
    tool_args?: unknown;
    plan_summary?: string;
    task_count?: number;
    tasks?: (Record<string, unknown>)[];
    server?: string;
    message?: string;
    url?: string;
    host?: string;
    fields?: (Record<string, unknown>)[];
    remember?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A call that the process may claim. `content` has the arguments, validated and repaired. */
export type ToolCall = {
  event: "tool.call";
  session_id?: string;
  timestamp: string;
  step_id: string;
  show_content?: string;
  content: Record<string, unknown>;
  metadata: {
    tool: string;
    version: string;
    attempt: number;
    purpose: string;
    worker_id: string;
    idempotency_key: string;
    traceparent: string;
    deadline_ms: number;
  };
};

/** The process should stop a call that it claimed: `reason` is `cancelled`, `deadline` or `over`. */
export type ToolCancel = {
  event: "tool.cancel";
  session_id?: string;
  timestamp: string;
  step_id: string;
  show_content?: string;
  content: null;
  metadata: {
    attempt: number;
    worker_id: string;
    reason: string;
  };
};

/** Input is invalid. Without a position, the frame rejects a command. */
export type ErrorValidation = {
  event: "error.validation";
  seq?: number;
  prev?: number;
  epoch?: string;
  event_id?: string;
  session_id?: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    action?: string;
    ok?: boolean;
    status?: string;
    command_id?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** An operation timed out. */
export type ErrorTimeout = {
  event: "error.timeout";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A service limits the rate of requests. */
export type ErrorRateLimited = {
  event: "error.rate_limited";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** An observer lost its connection. The turn continues. */
export type ErrorConnectionLost = {
  event: "error.connection_lost";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** An operation failed. */
export type ErrorExecution = {
  event: "error.execution";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The operation will be retried: the wait starts. */
export type ErrorRetryAttempt = {
  event: "error.retry_attempt";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    next_attempt: number;
    error_message: string;
    due_at: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A recovery action starts, so that the next attempt can succeed. */
export type ErrorRecoveryStarted = {
  event: "error.recovery_started";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recovery_action: string;
    original_error: string;
    messages?: number;
    by_model?: boolean;
    tokens_before?: number;
    tokens_after?: number;
    from_model?: string;
    to_model?: string;
    change_reason?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A retried operation succeeded. */
export type ErrorRecoverySuccess = {
  event: "error.recovery_success";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recovery_action: string;
    original_error: string;
    attempts: number;
    recovery_time_ms: number;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** No further attempt follows; the turn ends. */
export type ErrorRecoveryFailed = {
  event: "error.recovery_failed";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    attempts: number;
    original_error: string;
    recovery_error: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The planner starts to divide a question into tasks. */
export type PlanStart = {
  event: "plan.start";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    question: string;
  };
  metadata: {
    plan_id: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The plan is complete. */
export type PlanCompleted = {
  event: "plan.completed";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    tasks: (Record<string, unknown>)[];
    plan_summary: string;
  };
  metadata: {
    plan_id: string;
    task_count: number;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The planner's output is not a valid plan; the planner is asked once more. */
export type PlanValidationError = {
  event: "plan.validation_error";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: string;
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The planner's output is not a valid plan; there will be no plan. */
export type PlanCoercionError = {
  event: "plan.coercion_error";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    message: string;
    error: string;
  };
  metadata: {
    plan_id: string;
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The planner failed; there will be no plan. */
export type PlanFailed = {
  event: "plan.failed";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    message: string;
    error: string;
  };
  metadata: {
    plan_id: string;
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The plan was cancelled. */
export type PlanCancelled = {
  event: "plan.cancelled";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    reason: string;
  };
  metadata: {
    plan_id: string;
    reason: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** Work on a task begins. */
export type SolverStart = {
  event: "solver.start";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    task: Record<string, unknown>;
  };
  metadata: {
    attempt: number;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A task is solved. */
export type SolverCompleted = {
  event: "solver.completed";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    task: Record<string, unknown>;
    result: Record<string, unknown>;
  };
  metadata: {
    attempt?: number;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A task could not be solved. The others continue. */
export type SolverFailed = {
  event: "solver.failed";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    task: Record<string, unknown>;
    error: Record<string, unknown>;
  };
  metadata: {
    attempt?: number;
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** Work on a task was stopped. */
export type SolverCancelled = {
  event: "solver.cancelled";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    task: Record<string, unknown>;
  };
  metadata: {
    attempt?: number;
    reason: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** A task restarts from the beginning. */
export type SolverRestarted = {
  event: "solver.restarted";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    task: Record<string, unknown>;
  };
  metadata: {
    attempt: number;
    reason: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The aggregation of results starts. */
export type AggregateStart = {
  event: "aggregate.start";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    context: Record<string, unknown>;
    solver_results: (Record<string, unknown>)[];
  };
  metadata: {
    completed: number;
    failed: number;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The aggregation of results is complete. */
export type AggregateCompleted = {
  event: "aggregate.completed";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    context: Record<string, unknown>;
    solver_results: (Record<string, unknown>)[];
    output: string;
  };
  metadata: {
    result_size_bytes: number;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The aggregation of results failed. */
export type AggregateFailed = {
  event: "aggregate.failed";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    message: string;
    error: string;
  };
  metadata: {
    error_code: string;
    error_type: string;
    kind: string;
    category: string;
    timestamp: string;
    recoverable: boolean;
    auto_retry: boolean;
    recovery_strategy: string;
    severity: string;
    operation: string;
    step?: number;
    call_id?: string;
    attempt?: number;
    max_attempts?: number;
    retry_after_ms?: number;
    context: Record<string, unknown>;
    recommendations: (string)[];
    trace_id?: string;
    cause?: string;
    field?: string;
    constraint?: string;
    provided_value?: unknown;
    limit?: number;
    limit_name?: string;
    mismatches?: (Record<string, unknown>)[];
    timeout_ms?: number;
    timeout_seconds?: number;
    elapsed_ms?: number;
    elapsed_seconds?: number;
    backoff_multiplier?: number;
    rate_limit_reset?: string;
    limit_per_minute?: number;
    requests_made?: number;
    close_code?: number;
    close_reason?: string;
    last_event_seq?: number;
    uptime_ms?: number;
    uptime_seconds?: number;
    hops?: (Record<string, unknown>)[];
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The aggregation of results was stopped. */
export type AggregateCancelled = {
  event: "aggregate.cancelled";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    reason: string;
  };
  metadata: {
    reason: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The pipeline ended: `status` is `success`, `partial_success`, `failed` or `cancelled`. */
export type PipelineCompleted = {
  event: "pipeline.completed";
  seq: number;
  prev: number;
  epoch: string;
  event_id: string;
  session_id: string;
  timestamp: string;
  step_id?: string;
  show_content?: string;
  content: {
    context: Record<string, unknown>;
    solver_results: (Record<string, unknown>)[];
  };
  metadata: {
    status: string;
    task_count: number;
    completed: number;
    total_time_ms?: number;
    metrics: Record<string, unknown>;
    turn: number;
    command_id?: string;
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** Opens a session. */
export type UserCreateSessionCommand = {
  event: "user.create_session";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id?: string;
  content?: ({
    session_name?: string;
    project_name?: string;
    client_id?: string;
    client_version?: string;
    app_version?: string;
    preferences?: {
      language?: string;
      theme?: string;
    };
    config?: {
      system?: string;
      tools?: (string)[];
      max_steps?: number;
      patience_ms?: number;
      confirm?: boolean;
      answer_schema?: unknown;
      model?: (string | (string)[]);
      permission_mode?: "auto" | "approval" | "readonly";
      on_disconnect?: "continue" | "cancel";
      mode?: "chat" | "plan";
    };
  } | null);
};

/** Sends a message. If a turn is in progress, the message is queued. */
export type UserMessageCommand = {
  event: "user.message";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: (string | {
    text?: string;
    message?: string;
    question?: string;
    mode?: string;
    confirm?: boolean;
    images?: (Record<string, unknown>)[];
    config?: {
      answer_schema?: unknown;
      model?: (string | (string)[]);
    };
  });
};

/** Solves these tasks and combines their results, without a planner. */
export type UserSolveTasksCommand = {
  event: "user.solve_tasks";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    tasks?: unknown;
    question?: string;
    plan_summary?: string;
  } | (unknown)[]);
};

/** Answers a question: `confirmed` or `approved`. */
export type UserResponseCommand = {
  event: "user.response";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  step_id?: string;
  content?: ({
    confirmed?: boolean;
    approved?: boolean;
    feedback?: string;
    note?: string;
    tasks?: unknown;
    arguments?: unknown;
    digest?: string;
    remember?: string;
  } | boolean);
};

/** Forgets the remembered permission for a tool. */
export type UserRevokePermissionCommand = {
  event: "user.revoke_permission";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    tool_name: string;
  } | string);
};

/** Stops the turn. The session stays usable. */
export type UserCancelCommand = {
  event: "user.cancel";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    reason?: string;
  } | string | null);
};

/** Withdraws a queued message: `message` is its `command_id`. */
export type UserWithdrawCommand = {
  event: "user.withdraw";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    message: string;
  } | string);
};

/** Says what became of a call whose outcome is unknown: `happened`, `did_not_happen` or `left_to_model`. */
export type UserSettleDoubtCommand = {
  event: "user.settle_doubt";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: {
    call_id: string;
    outcome: string;
    result?: unknown;
    note?: string;
  };
};

/** Wakes the session once (`at` or `after_ms`) or on a schedule (`cron`, in the time zone `zone`). */
export type UserSetTimerCommand = {
  event: "user.set_timer";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: {
    timer_id?: string;
    message: string;
    at?: string;
    after_ms?: number;
    cron?: string;
    zone?: string;
  };
};

/** Cancels a timer of the session. */
export type UserCancelTimerCommand = {
  event: "user.cancel_timer";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    timer_id: string;
  } | string);
};

/** Continues the last turn, which failed, from where it stood. Calls that ended are not made again. */
export type UserRetryCommand = {
  event: "user.retry";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    turn?: number;
  } | number | null);
};

/** Stops one task; the others continue. */
export type UserCancelTaskCommand = {
  event: "user.cancel_task";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    task_id: unknown;
  } | string | number);
};

/** Restarts one task from the beginning. */
export type UserRestartTaskCommand = {
  event: "user.restart_task";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    task_id: unknown;
  } | string | number);
};

/** The same as `user.restart_task`. */
export type UserRetryTaskCommand = {
  event: "user.retry_task";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    task_id: unknown;
  } | string | number);
};

/** Cancels the plan. */
export type UserCancelPlanCommand = {
  event: "user.cancel_plan";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: unknown;
};

/** Requests another plan, for another question if one is given. */
export type UserReplanCommand = {
  event: "user.replan";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: ({
    question?: string;
  } | string | null);
};

/** Offers tools: to the session `session_id`, or without one to all sessions of the tenant. */
export type UserOfferToolsCommand = {
  event: "user.offer_tools";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id?: string;
  content?: {
    worker: string;
    worker_id: string;
    capacity?: number;
    tools: (Record<string, unknown>)[];
    holding?: (Record<string, unknown>)[];
  };
};

/** Claims a call. The process runs the call only after the claim was accepted. */
export type UserToolClaimCommand = {
  event: "user.tool_claim";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  step_id: string;
  content?: {
    attempt: number;
    worker_id: string;
  };
};

/** Shows progress of a claimed call. Without a `command_id` it has no answer. */
export type UserToolOutputCommand = {
  event: "user.tool_output";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  step_id: string;
  content?: {
    attempt: number;
    worker_id: string;
    delta: string;
  };
};

/** Ends a claimed call with a `result`, an `error` or a `reconciliation`. */
export type UserToolResultCommand = {
  event: "user.tool_result";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  step_id: string;
  content?: {
    attempt: number;
    worker_id: string;
    result?: unknown;
    error?: Record<string, unknown>;
    reconciliation?: string;
  };
};

/** The process takes no new calls and finishes those that it holds. */
export type UserDrainWorkerCommand = {
  event: "user.drain_worker";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id?: string;
  content?: {
    worker_id: string;
  };
};

/** Ends the session. A later message opens it again. */
export type UserCloseSessionCommand = {
  event: "user.close_session";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: unknown;
};

/** Acknowledges all frames up to a position. It is answered only if it has a `command_id` or is rejected. */
export type UserAckCommand = {
  event: "user.ack";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id?: string;
  seq?: number;
  last_seq?: number;
  last_event_id?: string;
  epoch?: string;
  content?: ({
    last_seq?: number;
    last_event_id?: string;
    epoch?: string;
  } | number | null);
};

/** Requests a signed state, for a later `user.reconnect_with_state`. */
export type UserRequestStateCommand = {
  event: "user.request_state";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: unknown;
};

/** Resumes with a signed state, or as the owner with a session and a cursor. */
export type UserReconnectWithStateCommand = {
  event: "user.reconnect_with_state";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id?: string;
  signed_state?: string;
  last_seq?: number;
  last_event_id?: string;
  epoch?: string;
  content?: ({
    last_seq?: number;
    last_event_id?: string;
    epoch?: string;
    signed_state?: string;
    session_id?: string;
    preferences?: {
      language?: string;
      theme?: string;
    };
  } | null);
};

/** Resumes with a session and a cursor. Without a cursor, observes the session from its beginning. */
export type UserReconnectCommand = {
  event: "user.reconnect";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id?: string;
  last_seq?: number;
  last_event_id?: string;
  epoch?: string;
  content?: ({
    last_seq?: number;
    last_event_id?: string;
    epoch?: string;
    session_id?: string;
    preferences?: {
      language?: string;
      theme?: string;
    };
  } | null);
};

export type Outbound = (SystemConnected | SystemHeartbeat | SystemNotice | SystemError | SystemSnapshot | AgentSessionCreated | AgentSessionEnd | AgentStateExported | AgentStateRestored | UserMessage | UserSolveTasks | AgentThinking | AgentPartialAnswer | AgentLlmMessage | AgentFinalAnswer | AgentInterrupted | AgentError | AgentTimeout | AgentToolCall | AgentToolOutput | AgentToolResult | AgentUserConfirm | ToolCall | ToolCancel | ErrorValidation | ErrorTimeout | ErrorRateLimited | ErrorConnectionLost | ErrorExecution | ErrorRetryAttempt | ErrorRecoveryStarted | ErrorRecoverySuccess | ErrorRecoveryFailed | PlanStart | PlanCompleted | PlanValidationError | PlanCoercionError | PlanFailed | PlanCancelled | SolverStart | SolverCompleted | SolverFailed | SolverCancelled | SolverRestarted | AggregateStart | AggregateCompleted | AggregateFailed | AggregateCancelled | PipelineCompleted);

export type Inbound = (UserCreateSessionCommand | UserMessageCommand | UserSolveTasksCommand | UserResponseCommand | UserRevokePermissionCommand | UserCancelCommand | UserWithdrawCommand | UserSettleDoubtCommand | UserSetTimerCommand | UserCancelTimerCommand | UserRetryCommand | UserCancelTaskCommand | UserRestartTaskCommand | UserRetryTaskCommand | UserCancelPlanCommand | UserReplanCommand | UserOfferToolsCommand | UserToolClaimCommand | UserToolOutputCommand | UserToolResultCommand | UserDrainWorkerCommand | UserCloseSessionCommand | UserAckCommand | UserRequestStateCommand | UserReconnectWithStateCommand | UserReconnectCommand);

/** One JSON text per frame. Outbound is what a client receives, Inbound what it may send. Unknown fields and unknown events must be tolerated. */
export type Protocol = (Outbound | Inbound);
