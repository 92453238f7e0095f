//! Becoming an observer: first what can be given, then what was missed, then live, without a seam.
//!
//! History is read by pages and sent as fast as the observer takes it; the hub is joined at the position
//! that was read. What happened meanwhile is in the hub's memory or read in one more round.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use budao_core::{
    Fault, Kind, Lang,
    event::{CommandId, Epoch, Seq, SessionId},
    fault::{Fact, Operation},
    session::Session,
};
use budao_journal::{Gap, GapReason as Bound, HistoryInfo, Journal, PageLimits, fold_at};

use crate::{
    admission::PIECE,
    connection::{Connection, FOLD},
    frame::connection::{Coverage, GapReason, Head, RestoredState, Resumption, replayed, resuming},
    hub::{Hub, HubStart, JoinResult, MissedFrames},
    inbound::Cursor,
    outbox::{EncodedFrame, Outbox, OutboxClosed},
    project::{self, Projector},
    replay_scheduler::ReplayUsage,
    server::Server,
    session_meta::{SessionMeta, unknown},
};

/// What is read at once. Small, so that many who come back at once share the machine and its memory: everybody holds
/// as much until there is room in their outbox.
const PAGE: PageLimits = PageLimits { records: PIECE as usize, bytes: 32 * 1024 };

/// How somebody becomes an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObserveMode {
    /// They just opened it, or sent it something: frames come without a word.
    Fresh,
    /// They come back with a cursor.
    Resume,
    /// They come back with a signed state.
    Restore,
}

/// Who wants to observe what, from where.
#[derive(Clone, Debug)]
pub(crate) struct ObserveRequest {
    pub(crate) session: SessionId,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) after: Seq,
    pub(crate) command: Option<CommandId>,
    pub(crate) how: ObserveMode,
    /// The language they read; none is the session's.
    pub(crate) language: Option<Lang>,
}

impl ObserveRequest {
    /// From the beginning, or from a cursor.
    pub(crate) fn new(session: SessionId, cursor: Option<Cursor>, how: ObserveMode) -> Self {
        let (epoch, after) = cursor.map_or((None, 0), |cursor| (cursor.epoch, cursor.seq));
        Self { session, epoch, after, command: None, how, language: None }
    }
}

