//! The SMCP hub inside `budao serve`, on the same address as the sessions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
    world::World,
};
use budao_serve::CounterSource;
use budao_smcp::{
    server::{Access, Config, CrossRoomVisibility, Hub, Token},
    wire::{Dialect, Role},
};

use super::{RoomConfig, read_token};

/// Options of the SMCP hub inside `budao serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct HubArgs {
    /// Also run a hub that connects agents and computers (A2C-SMCP, at /socket.io/)
    #[arg(long)]
    smcp: bool,

    /// Accept this token on the hub: SECRET, SECRET@ROLE or SECRET@ROLE@ROOM,ROOM; can be repeated [default: the
    /// server's token]
    #[arg(long, value_name = "TOKEN", requires = "smcp")]
    smcp_token: Vec<String>,

    /// Protocol version of the hub: 0.4, or 0.2 for the first draft
    #[arg(long, default_value = "0.4", value_name = "VERSION", requires = "smcp")]
    smcp_dialect: Dialect,

    /// Hide the names of other rooms and computers in error messages
    #[arg(long, requires = "smcp")]
    smcp_hide_other_rooms: bool,
}

/// The server's authentication, as the hub can apply it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HubAccess<'a> {
    /// No authentication is required.
    Open,
    /// Clients present this token.
    Token(&'a str),
    /// Authentication the hub does not support, such as JWT or a token file.
    Other,
}

/// A hub to mount in the server, with the token for this process's own sessions.
#[derive(Debug)]
pub(crate) struct MountedHub {
    hub: Hub,
    dialect: Dialect,
    own: Option<String>,
}

impl HubArgs {
    /// The hub's tokens, for the scrubber.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.smcp_token.iter().filter_map(|token| token.split('@').next())
    }

    /// The hub; none without `--smcp`.
    ///
    /// # Errors
    /// `configuration_wrong` if a token cannot be parsed, or if no token is given and the server's own authentication
    /// does not apply to a hub.
    pub(crate) fn hub(
        &self,
        hub_access: HubAccess<'_>,
        lang: Lang,
        world: &World,
    ) -> Result<Option<MountedHub>, Fault> {
        if !self.smcp {
            return Ok(None);
        }
        let mut tokens: Vec<Token> =
            self.smcp_token.iter().map(|token| read_token(token)).collect::<Result<_, _>>()?;
        match hub_access {
            _ if !tokens.is_empty() => {}
            HubAccess::Token(token) => tokens.push(Token::shared(token)),
            HubAccess::Open => {}
            HubAccess::Other => {
                return Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                    .with(Fact::ConfigKey, "--smcp-token")
                    .with(Fact::Expected, "a token for agents and computers")
                    .with(Fact::Received, "nothing"));
            }
        }
        let mut own = None;
        let access = if tokens.is_empty() {
            Access::Any
        } else {
            // Sessions of this process get a generated token of their own.
            let secret: String = (0..2).map(|_| format!("{:016x}", world.entropy.bits())).collect();
            tokens.push(Token { role: Some(Role::Agent), ..Token::shared(secret.clone()) });
            own = Some(secret);
            Access::Tokens(tokens)
        };
        let cross_room = if self.smcp_hide_other_rooms {
            CrossRoomVisibility::Hidden
        } else {
            CrossRoomVisibility::Named
        };
        let config = Config { dialect: self.smcp_dialect, cross_room, lang, ..Config::new(access) };
        let hub = Hub::new(config, world.clone());
        Ok(Some(MountedHub { hub, dialect: self.smcp_dialect, own }))
    }
}

impl MountedHub {
    /// Adds the hub's routes to the server, and its counters to the metrics.
    pub(crate) fn mount(&self, server: &mut budao_serve::Config) {
        let hub = self.hub.clone();
        server.extra_routes = self.hub.router();
        server.smcp_counters =
            Some(CounterSource::new(move || serde_json::to_value(hub.stats()).unwrap_or_default()));
    }

    /// Disconnects agents and computers.
    pub(crate) async fn close(&self) {
        self.hub.close().await;
    }

    /// Completes a room configuration without a URL so that it joins this hub at its local address.
    pub(crate) fn own(&self, mut room: RoomConfig, listening: SocketAddr) -> RoomConfig {
        let host = match listening.ip() {
            address if !address.is_unspecified() => address,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        room.url = Some(format!("http://{}", SocketAddr::new(host, listening.port())));
        room.token = self.own.clone();
        room.dialect = Some(match self.dialect {
            Dialect::V04 => "0.4".to_owned(),
            Dialect::V02 => "0.2".to_owned(),
        });
        room
    }
}
