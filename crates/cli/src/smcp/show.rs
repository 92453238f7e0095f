//! What is shown: words for people, or one JSON object a line for programs.
//!
//! A fault is the error of the protocol, as a peer would get it: `{"error": {"code", "message", "details"}}`.

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, render},
    tool::Failure,
};
use budao_mcp::ServerState;
use budao_smcp::{
    agent::RoomEvent,
    computer::CallRecord,
    wire::{Dialect, Role, error},
};
use serde_json::{Value, json};

use crate::{exit::Exit, terminal::Terminal, texts::localize};

/// How something is shown, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Printer<'a> {
    pub(super) as_json: bool,
    pub(super) lang: Lang,
    pub(super) terminal: &'a Terminal,
}

impl Printer<'_> {
    /// A line of data.
    pub(super) fn line(&self, text: impl std::fmt::Display) {
        self.terminal.data(&format!("{text}\n"));
    }

    /// A remark to people, or the object that says the same.
    pub(super) fn remark(&self, words: &str, object: &Value) {
        if self.as_json {
            self.line(object);
        } else {
            self.terminal.say(words);
        }
    }

    /// The texts of a result, or all of it.
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

    /// A failure: the sentence, its number, its way, and what a model would read.
    pub(super) fn fault(&self, fault: Fault) -> Exit {
        let exit = if fault.kind() == Kind::Cancelled { Exit::Stopped } else { Exit::Failed };
        if self.as_json {
            self.line(error_of(&fault));
            return exit;
        }
        let (lang, terminal) = (self.lang, self.terminal);
        let row = fault.row();
        let failure = Failure { fault, data: None, note: None };
        let model = render::render_for_model(&failure, lang);
        terminal.say(&format!("{} {}", terminal.strong(row.smcp), model.error));
        let reason = failure.fault.detail().text(Fact::Reason);
        if let Some(reason) = reason.filter(|reason| !model.error.contains(*reason)) {
            terminal.say(&format!("  {reason}"));
        }
        for line in &model.recommendations {
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

    /// What happened in a room.
    pub(super) fn news(&self, news: &RoomEvent) {
        if self.as_json {
            return self.line(news_object(news));
        }
        let word = |en, zh| localize(self.lang, en, zh);
        let role = |role: &Role| <&str>::from(*role);
        self.line(match news {
            RoomEvent::MemberJoined(who, name) => {
                format!("{} {} {name}", word("entered", "进入"), role(who))
            }
            RoomEvent::MemberLeft(who, name) => {
                format!("{} {} {name}", word("left", "离开"), role(who))
            }
            RoomEvent::ToolsChanged(computer) => {
                format!("{} {computer}", word("tools changed", "工具已变更"))
            }
            RoomEvent::ContentChanged(event, computer) => format!("{event} {computer}"),
            RoomEvent::Joined => word("joined again", "已重新加入").to_owned(),
            RoomEvent::Disconnected(fault) => {
                format!("{} {fault}", word("connection lost", "连接已断开"))
            }
        });
    }

    /// Somebody who was in the room before.
    pub(super) fn here(&self, role: Role, name: &str) {
        let role: &str = role.into();
        if self.as_json {
            return self.line(json!({ "event": "here", "role": role, "name": name }));
        }
        self.line(format!("{} {role} {name}", localize(self.lang, "here", "在场")));
    }

    /// News that came faster than they were shown.
    pub(super) fn missed(&self, count: u64) {
        if self.as_json {
            return self.line(json!({ "event": "missed", "count": count }));
        }
        self.line(format!("{} {count}", localize(self.lang, "news missed:", "错过的消息：")));
    }
}

/// The fault as the protocol has it.
fn error_of(fault: &Fault) -> Value {
    json!({ "error": error::flat(fault, Dialect::V04) })
}

fn news_object(news: &RoomEvent) -> Value {
    match news {
        RoomEvent::MemberJoined(role, name) => {
            json!({ "event": "entered", "role": role, "name": name })
        }
        RoomEvent::MemberLeft(role, name) => json!({ "event": "left", "role": role, "name": name }),
        RoomEvent::ToolsChanged(computer) => {
            json!({ "event": "tools_changed", "computer": computer })
        }
        RoomEvent::ContentChanged(event, computer) => {
            json!({ "event": "changed", "what": event, "computer": computer })
        }
        RoomEvent::Joined => json!({ "event": "joined" }),
        RoomEvent::Disconnected(fault) => {
            let mut lost = error_of(fault);
            lost["event"] = "lost".into();
            lost
        }
    }
}

/// How an MCP server of a computer does.
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

/// A call that a computer remembers.
pub(super) fn record_object(record: &CallRecord) -> Value {
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "at": record.at.to_string(), "req_id": record.req_id, "server": record.server,
        "tool": record.tool, "parameters": record.parameters, "timeout_ms": ms(record.timeout),
        "took_ms": ms(record.took), "error_code": record.error,
    })
}
