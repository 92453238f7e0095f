//! Rooms and their members. Pure: no sockets, no clock, and a refused request changes nothing.

mod snapshot;

use std::{borrow::Cow, collections::BTreeMap};

use budao_core::fault::{Fact, FactValue, Fault, Kind, Operation};
use tokio_util::sync::CancellationToken;

use crate::wire::{
    Role,
    request::{JoinRequest, RoutedRequest},
};
pub(super) use snapshot::KnownTools;
pub use snapshot::{AgentSnapshot, ComputerSnapshot, RoomSnapshot};

/// The hub's number for a connection, from 1, never reused.
pub type Key = u64;

/// Whether a caller learns that a room or a computer exists elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossRoomVisibility {
    /// The caller gets "no access", as the specification says.
    #[default]
    Named,
    /// The caller gets the same answer as for a name that does not exist.
    Hidden,
}

/// All rooms and connections of a hub.
#[derive(Debug, Default)]
pub struct Rooms {
    cross_room: CrossRoomVisibility,
    /// Cancelled on shutdown; every presence token is its child.
    closing: CancellationToken,
    sessions: BTreeMap<Key, HubSession>,
    rooms: BTreeMap<String, Room>,
}

#[derive(Debug)]
struct HubSession {
    /// The id that the client and its room know; it opens nothing.
    sid: String,
    version: Option<String>,
    /// Set by the first join; later joins must use the same role.
    role: Option<Role>,
    membership: Option<RoomMembership>,
}

#[derive(Debug)]
struct RoomMembership {
    room: String,
    name: String,
    present: CancellationToken,
}

#[derive(Debug, Default)]
struct Room {
    agent: Option<Key>,
    computers: BTreeMap<String, Key>,
}

/// A member at the moment it joined or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The room it joined or left.
    pub room: String,
    /// Agent or computer.
    pub role: Role,
    /// The name it joined with.
    pub name: String,
    /// The connections of the other members, to be notified.
    pub others: Vec<Key>,
}

/// The result of an accepted join.
#[derive(Debug, PartialEq, Eq)]
pub enum JoinResult {
    /// The member was already in this room; nothing changed.
    AlreadyJoined,
    /// The member is in the room now, and has left its previous one.
    Joined {
        /// The membership it left; `None` if it was in no room.
        left: Option<Member>,
        /// The new membership.
        entered: Member,
    },
}

/// The route from an agent to a computer in the same room.
#[derive(Clone, Debug)]
pub struct Route {
    /// The room of both members.
    pub room: String,
    /// The name that the agent joined with.
    pub agent: String,
    /// The name that the computer joined with.
    pub computer: String,
    /// The computer's connection.
    pub to: Key,
    /// Cancelled when the agent leaves the room or the hub shuts down.
    pub agent_present: CancellationToken,
    /// Cancelled when the computer leaves the room or the hub shuts down.
    pub computer_present: CancellationToken,
}

/// A member as the agent of its room may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleMember {
    /// The id that its client got when it connected.
    pub sid: String,
    /// The name it joined with.
    pub name: String,
    /// Agent or computer.
    pub role: Role,
    /// The protocol version from its handshake; `None` if it sent none.
    pub version: Option<String>,
}

fn fault(kind: Kind, operation: Operation) -> Fault {
    Fault::new(kind, operation)
}

fn forbidden(operation: Operation, reason: impl Into<Cow<'static, str>>) -> Fault {
    fault(Kind::NotAllowed, operation).with(Fact::Reason, FactValue::Text(reason.into()))
}

/// Why something is not allowed in a room. The catalog translates these texts (`reason-…`).
mod reason {
    pub(super) const ROLE_FIXED: &str = "the role is fixed by the first join";
    pub(super) const NAME_FIXED: &str = "the name is fixed while in the room";
    pub(super) const SECOND_ROOM: &str = "the agent is already in a room and must leave it first";
    pub(super) const NAME_TAKEN: &str = "a computer of this name already exists in the room";
    pub(super) const AGENT_ONLY: &str = "only an agent may ask this";
    pub(super) const NOT_ITS_NAME: &str = "`computer` is not the name the caller joined with";
}

impl Rooms {
    /// An empty registry. Cancelling `closing` ends every membership.
    #[must_use]
    pub fn new(cross_room: CrossRoomVisibility, closing: CancellationToken) -> Self {
        Self { cross_room, closing, ..Self::default() }
    }

