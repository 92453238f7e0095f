//! A snapshot of the rooms and their members, for monitoring.
//!
//! The hub learns a computer's tools only from answers to agents; it sends no requests of its own.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{Key, Rooms};

/// Limits of a snapshot: rooms, computers of a room, and tools of a computer.
const ROOMS_MAX: usize = 200;
const COMPUTERS_MAX: usize = 200;
const TOOLS_MAX: usize = 200;

/// Characters of a tool's name that are kept.
const NAME_MAX: usize = 200;

/// A room and its members, as `/smcp/stats` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoomSnapshot {
    /// The room's name, as members join it.
    pub room: String,
    /// The room's agent; `None` if no agent is in the room.
    pub agent: Option<AgentSnapshot>,
    /// The room's computers, sorted by name.
    pub computers: Vec<ComputerSnapshot>,
}

/// The agent of a room, as `/smcp/stats` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentSnapshot {
    /// The name it joined with.
    pub name: String,
    /// The protocol version from its handshake; `None` if it sent none.
    pub version: Option<String>,
}

/// A computer in a room, as `/smcp/stats` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComputerSnapshot {
    /// The name it joined with, unique in the room.
    pub name: String,
    /// The protocol version from its handshake; `None` if it sent none.
    pub version: Option<String>,
    /// The tools in its latest answer to an agent; `None` if no agent has asked.
    pub tools: Option<Vec<String>>,
    /// Calls that it runs now.
    pub calls_under_way: usize,
}

/// The tools of each computer, from its latest answer.
#[derive(Debug, Default)]
pub(in crate::server) struct KnownTools {
    tools: BTreeMap<Key, Vec<String>>,
}

impl KnownTools {
    /// Stores the tools from a computer's answer to `client:get_tools`.
    pub(in crate::server) fn learn(&mut self, computer: Key, answer: &Value) {
        let Some(tools) = answer.get("tools").and_then(Value::as_array) else { return };
        let names = tools.iter().filter_map(|tool| tool.get("name")?.as_str());
        let names = names.take(TOOLS_MAX).map(|name| name.chars().take(NAME_MAX).collect());
        self.tools.insert(computer, names.collect());
    }

    /// Removes a computer that has disconnected.
    pub(in crate::server) fn forget(&mut self, computer: Key) {
        self.tools.remove(&computer);
    }
}

impl Rooms {
    /// The rooms and their members, within the limits above.
    pub(in crate::server) fn present(
        &self,
        known: &KnownTools,
        calls: &BTreeMap<(Key, String), Key>,
    ) -> Vec<RoomSnapshot> {
        let mut under_way: BTreeMap<Key, usize> = BTreeMap::new();
        calls.values().for_each(|computer| *under_way.entry(*computer).or_default() += 1);
        let computer = |key: &Key| {
            let seen = self.seen(*key)?;
            Some(ComputerSnapshot {
                name: seen.name,
                version: seen.version,
                tools: known.tools.get(key).cloned(),
                calls_under_way: under_way.get(key).copied().unwrap_or_default(),
            })
        };
        let rooms = self.rooms.iter().take(ROOMS_MAX).map(|(name, room)| RoomSnapshot {
            room: name.clone(),
            agent: room
                .agent
                .and_then(|key| self.seen(key))
                .map(|seen| AgentSnapshot { name: seen.name, version: seen.version }),
            computers: room.computers.values().take(COMPUTERS_MAX).filter_map(computer).collect(),
        });
        rooms.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        server::CrossRoomVisibility,
        wire::{Role, request::JoinRequest},
    };

    fn join(rooms: &mut Rooms, key: Key, role: Role, name: &str, room: &str) {
        rooms.connect(key, format!("sid{key}"), Some("0.4.0".into()));
        let join = JoinRequest { role, name: name.into(), room: room.into() };
        rooms.join(key, join).unwrap();
    }

    #[test]
    fn a_watcher_sees_the_members_of_rooms_and_their_notices() {
        let mut rooms = Rooms::new(CrossRoomVisibility::Named, CancellationToken::new());
        join(&mut rooms, 1, Role::Computer, "pc", "a");
        join(&mut rooms, 2, Role::Agent, "bot", "a");
        join(&mut rooms, 3, Role::Computer, "quiet", "b");
        let mut known = KnownTools::default();
        known.learn(1, &json!({ "tools": [{ "name": "t" }, { "no": "name" }] }));
        known.learn(3, &json!({ "code": 500 }));
        let calls = BTreeMap::from([((2, "r".to_owned()), 1)]);
        let version = Some("0.4.0".to_owned());
        let computer = |name: &str, tools, calls_under_way| ComputerSnapshot {
            name: name.into(),
            version: version.clone(),
            tools,
            calls_under_way,
        };
        let pc = computer("pc", Some(vec!["t".to_owned()]), 1);
        let agent = Some(AgentSnapshot { name: "bot".into(), version: version.clone() });
        let quiet = computer("quiet", None, 0);
        assert_eq!(
            rooms.present(&known, &calls),
            [
                RoomSnapshot { room: "a".into(), agent, computers: vec![pc] },
                RoomSnapshot { room: "b".into(), agent: None, computers: vec![quiet] },
            ]
        );
        known.forget(1);
        rooms.disconnect(1);
        assert_eq!(rooms.present(&known, &BTreeMap::new())[0].computers, []);
    }

    #[test]
    fn a_long_list_is_shown_up_to_its_bound() {
        let mut rooms = Rooms::new(CrossRoomVisibility::Named, CancellationToken::new());
        for key in 1..=300 {
            join(&mut rooms, key, Role::Computer, &format!("pc{key}"), "crowd");
            join(&mut rooms, key + 1000, Role::Computer, "pc", &format!("room{key}"));
        }
        let mut known = KnownTools::default();
        let tools: Vec<Value> = (0..300).map(|_| json!({ "name": "x".repeat(300) })).collect();
        known.learn(1, &json!({ "tools": tools }));
        let present = rooms.present(&known, &BTreeMap::new());
        assert_eq!((present.len(), present[0].computers.len()), (ROOMS_MAX, COMPUTERS_MAX));
        let tool_names = present[0].computers[0].tools.as_ref().unwrap();
        assert_eq!((tool_names.len(), tool_names[0].len()), (TOOLS_MAX, NAME_MAX));
    }
}
