//! Generated sessions for the tests of both projections: valid records of turns with text, thoughts, abandoned answers,
//! retries, pictures, calls, child sessions, questions, tools of the front end, faults and every end, from a seed.

use std::time::{Duration, Instant};

use budao_core::{
    Event, Fault, Kind, Record, Timestamp,
    ag_ui::EVENT_TOPIC,
    event::{
        CallStart, ChildLink, Decision, Epoch, QuestionId, QuestionPurpose, Scope, SessionId,
        Settings, StopReason,
    },
    fault::{Fact, Operation},
    message::{Block, CallId, ModelStop, ToolUse, Usage},
    remote::{OfferedTool, ToolOffer, ToolRoute},
    spending::RAISE_CAP,
    tool::{Outcome, Output, Todo},
    trace::Trace,
};
use serde_json::json;

use super::{RunAnnotation, WORKER, message_command};

/// Generates a session from a seed; the same seed gives the same session.
pub(crate) struct SessionGenerator {
    seed: u64,
    pub(crate) records: Vec<Record>,
    turn: u64,
    calls: u64,
    /// Whether the front end has a message of its own for each of its results.
    has_result_ids: bool,
    /// Whether a foreign agent answers, whose own events are recorded beside what they mean.
    is_relayed: bool,
}

impl SessionGenerator {
    /// A session of a few turns.
    pub(crate) fn new(seed: u64) -> Self {
        let mut session = Self {
            seed: seed.wrapping_mul(2) + 1,
            records: Vec::new(),
            turn: 0,
            calls: 0,
            has_result_ids: seed.is_multiple_of(2),
            is_relayed: seed % 3 == 1,
        };
        let settings = Settings { offers: vec![offer()], ..Settings::default() };
        session.push(Event::SessionOpened { settings, origin: None });
        for _ in 0..=session.below(3) {
            session.run_turn();
        }
        session
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }

    fn push(&mut self, event: Event) {
        let seq = self.records.len() as u64 + 1;
        let at = Timestamp::from_micros(1_700_000_000_000_000 + i64::try_from(seq).unwrap() * 1000);
        self.records.push(Record {
            session: SessionId(uuid::Uuid::from_u128(7)),
            epoch: Epoch(1),
            seq,
            at,
            trace: Trace::NONE,
            turn: self.turn,
            event,
        });
    }

    fn run_turn(&mut self) {
        let next = self.turn + 1;
        let run = format!("run-{next}");
        let annotation = RunAnnotation::new(&run, Some(format!("user-{next}")));
        self.push(Event::Annotated { topic: "serve.run".to_owned(), data: json!(annotation) });
        let command = message_command(&run);
        let mut content = vec![Block::Text(format!("question {next}"))];
        if self.seed.is_multiple_of(5) {
            let (media_type, data) = ("image/png".to_owned(), "iVBORw0KGgo=".to_owned());
            content.push(Block::Image { media_type, data });
        }
        self.push(Event::MessageAccepted { command: command.clone(), content });
        self.turn = next;
        self.push(Event::TurnStarted { message: command });
        let steps = 1 + u32::try_from(self.below(3)).unwrap();
        for step in 1..=steps {
            if self.run_step(step, step == steps) {
                self.push(turn_ended(StopReason::Cancelled, None, step));
                return;
            }
        }
        let stop =
            [StopReason::EndTurn, StopReason::MaxTokens, StopReason::Refusal, StopReason::Failed]
                [usize::try_from(self.below(4)).unwrap()];
        let fault = (stop == StopReason::Failed).then(|| {
            Fault::new(Kind::ModelAuthentication, Operation::ModelRequest)
                .with(Fact::Service, "demo")
        });
        self.push(turn_ended(stop, fault, steps));
    }

