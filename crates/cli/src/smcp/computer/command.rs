//! The console commands of a running computer, one per line.

use std::{path::Path, time::Duration};

use budao_core::{
    Fault, Lang,
    fault::{Kind, Operation},
};
use budao_mcp::ServerState;
use budao_smcp::computer::{CallRecord, Computer, ValueSource};
use serde_json::{Value, json};

use super::super::show::{Printer, record_object, state_object};
use crate::{file_fault, texts::localize};

/// Time limit of a call from the console.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Whether the computer continues after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Stop,
}

/// Performs console commands on a computer.
pub(super) struct CommandHandler<'a> {
    pub(super) computer: &'a Computer,
    pub(super) values: &'a dyn ValueSource,
    pub(super) show: Printer<'a>,
}

impl CommandHandler<'_> {
    /// Performs one line. A failed command is reported, and the computer continues.
    pub(super) async fn perform(&self, line: &str) -> Flow {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let done = match word {
            "" => Ok(()),
            "quit" | "exit" => return Flow::Stop,
            "help" | "?" => self.help(),
            "status" => self.print_text(&self.status()),
            "tools" => self.print_text(&self.tools()),
            "history" => self.print_text(&self.history()),
            "call" => self.call(rest).await,
            "add" => self.add(rest).await,
            "remove" => self.named(rest, self.computer.remove(rest)).await,
            "start" => self.named(rest, self.computer.start_server(rest, self.values)).await,
            "stop" => self.named(rest, self.computer.stop_server(rest)).await,
            "join" => self.named(rest, self.computer.join(rest)).await,
            "leave" => self.computer.leave().await.map(|()| self.print_ok()),
            other => self.usage(&format!(
                "{other}: {}",
                localize(self.show.lang, "smcp-unknown-command-see-help")
            )),
        };
        if let Err(fault) = done {
            self.show.fault(fault);
        }
        Flow::Continue
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands among commands that can fail")]
    fn print_text(&self, text: &str) -> Result<(), Fault> {
        self.show.terminal.data(text);
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands among commands that can fail")]
    fn help(&self) -> Result<(), Fault> {
        let help = help(self.show.lang);
        if self.show.as_json {
            self.show.line(json!({ "help": help }));
        } else {
            self.show.terminal.data(help);
        }
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands among commands that can fail")]
    fn usage(&self, words: &str) -> Result<(), Fault> {
        self.show.remark(words, &json!({ "usage": words }));
        Ok(())
    }

    fn print_ok(&self) {
        self.show.remark(localize(self.show.lang, "smcp-done"), &json!({ "done": true }));
    }

    /// Runs a command that takes a name; reports a usage error if the name is empty.
    async fn named(
        &self,
        name: &str,
        action: impl Future<Output = Result<(), Fault>>,
    ) -> Result<(), Fault> {
        if name.is_empty() {
            return self.usage(localize(self.show.lang, "smcp-missing-name-see-help"));
        }
        action.await.map(|()| self.print_ok())
    }

    fn status(&self) -> String {
        let word = |id| localize(self.show.lang, id);
        let room = self.computer.room();
        if self.show.as_json {
            let states = self.computer.states();
            let servers: Vec<Value> =
                states.iter().map(|(id, state)| state_object(id, state)).collect();
            return format!("{}\n", json!({ "room": room, "servers": servers }));
        }
        let room = room.as_deref().unwrap_or(word("smcp-none"));
        let mut text = format!("{} {room}\n", word("smcp-room"));
        for (id, state) in self.computer.states() {
            let words = match state {
                ServerState::Starting => word("smcp-starting").to_owned(),
                ServerState::Ready { tools } => {
                    format!("{} ({tools} {})", word("smcp-ready"), word("smcp-tools"))
                }
                ServerState::Stopped => word("smcp-stopped").to_owned(),
                ServerState::Down { fault, again_in } => {
                    let again = |wait: Duration| {
                        format!(", {} {:.0} s", word("smcp-retry-in"), wait.as_secs_f64())
                    };
                    let again = again_in.map(again).unwrap_or_default();
                    format!("{}: {fault}{again}", word("smcp-down"))
                }
            };
            text.push_str(&format!("{}  {words}\n", self.show.terminal.name(id)));
        }
        text
    }

    fn tools(&self) -> String {
        let line = |tool: &Value| {
            if self.show.as_json {
                return format!("{tool}\n");
            }
            let description = tool["description"].as_str().unwrap_or_default();
            let description = description.lines().next().unwrap_or_default();
            let name = tool["name"].as_str().unwrap_or_default();
            format!("{}  {description}\n", self.show.terminal.name(name))
        };
        self.computer.tools().iter().map(line).collect()
    }

    fn history(&self) -> String {
        let line = |record: &CallRecord| {
            if self.show.as_json {
                return format!("{}\n", record_object(record));
            }
            let CallRecord { at, server, tool, parameters, .. } = record;
            let ended = record.error.map_or_else(|| "ok".to_owned(), |code| code.to_string());
            let took = record.took.as_millis();
            format!("{at}  {ended}  {took} ms  {server} {tool} {parameters}\n")
        };
        self.computer.history().iter().map(line).collect()
    }

    async fn call(&self, rest: &str) -> Result<(), Fault> {
        let (tool, params) = rest.split_once(char::is_whitespace).unwrap_or((rest, "{}"));
        if tool.is_empty() {
            return self.usage("call TOOL [JSON]");
        }
        let params = json(params)?;
        let result = self.computer.call(tool, params, CALL_LIMIT).await?;
        self.show.result(&result);
        Ok(())
    }

    /// Adds a server from JSON, or from a file that contains it.
    async fn add(&self, rest: &str) -> Result<(), Fault> {
        if rest.is_empty() {
            return self.usage("add JSON|FILE");
        }
        let text = if rest.starts_with('{') {
            rest.to_owned()
        } else {
            tokio::fs::read_to_string(rest).await.map_err(|error| {
                file_fault::unreadable(Path::new(rest), Operation::LoadConfig, &error)
            })?
        };
        let id = self.computer.add(&json(&text)?, self.values).await?;
        let words = format!("{} {id}", localize(self.show.lang, "smcp-added"));
        self.show.remark(&words, &json!({ "added": id }));
        Ok(())
    }
}

fn json(text: &str) -> Result<Value, Fault> {
    serde_json::from_str(text).map_err(|error| {
        Fault::new(Kind::MalformedJson, Operation::SubmitCommand).caused_by(&error)
    })
}

fn help(lang: Lang) -> &'static str {
    localize(lang, "smcp-status-show-the-room-and-the")
}
