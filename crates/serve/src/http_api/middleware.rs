//! Middleware for all requests: origin check, authentication and rate limits.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Lang,
    trace::{SpanId, Trace, parent_of},
};
use http::{HeaderMap, HeaderValue, header};

use crate::{
    auth::Identity,
    problem::{Problem, REQUEST_ID},
    server::Server,
};

/// The authenticated caller of a request, with language and trace.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) identity: Identity,
    pub(crate) lang: Lang,
    /// The language of `Accept-Language`; none if the header names none that the server speaks.
    pub(crate) accepted_lang: Option<Lang>,
    pub(crate) trace: Trace,
    /// The caller's span in that trace.
    pub(crate) parent: SpanId,
}

/// Assigns the request id and checks origin and host name.
pub(crate) async fn check_origin(
    State(server): State<Arc<Server>>,
    mut request: Request,
    next: Next,
) -> Response {
    let client_trace = read_trace(request.headers()).map(|(trace, _)| trace);
    let trace = client_trace.unwrap_or_else(|| server.world.trace());
    let lang = read_language(request.headers()).unwrap_or(server.config.settings.language);
    let response = match server.origin_policy.check(request.uri(), request.headers()) {
        Err(fault) => refuse(&server, fault, lang, trace),
        Ok(()) => {
            request.extensions_mut().insert((lang, trace));
            next.run(request).await
        }
    };
    add_headers(response, trace)
}

/// Authenticates a request and charges it to the tenant's limits.
pub(crate) async fn authenticate(
    State(server): State<Arc<Server>>,
    Extension((lang, trace)): Extension<(Lang, Trace)>,
    mut request: Request,
    next: Next,
) -> Response {
    let identity = match server.config.auth.identify(request.headers(), server.now()) {
        Ok(identity) => identity,
        Err(fault) => return refuse(&server, fault, lang, trace),
    };
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let bytes = announced.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0);
    if let Err(fault) = server.admission.charge_command(&identity.tenant, bytes) {
        return refuse(&server, fault, lang, trace);
    }
    let parent = read_trace(request.headers()).map_or(SpanId::NONE, |(_, parent)| parent);
    let accepted_lang = read_language(request.headers());
    request.extensions_mut().insert(Caller { identity, lang, accepted_lang, trace, parent });
    next.run(request).await
}

/// Renders a fault for the caller.
pub(crate) fn fault_response(server: &Server, fault: Fault, caller: &Caller) -> Response {
    refuse(server, fault, caller.lang, caller.trace)
}

pub(super) fn refuse(server: &Server, fault: Fault, lang: Lang, trace: Trace) -> Response {
    Problem::of(&server.scrub_for_client(fault, trace), lang).into_response()
}

fn add_headers(mut response: Response, trace: Trace) -> Response {
    if let Ok(name) = HeaderValue::from_str(&trace.to_string()) {
        response.headers_mut().insert(REQUEST_ID, name);
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn read_trace(headers: &HeaderMap) -> Option<(Trace, SpanId)> {
    parent_of(headers.get("traceparent")?.to_str().ok()?)
}

/// The first supported language of `Accept-Language`.
fn read_language(headers: &HeaderMap) -> Option<Lang> {
    let wanted = headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?;
    wanted.split(',').find_map(|tag| Lang::from_tag(tag.split(';').next()?.trim()))
}
