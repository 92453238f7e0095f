//! The schemas of frames that a client receives.

use serde_json::{Map, Value, json};

use super::object;

/// Whether a frame has a position in its session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The frame comes from a record.
    Always,
    /// The frame is about the connection.
    Never,
    /// The frame occurs in both forms.
    Either,
}

/// The type of a frame's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentShape {
    /// The content is null.
    None,
    /// The content is a string.
    Text,
    /// An object with these fields, in the notation of `schema::object`.
    Object(&'static str),
}

/// The schema of one event.
#[derive(Clone, Copy, Debug)]
pub struct FrameSchema {
    /// The event's name, such as `agent.final_answer`.
    pub event: &'static str,
    /// The description in the schema document, one sentence.
    pub about: &'static str,
    /// Whether the frame has a position.
    pub placed: Placement,
    /// True if the frame has a `step_id`.
    pub step: bool,
    /// The type of the frame's content.
    pub content: ContentShape,
    /// The metadata fields, in the notation of `schema::object`.
    pub metadata: &'static [&'static str],
}

impl FrameSchema {
    /// Builds the JSON Schema of this event.
    #[must_use]
    pub fn schema(&self) -> Value {
        let placed = "seq!:int prev!:int epoch!:epoch event_id!:str session_id!:uuid";
        let maybe = "seq:int prev:int epoch:epoch event_id:str session_id:uuid";
        let position_field = match self.placed {
            Placement::Always => placed,
            Placement::Never => "session_id:uuid",
            Placement::Either => maybe,
        };
        let step = if self.step { "step_id!:str" } else { "step_id:str" };
        let mut schema =
            object(&["event!:str", position_field, "timestamp!:time", step, "show_content:str"]);
        schema["title"] = super::title(self.event).into();
        schema["description"] = self.about.into();
        let properties = schema["properties"].as_object_mut();
        let properties = properties.expect("an object schema has properties");
        properties.insert("event".to_owned(), json!({ "const": self.event }));
        properties.insert("content".to_owned(), self.content_schema());
        properties.insert("metadata".to_owned(), self.metadata_schema());
        let required = schema["required"].as_array_mut();
        required
            .expect("an object schema lists what it requires")
            .extend(["content".into(), "metadata".into()]);
        schema
    }

    fn content_schema(&self) -> Value {
        match self.content {
            ContentShape::None => json!({ "type": "null" }),
            ContentShape::Text => json!({ "type": "string" }),
            ContentShape::Object(fields) => object(&[fields]),
        }
    }

    fn metadata_schema(&self) -> Value {
        let mut fields = self.metadata.to_vec();
        if self.placed != Placement::Never {
            fields.push("stage:stage task_id:str");
        }
        let schema = object(&fields);
        match schema["properties"].as_object().is_some_and(Map::is_empty) {
            true => json!({ "type": "object" }),
            false => schema,
        }
    }
}

/// Metadata fields of every error.
const COMMON: &str = "error_code!:str error_type!:str kind!:str category!:str timestamp!:time \
    recoverable!:bool auto_retry!:bool recovery_strategy!:str severity!:str operation!:str step:int \
    call_id:str attempt:int max_attempts:int retry_after_ms:int context!:obj";
/// Further metadata fields of a fault; most depend on its kind.
const FAULT: &str = "recommendations!:strs trace_id:str cause:str field:str constraint:str \
    provided_value:any limit:int limit_name:str mismatches:objs timeout_ms:int timeout_seconds:int \
    elapsed_ms:int elapsed_seconds:int backoff_multiplier:num rate_limit_reset:str \
    limit_per_minute:int requests_made:int close_code:int close_reason:str last_event_seq:int \
    uptime_ms:int uptime_seconds:int hops:objs";
const TURN_END: &str = "turn!:int command_id:str stop_reason!:str steps!:int model:str \
    generation_time_ms:int input_tokens!:int output_tokens!:int total_tokens!:int cached_tokens:int \
    estimated_tokens:int cost:num session_cost:num currency:str";
const QUESTION: &str = "requires_confirmation!:bool question_id!:str scope!:str options!:strs \
    digest!:str expires_at!:time timeout_seconds!:int call_id:str reason:str resent:bool \
    tool_name:str tool_args:any plan_summary:str task_count:int tasks:objs \
    server:str message:str url:str host:str fields:objs remember:str";