    /// Registers a connection, which is in no room yet. `sid` is the id its client gets.
    pub fn connect(&mut self, key: Key, sid: String, version: Option<String>) {
        self.sessions.insert(key, HubSession { sid, version, role: None, membership: None });
    }

    /// The id of a connection, as its client got it.
    #[must_use]
    pub fn sid(&self, key: Key) -> Option<&str> {
        self.sessions.get(&key).map(|session| session.sid.as_str())
    }

    /// Removes a connection and returns the membership that ended.
    pub fn disconnect(&mut self, key: Key) -> Option<Member> {
        let left = self.remove(key);
        self.sessions.remove(&key);
        left
    }

    /// The number of connections, rooms and computers, in this order.
    #[must_use]
    pub fn count(&self) -> (usize, usize, usize) {
        let computers = self.rooms.values().map(|room| room.computers.len()).sum();
        (self.sessions.len(), self.rooms.len(), computers)
    }

    /// Joins a room. A computer leaves its previous room; an agent must have left it before.
    ///
    /// # Errors
    /// If the room has an agent or a computer of this name, or the caller may not change its role, name or room.
    pub fn join(&mut self, key: Key, join: JoinRequest) -> Result<JoinResult, Fault> {
        let op = Operation::JoinRoom;
        let JoinRequest { role, name, room } = join;
        let session = self.sessions.get(&key).ok_or_else(|| fault(Kind::ConnectionLost, op))?;
        if session.role.is_some_and(|fixed| fixed != role) {
            return Err(forbidden(op, reason::ROLE_FIXED));
        }
        if let Some(membership) = &session.membership {
            if membership.room == room && membership.name == name {
                return Ok(JoinResult::AlreadyJoined);
            }
            if membership.room == room {
                return Err(forbidden(op, reason::NAME_FIXED));
            }
            if role == Role::Agent {
                return Err(forbidden(op, reason::SECOND_ROOM));
            }
        }
        if let Some(there) = self.rooms.get(&room) {
            if role == Role::Agent && there.agent.is_some() {
                return Err(fault(Kind::RoomFull, op).with(Fact::Room, room));
            }
            if role == Role::Computer && there.computers.contains_key(&name) {
                return Err(forbidden(op, format!("{}: {name}", reason::NAME_TAKEN)));
            }
        }
        let left = self.remove(key);
        Ok(JoinResult::Joined { left, entered: self.add(key, role, name, room) })
    }

    fn add(&mut self, key: Key, role: Role, name: String, room: String) -> Member {
        let there = self.rooms.entry(room.clone()).or_default();
        let others = there.members().collect();
        match role {
            Role::Agent => there.agent = Some(key),
            Role::Computer => drop(there.computers.insert(name.clone(), key)),
        }
        if let Some(session) = self.sessions.get_mut(&key) {
            session.role = Some(role);
            let present = self.closing.child_token();
            session.membership =
                Some(RoomMembership { room: room.clone(), name: name.clone(), present });
        }
        Member { room, role, name, others }
    }

    fn remove(&mut self, key: Key) -> Option<Member> {
        let session = self.sessions.get_mut(&key)?;
        let RoomMembership { room, name, present } = session.membership.take()?;
        let role = session.role?;
        present.cancel();
        let there = self.rooms.get_mut(&room)?;
        match role {
            Role::Agent => there.agent = None,
            Role::Computer => drop(there.computers.remove(&name)),
        }
        let others: Vec<Key> = there.members().collect();
        if others.is_empty() {
            self.rooms.remove(&room);
        }
        Some(Member { room, role, name, others })
    }

    /// Leaves a room, which must be the caller's own.
    ///
    /// # Errors
    /// If the caller is in no room, or in another one.
    pub fn leave(&mut self, key: Key, room: &str) -> Result<Member, Fault> {
        let op = Operation::LeaveRoom;
        let own = self.membership(key).map(|membership| membership.room.clone());
        self.own(own.as_deref(), room, op)?;
        self.remove(key).ok_or_else(|| fault(Kind::NotInRoom, op))
    }

    /// Whether two connections are in the same room.
    #[must_use]
    pub fn are_together(&self, one: Key, other: Key) -> bool {
        let room = |key| self.membership(key).map(|membership| membership.room.as_str());
        room(one).is_some() && room(one) == room(other)
    }

