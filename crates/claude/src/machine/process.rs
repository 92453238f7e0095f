//! The lifecycle of the CLI's process: the conversation it starts on, its silence, its end.

use budao_core::{
    event::{Event, Origin, Scope},
    fault::{Fact, Fault, Kind, Operation},
    message::{Block, Message, Role},
    session::CallState,
    time::Timestamp,
    trace::Trace,
};
use serde_json::json;

use super::{Action, Launch, OpenQuestion, ProcessState, Stepper};
use crate::{PROGRAM, permissions};

impl Stepper<'_> {
    /// Starts the CLI unless it runs with the session's current settings.
    pub(super) fn ensure_process(&mut self) {
        if self.m.process.as_ref().is_some_and(|process| process.is_stale) {
            self.kill();
        }
        if self.m.process.is_none() {
            let launch = self.launch();
            self.launch_on(launch);
        }
    }

    /// The conversation that most likely exists.
    fn launch(&self) -> Launch {
        match self.m.session.origin {
            _ if self.m.is_persisted => Launch::Resume,
            Some(Origin::Fork { parent, .. }) => Launch::Fork(parent),
            _ => Launch::Fresh,
        }
    }

    fn launch_on(&mut self, launch: Launch) {
        self.m.last_generation += 1;
        let (generation, now) = (self.m.last_generation, self.env.steady);
        self.m.process = Some(ProcessState {
            generation,
            launch,
            started_at: now,
            has_begun: false,
            last_line_at: now,
            last_progress_at: now,
            probed_at: None,
            stamps: false,
            is_stale: false,
            mode: permissions::mode(&self.m.session.settings).to_owned(),
            requests: Default::default(),
            last_result_text: None,
            model: None,
            context_tokens: None,
            failed_servers: Default::default(),
        });
        let settings = Box::new(self.m.session.settings.clone());
        self.out.actions.push(Action::Start { generation, launch, settings });
        self.request("initialize", &json!({"subtype": "initialize"}));
        if permissions::effort(&self.m.session.settings).is_some() {
            self.set_effort();
        }
        if permissions::is_thinking_off(&self.m.session.settings) {
            self.set_thinking_off();
        }
    }

    /// Ends the process; its remaining lines are ignored.
    pub(super) fn kill(&mut self) {
        if let Some(process) = self.m.process.take() {
            self.out.actions.push(Action::Kill { generation: process.generation });
        }
    }

    /// Ends the CLI of a session that has ended.
    pub(super) fn shut_if_ended(&mut self) {
        if self.m.session.ended.is_some() && self.m.session.turn.is_none() {
            self.kill();
        }
    }

    /// Handles the end of a process. A prompt that it never accepted is tried on the other conversation.
    pub(super) fn take_exit(&mut self, generation: u32, fault: Fault) {
        let Some(process) = self.m.process.take_if(|process| process.generation == generation)
        else {
            return;
        };
        if self.try_other_conversation(&process, &fault) {
            return;
        }
        let fault = match process.last_result_text {
            Some(phrase) => fault.with_cause(phrase),
            None => fault,
        };
        self.end_without_result(fault);
    }

    pub(super) fn take_broken_output(&mut self, generation: u32, fault: Fault) {
        if self.m.process.as_ref().is_some_and(|process| process.generation == generation) {
            self.kill();
            self.end_without_result(fault);
        }
    }

    /// Restarts on the other conversation. Only the CLI knows whether one exists under the session's id: it
    /// refuses to create an existing one and to resume a missing one.
    fn try_other_conversation(&mut self, process: &ProcessState, fault: &Fault) -> bool {
        let may = !process.has_begun && !self.is_cancelling();
        if !may || self.m.current_turn.as_ref().is_none_or(|current| current.is_relaunched) {
            return false;
        }
        let complaint = fault.detail().text(Fact::StderrTail).unwrap_or_default();
        let mentions = |phrase: &str| {
            let last = process.last_result_text.as_deref().unwrap_or_default();
            complaint.contains(phrase) || last.contains(phrase)
        };
        let other = match process.launch {
            Launch::Resume if mentions("No conversation found") => Launch::Fresh,
            Launch::Fresh | Launch::Fork(_) if mentions("already in use") => Launch::Resume,
            _ => return false,
        };
        let has_answered = |message: &Message| message.role == Role::Assistant;
        if other == Launch::Fresh
            && self.m.session.history.iter().any(|message| has_answered(message))
        {
            self.record_lost_conversation();
        }
        self.current_turn().is_relaunched = true;
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
    pub(super) fn resume_turn(&mut self) {
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
                    let open_question =
                        OpenQuestion { request, call, tool, arguments, digest, expires_at };
                    self.m.questions.insert(question, open_question);
                }
                _ => {}
            }
        }
        self.abandon_partial();
        self.emit(Event::SessionResumed { sealed });
        if let Some(content) = self.find_unanswered() {
            return self.begin_turn(content);
        }
        let fault = Fault::new(Kind::CliExited, Operation::ResumeSession)
            .with(Fact::Program, PROGRAM)
            .with_cause("the process that ran it ended");
        self.end_without_result(fault);
    }

    /// The turn's message, if no part of its answer was recorded. It can be sent again without loss.
    fn find_unanswered(&self) -> Option<Vec<Block>> {
        let turn = self.turn();
        (turn.step == 0 && !turn.cancelling).then(|| self.turn_prompt())
    }

    /// Parks the session for a shutdown. A queued message is recorded as a started turn, because the next
    /// start looks for those.
    pub(super) fn park(&mut self, fault: Fault) {
        self.m.is_parked = true;
        self.abort_turn(fault);
        if let Some(next) = self.m.session.queue.front() {
            let message = next.command.clone();
            self.emit(Event::TurnStarted { message });
        }
    }

    pub(super) fn abort_turn(&mut self, fault: Fault) {
        self.kill();
        self.end_without_result(fault);
    }

    /// Queues the messages of the timers whose time has come.
    fn fire_timers(&mut self) {
        if self.m.is_parked {
            return;
        }
        let turn = self.m.session.turn.as_ref().map_or(0, |turn| turn.number);
        while let Some(event) = self.m.session.next_firing(self.env.now, self.env.limits) {
            self.flush();
            self.record(turn, Trace::NONE, event);
        }
        self.start_next();
    }

    /// Handles expired times: timers, questions, calls, cancellation and silence.
    pub(super) fn handle_timers(&mut self) {
        self.fire_timers();
        self.expire_questions();
        self.count_call_as_running();
        let (now, timeouts) = (self.env.steady, self.env.timeouts);
        if let Some(since) = self.m.current_turn.as_ref().and_then(|current| current.stopping)
            && since.after(timeouts.stop) <= now
        {
            // The CLI ignored the interrupt.
            self.kill();
            let fault = self.silent("stop", timeouts.stop);
            return self.end_without_result(fault);
        }
        let due = |at: Timestamp| at <= now;
        let Some(process) = &self.m.process else { return };
        if !self.m.silent_at(process, timeouts).is_some_and(due) {
            return;
        }
        let verdict = match process {
            process if !process.has_begun => Some(("start", timeouts.start)),
            process if due(process.last_progress_at.after(timeouts.quiet)) => {
                Some(("quiet", timeouts.quiet))
            }
            process if process.probed_at.is_some() => Some(("probe", timeouts.probe)),
            _ => None,
        };
        match verdict {
            Some((limit, bound)) => {
                let fault = self.silent(limit, bound);
                self.kill();
                self.end_without_result(fault);
            }
            None => {
                self.request("probe", &json!({"subtype": "mcp_status"}));
                if let Some(process) = &mut self.m.process {
                    process.probed_at = Some(now);
                }
            }
        }
    }

    fn silent(&self, limit: &'static str, bound: std::time::Duration) -> Fault {
        let silence = match (limit, &self.m.process) {
            ("probe", Some(process)) => self.env.steady.since(process.last_line_at),
            _ => bound,
        };
        Fault::new(Kind::CliSilent, Operation::ReadCli)
            .with(Fact::Program, PROGRAM)
            .with(Fact::TimeoutMs, silence)
            .with(Fact::LimitName, limit)
    }
}
