//! The machine alone, line by line: what the played CLI says seldom or never.

#![allow(clippy::needless_pass_by_value, reason = "a line is made where it is said")]

use std::time::Duration;

use budao_claude::{
    CliTimeouts, ENGINE_LABEL, ENGINE_NAME,
    machine::{Action, Env, Input, Machine, step},
    wire,
};
use budao_core::{
    event::{Answer, Command, CommandBody, Entry, Event, SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::Block,
    session::Session,
    time::Timestamp,
    tool::{Mode, Permissions},
    trace::Trace,
};
use budao_scrub::Scrubber;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::name;

mod answers;
mod calls;
mod doubts;
mod edges;
mod ends;
mod modes;

/// A machine, and what it was told and said.
struct Conversation {
    machine: Machine,
    now: Timestamp,
    /// The time that never jumps.
    steady: Timestamp,
    /// Ids count from one.
    ids: u128,
    limits: Limits,
    /// What the last input led to.
    actions: Vec<Action>,
    answer: Option<Answer>,
    /// All entries.
    entries: Vec<Entry>,
    /// The process it talks to.
    generation: u32,
}

impl Conversation {
    /// A session in which everything may run.
    fn open() -> Self {
        Self::with(Mode::Auto)
    }

    fn with(mode: Mode) -> Self {
        let mut conversation = Self::of(Session::default());
        let permissions = Permissions { mode, ..Permissions::default() };
        let labels = [(ENGINE_LABEL.to_owned(), ENGINE_NAME.to_owned())].into();
        let settings = Box::new(Settings { permissions, labels, ..Settings::default() });
        conversation.input(Input::Opened { settings, origin: None });
        conversation
    }

    fn of(session: Session) -> Self {
        Self {
            machine: Machine::new(SessionId(Uuid::from_u128(0x7777)), session),
            now: Timestamp::from_micros(1_700_000_000_000_000),
            steady: Timestamp::default(),
            ids: 0,
            limits: Limits::default(),
            actions: Vec::new(),
            answer: None,
            entries: Vec::new(),
            generation: 1,
        }
    }

    /// Another writer takes the session up.
    fn taken_up(&self) -> Self {
        let mut session = Session::default();
        for entry in &self.entries {
            session.apply(&entry.event, entry.at, entry.trace);
        }
        Self {
            now: self.now,
            steady: self.steady,
            limits: self.limits.clone(),
            ..Self::of(session)
        }
    }

    fn input(&mut self, input: Input) -> Vec<Event> {
        self.ids += 1;
        let (limits, scrubber) = (self.limits.clone(), Scrubber::new());
        let timeouts = CliTimeouts::default();
        let env = Env {
            now: self.now,
            steady: self.steady,
            uuid: Uuid::from_u128(self.ids),
            trace: Trace::from_random(7),
            limits: &limits,
            timeouts: &timeouts,
            scrubber: &scrubber,
            server: None,
        };
        let decided = step(&mut self.machine, input, &env);
        self.actions = decided.actions;
        self.answer = decided.answer.map(|(_, answer)| answer);
        for action in &self.actions {
            if let Action::Start { generation, .. } = action {
                self.generation = *generation;
            }
        }
        let events = decided.entries.iter().map(|entry| Event::clone(&entry.event)).collect();
        self.entries.extend(decided.entries);
        events
    }

    fn ask(&mut self, body: CommandBody) -> Vec<Event> {
        let (id, trace) = (format!("command-{}", self.ids).into(), Trace::NONE);
        self.input(Input::Command(Command { id, by: "ada".into(), trace, body }))
    }

    /// Says something; the id of the prompt the CLI got for it.
    fn say(&mut self, text: &str) -> String {
        self.ask(CommandBody::Message { content: vec![Block::Text(text.to_owned())] });
        let prompt = self.sent().into_iter().find(|line| line["type"] == "user");
        prompt.map(|line| line["uuid"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    /// Says something, and the CLI begins with it.
    fn started() -> (Self, String) {
        Self::started_with(Mode::Auto)
    }

    fn started_with(mode: Mode) -> (Self, String) {
        let mut conversation = Self::with(mode);
        let prompt = conversation.say("hello");
        conversation.line(init(&[&prompt]));
        (conversation, prompt)
    }

    fn line(&mut self, line: Value) -> Vec<Event> {
        self.line_of(self.generation, line)
    }

    fn line_of(&mut self, generation: u32, line: Value) -> Vec<Event> {
        let line = Box::new(wire::read(line.to_string().as_bytes()));
        self.input(Input::Line { generation, line })
    }

    fn later(&mut self, wait: Duration) -> Vec<Event> {
        self.now = self.now.after(wait);
        self.steady = self.steady.after(wait);
        self.input(Input::TimerFired)
    }

    /// How long the machine wants to wait for its next timer.
    fn wake(&self) -> Option<Duration> {
        let (scrubber, timeouts) = (Scrubber::new(), CliTimeouts::default());
        self.machine.wake(&Env {
            now: self.now,
            steady: self.steady,
            uuid: Uuid::nil(),
            trace: Trace::NONE,
            limits: &self.limits,
            timeouts: &timeouts,
            scrubber: &scrubber,
            server: None,
        })
    }

    /// The lines the last input sent.
    fn sent(&self) -> Vec<Value> {
        let lines = self.actions.iter().filter_map(|action| match action {
            Action::Send { line, .. } => Some(line.clone()),
            _ => None,
        });
        lines.collect()
    }

    /// The answer to a question of the CLI's that the last input sent.
    fn permitted(&self) -> Option<String> {
        let sent = self.sent();
        let line = sent.iter().find(|line| line["type"] == "control_response")?;
        line["response"]["response"]["behavior"].as_str().map(str::to_owned)
    }

    /// What the person sees of the conversation: words minus those that were voided.
    fn final_text(&self) -> String {
        let (mut final_text, mut step) = (String::new(), String::new());
        for entry in &self.entries {
            match &*entry.event {
                Event::TextDelta { text, .. } => step.push_str(text),
                Event::AnswerAbandoned { .. } => step.clear(),
                Event::ModelAnswered { .. } => final_text.push_str(&std::mem::take(&mut step)),
                _ => {}
            }
        }
        final_text + &step
    }
}

fn names(events: &[Event]) -> Vec<String> {
    events.iter().map(name).collect()
}

fn gone() -> Fault {
    Fault::new(Kind::CliExited, Operation::ReadCli).with(Fact::Program, "claude")
}

fn init(prompts: &[&str]) -> Value {
    json!({"type": "system", "subtype": "init", "user_message_uuids": prompts})
}

fn stream(event: Value) -> Value {
    json!({"type": "stream_event", "event": event})
}

fn stream_begins(id: &str) -> Value {
    stream(json!({"type": "message_start", "message": {"id": id, "model": "m"}}))
}

fn piece(index: usize, text: &str) -> Value {
    stream(json!({"type": "content_block_delta", "index": index,
        "delta": {"type": "text_delta", "text": text}}))
}

fn stream_ends() -> Value {
    stream(json!({"type": "message_stop"}))
}

/// A stream that was thrown away from a block on.
fn thrown_away(from: usize) -> Value {
    json!({"type": "stream_event", "event": {"type": "message_stop"},
        "abandoned_blocks": {"from_block_index": from}})
}

/// Whole blocks of an answer.
fn whole(id: &str, content: Value) -> Value {
    json!({"type": "assistant", "message": {"id": id, "model": "m", "content": content}})
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str, tool: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": tool, "input": input})
}

fn gave(id: &str, content: Value) -> Value {
    json!({"type": "user", "message": {"content": [
        {"type": "tool_result", "tool_use_id": id, "content": content}]}})
}

fn permission_request(request: &str, call: &str, tool: &str) -> Value {
    json!({"type": "control_request", "request_id": request, "request": {
        "subtype": "can_use_tool", "tool_name": tool, "input": {}, "tool_use_id": call}})
}

fn result(prompt: &str) -> Value {
    json!({"type": "result", "subtype": "success", "user_message_uuids": [prompt]})
}
