//! Feeds arbitrary bytes as CLI output through the reader and the machine, for the fuzz target and
//! for a short run of it in the tests.

use budao_core::{
    event::{CallStart, Command, CommandBody, Entry, Event, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::Block,
    session::Session,
    time::Timestamp,
    trace::Trace,
};
use budao_scrub::Scrubber;
use budao_tools::child::{BoundedLine, BoundedLines};
use futures::executor::block_on;
use uuid::Uuid;

use crate::{
    PROGRAM,
    machine::{CliTimeouts, Env, Input, Machine, step},
    wire,
};

/// Upper bound of a line, in bytes.
const LINE_BYTES: usize = 16 * 1024;
/// Upper bound of lines per process.
const LINES: usize = 200;

/// Runs a session whose CLI writes these bytes while it works on two messages.
///
/// # Panics
/// A turn does not end exactly once, a call does not have exactly one outcome, or a record cannot be read back.
pub fn life(bytes: &[u8]) {
    let mut play = ProbeSession::new();
    play.input(Input::Opened { settings: Box::default(), origin: None });
    play.say("first");
    play.say("second");
    for line in lines(bytes) {
        play.input(Input::Line { generation: 1, line: Box::new(wire::read(&line)) });
        // A line that is a number advances the clock by that many seconds.
        if let Some(seconds) = std::str::from_utf8(&line).ok().and_then(|it| it.trim().parse().ok())
        {
            play.wait(seconds);
        }
    }
    play.input(Input::Exited { generation: 1, fault: exit_fault(Kind::CliExited) });
    play.input(Input::Parked { fault: exit_fault(Kind::CliExited) });
    play.judge();
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = BoundedLines::new(bytes, LINE_BYTES);
    let mut all = Vec::new();
    while all.len() < LINES {
        match block_on(lines.next()) {
            Some(BoundedLine::Whole(line)) => {
                assert!(line.len() <= LINE_BYTES, "a line of {} bytes", line.len());
                all.push(line);
            }
            Some(BoundedLine::TooLong(skipped)) => assert!(skipped.bytes > LINE_BYTES),
            None => break,
        }
    }
    all
}

fn exit_fault(kind: Kind) -> Fault {
    Fault::new(kind, Operation::ReadCli).with(Fact::Program, PROGRAM)
}

struct ProbeSession {
    machine: Machine,
    entries: Vec<Entry>,
    limits: Limits,
    timeouts: CliTimeouts,
    scrubber: Scrubber,
    now: Timestamp,
    ids: u128,
}

impl ProbeSession {
    fn new() -> Self {
        Self {
            machine: Machine::new(SessionId(Uuid::from_u128(0x7777)), Session::default()),
            entries: Vec::new(),
            limits: Limits::default(),
            timeouts: CliTimeouts::default(),
            scrubber: Scrubber::new(),
            now: Timestamp::from_micros(1_700_000_000_000_000),
            ids: 0,
        }
    }

    fn say(&mut self, text: &str) {
        let content = vec![Block::Text(text.to_owned())];
        let (id, trace, body) = (text.into(), Trace::NONE, CommandBody::Message { content });
        self.input(Input::Command(Command { id, by: "ada".into(), trace, body }));
    }

    fn wait(&mut self, seconds: u16) {
        self.now = self.now.after(std::time::Duration::from_secs(seconds.into()));
        self.input(Input::TimerFired);
    }

    /// Ids count from 1, so that the fed bytes can contain them.
    fn input(&mut self, input: Input) {
        self.ids += 1;
        let env = Env {
            now: self.now,
            steady: self.now,
            uuid: Uuid::from_u128(self.ids),
            trace: Trace::from_random(7),
            limits: &self.limits,
            timeouts: &self.timeouts,
            scrubber: &self.scrubber,
            server: None,
        };
        self.entries.extend(step(&mut self.machine, input, &env).entries);
    }

    fn judge(&self) {
        let mut session = Session::default();
        let (mut running, mut calls) = (None, std::collections::BTreeMap::new());
        for entry in &self.entries {
            let event = Event::decode(&entry.event.encode()).expect("a record can be read back");
            session.apply(&event, entry.at, entry.trace);
            match &event {
                Event::TurnStarted { .. } => {
                    assert_eq!(running.replace(entry.turn), None, "two turns at once");
                }
                Event::TurnEnded { .. } => {
                    assert_eq!(running.take(), Some(entry.turn), "a turn ends once");
                }
                Event::ToolCallStarted(CallStart { call, .. }) => {
                    calls.entry(call.clone()).or_insert(0);
                }
                Event::ToolCallEnded { call, .. } => *calls.entry(call.clone()).or_insert(0) += 1,
                _ => {}
            }
        }
        assert_eq!(running, None, "every turn ends");
        assert!(calls.values().all(|ends| *ends == 1), "every call has one outcome: {calls:?}");
        assert_eq!(session.turn, None, "the fold agrees");
    }
}
