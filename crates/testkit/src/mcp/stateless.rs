//! The protocol of 2026-07-28: no handshake, metadata on every request, changes only for those who listen.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Flow, Session, complain};

const VERSION: &str = "2026-07-28";
const PREFIX: &str = "io.modelcontextprotocol/";

impl<W: Write> Session<W> {
    /// Handles what depends on the era. Returns `None` for a message that every server handles alike.
    pub(super) fn hear_era(&mut self, message: &Value) -> io::Result<Option<Flow>> {
        let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
        match method {
            "server/discover" if self.behaviour.mute_probe => return Ok(Some(Flow::Continue)),
            "server/discover" if self.behaviour.dies_at_probe => {
                complain("fatal: unexpected message before initialize");
                return Ok(Some(Flow::Exit(5)));
            }
            _ if !self.behaviour.stateless || method.starts_with("notifications/") => {
                return Ok(None);
            }
            "initialize" => {
                return self.error(id, -32022, "there is no handshake in this version").map(Some);
            }
            _ => {}
        }
        if !id.is_null()
            && !method.is_empty()
            && message["params"]["_meta"][format!("{PREFIX}protocolVersion")] != VERSION
        {
            return self.error(id, -32602, "a request without its metadata").map(Some);
        }
        match method {
            "server/discover" => {
                let mut said = json!({
                    "supportedVersions": [VERSION],
                    "capabilities": { "tools": { "listChanged": true } },
                    "ttlMs": 60_000,
                    "cacheScope": "public",
                    "_meta": { (format!("{PREFIX}serverInfo")): { "name": "fake", "version": "0" } },
                });
                if self.behaviour.tasks.is_some() {
                    said["capabilities"]["extensions"] = json!({ (format!("{PREFIX}tasks")): {} });
                }
                if let Some(text) = &self.behaviour.instructions {
                    said["instructions"] = text.as_str().into();
                }
                self.answer(id, said).map(Some)
            }
            "subscriptions/listen" => {
                self.listening = Some(id.clone());
                let wanted = &message["params"]["notifications"];
                let params = json!({ "notifications": wanted, "_meta": { (format!("{PREFIX}subscriptionId")): id } });
                self.say(&json!({
                    "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params,
                }))
                .map(Some)
            }
            // Gone in this version.
            "ping" | "resources/subscribe" => self.error(id, -32601, "Method not found").map(Some),
            _ => Ok(None),
        }
    }

    /// Reports that the tools changed, in the way of the era.
    pub(super) fn say_changed(&mut self) -> io::Result<Flow> {
        let mut message = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        if self.behaviour.stateless {
            let Some(id) = &self.listening else { return Ok(Flow::Continue) };
            message["params"] = json!({ "_meta": { (format!("{PREFIX}subscriptionId")): id } });
        }
        self.say(&message)
    }
}