    /// One step; `true` if the turn was cancelled in it.
    fn run_step(&mut self, step: u32, is_last: bool) -> bool {
        let attempts = 1 + u32::try_from(self.below(2)).unwrap();
        for attempt in 1..attempts {
            self.push(Event::StepStarted { step, attempt, model: "demo".to_owned() });
            self.deltas(step);
            self.push(Event::AnswerAbandoned { step, attempt });
            let fault = Fault::new(Kind::ModelStreamCut, Operation::ModelRequest)
                .with(Fact::Service, "demo");
            self.push(Event::FaultRaised { fault, scope: Scope::default() });
            self.push(retry(attempt));
        }
        self.push(Event::StepStarted { step, attempt: attempts, model: "demo".to_owned() });
        let (thoughts, text) = self.deltas(step);
        if self.below(12) == 0 {
            self.push(Event::CancelRequested { by: "local/user".to_owned(), reason: None });
            self.push(Event::AnswerAbandoned { step, attempt: attempts });
            return true;
        }
        let mut content = Vec::new();
        if !thoughts.is_empty() {
            content.push(Block::Thinking { text: thoughts, signature: None });
        }
        if !text.is_empty() || is_last {
            // An answer may also come in one piece.
            content.push(Block::Text(if text.is_empty() { "Whole.".to_owned() } else { text }));
        }
        let count = if is_last { 0 } else { 1 + self.below(3) };
        let calls: Vec<(CallId, u64)> = (0..count).map(|_| self.new_call()).collect();
        content.extend(calls.iter().map(|(id, kind)| {
            let name = ["read", "write", "pick"][usize::try_from(*kind).unwrap()].to_owned();
            Block::ToolUse(ToolUse {
                id: id.clone(),
                name,
                arguments: r#"{"path":"a"}"#.to_owned(),
            })
        }));
        let stop = if is_last { ModelStop::EndTurn } else { ModelStop::ToolUse };
        self.push(Event::ModelAnswered {
            step,
            content,
            stop,
            usage: Usage::default(),
            response: None,
        });
        self.run_calls(&calls);
        false
    }

    fn new_call(&mut self) -> (CallId, u64) {
        self.calls += 1;
        (CallId::from(format!("call-{}", self.calls).as_str()), self.below(3))
    }

    /// Text and thoughts in some order.
    fn deltas(&mut self, step: u32) -> (String, String) {
        let (mut thoughts, mut text) = (String::new(), String::new());
        for n in 0..self.below(5) {
            if self.is_relayed {
                self.agent_event();
            }
            let piece = format!("piece {n} \"é\" ");
            if self.below(3) == 0 {
                thoughts.push_str(&piece);
                self.push(Event::ThinkingDelta { step, text: piece });
            } else {
                text.push_str(&piece);
                self.push(Event::TextDelta { step, text: piece });
            }
        }
        (thoughts, text)
    }

