//! Lists the sessions that an editor can load: those with a directory that belong to the bridge's engine.

use agent_client_protocol::{
    Error,
    v1::schema::{ListSessionsRequest, ListSessionsResponse, SessionInfo},
};
use budao_core::{
    event::{Event, Origin, SessionId, engine_of},
    time::Timestamp,
};
use budao_journal::{Filter, PageLimits, Reader, SessionSummary};

use crate::{
    bridge::Bridge,
    editor_options::CWD,
    faults::{self, invalid_params},
};

/// Sessions per page.
const PAGE_SESSIONS: usize = 50;

/// Returns one page of the list.
pub(crate) async fn read_page(
    bridge: &Bridge,
    request: ListSessionsRequest,
) -> Result<ListSessionsResponse, Error> {
    let cwd = request.cwd.map(|cwd| cwd.to_str().map(str::to_owned));
    let cwd = match cwd {
        Some(None) => return Err(invalid_params("cwd", "valid UTF-8")),
        Some(Some(cwd)) if !std::path::Path::new(&cwd).is_absolute() => {
            return Err(invalid_params("cwd", "an absolute path"));
        }
        other => other.flatten(),
    };
    let after = match request.cursor.as_deref().map(parse_cursor) {
        Some(None) => return Err(invalid_params("cursor", "a cursor returned by `session/list`")),
        other => other.flatten(),
    };
    let filter = Filter {
        label: Some((CWD.to_owned(), cwd)),
        after,
        limit: PAGE_SESSIONS,
        ..Filter::default()
    };
    let found = bridge
        .journal
        .sessions(filter)
        .await
        .map_err(|fault| faults::to_error(&fault, bridge.lang))?;
    let next = found.last().filter(|_| found.len() == PAGE_SESSIONS).map(encode_cursor);
    // Sessions of other engines are left out, because loading them is refused, and so are the sessions of sub-tasks.
    // A short or empty page may not be the last.
    let mut listed = Vec::new();
    for summary in found {
        let is_ours = engine_of(&summary.labels) == bridge.editor_options.engine;
        if is_ours && !is_child(&*bridge.journal, summary.session).await {
            listed.push(session_info(summary));
        }
    }
    Ok(ListSessionsResponse::new(listed).next_cursor(next))
}

/// Whether the session is a child of another one, opened for a task and without a user; `false` if its origin cannot
/// be read.
async fn is_child(journal: &dyn Reader, session: SessionId) -> bool {
    let one = PageLimits { records: 1, ..PageLimits::default() };
    let Ok(page) = journal.read(session, 0, one).await else { return false };
    let first = page.records.first().and_then(|stored| stored.record().ok());
    let is_child = |origin: &Origin| matches!(origin, Origin::Call { .. } | Origin::Stage { .. });
    matches!(
        first.map(|record| record.event),
        Some(Event::SessionOpened { origin: Some(origin), .. }) if is_child(&origin)
    )
}

fn session_info(summary: SessionSummary) -> SessionInfo {
    let cwd = summary.labels.get(CWD).cloned().unwrap_or_default();
    SessionInfo::new(summary.session.to_string(), cwd)
        .title(summary.title)
        .updated_at(summary.updated_at.to_string())
}

fn encode_cursor(last: &SessionSummary) -> String {
    format!("{}.{}", last.updated_at.as_micros(), last.session)
}

fn parse_cursor(cursor: &str) -> Option<(Timestamp, SessionId)> {
    let (at, session) = cursor.split_once('.')?;
    Some((Timestamp::from_micros(at.parse().ok()?), session.parse().ok()?))
}
