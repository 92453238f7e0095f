//! `todo_read` and `todo_write`: the session's to-do list.
//!
//! The list belongs to the session. The tools read it from the session's memory and replace it by a note.

use std::collections::HashMap;

use budao_core::{
    fault::{Fault, Operation},
    tool::{Effect, Todo, TodoStatus},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    define::{Builtin, failure},
    io_errors::invalid,
};
use crate::contract::{CallContext, Note, ToolResult};

const OPERATION: Operation = Operation::UpdateTodos;

/// The `todo_read` tool.
#[derive(Debug)]
pub(super) struct TodoRead;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArgs {}

impl Builtin for TodoRead {
    const NAME: &'static str = "todo_read";
    const ABOUT: &'static str = "Returns the list of things to do in this session.";
    const EFFECT: Effect = Effect::Reads;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = OPERATION;

    type Args = ReadArgs;

    async fn run(&self, _: ReadArgs, context: &CallContext) -> ToolResult {
        Ok(json!({ "todos": context.memory.todos() }))
    }
}

/// The `todo_write` tool.
#[derive(Debug)]
pub(super) struct TodoWrite;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArgs {
    /// The whole list; it replaces the old one.
    #[schemars(length(max = 200))]
    todos: Vec<Item>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    /// Unique in the list.
    #[schemars(length(min = 1, max = 128))]
    id: String,
    /// What is to be done.
    #[schemars(length(min = 1, max = 2000))]
    title: String,
    /// How far it is. At most one entry may be `in_progress`.
    status: Status,
    /// Who does it.
    assignee: Option<String>,
    /// Anything else worth keeping.
    notes: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

impl Builtin for TodoWrite {
    const NAME: &'static str = "todo_write";
    const ABOUT: &'static str = "Replaces the list of things to do in this session. Send the whole list. \
        Ids are unique, and at most one entry is `in_progress`.";
    const EFFECT: Effect = Effect::Writes;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = OPERATION;

    type Args = WriteArgs;

    async fn run(&self, args: WriteArgs, context: &CallContext) -> ToolResult {
        check(&args.todos).map_err(failure)?;
        let todos: Vec<Todo> = args.todos.into_iter().map(Todo::from).collect();
        let count = todos.len();
        context.notes.record(Note::Todos(todos)).await;
        Ok(json!({ "ok": true, "count": count }))
    }
}

/// Checks rules that a schema cannot express: unique ids, at most one entry in progress.
fn check(todos: &[Item]) -> Result<(), Fault> {
    let mut first: HashMap<&str, usize> = HashMap::new();
    let mut active: Option<usize> = None;
    for (index, todo) in todos.iter().enumerate() {
        if let Some(earlier) = first.insert(&todo.id, index) {
            let expected = format!("must be unique; entry {earlier} has the same id");
            let pointer = format!("/todos/{index}/id");
            return Err(invalid(OPERATION, &pointer, "unique", expected, Some(todo.id.clone())));
        }
        if todo.status == Status::InProgress
            && let Some(earlier) = active.replace(index)
        {
            let expected = format!(
                "must be `pending` or `completed`, because entry {earlier} is `in_progress` already"
            );
            let pointer = format!("/todos/{index}/status");
            return Err(invalid(
                OPERATION,
                &pointer,
                "maximum",
                expected,
                Some("in_progress".into()),
            ));
        }
    }
    Ok(())
}

impl From<Item> for Todo {
    fn from(item: Item) -> Self {
        let Item { id, title, status, assignee, notes } = item;
        let status = match status {
            Status::Pending => TodoStatus::Pending,
            Status::InProgress => TodoStatus::InProgress,
            Status::Completed => TodoStatus::Completed,
        };
        Self { id, title, status, assignee, notes }
    }
}
