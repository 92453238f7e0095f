//! Output of `budao smcp`: text for people, or one JSON object per line for programs.
//!
//! With `--json`, a fault has the protocol's error format: `{"error": {"code", "message", "details"}}`.

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, render, text},
    tool::Failure,
};
use budao_mcp::ServerState;
use budao_smcp::codes::smcp_code;
use budao_smcp::{
    agent::RoomEvent,
    computer::CallRecord,
    wire::{Dialect, Role, error},
};
use serde_json::{Value, json};

use crate::{
    exit::Exit,
    terminal::Terminal,
    texts::{localize, with_address},
};

/// Prints in the chosen format and language.
#[derive(Clone, Copy, Debug)]
pub(super) struct Printer<'a> {
    pub(super) as_json: bool,
    pub(super) lang: Lang,
    pub(super) terminal: &'a Terminal,
}

impl Printer<'_> {
    /// Prints a line on stdout.
    pub(super) fn line(&self, text: impl std::fmt::Display) {
        self.terminal.data(&format!("{text}\n"));
    }

    /// Prints a message on stderr, or with `--json` the object on stdout.
    pub(super) fn remark(&self, words: &str, object: &Value) {
        if self.as_json {
            self.line(object);
        } else {
            self.terminal.say(words);
        }
    }

    /// Prints the texts of a call's result, or all of it if it has other content.
    pub(super) fn result(&self, result: &Value) {
        if self.as_json {
            return self.line(result);
        }
        let items = result.get("content").and_then(Value::as_array);
        let texts: Option<Vec<&str>> =
            items.and_then(|items| items.iter().map(|item| item.get("text")?.as_str()).collect());
        match texts {
            Some(texts) if !texts.is_empty() => self.line(texts.join("\n")),
            _ => self.line(serde_json::to_string_pretty(result).unwrap_or_default()),
        }
    }

    /// Prints a fault: SMCP number, sentence, advice, hops and trace. Returns the exit code.
    ///
    /// Here a person makes the calls of an agent, so the lines for the caller come first; faults that no agent can
    /// act on have lines for people only.
    pub(super) fn fault(&self, fault: Fault) -> Exit {
        let exit = if fault.kind() == Kind::Cancelled { Exit::Stopped } else { Exit::Failed };
        if self.as_json {
            self.line(error_of(&fault));
            return exit;
        }
        let (lang, terminal) = (self.lang, self.terminal);
        let (row, code) = (fault.row(), smcp_code(fault.kind()));
        let failure = Failure { fault, data: None, note: None };
        let model = render::render_for_model(&failure, lang);
        let sentence = with_address(model.error.clone(), &failure.fault);
        terminal.say(&format!("{} {sentence}", terminal.strong(code)));
        let reason = failure.fault.detail().text(Fact::Reason);
        if let Some(reason) = reason.filter(|reason| !model.error.contains(*reason)) {
            terminal.say(&format!("  {reason}"));
        }
        self.correction(&failure.fault);
        let mut advice = model.recommendations.clone();
        if advice.is_empty() {
            advice = text::recommendations(&failure.fault, lang);
        }
        for line in &advice {
            terminal.say(&format!("  - {line}"));
        }
        let hops = failure.fault.hops().iter().map(|hop| format!("{} {}", hop.role, hop.name));
        let hops: Vec<String> = hops.collect();
        if !hops.is_empty() {
            terminal.say(&terminal.faint(format!("  {}", hops.join(" → "))));
        }
        if failure.fault.trace().is_some() {
            terminal.say(&terminal.faint(format!("  trace {}", failure.fault.trace())));
        }
        terminal.say(&format!("  budao explain {}", row.code));
        exit
    }

    /// Prints what the arguments may be: allowed values by place, and a call that fits.
    fn correction(&self, fault: &Fault) {
        let word = |id| localize(self.lang, id);
        for mismatch in fault.mismatches().iter().filter(|mismatch| !mismatch.allowed.is_empty()) {
            let allowed: Vec<String> = mismatch.allowed.iter().map(Value::to_string).collect();
            let (field, allowed) = (mismatch.dotted(), allowed.join(", "));
            self.terminal.say(&format!("  {field}: {} {allowed}", word("smcp-allowed")));
        }
        if let Some(example) = fault.detail().get(Fact::Example) {
            self.terminal.say(&format!("  {} {example}", word("smcp-example")));
        }
    }

    /// Prints an event of the room.
    pub(super) fn room_event(&self, room_event: &RoomEvent) {
        if self.as_json {
            return self.line(event_object(room_event));
        }
        let word = |id| localize(self.lang, id);
        let role = |role: &Role| <&str>::from(*role);
        self.line(match room_event {
            RoomEvent::MemberJoined(who, name) => {
                format!("{} {} {name}", word("smcp-entered"), role(who))
            }
            RoomEvent::MemberLeft(who, name) => {
                format!("{} {} {name}", word("smcp-left"), role(who))
            }
            RoomEvent::ToolsChanged(computer) => {
                format!("{} {computer}", word("smcp-tools-changed"))
            }
            RoomEvent::ContentChanged(event, computer) => format!("{event} {computer}"),
            RoomEvent::Joined => word("smcp-rejoined").to_owned(),
            RoomEvent::Disconnected(fault) => {
                format!("{} {fault}", word("smcp-connection-lost"))
            }
        });
    }

    /// Prints a member that was already in the room.
    pub(super) fn here(&self, role: Role, name: &str) {
        let role: &str = role.into();
        if self.as_json {
            return self.line(json!({ "event": "here", "role": role, "name": name }));
        }
        self.line(format!("{} {role} {name}", localize(self.lang, "smcp-present")));
    }

    /// Prints how many events were lost because they arrived faster than they were printed.
    pub(super) fn missed(&self, count: u64) {
        if self.as_json {
            return self.line(json!({ "event": "missed", "count": count }));
        }
        self.line(format!("{} {count}", localize(self.lang, "smcp-missed-events")));
    }
}