/// Why somebody did not become an observer.
#[derive(Debug)]
pub(crate) enum ObserveError {
    /// They are gone.
    Disconnected,
    /// It cannot be done.
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

/// What can be given: worked out before anything is sent.
struct ReplayPlan {
    info: HistoryInfo,
    coverage: Coverage,
    /// Frames come after this position.
    start: Seq,
    /// The session at that position.
    state: Session,
    /// It is sent in place of what is lost.
    is_snapshot: bool,
}

/// Makes a client an observer.
pub(crate) async fn observe(
    client: &Connection,
    card: &SessionMeta,
    wish: &ObserveRequest,
) -> Result<Arc<Hub>, ObserveError> {
    let (server, outbox) = (&client.server, &client.outbox);
    let limits = &server.config.limits;
    let (mut own, mut others) = (None, 0);
    for hub in server.hubs.of(wish.session) {
        hub.leave(outbox);
        if hub.language == wish.language {
            own = Some(hub);
        } else {
            others += hub.observers();
        }
    }
    if let Some(hub) = own {
        hub.check_room(others, limits, server.now())?;
        if wish.how != ObserveMode::Restore
            && hub.remembers(wish.after)
            // Whoever asks again and again is read the history like everybody who does.
            && (wish.how == ObserveMode::Fresh || may_at_once(client, &hub, wish))
            && let Some(hub) = at_once(client, card, wish, hub, others).await?
        {
            return Ok(hub);
        }
    }
    let plan = {
        let _turn = server.replays.turn(client.ticket.replay(FOLD)).await;
        plan(server, wish).await?
    };
    let mut projector = Projector::new(&plan.state, plan.start);
    if let Some(language) = wish.language {
        projector = projector.speaking(language);
    }
    let lang = projector.language();
    answer(server, outbox, wish, &plan, lang).await?;
    if plan.coverage == Coverage::Expired {
        return Err(ObserveError::Disconnected);
    }
    let until = plan.info.head;
    let mut at = plan.start;
    let count = replay(client, wish.session, &mut projector, &mut at, until).await?;
    if wish.how != ObserveMode::Fresh {
        for frame in projector.open_questions(wish.session, server.now()) {
            outbox.send(EncodedFrame::from(&frame)).await?;
        }
        let (session, epoch) = (wish.session, plan.info.epoch);
        let head = Head { session, epoch, seq: at, frame: projector.last() };
        let frame = replayed(server.now(), head, count, plan.coverage, lang);
        outbox.send(EncodedFrame::from(&frame)).await?;
    }
    loop {
        let start = HubStart {
            session: wish.session,
            language: wish.language,
            epoch: Some(plan.info.epoch).filter(|_| until > 0),
            at,
            frame: projector.last(),
            projector: projector.clone(),
            on_disconnect: card.on_disconnect,
        };
        let hub = server.hubs.get_or_start(server, start);
        match hub.join(outbox, at, others, limits, server.now())? {
            JoinResult::Live => return Ok(hub),
            JoinResult::Closed => tokio::task::yield_now().await,
            JoinResult::Behind => {
                replay(client, wish.session, &mut projector, &mut at, Seq::MAX).await?;
            }
        }
    }
}

/// May the client have from memory what it missed, or has it had much?
fn may_at_once(client: &Connection, hub: &Hub, wish: &ObserveRequest) -> bool {
    client.ticket.replay(hub.standing().head.saturating_sub(wish.after)) == ReplayUsage::Light
}

/// Joins a hub that remembers everything since the cursor; none if it does not any more.
async fn at_once(
    client: &Connection,
    card: &SessionMeta,
    wish: &ObserveRequest,
    hub: Arc<Hub>,
    others: usize,
) -> Result<Option<Arc<Hub>>, ObserveError> {
    let (server, outbox) = (&client.server, &client.outbox);
    let standing = hub.standing();
    let Some(epoch) = standing.epoch else { return Ok(None) };
    if wish.epoch.is_some_and(|named| named != epoch) {
        return Ok(None);
    }
    let limits = &server.config.limits;
    if wish.how == ObserveMode::Fresh {
        let joined = hub.join(outbox, wish.after, others, limits, server.now())?;
        return Ok((joined == JoinResult::Live).then_some(hub));
    }
    // The answer comes first, so what is remembered is asked for, not pushed.
    let Some(MissedFrames { frames, asked, standing }) = hub.missed(wish.after) else {
        return Ok(None);
    };
    let now = server.now();
    let language = wish.language.unwrap_or(card.language);
    let resumption = Resumption {
        session: wish.session,
        command: wish.command.as_ref(),
        epoch,
        cursor: wish.after,
        head: standing.head,
        coverage: Coverage::Complete,
        restored: None,
    };
    outbox.send(EncodedFrame::from(&resuming(now, &resumption, language))).await?;
    let count = frames.len() as u64;
    for frame in frames.into_iter().chain(asked) {
        outbox.send(frame).await?;
    }
    let head = Head {
        session: wish.session,
        epoch,
        seq: standing.head,
        frame: standing.frame.max(wish.after.min(standing.head)),
    };
    let frame = replayed(now, head, count, Coverage::Complete, language);
    outbox.send(EncodedFrame::from(&frame)).await?;
    match hub.join(outbox, standing.head, others, limits, server.now())? {
        JoinResult::Live => Ok(Some(hub)),
        // It went on too fast or ended: what is missed is read, the answer has been given.
        JoinResult::Behind | JoinResult::Closed => {
            let wish =
                ObserveRequest { after: standing.head, how: ObserveMode::Fresh, ..wish.clone() };
            Box::pin(observe(client, card, &wish)).await.map(Some)
        }
    }
}

/// Works out what can be given.
async fn plan(server: &Server, wish: &ObserveRequest) -> Result<ReplayPlan, Fault> {
    let journal = &*server.journal;
    let info = journal.info(wish.session).await?.ok_or_else(|| unknown(wish.session))?;
    let is_other = wish.epoch.is_some_and(|epoch| epoch != info.epoch) || wish.after > info.head;
    let (after, mut coverage) = match is_other {
        true => (0, Coverage::EpochMismatch),
        false => (wish.after, Coverage::Complete),
    };
    if after + 1 < info.first_available {
        let page = journal.read(wish.session, after, PageLimits { records: 1, bytes: 1 }).await?;
        let Some(state) = latest(journal, wish.session).await? else {
            return Ok(expired(info));
        };
        let start = state.head;
        if coverage == Coverage::Complete {
            let reason = reason_of(page.gap.as_ref());
            coverage = Coverage::Gap { from: after + 1, to: start, reason };
        }
        return Ok(ReplayPlan { info, coverage, start, state, is_snapshot: true });
    }
    let state = match after {
        0 => Session::default(),
        _ => fold_at(journal, wish.session, after).await?,
    };
    Ok(ReplayPlan { info, coverage, start: after, state, is_snapshot: false })
}

/// The session at its newest snapshot; none if there is none that can be read.
async fn latest(journal: &dyn Journal, session: SessionId) -> Result<Option<Session>, Fault> {
    let Some(snapshot) = journal.snapshot(session).await? else { return Ok(None) };
    Ok(serde_json::from_slice(&snapshot.body).ok())
}

/// Neither the records nor a snapshot reach back: nothing can be given.
fn expired(info: HistoryInfo) -> ReplayPlan {
    let (start, state) = (info.head, Session::default());
    ReplayPlan { info, coverage: Coverage::Expired, start, state, is_snapshot: false }
}

fn reason_of(gap: Option<&Gap>) -> GapReason {
    match gap.map(|gap| gap.reason) {
        Some(Bound::Count) => GapReason::Count,
        Some(Bound::Bytes) => GapReason::Bytes,
        Some(Bound::Age) | None => GapReason::Age,
    }
}

/// Says what will come.
async fn answer(
    server: &Server,
    outbox: &Outbox,
    wish: &ObserveRequest,
    plan: &ReplayPlan,
    lang: Lang,
) -> Result<(), OutboxClosed> {
    if wish.how != ObserveMode::Fresh {
        let restored = (wish.how == ObserveMode::Restore).then(|| RestoredState {
            step: plan.state.turn.as_ref().map_or(0, |turn| turn.step),
            messages: plan.state.history.len(),
            stage: None,
        });
        let resumption = Resumption {
            session: wish.session,
            command: wish.command.as_ref(),
            epoch: plan.info.epoch,
            cursor: wish.after,
            head: plan.info.head,
            coverage: plan.coverage,
            restored,
        };
        let frame = resuming(server.now(), &resumption, lang);
        outbox.send(EncodedFrame::from(&frame)).await?;
    }
    if plan.is_snapshot {
        let frame =
            project::snapshot(server.now(), wish.session, plan.info.epoch, &plan.state, None);
        outbox.send(EncodedFrame::from(&frame)).await?;
    }
    Ok(())
}

/// Sends the history after `at`, up to `until` or its end, and says how many frames that were.
async fn replay(
    client: &Connection,
    session: SessionId,
    projector: &mut Projector,
    at: &mut Seq,
    until: Seq,
) -> Result<u64, ObserveError> {
    let (server, outbox) = (&client.server, &client.outbox);
    let mut count = 0;
    while *at < until {
        // Nothing is read before it can go somewhere.
        outbox.room().await?;
        let mut frames = Vec::new();
        let head = {
            let _turn = server.replays.turn(client.ticket.replay(until - *at)).await;
            let page = server.journal.read(session, *at, PAGE).await?;
            if let Some(gap) = page.gap {
                return Err(overtaken(session, &gap).into());
            }
            for stored in page.records.iter().take_while(|stored| stored.seq <= until) {
                *at = stored.seq;
                frames.extend(projector.encode_or_skip(stored));
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

/// Retention was faster than the observer; coming back gives a snapshot.
fn overtaken(session: SessionId, gap: &Gap) -> Fault {
    Fault::new(Kind::HistoryGap, Operation::ReplayEvents)
        .with(Fact::Session, session.to_string())
        .with(Fact::FromSeq, gap.from)
        .with(Fact::ToSeq, gap.to)
        .with(Fact::OldestSeq, gap.to + 1)
        .with(Fact::Reason, gap.reason.as_str())
}
