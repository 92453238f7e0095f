//! A2C-SMCP, in a program that was built without it: no rooms, no hub, and a refusal where one is asked for.

use std::{collections::BTreeMap, net::SocketAddr};

use budao_core::{Fault, Kind, Lang, world::World};
use budao_tools::Toolbox;
use serde::Deserialize;

use crate::{
    exit::Exit,
    missing::{self, ProgramPart},
    terminal::Terminal,
};

pub(crate) use crate::missing::CommandArgs as Args;

/// Refuses.
///
/// # Errors
/// `configuration_wrong`, always.
pub(crate) async fn run(_: &Args, _: Lang, _: &Terminal) -> Result<Exit, Fault> {
    Err(missing::fault(ProgramPart::Smcp, "budao smcp"))
}

/// Default log filter.
pub(crate) fn usual_log(_: &Args) -> &'static str {
    "off"
}

/// None: no part of this program speaks A2C-SMCP.
pub(crate) fn code(_: Kind) -> Option<u16> {
    None
}

/// No kind has a number here.
pub(crate) fn is_home(_: Kind) -> bool {
    false
}

/// One `[[smcp]]` entry of the configuration, unread.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct RoomConfig(
    #[expect(dead_code, reason = "it is refused")] BTreeMap<String, toml::Value>,
);

impl RoomConfig {
    /// Refuses rooms.
    ///
    /// # Errors
    /// `configuration_wrong` if there is one.
    pub(crate) fn check(rooms: &[Self]) -> Result<(), Fault> {
        if rooms.is_empty() { Ok(()) } else { Err(missing::fault(ProgramPart::Smcp, "[[smcp]]")) }
    }

    /// Empty: the entry is not read.
    pub(crate) fn room_name(&self) -> &str {
        ""
    }
}

/// The rooms this process has joined: none.
#[derive(Debug, Default)]
pub(crate) struct JoinedRooms;

impl JoinedRooms {
    pub(crate) async fn join(_: Vec<RoomConfig>, _: &World) -> (Self, Vec<(String, Fault)>) {
        (Self, Vec::new())
    }

    pub(crate) fn take_own(_: &mut Vec<RoomConfig>) -> Vec<RoomConfig> {
        Vec::new()
    }

    pub(crate) async fn join_one(&self, _: RoomConfig, _: &World) -> Result<(), Fault> {
        Err(missing::fault(ProgramPart::Smcp, "[[smcp]]"))
    }

    pub(crate) fn secrets(_: &[RoomConfig]) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn offer(&self, toolbox: Toolbox) -> Toolbox {
        toolbox
    }

    pub(crate) fn generation(&self) -> u64 {
        0
    }
}

/// The options of the hub inside `budao serve`: known, so that the refusal can say why.
#[derive(Debug, clap::Args)]
pub(crate) struct HubArgs {
    #[arg(long, hide = true)]
    smcp: bool,

    #[arg(long, requires = "smcp", hide = true)]
    smcp_token: Vec<String>,

    #[arg(long, requires = "smcp", hide = true)]
    smcp_dialect: Option<String>,

    #[arg(long, requires = "smcp", hide = true)]
    smcp_hide_other_rooms: bool,
}

/// The server's authentication, as far as it would apply to a hub.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HubAccess<'a> {
    Open,
    Token(&'a str),
    Other,
}

/// A hub in the server; there is none.
#[derive(Debug)]
pub(crate) enum MountedHub {}

impl HubArgs {
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.smcp_token.iter().filter_map(|token| token.split('@').next())
    }

    /// None, unless a hub is asked for.
    ///
    /// # Errors
    /// `configuration_wrong` with `--smcp`.
    pub(crate) fn hub(
        &self,
        _: HubAccess<'_>,
        _: Lang,
        _: &World,
    ) -> Result<Option<MountedHub>, Fault> {
        if self.smcp { Err(missing::fault(ProgramPart::Smcp, "--smcp")) } else { Ok(None) }
    }
}

impl MountedHub {
    pub(crate) fn mount<Server>(&self, _: &mut Server) {
        match *self {}
    }

    pub(crate) async fn close(&self) {
        match *self {}
    }

    pub(crate) fn own(&self, _: RoomConfig, _: SocketAddr) -> RoomConfig {
        match *self {}
    }
}