    /// An event that the relay recorded as it came.
    fn agent_event(&mut self) {
        let (n, activity) = (self.records.len(), format!("activity-{}", self.turn));
        let step = |change: &str, name: &str| json!({ "type": format!("STEP_{change}"), "stepName": name });
        let mut events = vec![
            step("STARTED", "plan"),
            step("STARTED", "step-2"),
            step("FINISHED", "plan"),
            step("FINISHED", "never"),
            json!({ "type": "STATE_SNAPSHOT", "snapshot": { "n": n } }),
            json!({ "type": "STATE_DELTA", "delta": [{ "op": "add", "path": "/last", "value": n }] }),
            json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": activity, "activityType": "search", "content": { "found": 0 } }),
            json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": activity, "activityType": "search", "content": { "found": -1 }, "replace": false }),
            json!({ "type": "ACTIVITY_DELTA", "messageId": activity, "activityType": "search", "patch": [{ "op": "replace", "path": "/found", "value": n }] }),
            json!({ "type": "CUSTOM", "name": "progress", "value": null, "metadata": null, "timestamp": null }),
            json!({ "type": "RUN_STARTED" }),
            json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "theirs", "delta": "never shown" }),
        ];
        let some = usize::try_from(self.below(events.len() as u64)).unwrap();
        let data = events.swap_remove(some);
        self.push(Event::Annotated { topic: EVENT_TOPIC.to_owned(), data });
    }

    fn run_calls(&mut self, calls: &[(CallId, u64)]) {
        let mut asked = Vec::new();
        for (call, kind) in calls {
            match kind {
                0 => self.started(call, "read"),
                1 => {
                    let question = QuestionId(format!("ask_{call}").into());
                    self.push(Event::QuestionAsked {
                        question: question.clone(),
                        call: call.clone(),
                        tool: "write".to_owned(),
                        arguments: json!({ "path": "a" }),
                        repairs: Vec::new(),
                        digest: "d".to_owned(),
                        idempotent: false,
                        reason: "permission_mode".to_owned(),
                        purpose: QuestionPurpose::Permission,
                        expires_at: Timestamp::from_micros(1_800_000_000_000_000),
                    });
                    asked.push((call.clone(), question));
                }
                _ => {
                    let route = ToolRoute { worker: WORKER.to_owned(), version: "1".to_owned() };
                    let (call, tool) = (call.clone(), "pick".to_owned());
                    self.push(Event::ToolCallOffered { call: call.clone(), tool, route });
                    self.started(&call, "pick");
                }
            }
        }
        for (call, _) in calls.iter().filter(|(_, kind)| *kind == 0) {
            if self.below(2) == 0 {
                self.push(Event::ToolOutputDelta { call: call.clone(), text: "line\n".to_owned() });
            }
            if self.seed.is_multiple_of(7) {
                self.child(call);
            }
            self.ended(call, "read");
        }
        for (call, question) in asked {
            let decision = if self.below(3) == 0 { Decision::Deny } else { Decision::Allow };
            let by = "local/user".to_owned();
            let (note, arguments) = (None, None);
            let answered = call.clone();
            self.push(Event::QuestionAnswered {
                question,
                call: answered,
                decision,
                by,
                note,
                arguments,
            });
            if decision == Decision::Allow {
                self.started(&call, "write");
            }
            self.ended(&call, "write");
        }
        for (call, _) in calls.iter().filter(|(_, kind)| *kind == 2) {
            if self.has_result_ids {
                let mut annotation = RunAnnotation::new(format!("result-{call}"), None);
                annotation.results.insert(call.clone(), format!("own-{call}"));
                self.push(Event::Annotated {
                    topic: "serve.run".to_owned(),
                    data: json!(annotation),
                });
            }
            self.ended(call, "pick");
        }
        if !self.is_relayed && self.below(4) == 0 {
            self.push(Event::TodosChanged { todos: Vec::<Todo>::new() });
        }
    }

    /// A child session that a call ran.
    fn child(&mut self, call: &CallId) {
        let child = SessionId(uuid::Uuid::from_u128(u128::from(self.seed)));
        let call = Some(call.clone());
        let link = ChildLink { child, call: call.clone(), stage: None, task: None };
        self.push(Event::ChildOpened(link));
        let usage = Usage::default();
        self.push(Event::ChildEnded { child, call, stage: None, task: None, usage });
    }

    fn started(&mut self, call: &CallId, tool: &str) {
        self.push(Event::ToolCallStarted(CallStart {
            call: call.clone(),
            tool: tool.to_owned(),
            arguments: json!({ "path": "a" }),
            repairs: Vec::new(),
            attempt: 1,
            idempotent: false,
            reconcile: false,
        }));
    }

    fn ended(&mut self, call: &CallId, tool: &str) {
        let failed =
            |kind| Fault::new(kind, Operation::ToolCall).with(Fact::ToolName, tool.to_owned());
        let outcome = match self.below(4) {
            0 => failed(Kind::ToolFailed).into(),
            1 => failed(Kind::DeniedByPerson).into(),
            _ => Outcome::Done(Output { data: json!({ "n": self.calls }), ..Output::default() }),
        };
        let (call, tool) = (call.clone(), tool.to_owned());
        self.push(Event::ToolCallEnded { call, tool, outcome, duration_ms: 3 });
    }
}

