//! Handles the CLI's lines: attributes each one to a turn and acts on it.

use std::time::Duration;

use budao_core::{
    event::{CommandId, Event, Scope, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
};
use serde_json::{Value, json};

use super::{RunningTurn, Stepper, mode, reports};
use crate::{
    PROGRAM, outgoing,
    wire::{CliLine, ControlResponse, Init, TurnReport},
};

/// Tolerance for a result's duration against the age of its turn, because the clocks differ.
const SLACK: Duration = Duration::from_millis(250);
/// Upper bound of interrupts sent for one turn.
const INTERRUPTS: u32 = 3;
/// Characters kept of a turn that the CLI starts by itself while the session's turn waits.
const CLI_TURN_CHARS_MAX: usize = 16_384;

/// The turn that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribution {
    /// The session's running turn.
    CurrentTurn,
    /// A turn that the CLI started by itself while the session's turn waits.
    CliTurn,
    /// A turn that has ended, or none.
    Unattributed,
}

impl Stepper<'_> {
    pub(super) fn line(&mut self, generation: u32, line: CliLine) {
        let now = self.env.steady;
        let Some(process) =
            self.m.process.as_mut().filter(|process| process.generation == generation)
        else {
            // A process that the machine no longer uses may still write lines.
            if let CliLine::Result(result) = line {
                let of_turn = self.turn_of(&result);
                self.late(of_turn);
            }
            return;
        };
        process.last_line_at = now;
        process.probed_at = None;
        if !matches!(
            line,
            CliLine::ControlResponse(_) | CliLine::Other { .. } | CliLine::Unreadable { .. }
        ) {
            process.last_progress_at = now;
        }
        match line {
            CliLine::Init(init) => self.began(&init),
            CliLine::Mode { mode } => self.mode_reported(&mode),
            CliLine::Lifecycle { prompt, state } => self.lifecycle(&prompt, &state),
            CliLine::Stream(stream) => self.stream(stream),
            CliLine::Assistant(assistant) => self.assistant(&assistant),
            CliLine::User(user) => self.user(&user),
            CliLine::Retry(retry) => self.retry(&retry),
            CliLine::Denied { tool_use_id } => {
                if let Some(current) = &mut self.m.current_turn {
                    current.denied.insert(tool_use_id);
                }
            }
            CliLine::Result(result) => self.result(&result),
            CliLine::CanUseTool(asks) => self.handle_permission_request(asks),
            CliLine::Withdrawn { id } => self.withdrawn(&id),
            CliLine::Request { id, subtype } => {
                let error = format!("`{subtype}` is not answered here");
                self.send(outgoing::refuse(&id, &error));
            }
            CliLine::ControlResponse(answered) => self.take_control_response(&answered),
            CliLine::Other { .. } | CliLine::Unreadable { .. } => {}
        }
    }

    /// Handles the start of a turn in the CLI: the session's, or one that the CLI started by itself.
    fn began(&mut self, init: &Init) {
        if let Some(mode) = &init.permission_mode {
            self.mode_reported(mode);
        }
        let stamps = {
            let Some(process) = &mut self.m.process else { return };
            process.has_begun = true;
            process.model.clone_from(&init.model);
            process.stamps |= !init.user_message_uuids.is_empty()
                || init.capabilities.iter().any(|name| name == "msg_lifecycle_v1");
            process.stamps
        };
        let stamped = !init.user_message_uuids.is_empty();
        match &self.m.current_turn {
            Some(current) if current.is_own => {}
            Some(current) if init.user_message_uuids.contains(&current.prompt) => self.has_begun(),
            Some(current) if !stamped && !current.has_begun => match stamps {
                true => self.m.background_text = Some(String::new()),
                false => self.has_begun(),
            },
            Some(_) => {}
            None if stamped => {
                let turn = self.ended_turn(init.user_message_uuids.iter().map(String::as_str));
                self.late(turn);
            }
            None => self.begin_own_turn(),
        }
        self.servers_reported(init);
    }

    /// Records a turn that the CLI started by itself, for example when a background command ended.
    fn begin_own_turn(&mut self) {
        let number = self.m.session.turns + 1;
        let message = CommandId::from(format!("claude-{number}"));
        self.emit(Event::TurnStarted { message });
        let mut current = RunningTurn::new(String::new(), Vec::new(), self);
        (current.is_own, current.has_begun) = (true, true);
        self.m.current_turn = Some(current);
    }

    /// Notes that the CLI has begun the session's turn. A turn cancelled earlier is interrupted again,
    /// because the CLI acknowledges and ignores an interrupt that arrives too early.
    pub(super) fn has_begun(&mut self) {
        self.end_background_turn();
        self.m.is_persisted = true;
        if let Some(process) = &mut self.m.process {
            process.has_begun = true;
        }
        let current = self.current_turn();
        let first = !std::mem::replace(&mut current.has_begun, true);
        if first && current.stopping.is_some() && current.interrupts < INTERRUPTS {
            self.interrupt();
        }
    }

    /// Handles the state of a prompt. If the prompt ended without a result, no result will come.
    fn lifecycle(&mut self, prompt: &str, state: &str) {
        if let Some(process) = &mut self.m.process {
            (process.has_begun, process.stamps) = (true, true);
        }
        if self
            .m
            .current_turn
            .as_ref()
            .is_none_or(|current| current.is_own || current.prompt != prompt)
        {
            return;
        }
        match state {
            "started" => self.has_begun(),
            "completed" | "cancelled" | "discarded" | "refused" => {
                let fault = Fault::new(Kind::CliTurnFailed, Operation::ReadCli)
                    .with(Fact::Program, PROGRAM)
                    .with(Fact::Reason, "it dropped the message without a result");
                self.end_without_result(
                    fault.with_cause(format!("the prompt's state is `{state}`")),
                );
            }
            _ => {}
        }
    }

    /// Attributes a line to a turn by its prompt ids.
    pub(super) fn attribute(&mut self, stamps: &[String]) -> Attribution {
        let Some(current) = &self.m.current_turn else { return Attribution::Unattributed };
        if current.is_own {
            return if stamps.is_empty() {
                Attribution::CurrentTurn
            } else {
                Attribution::Unattributed
            };
        }
        if stamps.contains(&current.prompt) {
            self.has_begun();
            return Attribution::CurrentTurn;
        }
        match stamps.is_empty() {
            true if current.has_begun => Attribution::CurrentTurn,
            true if self.m.background_text.is_some() => Attribution::CliTurn,
            _ => Attribution::Unattributed,
        }
    }

    /// Buffers text of a turn that the CLI started by itself while the session's turn waits.
    pub(super) fn buffer_cli_turn(&mut self, text: &str) {
        if let Some(background_text) = &mut self.m.background_text {
            let room = CLI_TURN_CHARS_MAX.saturating_sub(background_text.chars().count());
            background_text.extend(text.chars().take(room));
        }
    }

    /// Ends such a turn: its text is recorded as an annotation of topic `claude.background_text`.
    fn end_background_turn(&mut self) {
        if let Some(text) = self.m.background_text.take().filter(|text| !text.is_empty()) {
            let data = json!({"text": text});
            self.emit(Event::Annotated { topic: "claude.background_text".to_owned(), data });
        }
    }

    /// Handles the end of a turn in the CLI, and attributes it.
    fn result(&mut self, result: &TurnReport) {
        let Some(process) = &mut self.m.process else { return };
        let stamps = process.stamps;
        if !process.has_begun && !result.is_stamped() {
            // The CLI failed to start and exits next; its text explains that exit.
            process.last_result_text = Some(result.messages());
            return;
        }
        let is_foreign = result.origin.as_ref().is_some_and(|origin| !is_person(origin));
        let Some(current) = &self.m.current_turn else {
            let of_turn = self.turn_of(result);
            return self.late(of_turn);
        };
        let is_ours = match current {
            current if result.is_stamped() => !current.is_own && result.is_for(&current.prompt),
            current if current.is_own => true,
            _ if is_foreign || stamps => false,
            current => current.has_begun && self.is_young_enough(result),
        };
        if is_ours {
            return self.settle(result);
        }
        if !result.is_stamped() && self.m.background_text.is_some() {
            return self.end_background_turn();
        }
        let of_turn = self.turn_of(result);
        self.late(of_turn);
    }

    /// False if the result's duration exceeds the age of the running turn, so that it belongs to an earlier one.
    fn is_young_enough(&self, result: &TurnReport) -> bool {
        let age =
            self.m.current_turn.as_ref().map(|current| self.env.steady.since(current.sent_at));
        let took = Duration::try_from_secs_f64(result.duration_ms / 1_000.0).unwrap_or_default();
        age.is_some_and(|age| took <= age + SLACK)
    }

    /// The last ended turn, to which an unstamped foreign line most likely belongs.
    pub(super) fn turn_before(&self) -> TurnNumber {
        let running = u64::from(self.m.session.turn.is_some());
        self.m.session.turns.saturating_sub(running)
    }

    /// The ended turn that a result belongs to; 0 if unknown.
    fn turn_of(&self, result: &TurnReport) -> TurnNumber {
        self.ended_turn(result.stamps())
    }

    fn ended_turn<'s>(&self, mut stamps: impl Iterator<Item = &'s str>) -> TurnNumber {
        stamps
            .find_map(|stamp| self.m.ended_prompts.iter().find(|(prompt, _)| prompt == stamp))
            .map_or(0, |(_, turn)| *turn)
    }

    /// Handles the answer to a control request. An error is recorded; nothing waits for the answer.
    fn take_control_response(&mut self, answered: &ControlResponse) {
        let Some(process) = &mut self.m.process else { return };
        let Some(request_topic) = process.requests.remove(&answered.request_id) else { return };
        process.has_begun = true;
        let is_refused = answered.subtype == "error";
        match request_topic {
            "initialize" if !is_refused => return self.take_initialization(&answered.response),
            mode::REQUEST => self.mode_answered(is_refused, &answered.response),
            reports::SERVER_STATUS => return self.server_status_answered(answered),
            _ => {}
        }
        if !is_refused || matches!(request_topic, "initialize" | "interrupt" | "probe") {
            return;
        }
        let fault = Fault::new(Kind::UnsupportedOperation, Operation::WriteCli)
            .with(Fact::Reason, format!("the program refused to change its {request_topic}"))
            .with_cause(answered.error.clone().unwrap_or_default());
        self.emit(Event::FaultRaised { fault, scope: Scope::default() });
    }
}

/// Did a person cause the turn? Only then can it belong to a prompt.
fn is_person(origin: &Value) -> bool {
    let kind = origin["kind"].as_str().or_else(|| origin.as_str());
    matches!(kind, Some("human" | "user" | "sdk"))
}
