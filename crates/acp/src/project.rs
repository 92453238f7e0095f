//! Projection: turns a session's records into updates for the editor.
//!
//! A pure function of the records so far, for a running turn and for the replay of a history. Two things differ while
//! live: notices are sent, and prompts of this editor are not echoed.

mod call;
mod message_ids;
mod tasks;
#[cfg(test)]
mod tests;
mod text_deduplicator;
mod wait_texts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_client_protocol::v1::schema::{
    AvailableCommandsUpdate, CompactionStatus, CompactionUpdate, ConfigOptionUpdate, ContentBlock,
    ContentChunk, CurrentModeUpdate, ImageContent, MessageId, Notice, NoticeSeverity, Plan,
    SessionInfoUpdate, SessionUpdate, ToolCall, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, UsageUpdate,
};
use budao_core::{
    Lang,
    activity::{Activity, MessageContent, QuestionDetails, StageEnd},
    elicitation::Elicitation,
    event::{CommandId, QuestionId, QuestionPurpose, Record, Seq, Settings, Stage, TurnNumber},
    fault::text,
    message::{Block, CallId, Usage, text_of},
    tool::Outcome,
};
use serde_json::Value;

use self::{
    call::CallView,
    message_ids::MessageIds,
    tasks::Tasks,
    text_deduplicator::{TextChange, TextDeduplicator},
    wait_texts::{hold_text, retry_text},
};
use crate::{
    editor_options::{self, EditorOptions},
    input_question,
    texts::localize,
};

/// Bytes shown of a running call's output, from its end.
const OUTPUT_TAIL: usize = 4 * 1024;

/// An action of the session task towards the editor.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are updates")]
pub(crate) enum EditorAction {
    /// Send an update.
    Update(SessionUpdate),
    /// Ask the user for permission.
    AskPermission(Box<PermissionRequest>),
    /// Withdraw a question that was answered elsewhere or has ended.
    WithdrawQuestion(QuestionId),
}

/// A question for the editor's user.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PermissionRequest {
    pub(crate) question: QuestionId,
    /// Hash of tool and arguments; the decision applies only to it.
    pub(crate) digest: String,
    pub(crate) tool: String,
    /// True if the user may turn the answer into a rule.
    pub(crate) allows_rule: bool,
    pub(crate) call: ToolCallUpdate,
    /// Set if a running call asks for input, and not for its permission.
    pub(crate) elicitation: Option<Elicitation>,
}

/// Optional features of the protocol that the editor supports.
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditorCapabilities {
    pub(crate) notices: bool,
    pub(crate) compaction: bool,
    /// Forms, for questions of the model.
    pub(crate) forms: bool,
    pub(crate) reads_files: bool,
    pub(crate) writes_files: bool,
}

/// The fold behind the projection. It must see every record, in order.
#[derive(Debug)]
pub(crate) struct Projector {
    editor_options: Arc<EditorOptions>,
    lang: Lang,
    editor_capabilities: EditorCapabilities,
    /// False while the history is replayed.
    is_live: bool,
    pub(crate) settings: Settings,
    /// Messages that the editor sent on this connection, and therefore shows by itself.
    own_messages: BTreeSet<CommandId>,
    /// Messages whose turn has not started.
    queued_messages: BTreeMap<CommandId, Vec<Block>>,
    /// The running turn.
    pub(crate) turn: Option<TurnNumber>,
    text: TextDeduplicator,
    thought: TextDeduplicator,
    /// Ids of the messages to which text and thinking currently belong.
    message: MessageIds,
    calls: BTreeMap<CallId, OpenCall>,
    tasks: Tasks,
    /// Counts of the running turn, for the log.
    pub(crate) counts: TurnCounts,
}

/// Counts of the parts that a turn has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnCounts {
    pub(crate) text_bytes: usize,
    pub(crate) calls: usize,
    pub(crate) retries: usize,
}

/// A call without an outcome.
#[derive(Debug, Default)]
struct OpenCall {
    question: Option<QuestionId>,
    output: String,
    has_differences: bool,
}

impl Projector {
    pub(crate) fn new(
        editor_options: Arc<EditorOptions>,
        lang: Lang,
        editor_capabilities: EditorCapabilities,
    ) -> Self {
        Self {
            editor_options,
            lang,
            editor_capabilities,
            is_live: false,
            settings: Settings::default(),
            own_messages: BTreeSet::new(),
            queued_messages: BTreeMap::new(),
            turn: None,
            text: TextDeduplicator::default(),
            thought: TextDeduplicator::default(),
            message: MessageIds::default(),
            calls: BTreeMap::new(),
            tasks: Tasks::default(),
            counts: TurnCounts::default(),
        }
    }

