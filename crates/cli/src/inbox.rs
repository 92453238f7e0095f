//! Commands for sessions that the terminal does not run: they wait in the journal's inbox for the server of the session.

use std::time::Duration;

use budao_core::{
    Fault,
    event::{Answer, Command, CommandBody, CommandId, SessionId},
    world::World,
};
use budao_journal::Journal;

/// How long a server may take to record a command before the terminal ends without its answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Puts a command into the inbox of a session. Returns whether a server recorded it within 5 s; otherwise it waits for one.
pub(crate) async fn leave(
    journal: &dyn Journal,
    world: &World,
    session: SessionId,
    body: CommandBody,
) -> Result<bool, Fault> {
    let id = CommandId::own(world.uuid());
    journal.submit(session, Command::new(id.clone(), "terminal", body)).await?;
    match tokio::time::timeout(ANSWER, journal.await_answer(session, &id)).await {
        Ok(answer) => match answer? {
            Answer::Accepted { .. } => Ok(true),
            Answer::Rejected { fault } => Err(fault),
        },
        Err(_) => Ok(false),
    }
}