    fn membership(&self, key: Key) -> Option<&RoomMembership> {
        self.sessions.get(&key)?.membership.as_ref()
    }

    /// Checks that `room` is the caller's own room.
    fn own(&self, own: Option<&str>, room: &str, op: Operation) -> Result<(), Fault> {
        let is_known =
            self.rooms.contains_key(room) && self.cross_room == CrossRoomVisibility::Named;
        match own {
            Some(own) if own == room => Ok(()),
            _ if !is_known => Err(fault(Kind::RoomNotFound, op).with(Fact::Room, room.to_owned())),
            Some(_) => Err(fault(Kind::CrossRoomAccess, op).with(Fact::Room, room.to_owned())),
            None => Err(fault(Kind::NotInRoom, op).with(Fact::Room, room.to_owned())),
        }
    }

    /// The membership of the calling agent. The name it joined with is its identity, whatever a request says.
    fn asking(&self, key: Key, op: Operation) -> Result<&RoomMembership, Fault> {
        let session = self.sessions.get(&key).ok_or_else(|| fault(Kind::ConnectionLost, op))?;
        let membership = session.membership.as_ref().ok_or_else(|| fault(Kind::NotInRoom, op))?;
        if session.role != Some(Role::Agent) {
            return Err(forbidden(op, reason::AGENT_ONLY));
        }
        Ok(membership)
    }

    /// The route from an agent to a computer in its room, which is given by its name or its id.
    ///
    /// # Errors
    /// If the room has no such computer, or the caller is no agent.
    pub fn resolve_route(&self, key: Key, routed: &RoutedRequest) -> Result<Route, Fault> {
        let op = Operation::RelayCall;
        let membership = self.asking(key, op)?;
        let room = self.rooms.get(&membership.room).ok_or_else(|| fault(Kind::NotInRoom, op))?;
        let by_sid =
            || room.computers.values().find(|key| self.sid(**key) == Some(&routed.computer));
        let found = room.computers.get(&routed.computer).or_else(by_sid);
        let Some(to) = found else { return Err(self.no_way(&routed.computer, room)) };
        let computer = self.membership(*to).ok_or_else(|| self.no_way(&routed.computer, room))?;
        Ok(Route {
            room: membership.room.clone(),
            agent: membership.name.clone(),
            computer: computer.name.clone(),
            to: *to,
            agent_present: membership.present.clone(),
            computer_present: computer.present.clone(),
        })
    }

    fn no_way(&self, computer: &str, room: &Room) -> Fault {
        let is_elsewhere = self.cross_room == CrossRoomVisibility::Named
            && self.rooms.values().any(|room| room.computers.contains_key(computer));
        let op = Operation::RelayCall;
        if is_elsewhere {
            return fault(Kind::CrossRoomAccess, op).with(Fact::Computer, computer.to_owned());
        }
        let mut near: Vec<&String> = room.computers.keys().collect();
        near.truncate(5);
        let fault = fault(Kind::ComputerNotFound, op).with(Fact::Computer, computer.to_owned());
        if near.is_empty() {
            return fault;
        }
        fault.with(Fact::Nearest, near.into_iter().cloned().collect::<Vec<_>>())
    }

    /// Lists the members of a room for its agent.
    ///
    /// # Errors
    /// If the caller is not the agent of this room.
    pub fn list(&self, key: Key, room: &str) -> Result<Vec<VisibleMember>, Fault> {
        let op = Operation::RelayCall;
        let membership = self.asking(key, op)?;
        self.own(Some(&membership.room), room, op)?;
        let there = self
            .rooms
            .get(room)
            .ok_or_else(|| fault(Kind::RoomNotFound, op).with(Fact::Room, room.to_owned()))?;
        Ok(there.members().filter_map(|key| self.seen(key)).collect())
    }

    fn seen(&self, key: Key) -> Option<VisibleMember> {
        let session = self.sessions.get(&key)?;
        let name = session.membership.as_ref()?.name.clone();
        let (sid, version) = (session.sid.clone(), session.version.clone());
        Some(VisibleMember { sid, name, role: session.role?, version })
    }

    /// The name of a caller that may cancel its own calls.
    ///
    /// # Errors
    /// If the caller is no agent, or in no room.
    pub fn cancelling_agent(&self, key: Key) -> Result<String, Fault> {
        self.asking(key, Operation::RelayCall).map(|membership| membership.name.clone())
    }