    /// Changes the options that following records are projected with.
    pub(crate) fn set_editor_options(&mut self, options: Arc<EditorOptions>) {
        self.editor_options = options;
    }

    /// Ends the replay: the following records are live.
    pub(crate) fn go_live(&mut self) {
        self.is_live = true;
    }

    /// Notes that the editor itself sent this message.
    pub(crate) fn add_own_message(&mut self, message: CommandId) {
        self.own_messages.insert(message);
    }

    /// Returns the actions for one record, in order.
    pub(crate) fn project(&mut self, record: &Record) -> Vec<EditorAction> {
        let mut actions = Vec::new();
        let Some(activity) = Activity::of(&record.event) else { return actions };
        match activity {
            Activity::SessionOpened { settings, .. } => self.settings = settings.clone(),
            Activity::SettingsChanged { settings } => self.apply_settings(settings, &mut actions),
            Activity::SessionResumed { .. } => {
                let title = localize(self.lang, "project-the-session-was-resumed");
                self.notify(NoticeSeverity::Info, title.to_owned(), record.seq, &mut actions);
            }
            Activity::MessageAccepted { command, content } => {
                self.show_user_message(command, content, record.seq, &mut actions);
            }
            Activity::TurnStarted { message } => self.start_turn(message, record, &mut actions),
            Activity::TurnEnded { fault, .. } => {
                self.end_turn(&mut actions);
                if let Some(fault) = fault.filter(|_| !self.is_live) {
                    let text = text::user_text(fault, self.lang);
                    actions.push(self.thinking_line(&text, record.seq));
                }
            }
            Activity::Compacted { summary, .. } => self.show_summary(summary, record, &mut actions),
            Activity::RetryScheduled { kind, next_attempt, max_attempts, wait_ms, .. } => {
                self.counts.retries += 1;
                let what = text::of_kind(kind, "title", self.lang);
                let title = retry_text(self.lang, &what, next_attempt, max_attempts, wait_ms);
                self.notify(NoticeSeverity::Warning, title, record.seq, &mut actions);
            }
            Activity::RequestHeld { fault, until, before, .. } => {
                let wait = until.map(|until| until.since(record.at));
                let title = hold_text(self.lang, fault, wait, before);
                self.notify(NoticeSeverity::Warning, title, record.seq, &mut actions);
            }
            Activity::ModelChanged { from, to, reason, .. } => {
                let title = text::model_changed(reason, from, to, self.lang);
                self.notify(NoticeSeverity::Warning, title, record.seq, &mut actions);
            }
            _ => self.project_turn(activity, record, &mut actions),
        }
        actions
    }

    /// Projects the facts of the model, the tools and a pipeline.
    fn project_turn(
        &mut self,
        activity: Activity<'_>,
        record: &Record,
        actions: &mut Vec<EditorAction>,
    ) {
        match activity {
            Activity::StepStarted { step, .. } => self.message.step(record.turn, step),
            Activity::Text { text, .. } => {
                let shown = self.text.push(text);
                self.show_text(shown, actions);
            }
            Activity::Thought { text, .. } => {
                let shown = self.thought.push(text);
                self.show_thought(shown, actions);
            }
            Activity::AnswerAbandoned { .. } => {
                self.text.abandon();
                self.thought.abandon();
            }
            Activity::Answered { step, content, usage, .. } => {
                self.message.step(record.turn, step);
                self.end_answer(content, usage, actions);
            }
            Activity::QuestionAsked(asked) => self.ask_permission(asked, actions),
            Activity::QuestionClosed { question, call, .. } => {
                if let Some(open) = self.calls.get_mut(call) {
                    open.question = None;
                }
                actions.push(EditorAction::WithdrawQuestion(question.clone()));
            }
            Activity::CallStarted { call, tool, arguments, .. } => {
                self.show_call(call, tool, arguments, ToolCallStatus::InProgress, actions);
            }
            Activity::CallOutput { call, text } => self.show_output(call, text, actions),
            Activity::CallEnded { call, tool, outcome, .. } => {
                self.show_call_end(call, tool, outcome, actions);
            }
            Activity::TodosChanged { todos } => {
                actions.push(EditorAction::Update(SessionUpdate::Plan(tasks::from_todos(todos))));
            }
            Activity::Annotated { topic, data } => {
                self.annotate(topic, data, record.seq, actions);
            }
            Activity::StageEnded {
                stage: Stage::Aggregation,
                end: StageEnd::Completed(answer),
                ..
            } => {
                self.message.next_part();
                self.show_text(TextChange::Append(answer.to_owned()), actions);
            }
            _ => {
                if let Some(plan) = self.tasks.apply(activity) {
                    actions.push(EditorAction::Update(SessionUpdate::Plan(Plan::new(plan))));
                }
            }
        }
    }

