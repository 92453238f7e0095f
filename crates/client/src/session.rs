//! A session as its user holds it: a handle that asks, and a stream that tells.

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

/// Commands on their way to the line.
const ASKS: usize = 64;

/// Why something asked for did not happen.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The server said no; this is its event, with code, field and advice.
    #[error("{}", .0.text())]
    Rejected(Box<Event>),
    /// It could not be asked.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Go on.
    Approve,
    /// Go on, with this in the place of what was shown: a plan's tasks, a call's arguments.
    ApproveWith(Value),
    /// Do not, and what the model should know about it.
    Deny(Option<String>),
}

/// Asks a session. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Session {
    id: Arc<str>,
    asks: mpsc::Sender<OutgoingCommand>,
    reply: Duration,
}

/// Tells what happens in a session: past events first, then new ones, each once, in order.
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

    /// Its id: with it, and a cursor, anyone allowed may attach.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends a message. When this returns it is durable and will be answered, whatever happens to the line.
    ///
    /// # Errors
    /// When the server refuses it, or there was no answer in time.
    pub async fn send(&self, text: &str) -> Result<Event, Error> {
        self.ask("user.message", json!({ "content": text })).await
    }

    /// Answers the question that carried this `step_id`.
    ///
    /// # Errors
    /// When the question is not open, or there was no answer in time.
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

    /// Stops what runs. The session can be used on.
    ///
    /// # Errors
    /// When the server refuses it, or there was no answer in time.
    pub async fn cancel(&self) -> Result<Event, Error> {
        self.ask("user.cancel", json!({})).await
    }

    /// Takes back a message that waits for its turn. `command_id` is what [`Session::send`] was answered with.
    ///
    /// # Errors
    /// When the message does not wait any more, or there was no answer in time.
    pub async fn withdraw(&self, command_id: &str) -> Result<Event, Error> {
        self.ask("user.withdraw", json!({ "content": { "message": command_id } })).await
    }

    /// Sends any `user.*` event with these fields and waits for its answer. It gets an id, and is sent again under
    /// that id until it is answered, so it happens once.
    ///
    /// # Errors
    /// When the server refuses it, or there was no answer in time.
    pub async fn ask(&self, event: &str, fields: Value) -> Result<Event, Error> {
        self.ask_as(&Uuid::now_v7().to_string(), event, fields).await
    }

    /// As [`Session::ask`], under an id of the caller's: asking twice under one id gives the first answer again.
    ///
    /// # Errors
    /// When the server refuses it, or there was no answer in time.
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
        self.asks.send(ask).await.map_err(|_| pending::closed())?;
        within(self.reply, answer).await
    }
}

impl Events {
    /// The next event. A fault says what of the history cannot be had, and the events go on behind it; after a fault
    /// that ends the line, and after the session was let go, there is `None`.
    pub async fn next(&mut self) -> Option<Result<Event, Fault>> {
        let (told, cursor) = self.inbox.recv().await?;
        self.cursor = cursor;
        Some(told)
    }

    /// Where the last event that [`Events::next`] gave stands: keep it to come back later.
    #[must_use]
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// The same as a stream for combinators.
    pub fn into_stream(self) -> impl futures::Stream<Item = Result<Event, Fault>> {
        futures::stream::unfold(self, async |mut events| Some((events.next().await?, events)))
    }
}

fn start(
    client: &Client,
    thread: Option<CursorTracker>,
    opened: Option<oneshot::Sender<Reply>>,
) -> (mpsc::Sender<OutgoingCommand>, Events) {
    let (asks, asked) = mpsc::channel(ASKS);
    let (out, inbox) = mpsc::channel(client.inbox);
    let line = ConnectionTask::new(client.clone(), thread, opened, asked, out);
    tokio::spawn(line.run());
    (asks, Events { inbox, cursor: Cursor::default() })
}

/// Waits for an answer, but not for ever.
async fn within(limit: Duration, answer: oneshot::Receiver<Reply>) -> Reply {
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(_)) => Err(pending::closed().into()),
        Err(_) => Err(Fault::new(Kind::RequestTimedOut, Operation::SubmitCommand)
            .with(Fact::TimeoutMs, limit)
            .into()),
    }
}
