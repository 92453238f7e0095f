//! What stands in for history that is no longer kept, and questions that still wait for an answer.

use budao_core::{
    Event, Fault,
    event::{QuestionId, Seq, SessionId},
    session::{CallState, Phase, Session},
};
use budao_journal::{Journal, PageLimits, fold};

use crate::{
    observe::Failed,
    outbox::{Encoded, Outbox},
    project::Projector,
    server::Server,
};

/// What is read at once when a question is looked for.
const PAGE: PageLimits = PageLimits { records: 4096, bytes: 2 << 20 };

/// The session at its newest snapshot; none if there is none that can be read.
pub(crate) async fn latest(
    journal: &dyn Journal,
    session: SessionId,
) -> Result<Option<Session>, Fault> {
    let Some(snapshot) = journal.snapshot(session).await? else { return Ok(None) };
    Ok(serde_json::from_slice(&snapshot.body).ok())
}

/// Sends once more those questions that still wait for an answer: who lost the page it was on has lost the
/// question too. They keep their place, so who has them sees the repeat.
pub(crate) async fn ask_again(
    server: &Server,
    outbox: &Outbox,
    session: SessionId,
    questions: &[QuestionId],
    until: Seq,
) -> Result<(), Failed> {
    let journal = &*server.journal;
    let (state, _) = fold(journal, session).await?;
    let mut open = open_questions(&state);
    open.retain(|question| questions.contains(question));
    let mut projector = Projector::new(&Session::default(), 0);
    let mut at = 0;
    while at < until && !open.is_empty() {
        let page = journal.read(session, at, PAGE).await?;
        for stored in page.records.iter().take_while(|stored| stored.seq <= until) {
            at = stored.seq;
            let Ok(record) = stored.record() else { continue };
            let frame = projector.project(&record);
            let Event::QuestionAsked { question, .. } = &record.event else { continue };
            if let (Some(frame), true) = (frame, open.contains(question)) {
                outbox.send(Encoded::from(&frame)).await?;
            }
        }
        if page.records.is_empty() {
            break;
        }
    }
    Ok(())
}

/// The questions a person has not answered.
pub(crate) fn open_questions(state: &Session) -> Vec<QuestionId> {
    let Some(turn) = &state.turn else { return Vec::new() };
    let pipeline = state.pipeline.as_ref().filter(|_| turn.phase == Phase::Confirming);
    let of_plan = pipeline.and_then(|pipeline| pipeline.confirmation.as_ref());
    let of_calls = turn.calls.iter().filter_map(|call| match &call.state {
        CallState::Asked { question, .. } => Some(question.clone()),
        _ => None,
    });
    of_calls.chain(of_plan.map(|confirmation| confirmation.question.clone())).collect()
}