const RESUME: &str = "action!:str ok!:bool status!:str command_id:str epoch!:epoch cursor!:int \
    from!:int to!:int head!:int lost:ints reason:str recovery_strategy:str";
const SETTINGS: &str =
    "language!:str model:str permission_mode!:str session_name:str remembered_tools:strs";
const RESULTS: &str = "context!:obj solver_results!:objs";

const fn frame_schema(
    event: &'static str,
    content: ContentShape,
    metadata: &'static [&'static str],
    about: &'static str,
) -> FrameSchema {
    FrameSchema { event, about, placed: Placement::Always, step: false, content, metadata }
}

const fn with_step(schema: FrameSchema) -> FrameSchema {
    FrameSchema { step: true, ..schema }
}

const fn without_position(schema: FrameSchema) -> FrameSchema {
    FrameSchema { placed: Placement::Never, ..schema }
}

const fn with_either_placement(schema: FrameSchema) -> FrameSchema {
    FrameSchema { placed: Placement::Either, ..schema }
}

/// The schemas of all frames.
#[must_use]
pub fn frame_schemas() -> Vec<FrameSchema> {
    [CONNECTION, SESSION, RUN, WORKER, ERRORS, PIPELINE].concat()
}

use ContentShape::{None as Nothing, Object, Text};

const CONNECTION: &[FrameSchema] = &[
    without_position(frame_schema(
        "system.connected",
        Text,
        &[
            "connection_id!:str server_name!:str server_version!:str protocol_version!:str server_time!:time capabilities!:strs heartbeat_interval_seconds!:int unobserved_run_seconds!:int session_ttl_hours!:int frame_bytes_max!:int json_depth_max!:int",
        ],
        "The first frame of a connection: the server's name, version, capabilities and limits.",
    )),
    without_position(frame_schema(
        "system.heartbeat",
        Nothing,
        &[
            "server_time!:time uptime!:int server_uptime_seconds!:int active_sessions!:int head:int heads!:objs",
        ],
        "The connection is alive. `heads` has the last position of each observed session, so that an idle client detects missing frames.",
    )),
    with_either_placement(frame_schema(
        "system.notice",
        Text,
        &["action!:str ok:bool status:str command_id:str"],
        "A notice. `metadata.action` names its subject: the answer to a command, a resume, a replay, or a change in the session.",
    )),
    without_position(frame_schema(
        "system.error",
        Text,
        &[COMMON, FAULT],
        "The server itself failed; no command caused it.",
    )),
    without_position(frame_schema(
        "system.snapshot",
        Object("status!:str messages!:objs messages_left_out!:int todos!:list pipeline:any"),
        &["epoch!:epoch covers_seq!:int event_id!:str turns!:int language!:str"],
        "The state of a session, instead of events that are not sent. The frames that follow continue after `covers_seq`.",
    )),
];

const WORKER: &[FrameSchema] = &[
    without_position(with_step(frame_schema(
        "tool.call",
        Object(""),
        &[
            "tool!:str version!:str attempt!:int purpose!:str worker_id!:str idempotency_key!:str traceparent!:str deadline_ms!:int",
        ],
        "A call that the process may claim. `content` has the arguments, validated and repaired.",
    ))),
    without_position(with_step(frame_schema(
        "tool.cancel",
        Nothing,
        &["attempt!:int worker_id!:str reason!:str"],
        "The process should stop a call that it claimed: `reason` is `cancelled`, `deadline` or `over`.",
    ))),
];