    fn show_user_message(
        &mut self,
        command: &CommandId,
        content: MessageContent<'_>,
        seq: Seq,
        actions: &mut Vec<EditorAction>,
    ) {
        let content = match content {
            MessageContent::Blocks(content) | MessageContent::Timer { content, .. } => {
                content.to_vec()
            }
            MessageContent::Pipeline { question, .. } => vec![Block::Text(question.to_owned())],
            MessageContent::Retry { .. } => {
                let title = localize(self.lang, "project-the-failed-turn-continues");
                return self.notify(NoticeSeverity::Info, title.to_owned(), seq, actions);
            }
        };
        self.queued_messages.insert(command.clone(), content);
    }

    /// Projects an engine's annotation by the last part of its topic: `commands`, or `background_text` for text outside a turn.
    fn annotate(&mut self, topic: &str, data: &Value, seq: Seq, actions: &mut Vec<EditorAction>) {
        match topic.rsplit('.').next() {
            Some("commands") => {
                let commands = data["commands"].as_array().map(Vec::as_slice).unwrap_or_default();
                let commands = commands.iter().filter_map(editor_options::command_of).collect();
                let update = AvailableCommandsUpdate::new(commands);
                actions.push(EditorAction::Update(SessionUpdate::AvailableCommandsUpdate(update)));
            }
            Some("background_text") => {
                if let Some(text) = data["text"].as_str() {
                    actions.push(self.thinking_line(text, seq));
                }
            }
            _ => {}
        }
    }

    fn apply_settings(&mut self, settings: &Settings, actions: &mut Vec<EditorAction>) {
        let before = std::mem::replace(&mut self.settings, settings.clone());
        if before.title != settings.title {
            let title = settings.title.clone().unwrap_or_default();
            let info = SessionInfoUpdate::new().title(title);
            actions.push(EditorAction::Update(SessionUpdate::SessionInfoUpdate(info)));
        }
        let mode = self.editor_options.mode_id(settings);
        if self.editor_options.mode_id(&before) != mode {
            let update = CurrentModeUpdate::new(mode.to_owned());
            actions.push(EditorAction::Update(SessionUpdate::CurrentModeUpdate(update)));
        }
        let options = self.editor_options.config_options(settings, self.lang);
        if options != self.editor_options.config_options(&before, self.lang) {
            let update = ConfigOptionUpdate::new(options);
            actions.push(EditorAction::Update(SessionUpdate::ConfigOptionUpdate(update)));
        }
    }

    fn start_turn(
        &mut self,
        message: &CommandId,
        record: &Record,
        actions: &mut Vec<EditorAction>,
    ) {
        self.turn = Some(record.turn);
        self.message.step(record.turn, 0);
        self.counts = TurnCounts::default();
        let content = self.queued_messages.remove(message);
        if self.own_messages.remove(message) && self.is_live {
            return;
        }
        let id = MessageId::new(format!("{}.user", record.turn));
        for block in content.into_iter().flatten() {
            let block = match block {
                Block::Text(text) => ContentBlock::from(text),
                Block::Image { media_type, data } => {
                    ContentBlock::Image(ImageContent::new(data, media_type))
                }
                _ => continue,
            };
            let chunk = ContentChunk::new(block).message_id(id.clone());
            actions.push(EditorAction::Update(SessionUpdate::UserMessageChunk(chunk)));
        }
    }

