// Made from docs/protocol.schema.json by scripts/types.mjs. Do not edit.

/** The first frame of a connection: who is there, and what it can and takes. */
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

/** The line is alive. `heads` says where each watched session's history ends, so that an idle client sees a loss. */
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

/** News. `metadata.action` says of what: the answer to a command, a resume, a replay, or something that happened in the session. */
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

/** Something of the server's own went wrong; no command is to blame. */
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

/** Where a session stands, in place of events that are not sent. What follows continues behind `covers_seq`. */
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

/** The session exists. To whoever created it, it is the answer. */
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

/** The answer to `user.reconnect_with_state` with a signed state: what will be sent. */
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

/** A message was accepted; it will be answered. Observers learn of it here, and so does who comes later. */
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
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** Tasks were accepted; they will be solved. */
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

/** The model is asked (`streaming` false), or thinks aloud (a delta). */
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

/** More words of an answer: a delta, to be appended. With `abandoned` the words of this step are void and must be taken back. */
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

/** A step is through that is not the last: its words in whole, and the calls it wants. */
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

/** The whole answer. Nothing of its turn follows. */
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
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The run was stopped. Nothing of its turn follows. */
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
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** The run failed, and why. Nothing of its turn follows. */
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

/** A tool starts, or starts again. */
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

/** A person must decide. Answer with `user.response` and this `step_id`. */
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
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** Input does not fit. Without a place it rejects a command. */
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

/** Something took too long. */
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

/** A service asks for patience. */
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

/** Somebody who was watching was lost. The run goes on. */
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

/** Something failed while it was being done. */
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

/** It will be tried again: the wait begins. */
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

/** Something is done so that the next try can work. */
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
    stage?: "planning" | "solving" | "aggregation";
    task_id?: string;
  };
};

/** It worked in the end. */
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

/** Nobody tries any further; the run ends. */
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

/** Tasks are being found for a question. */
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

/** The plan is made. */
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

/** What the planner wrote is no plan; it is asked once more. */
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

/** What the planner wrote is no plan; there will be none. */
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

/** The plan was given up. */
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

/** A task could not be solved. The others go on. */
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

/** A task will be worked on again from the start. */
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

/** Results are being put together. */
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

/** Results are put together. */
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

/** Results could not be put together. */
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

/** Putting results together was stopped. */
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

/** The pipeline is through: `status` is `success`, `partial_success`, `failed` or `cancelled`. */
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
      model?: string;
      system?: string;
      tools?: (string)[];
      max_steps?: number;
      patience_ms?: number;
      confirm?: boolean;
      permission_mode?: "auto" | "approval" | "readonly";
      on_disconnect?: "continue" | "cancel";
      mode?: "chat" | "plan";
    };
  } | null);
};

/** Says something; it is queued behind what is running. */
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
  });
};

/** Has these tasks solved and their results put together, without a planner. */
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
  } | boolean);
};

/** Stops the run. The session stays usable. */
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

/** Takes back a message that waits for its turn: `message` is its `command_id`. */
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

/** Stops one task; the others go on. */
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

/** Works on one task again from the start. */
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

/** Gives up the plan. */
export type UserCancelPlanCommand = {
  event: "user.cancel_plan";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: unknown;
};

/** Makes another plan, for another question if one is given. */
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

/** Ends the session. A later message opens it again. */
export type UserCloseSessionCommand = {
  event: "user.close_session";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: unknown;
};

/** Says up to where everything has arrived. It has no answer. */
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

/** Asks for a signed state to come back with. */
export type UserRequestStateCommand = {
  event: "user.request_state";
  command_id?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  session_id: string;
  content?: unknown;
};

/** Comes back with a signed state, or as the owner with a session and a cursor. */
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

/** Comes back with a session and a cursor; also a way to watch it. */
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

export type Outbound = (SystemConnected | SystemHeartbeat | SystemNotice | SystemError | SystemSnapshot | AgentSessionCreated | AgentSessionEnd | AgentStateExported | AgentStateRestored | UserMessage | UserSolveTasks | AgentThinking | AgentPartialAnswer | AgentLlmMessage | AgentFinalAnswer | AgentInterrupted | AgentError | AgentTimeout | AgentToolCall | AgentToolOutput | AgentToolResult | AgentUserConfirm | ErrorValidation | ErrorTimeout | ErrorRateLimited | ErrorConnectionLost | ErrorExecution | ErrorRetryAttempt | ErrorRecoveryStarted | ErrorRecoverySuccess | ErrorRecoveryFailed | PlanStart | PlanCompleted | PlanValidationError | PlanCoercionError | PlanFailed | PlanCancelled | SolverStart | SolverCompleted | SolverFailed | SolverCancelled | SolverRestarted | AggregateStart | AggregateCompleted | AggregateFailed | AggregateCancelled | PipelineCompleted);

export type Inbound = (UserCreateSessionCommand | UserMessageCommand | UserSolveTasksCommand | UserResponseCommand | UserCancelCommand | UserWithdrawCommand | UserCancelTaskCommand | UserRestartTaskCommand | UserRetryTaskCommand | UserCancelPlanCommand | UserReplanCommand | UserCloseSessionCommand | UserAckCommand | UserRequestStateCommand | UserReconnectWithStateCommand | UserReconnectCommand);

/** One JSON text per frame. Outbound is what a client receives, Inbound what it may send. Unknown fields and unknown events must be tolerated. */
export type Protocol = (Outbound | Inbound);