const SESSION: &[FrameSchema] = &[
    frame_schema(
        "agent.session_created",
        Text,
        &[
            "agent_name!:str session_id!:uuid created_at!:time parent_session_id:uuid parent_call_id:str forked_from:uuid forked_at:int command_id:str",
            SETTINGS,
        ],
        "The session was opened. For the client that opened it, this is the answer.",
    ),
    frame_schema(
        "agent.session_end",
        Text,
        &[
            "reason!:str completion_status!:str total_turns!:int stats!:obj error_code:str error_type:str",
        ],
        "The session ended: `reason` is `user_request` or `error`. A later message opens it again.",
    ),
    without_position(frame_schema(
        "agent.state_exported",
        Text,
        &[
            "command_id:str signed_state!:str state_size!:int exported_at!:time valid_until!:time epoch!:epoch seq!:int message_count!:int current_step!:int",
        ],
        "The answer to `user.request_state`. The state is opaque text.",
    )),
    without_position(frame_schema(
        "agent.state_restored",
        Text,
        &[
            RESUME,
            "original_session_id!:uuid restored_at!:time restored_step!:int message_count!:int agent_name!:str previous_stage:stage warnings!:list",
        ],
        "The answer to `user.reconnect_with_state` with a signed state: which frames follow.",
    )),
    frame_schema(
        "user.message",
        Text,
        &["command_id:str queued!:bool mode:str confirm:bool images:int timer_id:str due_at:time \
          missed:int next_at:time"],
        "A message was accepted and will be answered. All observers receive this frame, also when they resume later.",
    ),
    frame_schema(
        "user.solve_tasks",
        Object("question!:str tasks!:objs"),
        &["command_id:str queued!:bool"],
        "Tasks were accepted and will be solved.",
    ),
];

const RUN: &[FrameSchema] = &[
    frame_schema(
        "agent.thinking",
        Text,
        &["step!:int streaming!:bool attempt:int model:str"],
        "A model request starts (`streaming` false), or the model sends a part of its thinking (a delta).",
    ),
    frame_schema(
        "agent.partial_answer",
        Text,
        &["is_streaming!:bool is_final!:bool word_count!:int step!:int abandoned:bool attempt:int"],
        "A part of an answer: a delta, to be appended. With `abandoned`, the text of this step is void and must be removed.",
    ),
    frame_schema(
        "agent.llm_message",
        Object("messages!:objs total_messages!:int"),
        &[
            "agent_name!:str step!:int total_length!:int final_response!:bool stop_reason!:str input_tokens!:int output_tokens!:int",
        ],
        "A step ended that is not the last: its whole text, and the calls that it requests.",
    ),
    frame_schema(
        "agent.final_answer",
        Text,
        &["answer_type!:str", TURN_END],
        "The whole answer. It is the last frame of its turn.",
    ),
    frame_schema(
        "agent.interrupted",
        Text,
        &[TURN_END],
        "The turn was stopped. It is the last frame of its turn.",
    ),
    frame_schema(
        "agent.error",
        Text,
        &[COMMON, FAULT, TURN_END],
        "The turn failed, with the reason. It is the last frame of its turn.",
    ),
    with_step(frame_schema(
        "agent.timeout",
        Text,
        &["reason!:str question_id!:str call_id!:str"],
        "A question was not answered in time; it counts as declined.",
    )),
    with_step(frame_schema(
        "agent.tool_call",
        Text,
        &[
            "tool!:str tool_name!:str call_id!:str args!:any status!:str step:int attempt!:int repairs:objs",
        ],
        "A tool call starts, or starts again.",
    )),
    with_step(frame_schema(
        "agent.tool_output",
        Text,
        &["call_id!:str"],
        "Output of a running tool: a delta.",
    )),
    with_step(frame_schema(
        "agent.tool_result",
        Text,
        &[
            "tool!:str tool_name!:str call_id!:str status!:str content_type!:str execution_time_ms!:int note:str total_bytes:int error:str in_doubt:bool retryable:bool next:str data:any error_code:str error_type:str recoverable:bool recommendations:strs context:obj",
        ],
        "A call ended: `status` is `success` or `failed`. Once per call.",
    )),
    with_step(with_either_placement(frame_schema(
        "agent.user_confirm",
        Text,
        &[QUESTION],
        "The user must decide. Answer with `user.response` and this `step_id`.",
    ))),
];

