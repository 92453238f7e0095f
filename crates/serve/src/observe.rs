//! Adds an observer to a session: first the answer, then the missed frames, then live frames, without a gap.
//!
//! The history is read in pages and sent as fast as the observer's outbox accepts it. The observer then joins the hub
//! at the position it has reached. Frames sent during the replay come from the hub's buffer or from another read.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use budao_core::{
    Fault, Kind, Lang,
    event::{CommandId, Epoch, Seq, SessionId},
    fault::{Fact, Operation},
    session::Session,
};
use budao_journal::{Gap, GapReason, HistoryInfo, PageLimits, Reader, fold_at};

use crate::{
    admission::PAGE_RECORDS,
    connection::{Connection, FOLD_COST_RECORDS},
    frame::connection::{
        Coverage, Head, RestoredState, Resumption, render_replayed, render_resumption,
    },
    hub::{Hub, HubStart, JoinResult, MissedFrames},
    inbound::Cursor,
    observer_format::{ObserverFormat, RecordEncoder},
    outbox::{EncodedFrame, Outbox, OutboxClosed},
    project,
    replay_scheduler::ReplayUsage,
    server::Server,
    session_meta::{SessionMeta, unknown_session},
};

/// The page size of a replay. It is small because each replaying client holds one page until its outbox has room.
const PAGE: PageLimits = PageLimits { records: PAGE_RECORDS as usize, bytes: 32 * 1024 };

/// How a client becomes an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObserveMode {
    /// The client created the session or sent it a command; frames follow without an answer.
    Fresh,
    /// The client resumes with a cursor.
    Resume,
    /// The client resumes with a signed state.
    Restore,
}

/// A request to observe a session from a position.
#[derive(Clone, Debug)]
pub(crate) struct ObserveRequest {
    pub(crate) session: SessionId,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) after: Seq,
    pub(crate) command: Option<CommandId>,
    pub(crate) mode: ObserveMode,
    /// The action that a refusal names.
    pub(crate) action: &'static str,
    /// The format in which the client receives the session.
    pub(crate) format: ObserverFormat,
}

impl ObserveRequest {
    /// Observes from a cursor, or from the beginning without one.
    pub(crate) fn new(session: SessionId, cursor: Option<Cursor>, mode: ObserveMode) -> Self {
        let (epoch, after) = cursor.map_or((None, 0), |cursor| (cursor.epoch, cursor.seq));
        let action = match mode {
            ObserveMode::Fresh => "create_session",
            ObserveMode::Resume => "reconnect",
            ObserveMode::Restore => "reconnect_with_state",
        };
        let format = ObserverFormat::Frames(None);
        Self { session, epoch, after, command: None, mode, action, format }
    }

    /// Observes from an accepted command on. A refusal names `reconnect`, because the command itself was not refused.
    pub(crate) fn after_command(session: SessionId, at: Seq) -> Self {
        let request = Self::new(session, None, ObserveMode::Fresh);
        Self { after: at, action: "reconnect", ..request }
    }
}

/// The reason that a client did not become an observer.
#[derive(Debug)]
pub(crate) enum ObserveError {
    /// The client has disconnected.
    Disconnected,
    /// The history has expired. The answer to a resume has said so.
    Expired,
    /// The request failed.
    Fault(Fault),
}

impl From<OutboxClosed> for ObserveError {
    fn from(OutboxClosed: OutboxClosed) -> Self {
        Self::Disconnected
    }
}

impl From<Fault> for ObserveError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The extent of a replay, determined before anything is sent.
struct ReplayPlan {
    info: HistoryInfo,
    coverage: Coverage,
    /// The replay starts after this position.
    start: Seq,
    /// The session's state at that position.
    state: Session,
    /// True if a snapshot replaces the lost part.
    is_snapshot: bool,
}

/// Makes a client an observer of a session and returns the session's hub.
pub(crate) async fn observe(
    client: &Connection,
    meta: &SessionMeta,
    request: &ObserveRequest,
) -> Result<Arc<Hub>, ObserveError> {
    let (server, outbox) = (&client.server, &client.outbox);
    let (own, others) = leave_hubs(client, request);
    if let Some(hub) = own {
        hub.check_capacity(others, &server.config.limits, server.now())?;
        if request.mode != ObserveMode::Restore
            && hub.covers(request.after)
            // A client above its replay allowance reads through the replay scheduler.
            && (request.mode == ObserveMode::Fresh || is_within_allowance(client, &hub, request))
            && let Some(hub) = join_from_buffer(client, meta, request, hub, others).await?
        {
            return Ok(hub);
        }
    }
    let plan = {
        let _slot = server.replays.acquire(client.permit.charge_replay(FOLD_COST_RECORDS)).await;
        plan_replay(server, request).await?
    };
    let mut encoder = request.format.encoder(&plan.state, plan.start);
    // Before its first record, the encoder does not know the session's language.
    let lang = request.format.language().unwrap_or(meta.language);
    send_answer(server, outbox, request, &plan, lang).await?;
    if plan.coverage == Coverage::Expired {
        return Err(ObserveError::Expired);
    }
    let until = plan.info.head;
    let mut at = plan.start;
    let count = replay(client, request.session, &mut encoder, &mut at, until).await?;
    if request.mode != ObserveMode::Fresh {
        for frame in encoder.open_questions(request.session, server.now()) {
            outbox.send(EncodedFrame::from(&frame)).await?;
        }
        let (session, epoch) = (request.session, plan.info.epoch);
        let head = Head { session, epoch, seq: at, frame: encoder.last() };
        let frame = render_replayed(server.now(), head, count, plan.coverage, lang);
        outbox.send(EncodedFrame::from(&frame)).await?;
    }
    let start = HubStart {
        session: request.session,
        format: request.format,
        lang,
        epoch: Some(plan.info.epoch).filter(|_| until > 0),
        at,
        frame: encoder.last(),
        encoder,
        on_disconnect: meta.on_disconnect,
    };
    join_live(client, start, others).await
}