/// The records of a turn that begins, and asks a person for more money; the person says yes or no.
pub(crate) fn raised_cap(setting: &str, decision: Decision) -> Vec<Record> {
    let mut records = SessionGenerator::new(3).records;
    let turn = records.iter().position(|it| matches!(it.event, Event::TurnStarted { .. })).unwrap();
    records.truncate(turn + 1);
    let (call, question) = (CallId::from("raise"), QuestionId("ask".into()));
    let asked = Event::QuestionAsked {
        question: question.clone(),
        call: call.clone(),
        tool: RAISE_CAP.to_owned(),
        arguments: json!({ "setting": setting, "spent": "0.9 USD", "cap": "1 USD", "more": "2 USD" }),
        repairs: Vec::new(),
        digest: "d".to_owned(),
        idempotent: true,
        reason: "the spending cap is reached".to_owned(),
        purpose: QuestionPurpose::Permission,
        expires_at: Timestamp::from_micros(1_800_000_000_000_000),
    };
    let answered = Event::QuestionAnswered {
        question,
        call: call.clone(),
        decision,
        by: "ada".to_owned(),
        note: None,
        arguments: None,
    };
    let data = json!({ "setting": setting, "more": "2 USD", "by": "ada" });
    let outcome = match decision {
        Decision::Allow => Outcome::Done(Output { data, ..Output::default() }),
        Decision::Deny => Fault::new(Kind::DeniedByPerson, Operation::ToolCall)
            .with(Fact::ToolName, RAISE_CAP)
            .into(),
    };
    let ended = Event::ToolCallEnded { call, tool: RAISE_CAP.to_owned(), outcome, duration_ms: 0 };
    for event in [asked, answered, ended] {
        let last = records.last().unwrap();
        records.push(Record { seq: last.seq + 1, event, ..last.clone() });
    }
    records
}

fn retry(attempt: u32) -> Event {
    Event::RetryScheduled {
        operation: Operation::ModelRequest,
        kind: Kind::ModelStreamCut,
        attempt,
        next_attempt: attempt + 1,
        max_attempts: 3,
        wait_ms: 500,
        due_at: Timestamp::from_micros(1_800_000_000_000_000),
        scope: Scope::default(),
    }
}

fn turn_ended(stop: StopReason, fault: Option<Fault>, steps: u32) -> Event {
    Event::TurnEnded {
        stop,
        fault,
        steps,
        usage: Usage { input_tokens: 9, output_tokens: 4, ..Usage::default() },
    }
}

fn offer() -> ToolOffer {
    let tool = OfferedTool {
        name: "pick".to_owned(),
        description: "Picks.".to_owned(),
        parameters: json!({ "type": "object" }),
        read_only: false,
        idempotent: false,
        confirm: false,
        reconcile: false,
        deadline_ms: None,
        wait_ms: None,
    };
    ToolOffer { worker: WORKER.to_owned(), by: "local/user".to_owned(), tools: vec![tool] }
}

/// The seeds of the sessions whose streams the clients read, in batches that fit into memory. `BUDAO_SESSIONS` sets how
/// many there are.
pub(crate) fn seeds() -> impl Iterator<Item = std::ops::Range<u64>> {
    const BATCH: usize = 500;
    let wanted = std::env::var("BUDAO_SESSIONS").ok();
    let sessions: u64 = wanted.and_then(|number| number.parse().ok()).unwrap_or(600);
    (0..sessions).step_by(BATCH).map(move |from| from..sessions.min(from + BATCH as u64))
}

/// Runs a program of the released clients with this standard input, if they were fetched. Returns what it prints.
pub(crate) fn run_client(program: &str, input: &str) -> Option<String> {
    use std::{
        io::Write as _,
        path::PathBuf,
        process::{Command, Stdio},
    };
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let folder = folder.map(|folder| folder.join("front-ends")).filter(|path| path.exists());
    let Some(folder) = folder else {
        let advice = "NOT TESTED: the clients are missing; `cargo xtask peers front-ends`";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
        return None;
    };
    let mut node = Command::new("node")
        .args(["--input-type=module", "-e", program])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = node.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = node.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The most a projection may cost for each event: 3 µs in a release build, and twenty times that without optimisation.
const EVENT_COST: Duration = Duration::from_micros(if cfg!(debug_assertions) { 60 } else { 3 });
/// A projection is measured so often; the shortest time counts, because other work only adds to it.
const ROUNDS: usize = 5;

/// Measures and prints what `project` costs for each event. It projects the records of one session and returns the number of
/// events.
///
/// # Panics
/// When an event costs more than [`EVENT_COST`].
pub(crate) fn check_cost(name: &str, project: impl Fn(&[Record]) -> usize) {
    let sessions: Vec<SessionGenerator> = (0..300).map(SessionGenerator::new).collect();
    let rounds = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        let events: usize = sessions.iter().map(|session| project(&session.records)).sum();
        (began.elapsed(), events)
    });
    let (took, events) = rounds.min().unwrap();
    let each = took / u32::try_from(events).unwrap();
    eprintln!("{name}: {events} events, {each:?} each");
    assert!(each <= EVENT_COST, "{name}: {each:?} for an event");
}
