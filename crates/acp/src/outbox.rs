//! All messages of one session to the editor, in order.
//!
//! While the editor keeps up, every update is sent at once. When it does not, the outbox holds one update
//! back and joins following ones to it where possible. Then it takes nothing more from the session until
//! there is room. The session itself never waits.

use std::sync::Arc;

use agent_client_protocol::{
    Client, Error, JsonRpcResponse,
    v1::{
        ConnectionTo, Responder,
        schema::{
            ContentBlock, ContentChunk, SessionId, SessionNotification, SessionUpdate,
            ToolCallUpdateFields,
        },
    },
};

use crate::lines::OutputBacklog;

/// Upper bound of a joined update's text, in bytes.
const JOINED_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Outbox {
    connection: ConnectionTo<Client>,
    session: SessionId,
    backlog: Arc<OutputBacklog>,
    joined_update: Option<SessionUpdate>,
    /// True during a replay: latency does not matter, so all pieces of a message are joined.
    is_replaying: bool,
    /// Number of updates sent so far.
    pub(crate) updates: u64,
}

impl Outbox {
    pub(crate) fn new(
        connection: ConnectionTo<Client>,
        session: budao_core::event::SessionId,
        backlog: Arc<OutputBacklog>,
    ) -> Self {
        let session = SessionId::new(session.to_string());
        Self { connection, session, backlog, joined_update: None, is_replaying: false, updates: 0 }
    }

    pub(crate) fn connection(&self) -> &ConnectionTo<Client> {
        &self.connection
    }

    /// Sends an update, or holds it back to join it with the next.
    pub(crate) fn send(&mut self, update: SessionUpdate) {
        if let Some(joined_update) = &mut self.joined_update {
            if let Err(update) = join(joined_update, update) {
                self.flush();
                self.joined_update = Some(*update);
            }
        } else {
            self.joined_update = Some(update);
        }
        if self.backlog.has_room() && !self.is_replaying {
            self.flush();
        }
    }

    /// Switches the replay mode on or off.
    pub(crate) fn set_replaying(&mut self, is_replaying: bool) {
        self.is_replaying = is_replaying;
    }

    /// Answers a request after all earlier updates.
    pub(crate) fn answer<T: JsonRpcResponse>(
        &mut self,
        responder: Responder<T>,
        answer: Result<T, Error>,
    ) {
        self.flush();
        if let Err(error) = responder.respond_with_result(answer) {
            tracing::debug!(%error, "response dropped: editor disconnected");
        }
    }

    /// Sends the update that is held back.
    pub(crate) fn flush(&mut self) {
        let Some(update) = self.joined_update.take() else { return };
        let weight = estimate_bytes(&update);
        self.updates += 1;
        self.backlog.add_queued(weight);
        let notification = SessionNotification::new(self.session.clone(), update);
        if let Err(error) = self.connection.send_notification(notification) {
            tracing::debug!(%error, "notification dropped: editor disconnected");
        }
    }

    /// Whether the outbox must wait for room before it sends its held update or accepts another.
    pub(crate) fn needs_room(&self) -> bool {
        let holds = self.joined_update.is_some() && !self.is_replaying;
        holds || !self.can_accept()
    }

    /// Whether more records may be taken from the session.
    pub(crate) fn can_accept(&self) -> bool {
        match &self.joined_update {
            None => true,
            Some(joined_update) => {
                is_joinable(joined_update) || (self.is_replaying && self.backlog.has_room())
            }
        }
    }

    /// Waits until the editor has read enough.
    pub(crate) async fn wait_for_room(&self) {
        self.backlog.wait_for_room().await;
    }
}

/// Joins an update to the held one; returns it if that is impossible.
fn join(joined_update: &mut SessionUpdate, next: SessionUpdate) -> Result<(), Box<SessionUpdate>> {
    use SessionUpdate as Update;
    match (joined_update, next) {
        (Update::AgentMessageChunk(joined_update), Update::AgentMessageChunk(next)) => {
            join_text(joined_update, next)
                .map_err(|next| Box::new(Update::AgentMessageChunk(*next)))
        }
        (Update::AgentThoughtChunk(joined_update), Update::AgentThoughtChunk(next)) => {
            join_text(joined_update, next)
                .map_err(|next| Box::new(Update::AgentThoughtChunk(*next)))
        }
        (Update::ToolCallUpdate(joined_update), Update::ToolCallUpdate(next))
            if joined_update.tool_call_id == next.tool_call_id =>
        {
            join_fields(&mut joined_update.fields, next.fields);
            Ok(())
        }
        (Update::UsageUpdate(joined_update), Update::UsageUpdate(next)) => {
            *joined_update = next;
            Ok(())
        }
        (Update::Plan(joined_update), Update::Plan(next)) => {
            *joined_update = next;
            Ok(())
        }
        (_, next) => Err(Box::new(next)),
    }
}

