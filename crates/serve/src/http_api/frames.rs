//! A session's frames up to now, one per line: a long history in one response, before a live connection.

use std::sync::Arc;

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{Path, Query, State, rejection::QueryRejection},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault,
    event::{Seq, SessionId},
};
use budao_journal::{PageLimits, fold_at};
use futures::stream;
use http::header;
use serde::Deserialize;

use super::{
    middleware::{Caller, fault_response},
    sessions::{bad_query_fault, session_id},
};
use crate::{problem::Problem, project::Projector, server::Server, session_meta};

/// Records read per chunk of the response.
const PAGE: PageLimits = PageLimits { records: 512, bytes: 512 * 1024 };

/// Start position of the frames.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(super) struct FramesQuery {
    /// The `seq` of the last frame that the client has; 0, the default, for all frames.
    last_seq: Seq,
}

/// The frames of a session up to now, as the WebSocket sends them, in the language of `Accept-Language`, else in
/// the session's. For live frames, reconnect with the last one as the cursor.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/frames",
    params(("session" = String, Path, description = "The session's id, a UUID"), FramesQuery),
    responses(
        (status = 200, description = "One frame per line", content_type = "application/x-ndjson"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn frames(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    from: Result<Query<FramesQuery>, QueryRejection>,
) -> Response {
    let begun = async {
        let Query(from) = from.map_err(|error| bad_query_fault(&error.body_text()))?;
        start_history(&server, &caller, &session, from.last_seq).await
    };
    match begun.await {
        Err(fault) => fault_response(&server, fault, &caller),
        Ok(past) => {
            let body = Body::from_stream(stream::try_unfold(past, FrameHistory::next));
            ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
        }
    }
}

async fn start_history(
    server: &Arc<Server>,
    caller: &Caller,
    session: &str,
    after: Seq,
) -> Result<FrameHistory, Fault> {
    let session = session_id(session)?;
    server.session_meta.check(&*server.journal, session, &caller.identity).await?;
    let info = server
        .journal
        .info(session)
        .await?
        .ok_or_else(|| session_meta::unknown_session(session))?;
    let state = {
        let _slot = server
            .replays
            .acquire(server.admission.charge_replay(&caller.identity.tenant, after))
            .await;
        fold_at(&*server.journal, session, after).await?
    };
    let projector = Projector::new(&state, after);
    let projector = match caller.accepted_lang {
        Some(lang) => projector.with_language(lang),
        None => projector,
    };
    let (server, tenant) = (Arc::clone(server), caller.identity.tenant.clone());
    Ok(FrameHistory { server, tenant, session, projector, at: after, until: info.head })
}

/// The state of a streamed response.
struct FrameHistory {
    server: Arc<Server>,
    tenant: String,
    session: SessionId,
    projector: Projector,
    at: Seq,
    until: Seq,
}

impl FrameHistory {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, Fault> {
        if self.at >= self.until {
            return Ok(None);
        }
        let server = Arc::clone(&self.server);
        let _slot = server
            .replays
            .acquire(server.admission.charge_replay(&self.tenant, self.until - self.at))
            .await;
        let page = server.journal.read(self.session, self.at, PAGE).await?;
        let mut lines = String::new();
        for stored in page.records.iter().filter(|stored| stored.seq <= self.until) {
            self.at = stored.seq;
            if let Some(frame) = self.projector.encode(stored)? {
                lines.push_str(&frame.text);
                lines.push('\n');
            }
        }
        if page.records.is_empty() {
            self.at = self.until;
        }
        Ok(Some((lines.into(), self)))
    }
}