/// The fault in the protocol's error format.
fn error_of(fault: &Fault) -> Value {
    json!({ "error": error::flat(fault, Dialect::V04) })
}

fn event_object(room_event: &RoomEvent) -> Value {
    match room_event {
        RoomEvent::MemberJoined(role, name) => {
            json!({ "event": "entered", "role": role, "name": name })
        }
        RoomEvent::MemberLeft(role, name) => json!({ "event": "left", "role": role, "name": name }),
        RoomEvent::ToolsChanged(computer) => {
            json!({ "event": "tools_changed", "computer": computer })
        }
        RoomEvent::ContentChanged(event, computer) => {
            json!({ "event": "changed", "notification": event, "computer": computer })
        }
        RoomEvent::Joined => json!({ "event": "joined" }),
        RoomEvent::Disconnected(fault) => {
            let mut lost = error_of(fault);
            lost["event"] = "lost".into();
            lost
        }
    }
}

/// The state of a computer's MCP server, as JSON.
pub(super) fn state_object(id: &str, state: &ServerState) -> Value {
    match state {
        ServerState::Starting => json!({ "id": id, "state": "starting" }),
        ServerState::Ready { tools } => json!({ "id": id, "state": "ready", "tools": tools }),
        ServerState::Stopped => json!({ "id": id, "state": "stopped" }),
        ServerState::Down { fault, again_in } => {
            let mut down = error_of(fault);
            (down["id"], down["state"]) = (id.into(), "down".into());
            if let Some(wait) = again_in {
                down["again_in_ms"] = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).into();
            }
            down
        }
    }
}

/// One call of a computer's history, as JSON.
pub(super) fn record_object(record: &CallRecord) -> Value {
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "at": record.at.to_string(), "req_id": record.req_id, "server": record.server,
        "tool": record.tool, "parameters": record.parameters, "timeout_ms": ms(record.timeout),
        "took_ms": ms(record.took), "error_code": record.error,
    })
}
