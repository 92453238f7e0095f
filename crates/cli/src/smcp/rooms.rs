//! SMCP rooms from the configuration; every session is offered the tools of their computers.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use budao_core::{
    Fault,
    fault::{Fact, Kind, Operation},
    world::World,
};
use budao_smcp::{
    MemberConfig,
    agent::{Agent, Config, RemoteTools},
    wire::Dialect,
};
use budao_tools::{ReconcileRule, Toolbox};
use serde::Deserialize;

/// One `[[smcp]]` entry of the configuration.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoomConfig {
    /// URL of the hub; absent for the hub inside this server.
    #[serde(default)]
    pub(super) url: Option<String>,
    /// Name of the room to join.
    room: String,
    /// Name under which this process joins; `budao` by default.
    #[serde(default = "name")]
    name: String,
    /// Token for the hub; absent if it requires none.
    #[serde(default)]
    pub(super) token: Option<String>,
    /// Protocol version of the hub, `0.4` or `0.2`; `0.4` by default.
    #[serde(default)]
    pub(super) dialect: Option<String>,
    /// How to find out what became of an interrupted call, by the computer's own name of its tool.
    #[serde(default)]
    reconcile: BTreeMap<String, ReconcileRule>,
}

fn name() -> String {
    "budao".into()
}

impl std::fmt::Debug for RoomConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoomConfig")
            .field("room", &self.room)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The rooms this process has joined.
#[derive(Debug, Default)]
pub(crate) struct JoinedRooms(Mutex<Vec<RemoteTools>>);

impl RoomConfig {
    /// Checks that this program can join rooms; it can.
    pub(crate) fn check(_: &[Self]) -> Result<(), Fault> {
        Ok(())
    }

    /// Name of the room, for log lines.
    pub(crate) fn room_name(&self) -> &str {
        &self.room
    }
}

impl JoinedRooms {
    /// Joins every room. Returns those that could not be joined with the reason.
    pub(crate) async fn join(
        rooms: Vec<RoomConfig>,
        world: &World,
    ) -> (Self, Vec<(String, Fault)>) {
        let (mut joined, mut missing) = (Vec::new(), Vec::new());
        for room in rooms {
            match room.join(world).await {
                Ok(tools) => joined.push(tools),
                Err(fault) => missing.push((room.room, fault)),
            }
        }
        (Self(Mutex::new(joined)), missing)
    }

    /// Removes the rooms of this server's own hub from the list; they can be joined only once it serves.
    pub(crate) fn take_own(rooms: &mut Vec<RoomConfig>) -> Vec<RoomConfig> {
        let (own, others) = rooms.drain(..).partition(|room: &RoomConfig| room.url.is_none());
        *rooms = others;
        own
    }

    /// Joins one more room. Its tools are offered from then on.
    pub(crate) async fn join_one(&self, room: RoomConfig, world: &World) -> Result<(), Fault> {
        let tools = room.join(world).await?;
        self.joined().push(tools);
        Ok(())
    }

    fn joined(&self) -> MutexGuard<'_, Vec<RemoteTools>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rooms' tokens, for the scrubber.
    pub(crate) fn secrets(rooms: &[RoomConfig]) -> Vec<String> {
        rooms.iter().filter_map(|room| room.token.clone()).collect()
    }

    /// The toolbox plus the rooms' present tools. A tool whose name is already in use is not offered.
    pub(crate) fn offer(&self, mut toolbox: Toolbox) -> Toolbox {
        let tools: Vec<_> = self.joined().iter().flat_map(RemoteTools::tools).collect();
        for tool in tools {
            let name = &tool.spec().name;
            if toolbox.specs().iter().any(|spec| spec.name == *name) {
                tracing::warn!(tool = %name, "skipping remote tool: name in use");
                continue;
            }
            match toolbox.with_all([tool]) {
                Ok(more) => toolbox = more,
                Err(fault) => tracing::warn!(%fault, "skipping remote tool"),
            }
        }
        toolbox
    }

    /// Changes whenever tools are added or removed.
    pub(crate) fn generation(&self) -> u64 {
        let joined = self.joined();
        // Adds 1 per room, so that a new room changes the sum as well.
        let rooms = joined.iter().map(|tools| tools.generation().wrapping_add(1));
        rooms.fold(0, u64::wrapping_add)
    }
}

impl RoomConfig {
    async fn join(&self, world: &World) -> Result<RemoteTools, Fault> {
        let url = self.url.as_ref().ok_or_else(|| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "smcp.url")
                .with(Fact::Expected, "the address of a hub, or `budao serve --smcp`")
                .with(Fact::Received, "nothing")
        })?;
        for (tool, rule) in &self.reconcile {
            if let Some((setting, expected)) = rule.problem() {
                return Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                    .with(Fact::ConfigKey, format!("smcp.reconcile.{tool}.{setting}"))
                    .with(Fact::Expected, expected));
            }
        }
        let mut member = MemberConfig::new(url, &self.room, &self.name);
        member.token = self.token.clone().map(Into::into);
        if let Some(dialect) = &self.dialect {
            member.dialect = dialect.parse::<Dialect>().map_err(|expected| {
                Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                    .with(Fact::ConfigKey, "smcp.dialect")
                    .with(Fact::Expected, expected)
                    .with(Fact::Received, dialect.clone())
            })?;
        }
        let agent = Agent::connect(Config::new(member), world.clone()).await?;
        RemoteTools::open_with(agent, self.reconcile.clone()).await
    }
}