    /// Ends the turn: closes all calls and questions that the records left open.
    fn end_turn(&mut self, actions: &mut Vec<EditorAction>) {
        self.turn = None;
        self.text = TextDeduplicator::default();
        self.thought = TextDeduplicator::default();
        for (call, open) in std::mem::take(&mut self.calls) {
            actions.extend(open.question.map(EditorAction::WithdrawQuestion));
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Failed);
            actions.push(call_update(&call, fields));
        }
    }

    fn end_answer(&mut self, content: &[Block], usage: Usage, actions: &mut Vec<EditorAction>) {
        let thought: String = content
            .iter()
            .filter_map(|block| match block {
                Block::Thinking { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let shown = self.thought.complete(&thought);
        self.show_thought(shown, actions);
        let shown = self.text.complete(&text_of(content));
        self.show_text(shown, actions);
        for block in content {
            if let Block::ToolUse(written) = block {
                let arguments = serde_json::from_str(&written.arguments).unwrap_or(Value::Null);
                let status = ToolCallStatus::Pending;
                self.show_call(&written.id, &written.name, &arguments, status, actions);
            }
        }
        let used = usage.input_tokens.saturating_add(usage.output_tokens);
        if used > 0 && self.editor_options.context_tokens > 0 {
            let usage = UsageUpdate::new(used, self.editor_options.context_tokens);
            actions.push(EditorAction::Update(SessionUpdate::UsageUpdate(usage)));
        }
        self.message.next_part();
    }

    fn show_text(&mut self, shown: TextChange, actions: &mut Vec<EditorAction>) {
        let text = match shown {
            TextChange::None => return,
            TextChange::Append(text) => text,
            TextChange::Replace(text) => {
                self.message.next_part();
                self.show_restart(actions);
                text
            }
        };
        self.counts.text_bytes += text.len();
        let chunk = ContentChunk::new(text.into()).message_id(self.message.text());
        actions.push(EditorAction::Update(SessionUpdate::AgentMessageChunk(chunk)));
    }

    fn show_thought(&mut self, shown: TextChange, actions: &mut Vec<EditorAction>) {
        let text = match shown {
            TextChange::None => return,
            TextChange::Append(text) => text,
            TextChange::Replace(text) => {
                self.message.next_part();
                text
            }
        };
        let chunk = ContentChunk::new(text.into()).message_id(self.message.thought());
        actions.push(EditorAction::Update(SessionUpdate::AgentThoughtChunk(chunk)));
    }

    /// Tells the user that the text so far is void and another attempt follows.
    fn show_restart(&mut self, actions: &mut Vec<EditorAction>) {
        let title = localize(self.lang, "project-the-answer-was-interrupted-and-starts");
        if self.editor_capabilities.notices && self.is_live {
            let notice = Notice::new(NoticeSeverity::Warning, title);
            actions.push(EditorAction::Update(SessionUpdate::Notice(notice)));
        } else {
            let chunk =
                ContentChunk::new(format!("{title}\n").into()).message_id(self.message.thought());
            actions.push(EditorAction::Update(SessionUpdate::AgentThoughtChunk(chunk)));
        }
    }

    /// Shows a new call, or updates a shown one.
    fn show_call(
        &mut self,
        call: &CallId,
        tool: &str,
        arguments: &Value,
        status: ToolCallStatus,
        actions: &mut Vec<EditorAction>,
    ) {
        let view = CallView { tool, arguments, workspace: self.settings.workspace.as_deref() };
        let (kind, title) = (view.kind(), view.title());
        let (locations, content) = (view.locations(), view.content());
        let input = Some(arguments).filter(|arguments| !arguments.is_null()).cloned();
        let is_new = !self.calls.contains_key(call);
        let open = self.calls.entry(call.clone()).or_default();
        open.has_differences = !content.is_empty();
        if is_new {
            self.counts.calls += 1;
            let shown = ToolCall::new(Arc::clone(&call.0), title)
                .name(tool.to_owned())
                .kind(kind)
                .status(status)
                .content(content)
                .locations(locations)
                .raw_input(input);
            actions.push(EditorAction::Update(SessionUpdate::ToolCall(shown)));
            return;
        }
        let fields = ToolCallUpdateFields::new().status(status).title(title).raw_input(input);
        let fields = if content.is_empty() { fields } else { fields.content(content) };
        let fields = if locations.is_empty() { fields } else { fields.locations(locations) };
        actions.push(call_update(call, fields));
    }

    fn ask_permission(&mut self, asked: QuestionDetails<'_>, actions: &mut Vec<EditorAction>) {
        if asked.purpose == QuestionPurpose::Elicitation {
            return self.ask_input(asked, actions);
        }
        let QuestionDetails { question, call, tool, arguments, digest, reason, .. } = asked;
        self.show_call(call, tool, arguments, ToolCallStatus::Pending, actions);
        if let Some(open) = self.calls.get_mut(call) {
            open.question = Some(question.clone());
        }
        let view = CallView { tool, arguments, workspace: self.settings.workspace.as_deref() };
        let mut content = view.content();
        content.push(text::reason(reason, self.lang).into_owned().into());
        let fields = ToolCallUpdateFields::new()
            .status(ToolCallStatus::Pending)
            .title(view.title())
            .kind(view.kind())
            .name(tool.to_owned())
            .content(content)
            .locations(view.locations())
            .raw_input(arguments.clone());
        actions.push(EditorAction::AskPermission(Box::new(PermissionRequest {
            question: question.clone(),
            digest: digest.to_owned(),
            tool: tool.to_owned(),
            allows_rule: view.allows_rule(),
            call: ToolCallUpdate::new(Arc::clone(&call.0), fields),
            elicitation: None,
        })));
    }

    /// A running call asks for input. The call itself stays as it is shown.
    fn ask_input(&mut self, asked: QuestionDetails<'_>, actions: &mut Vec<EditorAction>) {
        let QuestionDetails { question, call, tool, arguments, digest, .. } = asked;
        let Some(elicitation) = Elicitation::of_arguments(arguments) else { return };
        if let Some(open) = self.calls.get_mut(call) {
            open.question = Some(question.clone());
        }
        let title = input_question::headline(&elicitation, self.lang);
        let fields = ToolCallUpdateFields::new().title(title.clone()).content(vec![title.into()]);
        actions.push(EditorAction::AskPermission(Box::new(PermissionRequest {
            question: question.clone(),
            digest: digest.to_owned(),
            tool: tool.to_owned(),
            allows_rule: false,
            call: ToolCallUpdate::new(Arc::clone(&call.0), fields),
            elicitation: Some(elicitation),
        })));
    }

    fn show_output(&mut self, call: &CallId, text: &str, actions: &mut Vec<EditorAction>) {
        let Some(open) = self.calls.get_mut(call) else { return };
        if !self.is_live {
            return;
        }
        open.output.push_str(text);
        call::tail(&mut open.output, OUTPUT_TAIL);
        let content = vec![call::fence_code(&open.output).into()];
        actions.push(call_update(call, ToolCallUpdateFields::new().content(content)));
    }

    fn show_call_end(
        &mut self,
        call: &CallId,
        tool: &str,
        outcome: &Outcome,
        actions: &mut Vec<EditorAction>,
    ) {
        if !self.calls.contains_key(call) {
            self.show_call(call, tool, &Value::Null, ToolCallStatus::Pending, actions);
        }
        let open = self.calls.remove(call).unwrap_or_default();
        actions.extend(open.question.map(EditorAction::WithdrawQuestion));
        let (status, content) = call::render_outcome(outcome, open.has_differences, self.lang);
        let output = match outcome {
            Outcome::Done(output) => Some(output.data.clone()).filter(|data| !data.is_null()),
            Outcome::Failed(failure) => failure.data.clone(),
        };
        let fields = ToolCallUpdateFields::new().status(status).content(content).raw_output(output);
        actions.push(call_update(call, fields));
    }

    fn show_summary(&mut self, summary: &str, record: &Record, actions: &mut Vec<EditorAction>) {
        if self.editor_capabilities.compaction {
            let id = format!("{}.{}", record.epoch, record.seq);
            let update = CompactionUpdate::new(
                agent_client_protocol::v1::schema::CompactionId::new(id),
                CompactionStatus::Completed,
            )
            .summary(vec![ContentBlock::from(summary)]);
            actions.push(EditorAction::Update(SessionUpdate::CompactionUpdate(update)));
            return;
        }
        let title = localize(self.lang, "project-older-messages-were-summarised-for-the");
        self.notify(NoticeSeverity::Info, title.to_owned(), record.seq, actions);
    }

    /// Shows a live remark: as a notice if the editor supports them, otherwise as a line of thinking.
    fn notify(
        &mut self,
        severity: NoticeSeverity,
        title: String,
        seq: Seq,
        actions: &mut Vec<EditorAction>,
    ) {
        if !self.is_live {
            return;
        }
        actions.push(if self.editor_capabilities.notices {
            EditorAction::Update(SessionUpdate::Notice(Notice::new(severity, title)))
        } else {
            self.thinking_line(&title, seq)
        });
    }

    /// A line in the editor's thinking area, outside of the answer.
    fn thinking_line(&self, text: &str, seq: Seq) -> EditorAction {
        let id = MessageId::new(format!("{seq}.note"));
        let chunk = ContentChunk::new(format!("{text}\n").into()).message_id(id);
        EditorAction::Update(SessionUpdate::AgentThoughtChunk(chunk))
    }
}

fn call_update(call: &CallId, fields: ToolCallUpdateFields) -> EditorAction {
    EditorAction::Update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
        Arc::clone(&call.0),
        fields,
    )))
}
