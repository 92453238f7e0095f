//! Computes a session's state from its newest snapshot and the records after it.

use budao_core::{
    event::{Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    session::Session,
};

use crate::{
    contract::{PageLimits, Reader},
    implement::faults,
};

/// Returns a session's state at its head, and the position of the snapshot that was used, 0 for none.
///
/// The cost depends only on the number of records after the snapshot. Works when retention has removed the records
/// before it. To continue from here, follow after the state's own `head`.
///
/// # Errors
/// Those of [`Reader::read`]; `history_gap` when neither a snapshot nor the records reach back far enough.
pub async fn fold(journal: &dyn Reader, session: SessionId) -> Result<(Session, Seq), Fault> {
    let mut state = from_snapshot(journal, session).await?;
    let snapshot = state.head;
    read_on(journal, session, &mut state, Seq::MAX).await?;
    Ok((state, snapshot))
}

/// Returns a session's state at a position, for a client that resumes from a cursor.
///
/// # Errors
/// Those of [`fold`]; `epoch_mismatch` for a position beyond the head.
pub async fn fold_at(journal: &dyn Reader, session: SessionId, at: Seq) -> Result<Session, Fault> {
    let mut state = from_snapshot(journal, session).await?;
    if state.head > at {
        state = Session::default();
    }
    read_on(journal, session, &mut state, at).await?;
    Ok(state)
}

/// Loads the snapshot, or returns an empty state if it is unusable, since the records are the truth. A snapshot of
/// another version is unusable. So is one whose state has another head than its row says, which an imported file may
/// have: folding on from it would skip or repeat records.
async fn from_snapshot(journal: &dyn Reader, session: SessionId) -> Result<Session, Fault> {
    let Some(snapshot) = journal.snapshot(session).await? else { return Ok(Session::default()) };
    match serde_json::from_slice::<Session>(&snapshot.body) {
        Ok(state) if state.head == snapshot.seq => return Ok(state),
        Ok(state) => {
            let (seq, head) = (snapshot.seq, state.head);
            tracing::warn!(%session, seq, head, "ignoring snapshot: position mismatch");
        }
        Err(error) => {
            tracing::warn!(%session, %error, "ignoring snapshot: other version");
        }
    }
    Ok(Session::default())
}

/// Folds the records after the state's head, up to `until` or the last one.
async fn read_on(
    journal: &dyn Reader,
    session: SessionId,
    state: &mut Session,
    until: Seq,
) -> Result<(), Fault> {
    while state.head < until {
        let page = journal.read(session, state.head, PageLimits::default()).await?;
        if let Some(gap) = page.gap {
            return Err(Fault::new(Kind::HistoryGap, Operation::ReadRecords)
                .with(Fact::FromSeq, gap.from)
                .with(Fact::ToSeq, gap.to)
                .with(Fact::OldestSeq, page.first_available)
                .with(Fact::Reason, gap.reason.as_str())
                .with(Fact::Session, session.to_string()));
        }
        for stored in page.records.iter().take_while(|stored| stored.seq <= until) {
            state.apply(&*stored.shared_event()?, stored.at, stored.trace);
        }
        if state.head >= page.head {
            break;
        }
    }
    match until {
        Seq::MAX => Ok(()),
        _ if state.head == until => Ok(()),
        _ => {
            let info = journal.info(session).await?;
            let info =
                info.ok_or_else(|| faults::unknown_session(session, Operation::ReadRecords))?;
            Err(faults::beyond_head(session, until, info.head, info.epoch))
        }
    }
}
