//! A history in which everything happens that can be told: made up, but as the engine would write it.

use budao_core::{
    Event, Fault, Kind, Lang, Record, Timestamp,
    event::{
        CallStart, ChildLink, Compaction, Decision, Epoch, LostObserver, Origin, QuestionId, Scope,
        SessionEnd, SessionId, Settings, Stage, StopReason, Task, TaskEnd, TaskId,
    },
    fault::{Fact, Mismatch, Operation},
    message::{Block, CallId, ModelStop, ToolUse, Usage},
    pipeline::PlanDraft,
    tool::{Failure, Outcome, Output, Todo, TodoStatus},
    trace::Trace,
};
use serde_json::json;

pub(crate) const SESSION: SessionId =
    SessionId(uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
pub(crate) const CHILD: SessionId =
    SessionId(uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002));
pub(crate) const EPOCH: Epoch = Epoch(0x5eed_0001);

/// 2026-11-15T08:00:00Z.
pub(crate) const START: i64 = 1_794_729_600_000_000;

/// Writes records, a quarter of a second apart.
pub(crate) struct RecordWriter {
    pub(crate) records: Vec<Record>,
    turn: u64,
}

impl RecordWriter {
    fn put(&mut self, event: Event) {
        let seq = self.records.len() as u64 + 1;
        if let Event::TurnStarted { .. } = event {
            self.turn += 1;
        }
        let at = Timestamp::from_micros(START + i64::try_from(seq).unwrap() * 250_000);
        let trace = Trace::from_random(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        let turn = self.turn;
        self.records.push(Record { session: SESSION, epoch: EPOCH, seq, at, trace, turn, event });
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(START + i64::try_from(self.records.len()).unwrap() * 250_000)
    }

    fn message(&mut self, command: &str, text: &str) {
        let content = vec![Block::Text(text.to_owned())];
        self.put(Event::MessageAccepted { command: command.into(), content });
        self.put(Event::TurnStarted { message: command.into() });
    }

    fn ask(&mut self, step: u32, attempt: u32) {
        self.put(Event::StepStarted { step, attempt, model: "demo".to_owned() });
    }

    fn say(&mut self, step: u32, text: &str) {
        self.put(Event::TextDelta { step, text: text.to_owned() });
    }

    fn answer(&mut self, step: u32, text: &str) {
        let content = vec![Block::Text(text.to_owned())];
        let usage = Usage { input_tokens: 120, output_tokens: 18, ..Usage::default() };
        self.put(Event::ModelAnswered {
            step,
            content,
            stop: ModelStop::EndTurn,
            usage,
            response: None,
        });
    }

    fn end(&mut self, stop: StopReason, fault: Option<Fault>) {
        let usage = Usage { input_tokens: 240, output_tokens: 42, ..Usage::default() };
        self.put(Event::TurnEnded { stop, fault, steps: 2, usage });
    }

    fn retry(&mut self, fault: Fault, attempt: u32, wait_ms: u64, scope: Scope) {
        let (operation, kind) = (fault.operation(), fault.kind());
        let wait = std::time::Duration::from_millis(wait_ms);
        let fault = fault.attempt(attempt, 3).retry_after(wait);
        self.put(Event::FaultRaised { fault, scope: scope.clone() });
        let due_at = self.now().after(wait);
        self.put(Event::RetryScheduled {
            operation,
            kind,
            attempt,
            next_attempt: attempt + 1,
            max_attempts: 3,
            wait_ms,
            due_at,
            scope,
        });
    }
}

pub(crate) fn call(id: &str) -> CallId {
    CallId::from(id)
}

fn task(id: &str, title: &str) -> Task {
    let extra = [("priority".to_owned(), json!("high"))].into();
    Task {
        id: TaskId(id.into()),
        title: title.to_owned(),
        prompt: format!("{title}, please."),
        extra,
    }
}

fn in_step(step: u32) -> Scope {
    Scope { step: Some(step), ..Scope::default() }
}

/// The whole story in one language.
pub(crate) fn history(language: Lang) -> Vec<Record> {
    let mut writer = RecordWriter { records: Vec::new(), turn: 0 };
    opening(&mut writer, language);
    chat(&mut writer);
    calls(&mut writer);
    trouble(&mut writer);
    interruptions(&mut writer);
    pipeline(&mut writer);
    stopped_pipelines(&mut writer);
    ending(&mut writer);
    writer.records
}

fn opening(writer: &mut RecordWriter, language: Lang) {
    let settings = Settings {
        language,
        model: "demo".to_owned(),
        title: Some("Weather desk".to_owned()),
        ..Settings::default()
    };
    writer.put(Event::SessionOpened { settings: settings.clone(), origin: None });
    let settings = Settings { max_steps: Some(16), ..settings };
    writer.put(Event::SettingsChanged { settings });
}

/// A turn whose first try is cut, and which then answers.
fn chat(writer: &mut RecordWriter) {
    writer.message("m-1", "What is the weather in Beijing?");
    writer.ask(1, 1);
    writer.put(Event::ThinkingDelta { step: 1, text: "They ask about today.".to_owned() });
    writer.say(1, "It is ");
    writer.put(Event::AnswerAbandoned { step: 1, attempt: 1 });
    let fault = Fault::new(Kind::RequestTimedOut, Operation::ModelRequest)
        .with(Fact::TimeoutMs, 30_000)
        .with(Fact::ElapsedMs, 30_200)
        .with(Fact::Service, "demo");
    writer.retry(fault, 1, 2_000, in_step(1));
    writer.ask(1, 2);
    let fault = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest)
        .with(Fact::Service, "demo")
        .with(Fact::LimitPerMinute, 100)
        .with(Fact::RequestsMade, 105);
    writer.retry(fault, 2, 60_000, in_step(1));
    writer.ask(1, 3);
    writer.say(1, "It is sunny ");
    writer.say(1, "in Beijing.");
    writer.put(Event::Recovered {
        operation: Operation::ModelRequest,
        kind: Kind::RequestTimedOut,
        attempts: 3,
        elapsed_ms: 62_500,
        scope: in_step(1),
    });
    writer.answer(1, "It is sunny in Beijing.");
    writer.end(StopReason::EndTurn, None);
}

