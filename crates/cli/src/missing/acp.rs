//! `budao acp`, in a program that was built without it: no editor has servers or documents.

use std::sync::Arc;

use budao_core::{Fault, Kind, Lang, event::SessionId};
use budao_mcp::{ServerEnvironment, ServerSet};
use budao_tools::{Toolbox, builtin::EditorDocuments};

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
    Err(missing::fault(ProgramPart::Acp, "budao acp"))
}

/// Starts no log; [`run`] refuses.
pub(crate) fn start_log(_: &Args) -> Result<(), Fault> {
    Ok(())
}

/// None: no part of this program speaks JSON-RPC to editors.
pub(crate) fn json_rpc_code(_: Kind) -> Option<i32> {
    None
}

/// The servers of editors: there are none.
#[derive(Debug)]
pub(crate) struct EditorServers;

impl EditorServers {
    pub(crate) fn new(_: ServerEnvironment, _: Arc<ServerSet>) -> Self {
        Self
    }

    pub(crate) fn offer(&self, _: SessionId, base: &Toolbox) -> Toolbox {
        base.clone()
    }

    pub(crate) fn documents(&self, _: SessionId) -> Option<Arc<dyn EditorDocuments>> {
        None
    }

    pub(crate) fn generation(&self) -> u64 {
        0
    }

    pub(crate) async fn shutdown(&self) {}
}
