//! Handles an engine's reports about itself while the session runs: its models, the size of its context, and tool
//! servers that failed.

use agent_client_protocol::v1::schema::{
    ConfigOptionUpdate, ContentChunk, MessageId, Notice, NoticeSeverity, SessionUpdate, UsageUpdate,
};
use budao_core::{
    event::{Event, Record},
    fault::{Fault, Kind, text},
};
use serde_json::Value;

use super::EditorSession;
use crate::editor_options::ModelChoice;

impl EditorSession {
    /// Applies an engine's report in a record. Also called during a replay, so that a loaded session begins with the
    /// last report.
    pub(super) fn handle_engine_report(&mut self, record: &Record) {
        match &record.event {
            Event::Annotated { topic, data } => match topic.rsplit('.').next() {
                Some("models") => self.replace_models(data),
                Some("context") => self.set_context_size(data["tokens"].as_u64().unwrap_or(0)),
                _ => {}
            },
            Event::ModelAnswered { usage, .. } => {
                self.context_used = usage.input_tokens.saturating_add(usage.output_tokens);
            }
            Event::FaultRaised { fault, .. } if is_server_fault(fault) && self.replay.is_none() => {
                self.report_tool_server(fault);
            }
            _ => {}
        }
    }

    /// Replaces the offered models, unless the user has chosen a list.
    fn replace_models(&mut self, data: &Value) {
        let models: Vec<ModelChoice> =
            data["models"].as_array().into_iter().flatten().filter_map(ModelChoice::read).collect();
        if !self.editor_options.models_from_engine || models.is_empty() {
            return;
        }
        let mut options = (*self.editor_options).clone();
        options.models = models;
        self.set_editor_options(options);
        if self.is_open {
            let (_, options) = self.modes_and_options();
            let update = ConfigOptionUpdate::new(options);
            self.outbox.send(SessionUpdate::ConfigOptionUpdate(update));
        }
    }

    fn set_context_size(&mut self, tokens: u64) {
        if tokens == 0 || tokens == self.editor_options.context_tokens {
            return;
        }
        let mut options = (*self.editor_options).clone();
        options.context_tokens = tokens;
        self.set_editor_options(options);
        if self.context_used > 0 {
            let update = UsageUpdate::new(self.context_used, tokens);
            self.outbox.send(SessionUpdate::UsageUpdate(update));
        }
    }

    /// Tells the user that a tool server cannot be used: as a notice, or as a line of thinking.
    pub(super) fn report_tool_server(&mut self, fault: &Fault) {
        let title = text::user_text(fault, self.bridge.lang);
        self.outbox.send(if self.editor_capabilities.notices {
            SessionUpdate::Notice(Notice::new(NoticeSeverity::Warning, title))
        } else {
            self.remark_count += 1;
            let id = MessageId::new(format!("server.{}", self.remark_count));
            let chunk = ContentChunk::new(format!("{title}\n").into()).message_id(id);
            SessionUpdate::AgentThoughtChunk(chunk)
        });
    }
}

fn is_server_fault(fault: &Fault) -> bool {
    use budao_core::fault::Operation;
    fault.operation() == Operation::StartMcpServer
        && matches!(fault.kind(), Kind::McpServerFailed | Kind::McpServerNotFound)
}
