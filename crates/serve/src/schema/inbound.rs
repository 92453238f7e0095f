//! The schemas of commands that a client may send.

use serde_json::{Map, Value, json};

use super::object;

/// The schema of one `user.*` event.
#[derive(Clone, Debug)]
pub struct CommandSchema {
    /// The event's name, such as `user.message`.
    pub event: &'static str,
    /// The description in the schema document, one sentence.
    pub about: &'static str,
    /// True if `session_id` is required.
    pub session: bool,
    /// Top-level fields besides the common ones, in the notation of `schema::object`.
    pub top: &'static str,
    /// The JSON Schema of the content.
    pub content: Value,
}

impl CommandSchema {
    /// Builds the JSON Schema of this event.
    #[must_use]
    pub fn schema(&self) -> Value {
        let session = if self.session { "session_id!:uuid" } else { "session_id:uuid" };
        let common = "event!:str command_id:str timestamp:str metadata:obj";
        let mut schema = object(&[common, session, self.top]);
        schema["title"] = format!("{}Command", super::title(self.event)).into();
        schema["description"] = self.about.into();
        schema["properties"]["event"] = json!({ "const": self.event });
        schema["properties"]["content"] = self.content.clone();
        schema["properties"]["command_id"] =
            json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^(?!own-)" });
        schema
    }
}

const CLAIM: &str = "attempt!:int worker_id!:str";
const CURSOR: &str = "last_seq:int last_event_id:str epoch:epoch";

fn any_of(one: Value, other: Value) -> Value {
    Map::from_iter([("anyOf".to_owned(), Value::Array(vec![one, other]))]).into()
}

fn text_schema() -> Value {
    json!({ "type": "string" })
}

/// The schemas of all commands.
#[must_use]
pub fn commands() -> Vec<CommandSchema> {
    [
        conversation_commands(),
        follow_up_commands(),
        plan_commands(),
        worker_commands(),
        connection_commands(),
    ]
    .concat()
}

fn command_schema(event: &'static str, about: &'static str, content: Value) -> CommandSchema {
    CommandSchema { event, about, session: true, top: "", content }
}

/// A command that names no session, or need not.
fn without_session(command: CommandSchema, top: &'static str) -> CommandSchema {
    CommandSchema { session: false, top, ..command }
}

/// Commands of a conversation: messages, answers to questions, cancellations.
fn conversation_commands() -> Vec<CommandSchema> {
    vec![
        without_session(
            command_schema("user.create_session", "Opens a session.", creation_schema()),
            "",
        ),
        command_schema(
            "user.message",
            "Sends a message. If a turn is in progress, the message is queued.",
            any_of(text_schema(), message_schema()),
        ),
        command_schema(
            "user.solve_tasks",
            "Solves these tasks and combines their results, without a planner.",
            any_of(
                object(&["tasks:any question:str plan_summary:str"]),
                json!({ "type": "array" }),
            ),
        ),
        CommandSchema {
            top: "step_id:str",
            ..command_schema(
                "user.response",
                "Answers a question: `confirmed` or `approved`.",
                any_of(
                    object(&[
                        "confirmed:bool approved:bool feedback:str note:str tasks:any arguments:any digest:str remember:str",
                    ]),
                    json!({ "type": "boolean" }),
                ),
            )
        },
        command_schema(
            "user.revoke_permission",
            "Forgets the remembered permission for a tool.",
            any_of(object(&["tool_name!:str"]), text_schema()),
        ),
        command_schema(
            "user.cancel",
            "Stops the turn. The session stays usable.",
            any_of(object(&["reason:str"]), json!({ "type": ["string", "null"] })),
        ),
        command_schema(
            "user.withdraw",
            "Withdraws a queued message: `message` is its `command_id`.",
            any_of(object(&["message!:str"]), text_schema()),
        ),
    ]
}

/// Commands about doubts, timers and failed turns.
fn follow_up_commands() -> Vec<CommandSchema> {
    vec![
        command_schema(
            "user.settle_doubt",
            "Says what became of a call whose outcome is unknown: `happened`, `did_not_happen` or `left_to_model`.",
            object(&["call_id!:str outcome!:str result:any note:str"]),
        ),
        command_schema(
            "user.set_timer",
            "Wakes the session once (`at` or `after_ms`) or on a schedule (`cron`, in the time zone `zone`).",
            object(&["timer_id:str message!:str at:str after_ms:int cron:str zone:str"]),
        ),
        command_schema(
            "user.cancel_timer",
            "Cancels a timer of the session.",
            any_of(object(&["timer_id!:str"]), text_schema()),
        ),
        command_schema(
            "user.retry",
            "Continues the last turn, which failed, from where it stood. Calls that ended are not made again.",
            any_of(object(&["turn:int"]), json!({ "type": ["integer", "null"] })),
        ),
    ]
}

