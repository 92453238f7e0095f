//! The web page: HTML shells in the reader's language, and their assets.
//!
//! A shell contains no data, so it needs no authentication. The page's scripts use `/ws` and `/v1` like any client.
//! They take the token from the URL's fragment, which browsers do not send to the server.

mod assets;
mod catalog;
mod shell;

use std::sync::Arc;

use askama::Template;
use axum::{
    Extension, Router,
    extract::{MatchedPath, Path, Request, State},
    middleware::{self, Next},
    response::{Html, IntoResponse as _, Response},
    routing::get,
};
use budao_core::{Fault, Kind, Lang, fault::Operation, trace::Trace};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use self::{catalog::KindExplanation, shell::Shell};
use crate::{problem::Problem, server::Server};

/// The content security policy: only the server's own files and connections, no inline code, and no text parsed as
/// markup or code.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

type ServerState = State<Arc<Server>>;
type RequestContext = Extension<(Lang, Trace)>;

/// The routes of the page. They contain no data, so they need no authentication.
pub(crate) fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/", get(try_it))
        .route("/sessions", get(sessions))
        .route("/sessions/{session}", get(session))
        .route("/now", get(now))
        .route("/faults", get(faults))
        .route("/faults/{code}", get(explain))
        .route("/machines", get(machines))
        .route("/assets/{*file}", get(asset))
        .layer(middleware::from_fn(add_headers))
}

/// Adds the security and cache headers.
async fn add_headers(request: Request, next: Next) -> Response {
    with_headers(next.run(request).await)
}

fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Defines a page that consists of its shell only.
macro_rules! shells {
    ($($handler:ident, $view:ident, $file:literal, $name:literal;)*) => {$(
        #[derive(Debug, Template)]
        #[template(path = $file)]
        struct $view {
            shell: Shell,
        }

        async fn $handler(server: ServerState, named: RequestContext, headers: HeaderMap) -> Response {
            let shell = Shell::new(&server.0, &named.0, &headers, $name);
            render_page(&server.0, &named.0, &$view { shell })
        }
    )*};
}

shells! {
    try_it, TryIt, "try.html", "try";
    sessions, Sessions, "sessions.html", "sessions";
    session, Session, "session.html", "session";
    machines, Machines, "machines.html", "machines";
}

/// Prefixes of addresses that are no pages; unknown ones among them are answered as problems.
const API_PREFIXES: [&str; 7] =
    ["/v1", "/api", "/ws", "/metrics", "/assets", "/smcp", "/socket.io"];

/// The page for an address that does not exist.
#[derive(Debug, Template)]
#[template(path = "missing.html")]
struct MissingPage {
    shell: Shell,
    wanted: String,
}

/// Answers a browser that opens an unknown address with a page. Programs get a problem.
pub(crate) async fn serve_missing(server: ServerState, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_page = request.extensions().get::<MatchedPath>().is_none()
        && request.method() == Method::GET
        && wants_html(request.headers())
        && !API_PREFIXES.iter().any(|prefix| path.starts_with(prefix));
    let named = request.extensions().get::<(Lang, Trace)>().copied();
    let Some(named) = named.filter(|_| is_page) else { return next.run(request).await };
    let shell = Shell::new(&server.0, &named, request.headers(), "missing");
    let wanted = path.chars().take(80).collect();
    let mut response = with_headers(render_page(&server.0, &named, &MissingPage { shell, wanted }));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// Shows current faults, with the titles and the remedies of all kinds.
#[derive(Debug, Template)]
#[template(path = "now.html")]
struct OverviewPage {
    shell: Shell,
    titles: String,
    remedies: String,
}

async fn now(server: ServerState, named: RequestContext, headers: HeaderMap) -> Response {
    let shell = Shell::new(&server.0, &named.0, &headers, "now");
    let (titles, remedies) = (catalog::titles(shell.lang), catalog::remedies(shell.lang));
    render_page(&server.0, &named.0, &OverviewPage { shell, titles, remedies })
}

/// The statistics page, with the titles of all kinds and the texts of all categories.
#[derive(Debug, Template)]
#[template(path = "faults.html")]
struct FaultsPage {
    shell: Shell,
    titles: String,
    categories: String,
}

async fn faults(server: ServerState, named: RequestContext, headers: HeaderMap) -> Response {
    let shell = Shell::new(&server.0, &named.0, &headers, "faults");
    let (titles, categories) = (catalog::titles(shell.lang), catalog::categories(shell.lang));
    render_page(&server.0, &named.0, &FaultsPage { shell, titles, categories })
}

/// The explanation of a fault kind, with the content of `budao explain`.
#[derive(Debug, Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    shell: Shell,
    wanted: String,
    kind: Option<KindExplanation>,
}

async fn explain(
    server: ServerState,
    named: RequestContext,
    headers: HeaderMap,
    Path(wanted): Path<String>,
) -> Response {
    let shell = Shell::new(&server.0, &named.0, &headers, "explain");
    let kind = catalog::find(&wanted).map(|kind| KindExplanation::of(kind, shell.lang));
    let found = kind.is_some();
    let wanted = wanted.chars().take(80).collect();
    let mut response = render_page(&server.0, &named.0, &ExplainPage { shell, wanted, kind });
    if !found {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

fn render_page(server: &Server, (lang, trace): &(Lang, Trace), view: &impl Template) -> Response {
    match view.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            let fault = Fault::new(Kind::Bug, Operation::ServeRequest).caused_by(&error);
            Problem::of(&server.scrub_for_client(fault, *trace), *lang).into_response()
        }
    }
}

async fn asset(Path(file): Path<String>, headers: HeaderMap) -> Response {
    let Some(asset) = assets::find(&file) else {
        return (StatusCode::NOT_FOUND, "no such file\n").into_response();
    };
    let kind = [(header::CONTENT_TYPE, asset.kind), (header::ETAG, asset.tag())];
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    match known {
        Some(known) if known == asset.tag() => (StatusCode::NOT_MODIFIED, kind).into_response(),
        _ => (kind, asset.text).into_response(),
    }
}
