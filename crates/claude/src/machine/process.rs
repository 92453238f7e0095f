//! The lifecycle of the CLI's process: the conversation it starts on, its silence, its end.

use budao_core::{
    event::{Event, Origin, Scope},
    fault::{Fact, Fault, Kind, Operation},
    message::{Block, Message, Role},
    session::CallState,
    time::Timestamp,
};
use serde_json::json;

use super::{Action, Launch, OpenQuestion, ProcessState, Stepper};
use crate::{PROGRAM, permissions};

impl Stepper<'_> {
    /// Starts the CLI unless it runs with the session's current settings.
    pub(super) fn ensure_up(&mut self) {
        if self.m.up.as_ref().is_some_and(|up| up.is_stale) {
            self.kill();
        }
        if self.m.up.is_none() {
            let launch = self.launch();
            self.launch_on(launch);
        }
    }

    /// The conversation that most likely exists.
    fn launch(&self) -> Launch {
        match self.m.session.origin {
            _ if self.m.is_kept => Launch::Resume,
            Some(Origin::Fork { parent, .. }) => Launch::Fork(parent),
            _ => Launch::Fresh,
        }
    }

    fn launch_on(&mut self, launch: Launch) {
        self.m.lives += 1;
        let (life, now) = (self.m.lives, self.env.now);
        self.m.up = Some(ProcessState {
            life,
            launch,
            started_at: now,
            has_begun: false,
            heard_at: now,
            moved_at: now,
            probed_at: None,
            stamps: false,
            is_stale: false,
            mode: permissions::mode(&self.m.session.settings).to_owned(),
            requests: Default::default(),
            last_result_text: None,
        });
        let settings = Box::new(self.m.session.settings.clone());
        self.out.actions.push(Action::Start { life, launch, settings });
        self.request("initialize", &json!({"subtype": "initialize"}));
        if permissions::effort(&self.m.session.settings).is_some() {
            self.set_effort();
        }
    }

    /// Ends the process; its remaining lines are ignored.
    pub(super) fn kill(&mut self) {
        if let Some(up) = self.m.up.take() {
            self.out.actions.push(Action::Kill { life: up.life });
        }
    }

    /// Ends the CLI of a session that has ended.
    pub(super) fn shut_if_ended(&mut self) {
        if self.m.session.ended.is_some() && self.m.session.turn.is_none() {
            self.kill();
        }
    }

    /// Handles the end of a process. A prompt that it never accepted is tried on the other conversation.
    pub(super) fn exited(&mut self, life: u32, fault: Fault) {
        let Some(up) = self.m.up.take_if(|up| up.life == life) else { return };
        if self.try_other_conversation(&up, &fault) {
            return;
        }
        let fault = match up.last_result_text {
            Some(words) => fault.with_cause(words),
            None => fault,
        };
        self.lost(fault);
    }

    pub(super) fn broken(&mut self, life: u32, fault: Fault) {
        if self.m.up.as_ref().is_some_and(|up| up.life == life) {
            self.kill();
            self.lost(fault);
        }
    }

    /// Restarts on the other conversation. Only the CLI knows whether one exists under the session's id: it
    /// refuses to create an existing one and to resume a missing one.
    fn try_other_conversation(&mut self, up: &ProcessState, fault: &Fault) -> bool {
        let may = !up.has_begun && !self.is_cancelling();
        if !may || self.m.live.as_ref().is_none_or(|live| live.is_relaunched) {
            return false;
        }
        let complaint = fault.detail().text(Fact::StderrTail).unwrap_or_default();
        let said = |words: &str| {
            let last = up.last_result_text.as_deref().unwrap_or_default();
            complaint.contains(words) || last.contains(words)
        };
        let other = match up.launch {
            Launch::Resume if said("No conversation found") => Launch::Fresh,
            Launch::Fresh | Launch::Fork(_) if said("already in use") => Launch::Resume,
            _ => return false,
        };
        let has_answered = |message: &Message| message.role == Role::Assistant;
        if other == Launch::Fresh && self.m.session.history.iter().any(has_answered) {
            self.record_lost_conversation();
        }
        self.live().is_relaunched = true;
        self.launch_on(other);
        self.send_prompt();
        true
    }

    fn record_lost_conversation(&mut self) {
        let fault = Fault::new(Kind::CliTurnFailed, Operation::ResumeSession)
            .with(Fact::Program, PROGRAM)
            .with(Fact::Reason, "it no longer has this conversation and goes on without it")
            .with_trace(self.m.session.trace());
        self.emit(Event::FaultRaised { fault, scope: Scope::default() });
    }

    /// Resumes the session under a new writer. The previous writer's CLI and its unfinished work are lost.
    pub(super) fn resumed(&mut self) {
        if self.m.session.turn.is_none() {
            return self.start_next();
        }
        let calls = self.turn().calls.clone();
        let mut sealed = Vec::new();
        for call in calls {
            match call.state {
                CallState::Started { .. } => sealed.push(call.id),
                CallState::AwaitingDecision { question, arguments, digest, expires_at, .. } => {
                    let (request, call, tool) = (String::new(), call.id, call.tool);
                    let asked = OpenQuestion { request, call, tool, arguments, digest, expires_at };
                    self.m.questions.insert(question, asked);
                }
                _ => {}
            }
        }
        self.abandon_partial();
        self.emit(Event::SessionResumed { sealed });
        if let Some(content) = self.unanswered() {
            return self.go_live(content);
        }
        let fault = Fault::new(Kind::CliExited, Operation::ResumeSession)
            .with(Fact::Program, PROGRAM)
            .with_cause("the process that ran it ended");
        self.lost(fault);
    }

    /// The turn's message, if no part of its answer was recorded. It can be sent again without loss.
    fn unanswered(&self) -> Option<Vec<Block>> {
        let turn = self.turn();
        let asked = self.m.session.history.get(turn.first_message)?;
        (turn.step == 0 && !turn.cancelling).then(|| asked.content.clone())
    }

    /// Parks the session for a shutdown. A queued message is recorded as a started turn, because the next
    /// start looks for those.
    pub(super) fn park(&mut self, fault: Fault) {
        self.m.is_parked = true;
        self.halted(fault);
        if let Some(next) = self.m.session.queue.front() {
            let message = next.command.clone();
            self.emit(Event::TurnStarted { message });
        }
    }

    pub(super) fn halted(&mut self, fault: Fault) {
        self.kill();
        self.lost(fault);
    }

    /// Handles expired times: questions, calls, cancellation and silence.
    pub(super) fn woke(&mut self) {
        self.expire_questions();
        self.count_call_as_running();
        let (now, timeouts) = (self.env.now, self.env.timeouts);
        if let Some(since) = self.m.live.as_ref().and_then(|live| live.stopping)
            && since.after(timeouts.stop) <= now
        {
            // The CLI ignored the interrupt.
            self.kill();
            let fault = self.silent("stop", timeouts.stop);
            return self.lost(fault);
        }
        let due = |at: Timestamp| at <= now;
        let Some(up) = &self.m.up else { return };
        if !self.m.silent_at(up, timeouts).is_some_and(due) {
            return;
        }
        let verdict = match up {
            up if !up.has_begun => Some(("start", timeouts.start)),
            up if due(up.moved_at.after(timeouts.quiet)) => Some(("quiet", timeouts.quiet)),
            up if up.probed_at.is_some() => Some(("probe", timeouts.probe)),
            _ => None,
        };
        match verdict {
            Some((limit, bound)) => {
                let fault = self.silent(limit, bound);
                self.kill();
                self.lost(fault);
            }
            None => {
                self.request("probe", &json!({"subtype": "mcp_status"}));
                if let Some(up) = &mut self.m.up {
                    up.probed_at = Some(now);
                }
            }
        }
    }

    fn silent(&self, limit: &'static str, bound: std::time::Duration) -> Fault {
        let silence = match (limit, &self.m.up) {
            ("probe", Some(up)) => self.env.now.since(up.heard_at),
            _ => bound,
        };
        Fault::new(Kind::CliSilent, Operation::ReadCli)
            .with(Fact::Program, PROGRAM)
            .with(Fact::TimeoutMs, silence)
            .with(Fact::LimitName, limit)
    }
}