/// Takes the client out of the hubs of the session. Returns the hub of the requested format, and the number of observers
/// in other formats.
fn leave_hubs(client: &Connection, request: &ObserveRequest) -> (Option<Arc<Hub>>, usize) {
    let (mut own, mut others) = (None, 0);
    for hub in client.server.hubs.of(request.session) {
        hub.leave(&client.outbox);
        if hub.format == request.format {
            own = Some(hub);
        } else {
            others += hub.observers();
        }
    }
    (own, others)
}

/// Joins the session's hub at `start`. While the hub's buffer begins later, replays the missing records and advances
/// `start`.
async fn join_live(
    client: &Connection,
    mut start: HubStart,
    others: usize,
) -> Result<Arc<Hub>, ObserveError> {
    let (server, outbox) = (&client.server, &client.outbox);
    let limits = &server.config.limits;
    loop {
        start.lang = start.encoder.language().filter(|_| start.at > 0).unwrap_or(start.lang);
        start.frame = start.encoder.last();
        let hub = server.hubs.get_or_start(server, start.clone());
        match hub.join(outbox, start.at, others, limits, server.now())? {
            JoinResult::Live => return Ok(hub),
            JoinResult::Closed => tokio::task::yield_now().await,
            JoinResult::Behind => {
                let HubStart { session, encoder, at, .. } = &mut start;
                replay(client, *session, encoder, at, Seq::MAX).await?;
            }
        }
    }
}

/// True if the client's replay allowance covers the missed frames.
fn is_within_allowance(client: &Connection, hub: &Hub, request: &ObserveRequest) -> bool {
    client.permit.charge_replay(hub.position().head.saturating_sub(request.after))
        == ReplayUsage::Light
}

/// Joins a hub whose buffer covers everything after the cursor. Returns `None` if the buffer no longer does.
async fn join_from_buffer(
    client: &Connection,
    meta: &SessionMeta,
    request: &ObserveRequest,
    hub: Arc<Hub>,
    others: usize,
) -> Result<Option<Arc<Hub>>, ObserveError> {
    let (server, outbox) = (&client.server, &client.outbox);
    let position = hub.position();
    let Some(epoch) = position.epoch else { return Ok(None) };
    if request.epoch.is_some_and(|named| named != epoch) {
        return Ok(None);
    }
    let limits = &server.config.limits;
    if request.mode == ObserveMode::Fresh {
        let joined = hub.join(outbox, request.after, others, limits, server.now())?;
        return Ok((joined == JoinResult::Live).then_some(hub));
    }
    // The answer must come first, so the buffered frames are fetched instead of pushed by `join`.
    let Some(MissedFrames { frames, open_questions, position }) = hub.missed_frames(request.after)
    else {
        return Ok(None);
    };
    let now = server.now();
    let language = request.format.language().unwrap_or(meta.language);
    let resumption = Resumption {
        session: request.session,
        command: request.command.as_ref(),
        epoch,
        cursor: request.after,
        head: position.head,
        coverage: Coverage::Complete,
        restored: None,
    };
    outbox.send(EncodedFrame::from(&render_resumption(now, &resumption, language))).await?;
    let count = frames.len() as u64;
    for frame in frames.into_iter().chain(open_questions) {
        outbox.send(frame).await?;
    }
    let head = Head {
        session: request.session,
        epoch,
        seq: position.head,
        frame: position.frame.max(request.after.min(position.head)),
    };
    let frame = render_replayed(now, head, count, Coverage::Complete, language);
    outbox.send(EncodedFrame::from(&frame)).await?;
    match hub.join(outbox, position.head, others, limits, server.now())? {
        JoinResult::Live => Ok(Some(hub)),
        // The hub moved on or ended. The client has its answer, so only the missed frames are read.
        JoinResult::Behind | JoinResult::Closed => {
            let request = ObserveRequest {
                after: position.head,
                mode: ObserveMode::Fresh,
                ..request.clone()
            };
            Box::pin(observe(client, meta, &request)).await.map(Some)
        }
    }
}

