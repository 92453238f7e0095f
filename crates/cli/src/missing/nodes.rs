//! `budao nodes`, in a program that was built without it.

use budao_core::{Fault, Lang};

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
    Err(missing::fault(ProgramPart::Serve, "budao nodes"))
}