const ERRORS: &[FrameSchema] = &[
    with_either_placement(frame_schema(
        "error.validation",
        Text,
        &[COMMON, FAULT, "action:str ok:bool status:str command_id:str"],
        "Input is invalid. Without a position, the frame rejects a command.",
    )),
    frame_schema("error.timeout", Text, &[COMMON, FAULT], "An operation timed out."),
    frame_schema(
        "error.rate_limited",
        Text,
        &[COMMON, FAULT],
        "A service limits the rate of requests.",
    ),
    frame_schema(
        "error.connection_lost",
        Text,
        &[COMMON, FAULT],
        "An observer lost its connection. The turn continues.",
    ),
    frame_schema("error.execution", Text, &[COMMON, FAULT], "An operation failed."),
    frame_schema(
        "error.retry_attempt",
        Text,
        &[COMMON, "next_attempt!:int error_message!:str due_at!:time"],
        "The operation will be retried: the wait starts.",
    ),
    frame_schema(
        "error.recovery_started",
        Text,
        &[
            COMMON,
            "recovery_action!:str original_error!:str messages:int by_model:bool tokens_before:int tokens_after:int",
            "from_model:str to_model:str change_reason:str",
        ],
        "A recovery action starts, so that the next attempt can succeed.",
    ),
    frame_schema(
        "error.recovery_success",
        Text,
        &[COMMON, "recovery_action!:str original_error!:str attempts!:int recovery_time_ms!:int"],
        "A retried operation succeeded.",
    ),
    frame_schema(
        "error.recovery_failed",
        Text,
        &[COMMON, FAULT, "attempts!:int original_error!:str recovery_error!:str"],
        "No further attempt follows; the turn ends.",
    ),
];

const PIPELINE: &[FrameSchema] = &[
    frame_schema(
        "plan.start",
        Object("question!:str"),
        &["plan_id!:str"],
        "The planner starts to divide a question into tasks.",
    ),
    frame_schema(
        "plan.completed",
        Object("tasks!:objs plan_summary!:str"),
        &["plan_id!:str task_count!:int"],
        "The plan is complete.",
    ),
    frame_schema(
        "plan.validation_error",
        Text,
        &[COMMON, FAULT],
        "The planner's output is not a valid plan; the planner is asked once more.",
    ),
    frame_schema(
        "plan.coercion_error",
        Object("message!:str error!:str"),
        &["plan_id!:str", COMMON, FAULT],
        "The planner's output is not a valid plan; there will be no plan.",
    ),
    frame_schema(
        "plan.failed",
        Object("message!:str error!:str"),
        &["plan_id!:str", COMMON, FAULT],
        "The planner failed; there will be no plan.",
    ),
    frame_schema(
        "plan.cancelled",
        Object("reason!:str"),
        &["plan_id!:str reason!:str"],
        "The plan was cancelled.",
    ),
    frame_schema("solver.start", Object("task!:obj"), &["attempt!:int"], "Work on a task begins."),
    frame_schema(
        "solver.completed",
        Object("task!:obj result!:obj"),
        &["attempt:int"],
        "A task is solved.",
    ),
    frame_schema(
        "solver.failed",
        Object("task!:obj error!:obj"),
        &["attempt:int", COMMON, FAULT],
        "A task could not be solved. The others continue.",
    ),
    frame_schema(
        "solver.cancelled",
        Object("task!:obj"),
        &["attempt:int reason!:str"],
        "Work on a task was stopped.",
    ),
    frame_schema(
        "solver.restarted",
        Object("task!:obj"),
        &["attempt!:int reason!:str"],
        "A task restarts from the beginning.",
    ),
    frame_schema(
        "aggregate.start",
        Object(RESULTS),
        &["completed!:int failed!:int"],
        "The aggregation of results starts.",
    ),
    frame_schema(
        "aggregate.completed",
        Object("context!:obj solver_results!:objs output!:str"),
        &["result_size_bytes!:int"],
        "The aggregation of results is complete.",
    ),
    frame_schema(
        "aggregate.failed",
        Object("message!:str error!:str"),
        &[COMMON, FAULT],
        "The aggregation of results failed.",
    ),
    frame_schema(
        "aggregate.cancelled",
        Object("reason!:str"),
        &["reason!:str"],
        "The aggregation of results was stopped.",
    ),
    frame_schema(
        "pipeline.completed",
        Object(RESULTS),
        &[
            "status!:str task_count!:int completed!:int total_time_ms:int metrics!:obj turn!:int command_id:str",
        ],
        "The pipeline ended: `status` is `success`, `partial_success`, `failed` or `cancelled`.",
    ),
];