/// Determines the extent of the replay.
async fn plan_replay(server: &Server, request: &ObserveRequest) -> Result<ReplayPlan, Fault> {
    let journal = &*server.journal;
    let info =
        journal.info(request.session).await?.ok_or_else(|| unknown_session(request.session))?;
    let is_other =
        request.epoch.is_some_and(|epoch| epoch != info.epoch) || request.after > info.head;
    let (after, mut coverage) = match is_other {
        true => (0, Coverage::EpochMismatch),
        false => (request.after, Coverage::Complete),
    };
    if after + 1 < info.first_available {
        let page =
            journal.read(request.session, after, PageLimits { records: 1, bytes: 1 }).await?;
        let Some(state) = latest_snapshot(journal, request.session).await? else {
            return Ok(expired_plan(info));
        };
        let start = state.head;
        if coverage == Coverage::Complete {
            let reason = page.gap.map_or(GapReason::Age, |gap| gap.reason);
            coverage = Coverage::Gap { from: after + 1, to: start, reason };
        }
        return Ok(ReplayPlan { info, coverage, start, state, is_snapshot: true });
    }
    let state = match after {
        0 => Session::default(),
        _ => fold_at(journal, request.session, after).await?,
    };
    Ok(ReplayPlan { info, coverage, start: after, state, is_snapshot: false })
}

/// The session's state at its newest snapshot; `None` without a snapshot that this version can read.
async fn latest_snapshot(
    journal: &dyn Reader,
    session: SessionId,
) -> Result<Option<Session>, Fault> {
    let Some(snapshot) = journal.snapshot(session).await? else { return Ok(None) };
    Ok(serde_json::from_slice(&snapshot.body).ok())
}

/// The plan for a history whose start is lost and has no snapshot: nothing is replayed.
fn expired_plan(info: HistoryInfo) -> ReplayPlan {
    let (start, state) = (info.head, Session::default());
    ReplayPlan { info, coverage: Coverage::Expired, start, state, is_snapshot: false }
}

/// Sends the answer to a resume, and the snapshot if the plan has one.
async fn send_answer(
    server: &Server,
    outbox: &Outbox,
    request: &ObserveRequest,
    plan: &ReplayPlan,
    lang: Lang,
) -> Result<(), OutboxClosed> {
    if request.mode != ObserveMode::Fresh {
        let restored = (request.mode == ObserveMode::Restore).then(|| RestoredState {
            step: plan.state.turn.as_ref().map_or(0, |turn| turn.step),
            messages: plan.state.history.len(),
            stage: None,
        });
        let resumption = Resumption {
            session: request.session,
            command: request.command.as_ref(),
            epoch: plan.info.epoch,
            cursor: request.after,
            head: plan.info.head,
            coverage: plan.coverage,
            restored,
        };
        let frame = render_resumption(server.now(), &resumption, lang);
        outbox.send(EncodedFrame::from(&frame)).await?;
    }
    // An observer of records notices the gap by their positions.
    if plan.is_snapshot && request.format != ObserverFormat::Records {
        let (session, epoch) = (request.session, plan.info.epoch);
        let frame = project::snapshot(server.now(), session, epoch, &plan.state, Some(lang));
        outbox.send(EncodedFrame::from(&frame)).await?;
    }
    Ok(())
}

/// Sends the history after `at`, up to `until` or its end. Returns the number of frames.
async fn replay(
    client: &Connection,
    session: SessionId,
    encoder: &mut RecordEncoder,
    at: &mut Seq,
    until: Seq,
) -> Result<u64, ObserveError> {
    let (server, outbox) = (&client.server, &client.outbox);
    let mut count = 0;
    while *at < until {
        // Reads a page only once the outbox has room.
        outbox.wait_for_room().await?;
        let mut frames = Vec::new();
        let head = {
            let _slot = server.replays.acquire(client.permit.charge_replay(until - *at)).await;
            let page = server.journal.read(session, *at, PAGE).await?;
            if let Some(gap) = page.gap {
                return Err(gap_fault(session, &gap).into());
            }
            for stored in page.records.iter().take_while(|stored| stored.seq <= until) {
                *at = stored.seq;
                frames.extend(encoder.encode_or_skip(stored));
            }
            page.head
        };
        count += frames.len() as u64;
        for frame in frames {
            outbox.send(frame).await?;
        }
        if *at >= head {
            break;
        }
    }
    Ok(count)
}

/// The fault if retention removes records during a replay. A new resume gets a snapshot.
fn gap_fault(session: SessionId, gap: &Gap) -> Fault {
    Fault::new(Kind::HistoryGap, Operation::ReplayEvents)
        .with(Fact::Session, session.to_string())
        .with(Fact::FromSeq, gap.from)
        .with(Fact::ToSeq, gap.to)
        .with(Fact::OldestSeq, gap.to + 1)
        .with(Fact::Reason, gap.reason.as_str())
}
