//! The public handles of a session: [`Session`] sends commands, [`Events`] delivers frames.

use std::{sync::Arc, time::Duration};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    client::{Client, SessionRequest},
    connection_task::{ConnectionTask, OutgoingCommand, StreamItem},
    cursor_tracker::CursorTracker,
    event::{Cursor, Event},
    pending::{self, Reply},
};

/// Commands queued for the connection task; further senders wait.
const ASKS: usize = 64;

/// Why a command failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The server refused the command. The event carries the code, the field and the advice.
    #[error("{}", .0.text())]
    Rejected(Box<Event>),
    /// The command got no answer: the connection was lost for good, or the wait timed out.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The answer to a question about a call or a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Runs the call or the plan as shown.
    Approve,
    /// Runs it with this value in place of the one shown: an array is a plan's tasks, anything else a call's arguments.
    ApproveWith(Value),
    /// Refuses it. The text, if any, is passed to the model.
    Deny(Option<String>),
}

/// Sends commands to one session. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Session {
    id: Arc<str>,
    asks: mpsc::Sender<OutgoingCommand>,
    reply: Duration,
}

/// The events of a session in order, each once: first the history, then live events.
#[derive(Debug)]
pub struct Events {
    inbox: mpsc::Receiver<StreamItem>,
    cursor: Cursor,
}

impl Session {
    pub(crate) async fn create(
        client: Client,
        create: SessionRequest,
    ) -> Result<(Self, Events), Error> {
        let mut content = create.more;
        if let Some(language) = create.language {
            content.insert("preferences".into(), json!({ "language": language }));
        }
        let (asks, events) = start(&client, None, None);
        let mut session = Self { id: "".into(), asks, reply: client.reply };
        let created = session.ask("user.create_session", json!({ "content": content })).await?;
        session.id = created.session_id.as_deref().unwrap_or_default().into();
        Ok((session, events))
    }

    pub(crate) async fn attach(
        client: Client,
        id: String,
        cursor: Cursor,
    ) -> Result<(Self, Events), Error> {
        let (opened, answer) = oneshot::channel();
        let session_id = id.as_str().into();
        let (asks, mut events) =
            start(&client, Some(CursorTracker::new(id, cursor.clone())), Some(opened));
        within(client.reply, answer).await?;
        events.cursor = cursor;
        Ok((Self { id: session_id, asks, reply: client.reply }, events))
    }

    /// The session's id. Any client with access to the session can attach with it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends a message. The message is durable when this returns and survives a lost connection.
    ///
    /// # Errors
    /// If the server refuses the message, or no answer arrives in time.
    pub async fn send(&self, text: &str) -> Result<Event, Error> {
        self.ask("user.message", json!({ "content": text })).await
    }

    /// Answers the open question that has this `step_id`.
    ///
    /// # Errors
    /// If the question is not open, or no answer arrives in time.
    pub async fn answer(&self, step_id: &str, decision: Decision) -> Result<Event, Error> {
        let content = match decision {
            Decision::Approve => json!({ "confirmed": true }),
            Decision::ApproveWith(Value::Array(tasks)) => {
                json!({ "confirmed": true, "tasks": tasks })
            }
            Decision::ApproveWith(args) => json!({ "confirmed": true, "arguments": args }),
            Decision::Deny(None) => json!({ "confirmed": false }),
            Decision::Deny(Some(note)) => json!({ "confirmed": false, "feedback": note }),
        };
        self.ask("user.response", json!({ "step_id": step_id, "content": content })).await
    }

    /// Cancels the running turn. The session stays usable.
    ///
    /// # Errors
    /// If the server refuses the command, or no answer arrives in time.
    pub async fn cancel(&self) -> Result<Event, Error> {
        self.ask("user.cancel", json!({})).await
    }