    /// The connections to notify of a change on a computer: all other members of its room. The computer is given by
    /// its name or its id.
    ///
    /// # Errors
    /// If the caller is not that computer, or in no room.
    pub fn listeners(&self, key: Key, computer: &str) -> Result<Vec<Key>, Fault> {
        let op = Operation::RelayCall;
        let session = self.sessions.get(&key).ok_or_else(|| fault(Kind::ConnectionLost, op))?;
        let membership = session.membership.as_ref().ok_or_else(|| fault(Kind::NotInRoom, op))?;
        let is_itself = membership.name == computer || session.sid == computer;
        if session.role != Some(Role::Computer) || !is_itself {
            return Err(forbidden(op, reason::NOT_ITS_NAME));
        }
        let room = self.rooms.get(&membership.room).ok_or_else(|| fault(Kind::NotInRoom, op))?;
        Ok(room.members().filter(|member| *member != key).collect())
    }
}

impl Room {
    fn members(&self) -> impl Iterator<Item = Key> {
        self.agent.iter().copied().chain(self.computers.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use crate::codes::smcp_code;
    use budao_core::{Lang, fault::text};

    use super::*;

    fn join(role: Role, name: &str, room: &str) -> JoinRequest {
        JoinRequest { role, name: name.into(), room: room.into() }
    }

    fn routed(agent: &str, computer: &str) -> RoutedRequest {
        RoutedRequest { agent: agent.into(), req_id: "r".into(), computer: computer.into() }
    }

    /// Agent 1 and computer 2 in room `a`; agent 3 and computer 4 in room `b`; 5 is nowhere.
    fn rooms(cross_room: CrossRoomVisibility) -> Rooms {
        let mut rooms = Rooms::new(cross_room, CancellationToken::new());
        (1..=5).for_each(|key| rooms.connect(key, format!("sid{key}"), None));
        for (key, role, name, room) in [
            (1, Role::Agent, "bot", "a"),
            (2, Role::Computer, "pc", "a"),
            (3, Role::Agent, "bot", "b"),
            (4, Role::Computer, "mac", "b"),
        ] {
            rooms.join(key, join(role, name, room)).unwrap();
        }
        rooms
    }

    fn code<T>(result: Result<T, Fault>) -> u16 {
        smcp_code(result.err().expect("refused").kind())
    }

    #[test]
    fn the_rules_of_joining() {
        let mut rooms = rooms(CrossRoomVisibility::Named);
        assert_eq!(rooms.join(1, join(Role::Agent, "bot", "a")), Ok(JoinResult::AlreadyJoined));
        assert_eq!(code(rooms.join(1, join(Role::Agent, "bot", "c"))), 403, "one room per agent");
        assert_eq!(
            code(rooms.join(5, join(Role::Agent, "other", "a"))),
            4101,
            "one agent per room"
        );
        assert_eq!(code(rooms.join(1, join(Role::Computer, "bot", "a"))), 403, "the role is fixed");
        assert_eq!(code(rooms.join(5, join(Role::Computer, "pc", "a"))), 403, "the name is taken");
        assert_eq!(code(rooms.join(2, join(Role::Computer, "new", "a"))), 403, "and fixed");
        let entered = rooms.join(5, join(Role::Computer, "pc", "b")).unwrap();
        let JoinResult::Joined { left: None, entered } = entered else { panic!("{entered:?}") };
        assert_eq!(entered.others, [3, 4], "two rooms may use the same name");
    }

    #[test]
    fn a_refused_join_leaves_no_trace() {
        let mut rooms = rooms(CrossRoomVisibility::Named);
        let before = rooms.count();
        assert_eq!(code(rooms.join(5, join(Role::Agent, "x", "a"))), 4101);
        assert_eq!(code(rooms.join(4, join(Role::Computer, "pc", "a"))), 403);
        assert_eq!(rooms.count(), before);
        assert!(rooms.resolve_route(3, &routed("bot", "mac")).is_ok(), "it is still where it was");
        assert_eq!(rooms.disconnect(5), None, "and 5 is nowhere");
        rooms.connect(5, "sid5".into(), None);
        assert!(rooms.join(5, join(Role::Computer, "y", "a")).is_ok(), "and has no role yet");
    }

    #[test]
    fn a_computer_that_moves_leaves_the_old_room_first() {
        let mut rooms = rooms(CrossRoomVisibility::Named);
        let route = rooms.resolve_route(1, &routed("bot", "pc")).unwrap();
        let JoinResult::Joined { left: Some(left), entered } =
            rooms.join(2, join(Role::Computer, "pc", "b")).unwrap()
        else {
            panic!("it moved")
        };
        assert_eq!((left.room.as_str(), left.others), ("a", vec![1]));
        assert_eq!((entered.room.as_str(), entered.others), ("b", vec![3, 4]));
        assert!(route.computer_present.is_cancelled() && !route.agent_present.is_cancelled());
        assert_eq!(code(rooms.resolve_route(1, &routed("bot", "pc"))), 4104);
    }

    #[test]
    fn no_request_crosses_rooms() {
        let rooms_named = rooms(CrossRoomVisibility::Named);
        let hidden = rooms(CrossRoomVisibility::Hidden);
        assert_eq!(rooms_named.resolve_route(1, &routed("bot", "pc")).unwrap().to, 2);
        assert_eq!(code(rooms_named.resolve_route(1, &routed("bot", "mac"))), 4104);
        assert_eq!(code(hidden.resolve_route(1, &routed("bot", "mac"))), 404);
        assert_eq!(code(rooms_named.resolve_route(1, &routed("bot", "none"))), 404);
        assert_eq!(
            code(rooms_named.resolve_route(1, &routed("bot", "bot"))),
            404,
            "an agent is no target"
        );
        assert_eq!(code(rooms_named.resolve_route(5, &routed("bot", "pc"))), 4103);
        assert_eq!(
            code(rooms_named.resolve_route(2, &routed("pc", "pc"))),
            403,
            "a computer asks nobody"
        );
        let route = rooms_named.resolve_route(1, &routed("other", "sid2")).unwrap();
        let names = (route.agent.as_str(), route.computer.as_str(), route.to);
        assert_eq!(names, ("bot", "pc", 2), "names are those of the joins");
        assert_eq!(
            code(rooms_named.resolve_route(1, &routed("bot", "sid4"))),
            404,
            "an id of another room"
        );
        assert_eq!(
            code(rooms_named.resolve_route(1, &routed("bot", "sid1"))),
            404,
            "an id of an agent"
        );
        assert_eq!(code(rooms_named.list(1, "b")), 4104);
        assert_eq!(code(hidden.list(1, "b")), 4102);
        assert_eq!(code(rooms_named.list(1, "z")), 4102);
        assert_eq!(code(rooms_named.list(5, "a")), 4103);
        assert_eq!(rooms_named.list(1, "a").unwrap().len(), 2);
        assert_eq!(code(rooms_named.listeners(2, "mac")), 403);
        assert_eq!(code(rooms_named.listeners(1, "bot")), 403);
        assert_eq!(code(rooms_named.listeners(5, "pc")), 4103);
        assert_eq!(code(rooms_named.listeners(2, "sid4")), 403);
        assert_eq!(rooms_named.listeners(2, "pc").unwrap(), [1]);
        assert_eq!(rooms_named.listeners(2, "sid2").unwrap(), [1]);
        assert_eq!(code(rooms_named.cancelling_agent(2)), 403);
        assert_eq!(code(rooms_named.cancelling_agent(5)), 4103);
    }

    #[test]
    fn every_reason_has_a_text_in_both_languages() {
        let taken = format!("{}: pc", reason::NAME_TAKEN);
        for refusal_reason in [
            reason::ROLE_FIXED,
            reason::NAME_FIXED,
            reason::SECOND_ROOM,
            &taken,
            reason::AGENT_ONLY,
            reason::NOT_ITS_NAME,
        ] {
            assert_ne!(text::reason(refusal_reason, Lang::Zh), refusal_reason);
        }
    }

    #[test]
    fn leaving_is_leaving_ones_own_room() {
        let mut rooms = rooms(CrossRoomVisibility::Named);
        assert_eq!(code(rooms.leave(1, "b")), 4104);
        assert_eq!(code(rooms.leave(1, "z")), 4102);
        assert_eq!(code(rooms.leave(5, "a")), 4103);
        let left = rooms.leave(1, "a").unwrap();
        assert_eq!((left.name.as_str(), left.others), ("bot", vec![2]));
        assert!(rooms.join(1, join(Role::Agent, "bot", "c")).is_ok());
        rooms.disconnect(2);
        assert_eq!(rooms.count(), (4, 2, 1), "an empty room is gone");
    }
}
