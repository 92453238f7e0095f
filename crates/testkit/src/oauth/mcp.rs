//! The MCP server behind the login: the handshake, and a few tools.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{AccessToken, ServerPair};

/// The right that the tool `admin` needs.
const ADMIN: &str = "admin";

/// Takes a message of a client that has a token for this server.
pub(super) async fn message(
    State(shared): State<Arc<ServerPair>>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Response {
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let token = match admit(&shared, &headers, &method) {
        Ok(token) => token,
        Err(refusal) => return refusal,
    };
    let id = &message["id"];
    let result = match method.as_str() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "behind a login", "version": "0" },
        }),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            let tools = ["echo", "admin", "leak", "stream"].map(tool);
            json!({ "tools": tools })
        }
        "tools/call" => return call(&shared, id, &message["params"], &token),
        "server/discover" => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let answer = Json(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    ([("mcp-session-id", "the-session")], answer).into_response()
}

fn call(shared: &ServerPair, id: &Value, params: &Value, token: &AccessToken) -> Response {
    match params["name"].as_str().unwrap_or_default() {
        "admin" if !token.scope.split(' ').any(|scope| scope == ADMIN) => {
            let header = format!("Bearer error=\"insufficient_scope\", scope=\"{ADMIN}\"");
            (StatusCode::FORBIDDEN, [(header::WWW_AUTHENTICATE, header)]).into_response()
        }
        "leak" => text(id, &format!("your token is {}", token.token)),
        "stream" => {
            // The stream ends in the middle of the call, and the token with it.
            shared.ledger().tokens.iter_mut().for_each(|token| token.is_expired = true);
            let events = [(header::CONTENT_TYPE, "text/event-stream")];
            (events, format!("id: {id}\nretry: 10\ndata: \n\n")).into_response()
        }
        _ => text(id, "fine"),
    }
}

/// Continues a stream that ended in the middle of a call.
pub(super) async fn resume(State(shared): State<Arc<ServerPair>>, headers: HeaderMap) -> Response {
    let Some(last) = headers.get("last-event-id").and_then(|id| id.to_str().ok()) else {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    };
    if let Err(refusal) = admit(&shared, &headers, "resume") {
        return refusal;
    }
    let id: Value = serde_json::from_str(last).unwrap_or_default();
    let content = [json!({ "type": "text", "text": "resumed" })];
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } });
    ([(header::CONTENT_TYPE, "text/event-stream")], format!("data: {answer}\n\n")).into_response()
}

#[expect(clippy::result_large_err, reason = "the error is the response to the refused request")]
fn admit(shared: &ServerPair, headers: &HeaderMap, method: &str) -> Result<AccessToken, Response> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    let mut ledger = shared.ledger();
    ledger.requests.push((method.to_owned(), given.clone()));
    let known = ledger.tokens.iter().find(|known| Some(&known.token) == given.as_ref());
    let is_ours = |token: &&AccessToken| !token.is_expired && token.audience == shared.resource();
    known.filter(is_ours).cloned().ok_or_else(|| {
        let place = format!("{}/.well-known/oauth-protected-resource/mcp", shared.url);
        let header = format!("Bearer error=\"invalid_token\", resource_metadata=\"{place}\"");
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, header)]).into_response()
    })
}

fn text(id: &Value, text: &str) -> Response {
    let content = [json!({ "type": "text", "text": text })];
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } })).into_response()
}