    /// Says what became of a call whose outcome is unknown: `happened` (with a result), `did_not_happen` or
    /// `left_to_model`. The first settlement counts.
    ///
    /// # Errors
    /// When the call is not in doubt, or the connection is lost for good.
    pub async fn settle_doubt(
        &self,
        call_id: &str,
        outcome: &str,
        result: Option<serde_json::Value>,
    ) -> Result<Event, Error> {
        let mut content = json!({ "call_id": call_id, "outcome": outcome });
        if let Some(result) = result {
            content["result"] = result;
        }
        self.ask("user.settle_doubt", json!({ "content": content })).await
    }

    /// Withdraws a message that is still queued. `command_id` comes from the answer to [`Session::send`].
    ///
    /// # Errors
    /// If the message is no longer queued, or no answer arrives in time.
    pub async fn withdraw(&self, command_id: &str) -> Result<Event, Error> {
        self.ask("user.withdraw", json!({ "content": { "message": command_id } })).await
    }

    /// Continues the last turn, which failed, from where it stood. Calls that ended are not made again.
    ///
    /// # Errors
    /// If the last turn did not fail, or no answer arrives in time.
    pub async fn retry(&self) -> Result<Event, Error> {
        self.ask("user.retry", json!({})).await
    }

    /// Sends any `user.*` event with these fields and waits for its answer. The command gets a new id and is resent
    /// under that id until it is answered, so the server executes it once.
    ///
    /// # Errors
    /// If the server refuses the command, or no answer arrives in time.
    pub async fn ask(&self, event: &str, fields: Value) -> Result<Event, Error> {
        self.ask_as(&Uuid::now_v7().to_string(), event, fields).await
    }

    /// Like [`Session::ask`], with an id chosen by the caller. A second command with the same id gets the first answer.
    ///
    /// # Errors
    /// If the server refuses the command, or no answer arrives in time.
    pub async fn ask_as(&self, id: &str, event: &str, fields: Value) -> Result<Event, Error> {
        let mut frame = json!({ "event": event, "command_id": id });
        if !self.id.is_empty() {
            frame["session_id"] = (&*self.id).into();
        }
        if let (Value::Object(frame), Value::Object(fields)) = (&mut frame, fields) {
            frame.extend(fields);
        }
        let (reply, answer) = oneshot::channel();
        let ask = OutgoingCommand { id: id.to_owned(), frame, reply };
        self.asks.send(ask).await.map_err(|_| pending::closed_fault())?;
        within(self.reply, answer).await
    }
}

impl Events {
    /// Returns the next event. A fault that names a missing range of the history is followed by further events. `None`
    /// follows a fault that ends the connection.
    pub async fn next(&mut self) -> Option<Result<Event, Fault>> {
        let (item, cursor) = self.inbox.recv().await?;
        self.cursor = cursor;
        Some(item)
    }

    /// The position of the last event returned by [`Events::next`]. Store it to resume later.
    #[must_use]
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Converts the events into a stream for combinators.
    pub fn into_stream(self) -> impl futures::Stream<Item = Result<Event, Fault>> {
        futures::stream::unfold(self, async |mut events| Some((events.next().await?, events)))
    }
}

fn start(
    client: &Client,
    thread: Option<CursorTracker>,
    opened: Option<oneshot::Sender<Reply>>,
) -> (mpsc::Sender<OutgoingCommand>, Events) {
    let (asks, requests) = mpsc::channel(ASKS);
    let (out, inbox) = mpsc::channel(client.inbox);
    let line = ConnectionTask::new(client.clone(), thread, opened, requests, out);
    tokio::spawn(line.run());
    (asks, Events { inbox, cursor: Cursor::default() })
}

/// Waits for an answer, at most for `limit`.
async fn within(limit: Duration, answer: oneshot::Receiver<Reply>) -> Reply {
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(_)) => Err(pending::closed_fault().into()),
        Err(_) => Err(Fault::new(Kind::RequestTimedOut, Operation::SubmitCommand)
            .with(Fact::TimeoutMs, limit)
            .into()),
    }
}