fn join_text(
    joined_update: &mut ContentChunk,
    next: ContentChunk,
) -> Result<(), Box<ContentChunk>> {
    if joined_update.message_id != next.message_id {
        return Err(Box::new(next));
    }
    match (&mut joined_update.content, &next.content) {
        (ContentBlock::Text(joined_update), ContentBlock::Text(more))
            if joined_update.text.len() + more.text.len() <= JOINED_BYTES_MAX =>
        {
            joined_update.text.push_str(&more.text);
            Ok(())
        }
        _ => Err(Box::new(next)),
    }
}

/// Merges fields: later values win, absent ones keep the earlier value.
fn join_fields(joined_update: &mut ToolCallUpdateFields, next: ToolCallUpdateFields) {
    let ToolCallUpdateFields {
        kind,
        status,
        title,
        name,
        content,
        locations,
        raw_input,
        raw_output,
        ..
    } = next;
    joined_update.kind = kind.or(joined_update.kind);
    joined_update.status = status.or(joined_update.status);
    joined_update.title = title.or(joined_update.title.take());
    joined_update.name = name.or(joined_update.name.take());
    joined_update.content = content.or(joined_update.content.take());
    joined_update.locations = locations.or(joined_update.locations.take());
    joined_update.raw_input = raw_input.or(joined_update.raw_input.take());
    joined_update.raw_output = raw_output.or(joined_update.raw_output.take());
}

/// Whether another update can be joined to this one.
fn is_joinable(update: &SessionUpdate) -> bool {
    match update {
        SessionUpdate::AgentMessageChunk(chunk) | SessionUpdate::AgentThoughtChunk(chunk) => {
            matches!(&chunk.content, ContentBlock::Text(text) if text.text.len() < JOINED_BYTES_MAX)
        }
        _ => false,
    }
}

/// Estimates the length of the update's line, in bytes.
fn estimate_bytes(update: &SessionUpdate) -> usize {
    const ENVELOPE_BYTES: usize = 200;
    match update {
        SessionUpdate::AgentMessageChunk(chunk)
        | SessionUpdate::AgentThoughtChunk(chunk)
        | SessionUpdate::UserMessageChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => ENVELOPE_BYTES + text.text.len(),
            ContentBlock::Image(image) => ENVELOPE_BYTES + image.data.len(),
            _ => ENVELOPE_BYTES,
        },
        other => ENVELOPE_BYTES + serde_json::to_vec(other).map_or(0, |bytes| bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{ToolCallStatus, ToolCallUpdate};

    use super::*;

    fn chunk(id: &str, text: &str) -> SessionUpdate {
        let chunk = ContentChunk::new(text.into()).message_id(id);
        SessionUpdate::AgentMessageChunk(chunk)
    }

    #[test]
    fn text_of_one_message_is_joined_and_nothing_else() {
        let mut joined_update = chunk("a", "one ");
        assert!(join(&mut joined_update, chunk("a", "two")).is_ok());
        assert_eq!(joined_update, chunk("a", "one two"));
        assert!(join(&mut joined_update, chunk("b", "three")).is_err());
        assert!(join(&mut joined_update, chunk("a", &"x".repeat(JOINED_BYTES_MAX))).is_err());
    }

    #[test]
    fn later_news_of_a_call_replaces_earlier_ones() {
        let update = |fields| SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("call", fields));
        let mut joined_update =
            update(ToolCallUpdateFields::new().content(vec!["one".into()]).title("t".to_owned()));
        let next = ToolCallUpdateFields::new()
            .content(vec!["two".into()])
            .status(ToolCallStatus::Completed);
        assert!(join(&mut joined_update, update(next)).is_ok());
        let both = ToolCallUpdateFields::new()
            .content(vec!["two".into()])
            .title("t".to_owned())
            .status(ToolCallStatus::Completed);
        assert_eq!(joined_update, update(both));
    }
}