/// Commands about the tasks of a plan.
fn plan_commands() -> Vec<CommandSchema> {
    let task = || any_of(object(&["task_id!:any"]), json!({ "type": ["string", "integer"] }));
    vec![
        command_schema("user.cancel_task", "Stops one task; the others continue.", task()),
        command_schema("user.restart_task", "Restarts one task from the beginning.", task()),
        command_schema("user.retry_task", "The same as `user.restart_task`.", task()),
        command_schema("user.cancel_plan", "Cancels the plan.", json!({})),
        command_schema(
            "user.replan",
            "Requests another plan, for another question if one is given.",
            any_of(object(&["question:str"]), json!({ "type": ["string", "null"] })),
        ),
    ]
}

/// Commands of programs that offer tools.
fn worker_commands() -> Vec<CommandSchema> {
    vec![
        without_session(
            command_schema(
                "user.offer_tools",
                "Offers tools: to the session `session_id`, or without one to all sessions of the tenant.",
                object(&["worker!:str worker_id!:str capacity:int tools!:objs holding:objs"]),
            ),
            "",
        ),
        CommandSchema {
            top: "step_id!:str",
            ..command_schema(
                "user.tool_claim",
                "Claims a call. The process runs the call only after the claim was accepted.",
                object(&[CLAIM]),
            )
        },
        CommandSchema {
            top: "step_id!:str",
            ..command_schema(
                "user.tool_output",
                "Shows progress of a claimed call. Without a `command_id` it has no answer.",
                object(&[CLAIM, "delta!:str"]),
            )
        },
        CommandSchema {
            top: "step_id!:str",
            ..command_schema(
                "user.tool_result",
                "Ends a claimed call with a `result`, an `error` or a `reconciliation`.",
                object(&[CLAIM, "result:any error:obj reconciliation:str"]),
            )
        },
        without_session(
            command_schema(
                "user.drain_worker",
                "The process takes no new calls and finishes those that it holds.",
                object(&["worker_id!:str"]),
            ),
            "",
        ),
    ]
}

/// Commands about a connection and its position.
fn connection_commands() -> Vec<CommandSchema> {
    vec![
        command_schema(
            "user.close_session",
            "Ends the session. A later message opens it again.",
            json!({}),
        ),
        without_session(
            command_schema(
                "user.ack",
                "Acknowledges all frames up to a position. It is answered only if it has a `command_id` or is rejected.",
                any_of(object(&[CURSOR]), json!({ "type": ["integer", "null"] })),
            ),
            "seq:int last_seq:int last_event_id:str epoch:epoch",
        ),
        command_schema(
            "user.request_state",
            "Requests a signed state, for a later `user.reconnect_with_state`.",
            json!({}),
        ),
        without_session(
            command_schema(
                "user.reconnect_with_state",
                "Resumes with a signed state, or as the owner with a session and a cursor.",
                any_of(
                    with_preferences(object(&[CURSOR, "signed_state:str session_id:uuid"])),
                    json!({ "type": "null" }),
                ),
            ),
            "signed_state:str last_seq:int last_event_id:str epoch:epoch",
        ),
        without_session(
            command_schema(
                "user.reconnect",
                "Resumes with a session and a cursor. Without a cursor, observes the session from its beginning.",
                any_of(
                    with_preferences(object(&[CURSOR, "session_id:uuid"])),
                    json!({ "type": "null" }),
                ),
            ),
            "last_seq:int last_event_id:str epoch:epoch",
        ),
    ]
}

fn with_preferences(mut content: Value) -> Value {
    content["properties"]["preferences"] = object(&["language:str theme:str"]);
    content
}

fn message_schema() -> Value {
    let fields = "text:str message:str question:str mode:str confirm:bool images:objs";
    let mut content = object(&[fields]);
    content["properties"]["config"] = with_models(object(&["answer_schema:any"]));
    content
}

fn with_models(mut config: Value) -> Value {
    let names = json!({ "type": "array", "items": { "type": "string" } });
    config["properties"]["model"] = any_of(json!({ "type": "string" }), names);
    config
}

fn creation_schema() -> Value {
    let mut content = with_preferences(object(&[
        "session_name:str project_name:str client_id:str client_version:str app_version:str",
    ]));
    let fields =
        "system:str tools:strs max_steps:int patience_ms:int confirm:bool answer_schema:any";
    let mut config = with_models(object(&[fields]));
    config["properties"]["permission_mode"] = json!({ "enum": ["auto", "approval", "readonly"] });
    config["properties"]["on_disconnect"] = json!({ "enum": ["continue", "cancel"] });
    config["properties"]["mode"] = json!({ "enum": ["chat", "plan"] });
    content["properties"]["config"] = config;
    any_of(content, json!({ "type": "null" }))
}
