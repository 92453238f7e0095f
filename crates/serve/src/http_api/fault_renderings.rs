//! One recorded fault as each audience received it: the model's text from the catalog, the frame for users, and the log
//! line for operators.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Event, Fault, Kind, Record,
    event::{Seq, SessionId},
    fault::{Fact, Operation, text},
};
use budao_journal::{PageLimits, fold_at};
use serde::Serialize;
use serde_json::Value;

use super::{
    middleware::{Caller, fault_response},
    sessions::session_id,
};
use crate::{problem::Problem, project::Projector, server::Server, session_meta};

/// One fault as each audience received it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct FaultRenderings {
    /// Permanent code of the kind, such as `ERR_TIMEOUT_001`.
    code: &'static str,
    /// Name of the kind, such as `request_timed_out`.
    kind: &'static str,
    /// Short title of the kind, in the language of `Accept-Language`.
    title: String,
    /// The result of the call as the model received it; null if the fault does not end a call. The model does not receive
    /// such a fault.
    #[schema(value_type = Option<Object>)]
    model: Option<Value>,
    /// The frame that observers received, without `prev`; null if the event has no frame.
    #[schema(value_type = Option<Object>)]
    user: Option<Value>,
    /// The rendering for operators; null for other callers.
    operator: Option<OperatorRendering>,
}

/// One fault as rendered for operators.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct OperatorRendering {
    /// The fault's log line, without secrets.
    line: String,
    /// The host that failed, as far as it is known: `10.0.0.7:9000`. Users and the model do not see it.
    host: Option<String>,
    /// Messages of the foreign errors behind the fault, outermost first.
    causes: Vec<String>,
    /// What an operator should check, in the language of `Accept-Language`.
    check: String,
    /// Trace of the turn, 32 hex digits; null if the fault has none.
    trace_id: Option<String>,
    /// Number of the turn, from 1; 0 if the fault belongs to no turn.
    turn: u64,
    /// Time of the record, RFC 3339 in UTC.
    at: String,
}

/// One fault of a session, as rendered for the model, the user and the operator.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/faults/{seq}",
    params(
        ("session" = String, Path, description = "The session's id, a UUID"),
        ("seq" = u64, Path, description = "Position of the event that reports the fault, from 1"),
    ),
    responses(
        (status = 200, description = "The renderings of the fault", body = FaultRenderings),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn fault_renderings(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path((session, seq)): Path<(String, String)>,
) -> Response {
    match find_renderings(&server, &caller, &session, &seq).await {
        Ok(renderings) => Json(renderings).into_response(),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

async fn find_renderings(
    server: &Server,
    caller: &Caller,
    session: &str,
    seq: &str,
) -> Result<FaultRenderings, Fault> {
    let session = session_id(session)?;
    server.session_meta.check(&*server.journal, session, &caller.identity).await?;
    let seq: Seq =
        seq.parse().ok().filter(|seq| *seq > 0).ok_or_else(|| no_fault_at(session, seq))?;
    let record = read_record(server, session, seq).await?;
    let fault = record.event.fault().ok_or_else(|| no_fault_at(session, &seq.to_string()))?.clone();
    let state = fold_at(&*server.journal, session, seq - 1).await?;
    let model = match &record.event {
        Event::ToolCallEnded { call, outcome, .. } => {
            let call = state.turn.as_ref().and_then(|turn| turn.call(call));
            let written = call.map_or("", |call| &call.written);
            let (content, _) = outcome.render_for_caller(written, state.settings.language);
            serde_json::from_str(&content).ok()
        }
        _ => None,
    };
    let frame = Projector::new(&state, seq - 1).project(&record);
    let user = frame.and_then(|frame| serde_json::from_str(&frame.encode()).ok()).map(without_prev);
    Ok(FaultRenderings {
        code: fault.row().code,
        kind: fault.row().name,
        title: text::of_kind(fault.kind(), "title", caller.lang),
        model,
        user,
        operator: caller
            .identity
            .is_operator
            .then(|| render_for_operator(server, caller, &record, fault)),
    })
}

/// Removes `prev`, which differs per observer and has no meaning here.
fn without_prev(mut frame: Value) -> Value {
    if let Some(fields) = frame.as_object_mut() {
        fields.remove("prev");
    }
    frame
}

/// The record at exactly this position.
async fn read_record(server: &Server, session: SessionId, seq: Seq) -> Result<Record, Fault> {
    let one = PageLimits { records: 1, bytes: 1 };
    let page = server.journal.read(session, seq - 1, one).await?;
    let found = page.records.into_iter().find(|stored| stored.seq == seq);
    found.ok_or_else(|| session_meta::unknown_session(session))?.record()
}

fn render_for_operator(
    server: &Server,
    caller: &Caller,
    record: &Record,
    fault: Fault,
) -> OperatorRendering {
    let fault = fault.with_trace(record.trace).scrub(&server.config.scrubber);
    OperatorRendering {
        line: fault.to_string(),
        host: fault.address().map(str::to_owned),
        causes: fault.causes().to_vec(),
        check: text::of_kind(fault.kind(), "check", caller.lang),
        trace_id: fault.trace().is_some().then(|| fault.trace().to_string()),
        turn: record.turn,
        at: record.at.to_string(),
    }
}

/// The fault for a position whose record reports no fault.
fn no_fault_at(session: SessionId, seq: &str) -> Fault {
    Fault::new(Kind::BadRequest, Operation::ServeRequest)
        .with(Fact::Session, session.to_string())
        .with(Fact::Field, "seq")
        .with(Fact::Expected, "the position of an event that reports a fault")
        .with(Fact::Received, seq.chars().take(40).collect::<String>())
}