/// A turn that calls tools: one is asked about, one does not fit, one is retried.
fn calls(writer: &mut RecordWriter) {
    writer.message("m-2", "Write it into notes.txt.");
    writer.ask(1, 1);
    writer.say(1, "I write it down.");
    let tool_use = |id: &str, name: &str, arguments: &str| {
        let (name, arguments) = (name.to_owned(), arguments.to_owned());
        Block::ToolUse(ToolUse { id: call(id), name, arguments })
    };
    writer.put(Event::ModelAnswered {
        step: 1,
        content: vec![
            Block::Text("I write it down.".to_owned()),
            tool_use("call_2_1_1", "fs_write", r#"{"path":"notes.txt","text":"sunny"}"#),
            tool_use("call_2_1_2", "fs_read", r#"{"file":"notes.txt"}"#),
        ],
        stop: ModelStop::ToolUse,
        usage: Usage { input_tokens: 120, output_tokens: 24, ..Usage::default() },
        response: None,
    });
    asked_about(writer);
    let mismatch = Mismatch {
        pointer: "/path".to_owned(),
        rule: "required".into(),
        expected: "required".to_owned(),
        ..Mismatch::default()
    };
    let fault = Fault::new(Kind::InvalidArguments, Operation::ToolCall)
        .with(Fact::ToolName, "fs_read")
        .mismatch(mismatch);
    writer.put(Event::ToolCallEnded {
        call: call("call_2_1_2"),
        tool: "fs_read".to_owned(),
        outcome: Outcome::Failed(Failure { fault, data: None, note: None }),
        duration_ms: 0,
    });
    let todo = Todo {
        id: "1".to_owned(),
        title: "Write the note".to_owned(),
        status: TodoStatus::Completed,
        assignee: None,
        notes: None,
    };
    writer.put(Event::TodosChanged { todos: vec![todo] });
    compacted(writer);
}

fn asked_about(writer: &mut RecordWriter) {
    let (id, tool) = (call("call_2_1_1"), "fs_write".to_owned());
    let arguments = json!({ "path": "notes.txt", "text": "sunny" });
    let question = QuestionId("ask_call_2_1_1".into());
    writer.put(Event::QuestionAsked {
        question: question.clone(),
        call: id.clone(),
        tool: tool.clone(),
        arguments: arguments.clone(),
        repairs: Vec::new(),
        digest: "9f86d081884c7d659a2feaa0c55ad015".to_owned(),
        idempotent: false,
        reason: "the tool writes or executes, and the mode is `approval`".to_owned(),
        purpose: budao_core::event::QuestionPurpose::Permission,
        expires_at: writer.now().after(std::time::Duration::from_secs(86_400)),
    });
    writer.put(Event::QuestionAnswered {
        question,
        call: id.clone(),
        decision: Decision::Allow,
        by: "ann".to_owned(),
        note: Some("only this file".to_owned()),
        arguments: None,
    });
    writer.put(Event::ToolCallStarted(CallStart {
        call: id.clone(),
        tool: tool.clone(),
        arguments,
        repairs: Vec::new(),
        attempt: 1,
        idempotent: false,
        reconcile: false,
    }));
    writer.put(Event::ToolOutputDelta { call: id.clone(), text: "writing…\n".to_owned() });
    let (topic, data) = ("progress".to_owned(), json!({ "bytes": 5 }));
    writer.put(Event::ToolCallAnnotated { call: id.clone(), tool: tool.clone(), topic, data });
    writer.put(Event::FileSeen { path: "notes.txt".to_owned(), digest: None });
    let output = Output { data: json!({ "path": "notes.txt", "bytes": 5 }), ..Output::default() };
    let outcome = Outcome::Done(output);
    writer.put(Event::ToolCallEnded { call: id, tool, outcome, duration_ms: 12 });
}

/// The next request is too long; the history is shortened, and it works.
fn compacted(writer: &mut RecordWriter) {
    writer.ask(2, 1);
    let fault = Fault::new(Kind::ContextTooLong, Operation::ModelRequest).attempt(1, 3);
    writer.put(Event::FaultRaised { fault, scope: in_step(2) });
    let shortened = || {
        Event::HistoryCompacted(Compaction {
            messages: 2,
            summary: "They asked about the weather.".to_owned(),
            by_model: true,
            tokens_before: 190_000,
            tokens_after: 900,
            usage: Usage { input_tokens: 190_000, output_tokens: 600, ..Usage::default() },
        })
    };
    writer.put(shortened());
    writer.say(2, "It is written.");
    writer.put(Event::Recovered {
        operation: Operation::ModelRequest,
        kind: Kind::ContextTooLong,
        attempts: 1,
        elapsed_ms: 800,
        scope: in_step(2),
    });
    writer.answer(2, "It is written.");
    writer.end(StopReason::MaxTokens, None);
    writer.message("m-3", "Anything else?");
    writer.ask(1, 1);
    writer.put(shortened());
    let content = vec![Block::Text("I would rather not say.".to_owned())];
    let usage = Usage::default();
    writer.put(Event::ModelAnswered {
        step: 1,
        content,
        stop: ModelStop::Refusal,
        usage,
        response: None,
    });
    let fault = Fault::new(Kind::ModelRefused, Operation::ModelRequest).with(Fact::Model, "demo");
    writer.end(StopReason::Refusal, Some(fault));
}

/// A wrong key: the fault is raised and not recovered, the turn fails, the session ends.
fn trouble(writer: &mut RecordWriter) {
    writer.message("m-4", "Hello?");
    writer.ask(1, 1);
    let fault = Fault::new(Kind::ModelAuthentication, Operation::ModelRequest)
        .with(Fact::Service, "anthropic")
        .with(Fact::RequiredConfig, vec!["ANTHROPIC_API_KEY".to_owned()])
        .with_trace(Trace::from_random(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736));
    let retried_fault = fault.clone().attempt(1, 3);
    writer.put(Event::FaultRaised { fault: retried_fault, scope: in_step(1) });
    writer.put(Event::RecoveryFailed { fault: fault.clone(), scope: in_step(1) });
    writer.end(StopReason::Failed, Some(fault.clone()));
    writer.put(Event::SessionEnded { end: SessionEnd::Error, fault: Some(fault) });
}

/// An observer is lost, the process is killed, a question expires, a user stops the run.
fn interruptions(writer: &mut RecordWriter) {
    writer.message("m-5", "Look again.");
    writer.ask(1, 1);
    writer.put(Event::ObserverLost(LostObserver {
        close_code: 1006,
        close_reason: "abnormal_closure".to_owned(),
        last_seq: 42,
        uptime_ms: 123_450,
    }));
    writer.put(Event::SessionResumed { sealed: vec![call("call_5_1_1")] });
    let question = QuestionId("ask_call_5_1_2".into());
    writer.put(Event::QuestionExpired { question, call: call("call_5_1_2") });
    let (child, by) = (CHILD, Some(call("call_5_1_3")));
    writer.put(Event::ChildOpened(ChildLink { child, call: by.clone(), stage: None, task: None }));
    let usage = Usage { input_tokens: 50, output_tokens: 7, ..Usage::default() };
    writer.put(Event::ChildEnded { child, call: by, stage: None, task: None, usage });
    let (operation, of_turn) = (Operation::ToolCall, 4);
    writer.put(Event::LateArrivalDropped { operation, of_turn, call: None });
    let reason = Some("changed my mind".to_owned());
    writer.put(Event::CancelRequested { by: "ann".to_owned(), reason });
    writer.end(StopReason::Cancelled, None);
}

/// Plan, confirm, solve (one restarted, one failing), aggregate.
fn pipeline(writer: &mut RecordWriter) {
    let question = "Compare the weather of Beijing and Oslo.".to_owned();
    writer.put(Event::PipelineAccepted {
        command: "m-6".into(),
        question: question.clone(),
        confirm: true,
        tasks: None,
    });
    writer.put(Event::TurnStarted { message: "m-6".into() });
    writer.put(Event::PlanStarted { question });
    let planning = Scope { stage: Some(Stage::Planning), ..Scope::default() };
    let stage = planning.stage;
    writer.put(Event::ChildOpened(ChildLink { child: CHILD, call: None, stage, task: None }));
    let fault = not_a_plan().attempt(1, 2);
    writer.put(Event::FaultRaised { fault, scope: planning });
    let tasks = vec![task("1", "Weather of Beijing"), task("2", "Weather of Oslo")];
    confirmed(writer, &tasks);
    writer.put(Event::PlanMade { tasks: tasks.clone(), summary: "One task a city.".to_owned() });
    for task in &tasks {
        writer.put(Event::TaskStarted { task: task.clone(), attempt: 1 });
    }
    let (first, second) = (tasks[0].id.clone(), tasks[1].id.clone());
    let by = "ann".to_owned();
    writer.put(Event::TaskStopRequested { task: first.clone(), by, restart: true });
    let end = TaskEnd::Cancelled { reason: "stopped by ann".to_owned() };
    writer.put(Event::TaskEnded { task: first.clone(), end });
    let reason = "asked for by ann".to_owned();
    writer.put(Event::TaskRestarted { task: first.clone(), attempt: 2, reason });
    writer.put(Event::TaskStarted { task: tasks[0].clone(), attempt: 2 });
    let end = TaskEnd::Completed { output: "Sunny, 12 °C.".to_owned() };
    writer.put(Event::TaskEnded { task: first, end });
    let fault = Fault::new(Kind::TaskFailed, Operation::SolveTask)
        .with(Fact::Stage, "solving")
        .with(Fact::TaskId, "2");
    let (stage, task) = (Some(Stage::Solving), Some(second.clone()));
    let scope = Scope { stage, task, ..Scope::default() };
    writer.put(Event::FaultRaised { fault: fault.clone(), scope });
    writer.put(Event::TaskEnded { task: second, end: TaskEnd::Failed { fault } });
    writer.put(Event::AggregateStarted { completed: 1, failed: 1 });
    let output = "Beijing is sunny; Oslo is unknown.".to_owned();
    writer.put(Event::AggregateEnded { end: TaskEnd::Completed { output: output.clone() } });
    writer.put(Event::PipelineEnded { complete: false });
    writer.say(1, &output);
    writer.answer(1, &output);
    writer.end(StopReason::EndTurn, None);
}

fn not_a_plan() -> Fault {
    Fault::new(Kind::PlanCoercionFailed, Operation::GeneratePlan)
        .with(Fact::Stage, "planning")
        .mismatch(Mismatch {
            pointer: "/tasks".to_owned(),
            rule: "required".into(),
            expected: "required: the list of tasks".to_owned(),
            ..Mismatch::default()
        })
}

fn confirmed(writer: &mut RecordWriter, tasks: &[Task]) {
    let draft = PlanDraft { tasks: tasks.to_vec(), summary: "One task a city.".to_owned() };
    let question = QuestionId("ask_plan_6_1".into());
    writer.put(Event::QuestionAsked {
        question: question.clone(),
        call: call("plan"),
        tool: "plan".to_owned(),
        arguments: draft.to_arguments(),
        repairs: Vec::new(),
        digest: draft.digest(),
        idempotent: true,
        reason: "the plan must be confirmed before it is carried out".to_owned(),
        purpose: budao_core::event::QuestionPurpose::Permission,
        expires_at: writer.now().after(std::time::Duration::from_secs(86_400)),
    });
    writer.put(Event::QuestionAnswered {
        question,
        call: call("plan"),
        decision: Decision::Allow,
        by: "ann".to_owned(),
        note: None,
        arguments: None,
    });
}

/// The other ends: an aggregation that fails or is stopped, plans that are refused or never confirmed.
fn stopped_pipelines(writer: &mut RecordWriter) {
    let tasks = vec![task("a", "Weather of Rome")];
    given(writer, "m-7", &tasks);
    let fault = Fault::new(Kind::ModelOverloaded, Operation::Aggregate)
        .with(Fact::Service, "demo")
        .with(Fact::Stage, "aggregation")
        .attempt(3, 3);
    writer.put(Event::AggregateEnded { end: TaskEnd::Failed { fault: fault.clone() } });
    writer.put(Event::PipelineEnded { complete: false });
    let scope = Scope { stage: Some(Stage::Aggregation), ..Scope::default() };
    writer.put(Event::RecoveryFailed { fault: fault.clone(), scope });
    writer.end(StopReason::Failed, Some(fault));

    given(writer, "m-8", &tasks);
    writer.put(Event::CancelRequested { by: "ann".to_owned(), reason: None });
    let end = TaskEnd::Cancelled { reason: "the run was cancelled".to_owned() };
    writer.put(Event::AggregateEnded { end });
    writer.put(Event::PipelineEnded { complete: false });
    writer.end(StopReason::Cancelled, None);

    let question = "What about Lima?".to_owned();
    planned(writer, "m-9", &question);
    writer.put(Event::ReplanRequested { question: question.clone(), by: "ann".to_owned() });
    writer.put(Event::PlanCancelled { reason: "another plan was asked for".to_owned() });
    writer.put(Event::PlanStarted { question: question.clone() });
    refused(writer, not_a_plan().attempt(2, 2));

    planned(writer, "m-10", &question);
    let fault = Fault::new(Kind::ModelServerError, Operation::GeneratePlan)
        .with(Fact::Service, "demo")
        .with(Fact::Status, 500);
    refused(writer, fault);

    planned(writer, "m-11", &question);
    writer.put(Event::PlanCancelled { reason: "declined by ann".to_owned() });
    writer.put(Event::PipelineEnded { complete: false });
    writer.end(StopReason::Cancelled, None);

    given(writer, "m-12", &tasks);
    let output = "It rains in Rome.".to_owned();
    writer.put(Event::AggregateEnded { end: TaskEnd::Completed { output: output.clone() } });
    writer.put(Event::PipelineEnded { complete: true });
    writer.say(1, &output);
    writer.answer(1, &output);
    writer.end(StopReason::EndTurn, None);
}

fn given(writer: &mut RecordWriter, command: &str, tasks: &[Task]) {
    writer.put(Event::PipelineAccepted {
        command: command.into(),
        question: "The weather of Rome".to_owned(),
        confirm: false,
        tasks: Some(tasks.to_vec()),
    });
    writer.put(Event::TurnStarted { message: command.into() });
    writer.put(Event::PlanMade { tasks: tasks.to_vec(), summary: String::new() });
    writer.put(Event::TaskStarted { task: tasks[0].clone(), attempt: 1 });
    let end = TaskEnd::Completed { output: "Rain.".to_owned() };
    writer.put(Event::TaskEnded { task: tasks[0].id.clone(), end });
    writer.put(Event::AggregateStarted { completed: 1, failed: 0 });
}

fn planned(writer: &mut RecordWriter, command: &str, question: &str) {
    let (question, confirm, tasks) = (question.to_owned(), false, None);
    let question_copy = question.clone();
    writer.put(Event::PipelineAccepted { command: command.into(), question, confirm, tasks });
    writer.put(Event::TurnStarted { message: command.into() });
    writer.put(Event::PlanStarted { question: question_copy });
}

fn refused(writer: &mut RecordWriter, fault: Fault) {
    writer.put(Event::PlanRefused { fault: fault.clone() });
    writer.put(Event::PipelineEnded { complete: false });
    let scope = Scope { stage: Some(Stage::Planning), ..Scope::default() };
    writer.put(Event::RecoveryFailed { fault: fault.clone(), scope });
    writer.end(StopReason::Failed, Some(fault));
}

fn ending(writer: &mut RecordWriter) {
    writer.put(Event::Annotated { topic: "serve.nonce".to_owned(), data: json!("n-1") });
    writer.message("m-13", "And now?");
    let content = vec![Block::Text("Never mind.".to_owned())];
    writer.put(Event::MessageAccepted { command: "m-14".into(), content });
    writer.put(Event::MessageWithdrawn { command: "m-14".into(), by: "ann".to_owned() });
    writer.end(StopReason::Cancelled, None);
    retried(writer);
    writer.put(Event::SessionEnded { end: SessionEnd::Closed, fault: None });
}

/// A turn fails and is continued.
fn retried(writer: &mut RecordWriter) {
    writer.message("m-15", "Once more.");
    let failed = writer.turn;
    writer.end(StopReason::Failed, Some(Fault::new(Kind::EmptyAnswer, Operation::ModelRequest)));
    writer.put(Event::RetryAccepted { command: "m-16".into(), of_turn: failed });
    writer.put(Event::TurnStarted { message: "m-16".into() });
    writer.ask(1, 1);
    writer.say(1, "Here it is.");
    writer.answer(1, "Here it is.");
    writer.end(StopReason::EndTurn, None);
}

/// The beginning of a session that solves a task of another's plan.
pub(crate) fn child(language: Lang) -> Vec<Record> {
    let mut writer = RecordWriter { records: Vec::new(), turn: 0 };
    let settings = Settings { language, ..Settings::default() };
    let origin = Some(Origin::Stage {
        parent: SESSION,
        stage: Stage::Solving,
        task: Some(TaskId("1".into())),
        depth: 1,
    });
    writer.put(Event::SessionOpened { settings, origin });
    writer.message("own-1", "Weather of Beijing, please.");
    writer.ask(1, 1);
    writer.say(1, "Sunny.");
    writer.records
}
