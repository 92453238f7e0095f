//! Lists the sessions that an editor can load: those with a directory that belong to the bridge's engine.

use agent_client_protocol::{
    Error,
    v1::schema::{ListSessionsRequest, ListSessionsResponse, SessionInfo},
};
use budao_core::{
    event::{SessionId, engine_of},
    time::Timestamp,
};
use budao_journal::{Filter, SessionSummary};

use crate::{
    bridge::Bridge,
    editor_options::CWD,
    faults::{self, invalid},
};

/// Sessions per page.
const PAGE: usize = 50;

/// Returns one page of the list.
pub(crate) async fn page(
    bridge: &Bridge,
    request: ListSessionsRequest,
) -> Result<ListSessionsResponse, Error> {
    let cwd = request.cwd.map(|cwd| cwd.to_str().map(str::to_owned));
    let cwd = match cwd {
        Some(None) => return Err(invalid("cwd", "valid UTF-8")),
        Some(Some(cwd)) if !std::path::Path::new(&cwd).is_absolute() => {
            return Err(invalid("cwd", "an absolute path"));
        }
        other => other.flatten(),
    };
    let after = match request.cursor.as_deref().map(position) {
        Some(None) => return Err(invalid("cursor", "one that came with a list")),
        other => other.flatten(),
    };
    let filter =
        Filter { label: Some((CWD.to_owned(), cwd)), after, limit: PAGE, ..Filter::default() };
    let found = bridge
        .journal
        .sessions(filter)
        .await
        .map_err(|fault| faults::error(&fault, bridge.lang))?;
    let next = found.last().filter(|_| found.len() == PAGE).map(cursor);
    // Sessions of other engines are left out, because loading them is refused. A short or empty page may not
    // be the last.
    let ours =
        found.into_iter().filter(|found| engine_of(&found.labels) == bridge.editor_options.engine);
    Ok(ListSessionsResponse::new(ours.map(info).collect()).next_cursor(next))
}

fn info(summary: SessionSummary) -> SessionInfo {
    let cwd = summary.labels.get(CWD).cloned().unwrap_or_default();
    SessionInfo::new(summary.session.to_string(), cwd)
        .title(summary.title)
        .updated_at(summary.updated_at.to_string())
}

fn cursor(last: &SessionSummary) -> String {
    format!("{}.{}", last.updated_at.as_micros(), last.session)
}

fn position(cursor: &str) -> Option<(Timestamp, SessionId)> {
    let (at, session) = cursor.split_once('.')?;
    Some((Timestamp::from_micros(at.parse().ok()?), session.parse().ok()?))
}
