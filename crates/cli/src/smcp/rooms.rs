//! Rooms of the configuration: the tools of their computers are offered to every session.

use budao_core::{Fault, seams::World};
use budao_smcp::{
    Place,
    agent::{Agent, Config, RemoteTools},
    wire::Dialect,
};
use budao_tools::Toolbox;
use serde::Deserialize;

/// A room to be in.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Room {
    /// The hub.
    url: String,
    /// The room.
    room: String,
    /// Our name there.
    #[serde(default = "name")]
    name: String,
    /// What the hub wants to be shown.
    #[serde(default)]
    token: Option<String>,
    /// How the hub speaks, if not 0.4.
    #[serde(default)]
    dialect: Option<String>,
}

fn name() -> String {
    "budao".into()
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room")
            .field("room", &self.room)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The rooms we are in.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Vec<RemoteTools>);

impl Rooms {
    /// Joins every room that can be joined; the others are named with their reason.
    pub(crate) async fn join(rooms: Vec<Room>, world: &World) -> (Self, Vec<(String, Fault)>) {
        let (mut joined, mut missing) = (Vec::new(), Vec::new());
        for room in rooms {
            match room.join(world).await {
                Ok(tools) => joined.push(tools),
                Err(fault) => missing.push((room.room, fault)),
            }
        }
        (Self(joined), missing)
    }

    /// What must never be said.
    pub(crate) fn secrets(rooms: &[Room]) -> Vec<String> {
        rooms.iter().filter_map(|room| room.token.clone()).collect()
    }

    /// The toolbox with what the rooms offer now. A name that is taken stays with who has it.
    pub(crate) fn offer(&self, mut toolbox: Toolbox) -> Toolbox {
        for tool in self.0.iter().flat_map(RemoteTools::tools) {
            let name = &tool.spec().name;
            if toolbox.specs().iter().any(|spec| spec.name == *name) {
                tracing::warn!(tool = %name, "a remote tool of a name that is taken is not offered");
                continue;
            }
            match toolbox.with_all([tool]) {
                Ok(more) => toolbox = more,
                Err(fault) => tracing::warn!(%fault, "a remote tool is not offered"),
            }
        }
        toolbox
    }

    /// A number that moves whenever tools come or go.
    pub(crate) fn generation(&self) -> u64 {
        self.0.iter().map(RemoteTools::generation).fold(0, u64::wrapping_add)
    }
}

impl Room {
    async fn join(&self, world: &World) -> Result<RemoteTools, Fault> {
        let mut place = Place::new(&self.url, &self.room, &self.name);
        place.token = self.token.clone().map(Into::into);
        if let Some(dialect) = &self.dialect {
            place.dialect = dialect.parse::<Dialect>().map_err(|expected| {
                use budao_core::fault::{Fact, Kind, Operation};
                Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                    .with(Fact::ConfigKey, "smcp.dialect")
                    .with(Fact::Expected, expected)
                    .with(Fact::Received, dialect.clone())
            })?;
        }
        let agent = Agent::connect(Config::new(place), world.clone()).await?;
        RemoteTools::open(agent).await
    }
}
