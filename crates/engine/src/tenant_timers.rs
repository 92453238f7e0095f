//! The bound on the timers of a tenant. It counts over sessions, so no single session can keep it.

use budao_core::{
    event::{Command, CommandBody, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    timer::TimerId,
};
use budao_journal::{Journal, TimerQuery, fold};

/// Refuses a command that sets one more timer than a tenant may have. Commands that are handled at the same moment are
/// not counted in each other.
///
/// # Errors
/// `limit_reached`, or a fault of the journal.
pub(crate) async fn check_tenant_timers(
    journal: &dyn Journal,
    session: SessionId,
    command: &Command,
    limit: usize,
) -> Result<(), Fault> {
    let CommandBody::SetTimer { timer, .. } = &command.body else { return Ok(()) };
    // A repetition gets the answer of the first.
    if journal.answer(session, &command.id).await?.is_some() {
        return Ok(());
    }
    let (state, _) = fold(journal, session).await?;
    let timer = timer.clone().unwrap_or_else(|| TimerId(command.id.0.clone()));
    if state.timers.get(&timer).is_some() {
        return Ok(());
    }
    let tenant = Some(state.settings.tenant().to_owned());
    let query = TimerQuery { tenant, after: None, limit: limit.max(1) };
    let timed = journal.timed(query).await?;
    let count: usize = timed.iter().map(|timed| timed.timers.len()).sum();
    if count < limit {
        return Ok(());
    }
    Err(Fault::new(Kind::LimitReached, Operation::SetTimer)
        .with(Fact::Limit, limit)
        .with(Fact::Actual, count)
        .with(Fact::LimitName, "tenant_timers"))
}
