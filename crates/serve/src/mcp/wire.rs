//! JSON-RPC messages and the headers of both eras.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

/// The protocol versions that this server speaks, the newest first.
pub(super) const VERSIONS: [&str; 4] = [STATELESS, "2025-11-25", "2025-06-18", "2025-03-26"];
/// The version without a handshake.
const STATELESS: &str = "2026-07-28";
/// The prefix of the protocol's own fields in `_meta`.
const PREFIX: &str = "io.modelcontextprotocol/";
/// The extension for calls that end later.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// An error of the protocol, with the status of its response.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RpcError {
    pub(super) status: StatusCode,
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl RpcError {
    fn new(status: StatusCode, code: i64, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    /// −32600: the message is not a request.
    pub(super) fn invalid_request(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32_600, message)
    }

    /// −32602: the parameters do not fit.
    pub(super) fn invalid_params(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, -32_602, message)
    }

    fn header_mismatch(header: &str) -> Self {
        let message = format!("the header {header} is missing or differs from the body");
        Self::new(StatusCode::BAD_REQUEST, -32_020, message)
    }

    fn unsupported_version(requested: &str) -> Self {
        let requested: String = requested.chars().take(40).collect();
        let data = json!({ "supported": VERSIONS, "requested": requested });
        let message = "this protocol version is not supported";
        Self { data: Some(data), ..Self::new(StatusCode::BAD_REQUEST, -32_022, message) }
    }

    /// The error as a response to the request with this id.
    pub(super) fn respond(self, id: &Value) -> Response {
        (self.status, Json(self.body(id))).into_response()
    }

    /// The message that answers the request with this id.
    pub(super) fn body(self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = self.data {
            error["data"] = data;
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

/// The era of the client's protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// With a handshake, up to 2025-11-25.
    Handshake,
    /// Every request is complete: 2026-07-28.
    Stateless,
}

/// A request or a notification.
#[derive(Clone, Debug)]
pub(super) struct RpcRequest {
    /// `None` for a notification, which gets no answer.
    pub(super) id: Option<Value>,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
    pub(super) era: Era,
}

impl RpcRequest {
    #[expect(clippy::result_large_err, reason = "a refusal becomes the response at once")]
    /// Reads a message. Answers to requests of the server are `None`: it sends none.
    pub(super) fn read(
        mut body: Map<String, Value>,
        headers: &HeaderMap,
    ) -> Result<Option<Self>, (Value, RpcError)> {
        let id = body.remove("id");
        let shown = match &id {
            Some(id @ (Value::String(_) | Value::Number(_))) => id.clone(),
            _ => Value::Null,
        };
        let refuse = |error| (shown.clone(), error);
        if id.is_some() && shown.is_null() {
            return Err(refuse(RpcError::invalid_request("the id is a text or a number")));
        }
        if body.get("jsonrpc") != Some(&json!("2.0")) {
            return Err(refuse(RpcError::invalid_request("jsonrpc is \"2.0\"")));
        }
        let method = match body.remove("method") {
            Some(Value::String(method)) => method,
            None if body.contains_key("result") || body.contains_key("error") => return Ok(None),
            _ => return Err(refuse(RpcError::invalid_request("the method is a text"))),
        };
        let params = match body.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => {
                let error =
                    RpcError::invalid_params(StatusCode::BAD_REQUEST, "params is an object");
                return Err(refuse(error));
            }
        };
        let era = read_era(&method, &params, headers, id.is_some()).map_err(refuse)?;
        Ok(Some(Self { id, method, params, era }))
    }

    /// A field of the protocol in `_meta`.
    fn meta(&self, name: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(format!("{PREFIX}{name}"))
    }

    /// Whether the client can follow a call that ends later.
    pub(super) fn has_tasks(&self) -> bool {
        let extensions = self.meta("clientCapabilities").and_then(|it| it.get("extensions"));
        extensions.is_some_and(|extensions| extensions.get(TASKS).is_some())
    }

    /// The key that makes a repeated call the same call, if the client sends one outside of the arguments.
    pub(super) fn idempotency_key(&self) -> Option<&str> {
        self.params.get("_meta")?.get("budao/idempotencyKey")?.as_str()
    }

    /// A text among the parameters.
    pub(super) fn text(&self, name: &str) -> Result<&str, RpcError> {
        let value = self.params.get(name).and_then(Value::as_str);
        let status = match self.era {
            Era::Handshake => StatusCode::OK,
            Era::Stateless => StatusCode::BAD_REQUEST,
        };
        value.ok_or_else(|| RpcError::invalid_params(status, format!("{name} is a text")))
    }

    /// The error of a method that does not exist.
    pub(super) fn unknown_method(&self) -> RpcError {
        let status = match self.era {
            Era::Handshake => StatusCode::OK,
            Era::Stateless => StatusCode::NOT_FOUND,
        };
        let method: String = self.method.chars().take(80).collect();
        RpcError::new(status, -32_601, format!("there is no method {method}"))
    }

    /// The result as a response.
    pub(super) fn respond(&self, result: Value) -> Response {
        Json(self.body(result)).into_response()
    }

    /// The message that carries a result. In the stateless era, a result also has its type and the server's name.
    pub(super) fn body(&self, mut result: Value) -> Value {
        if self.era == Era::Stateless {
            if result.get("resultType").is_none() {
                result["resultType"] = "complete".into();
            }
            result["_meta"][format!("{PREFIX}serverInfo")] = server_info();
        }
        json!({ "jsonrpc": "2.0", "id": self.id, "result": result })
    }
}

/// The name and version of this server.
pub(super) fn server_info() -> Value {
    json!({ "name": "budao", "title": "Budao", "version": env!("CARGO_PKG_VERSION") })
}

/// Decides the era of a message by its version, and checks the headers that the era demands.
fn read_era(
    method: &str,
    params: &Map<String, Value>,
    headers: &HeaderMap,
    is_request: bool,
) -> Result<Era, RpcError> {
    let header = header_text(headers, "mcp-protocol-version");
    let meta = params.get("_meta");
    let field = |name: &str| meta.and_then(|meta| meta.get(format!("{PREFIX}{name}")));
    let version = field("protocolVersion").and_then(Value::as_str);
    let is_new = version.is_some() || header == Some(STATELESS) || method == "server/discover";
    if !is_new {
        return match header {
            Some(other) if !VERSIONS.contains(&other) => Err(RpcError::unsupported_version(other)),
            _ => Ok(Era::Handshake),
        };
    }
    if !is_request {
        return Ok(Era::Stateless);
    }
    let bad = |message: &str| RpcError::invalid_params(StatusCode::BAD_REQUEST, message);
    let version = version.ok_or_else(|| bad("_meta has no protocolVersion"))?;
    if header != Some(version) {
        return Err(RpcError::header_mismatch("MCP-Protocol-Version"));
    }
    if version != STATELESS {
        return Err(RpcError::unsupported_version(version));
    }
    if !field("clientCapabilities").is_some_and(Value::is_object) {
        return Err(bad("_meta has no clientCapabilities"));
    }
    if header_text(headers, "mcp-method") != Some(method) {
        return Err(RpcError::header_mismatch("Mcp-Method"));
    }
    check_name(method, params, headers)?;
    Ok(Era::Stateless)
}

/// Checks that the header `Mcp-Name` repeats the name of the tool or task in the request.
fn check_name(
    method: &str,
    params: &Map<String, Value>,
    headers: &HeaderMap,
) -> Result<(), RpcError> {
    let field = match method {
        "tools/call" => "name",
        method if method.starts_with("tasks/") => "taskId",
        _ => return Ok(()),
    };
    let Some(name) = params.get(field).and_then(Value::as_str) else { return Ok(()) };
    let header = header_text(headers, "mcp-name").map(decode_header);
    match header {
        Some(Some(given)) if given == name => Ok(()),
        // Early clients of the extension do not send it.
        None if field == "taskId" => Ok(()),
        _ => Err(RpcError::header_mismatch("Mcp-Name")),
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Decodes a header's value; `=?base64?…?=` carries text that a header cannot.
fn decode_header(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &str)], body: Value) -> Result<Era, i64> {
        let headers = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), value.parse().expect("a header"))
        });
        let Value::Object(body) = body else { panic!("not an object") };
        match RpcRequest::read(body, &headers.collect()) {
            Ok(request) => Ok(request.expect("a request").era),
            Err((_, error)) => Err(error.code),
        }
    }

    fn call(version: &str, name: &str) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "_meta": meta } })
    }

    #[test]
    fn the_era_is_that_of_the_version_and_its_headers_are_checked() {
        let version = ("mcp-protocol-version", STATELESS);
        let method = ("mcp-method", "tools/call");
        let good = [version, method, ("mcp-name", "=?base64?w6Q=?=")];
        assert_eq!(read(&good, call(STATELESS, "ä")), Ok(Era::Stateless));
        assert_eq!(read(&good, call(STATELESS, "b")), Err(-32_020));
        assert_eq!(read(&good[..2], call(STATELESS, "a")), Err(-32_020));
        assert_eq!(read(&[version], call(STATELESS, "a")), Err(-32_020));
        assert_eq!(read(&[], call(STATELESS, "a")), Err(-32_020));
        assert_eq!(read(&good, call("2030-01-01", "ä")), Err(-32_020));
        let unknown = [("mcp-protocol-version", "2030-01-01"), method];
        assert_eq!(read(&unknown, call("2030-01-01", "a")), Err(-32_022));
        let plain = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        assert_eq!(read(&[], plain.clone()), Ok(Era::Handshake));
        assert_eq!(
            read(&[("mcp-protocol-version", "2025-11-25")], plain.clone()),
            Ok(Era::Handshake)
        );
        assert_eq!(read(&[version], plain.clone()), Err(-32_602));
        assert_eq!(read(&unknown, plain), Err(-32_022));
    }

    #[test]
    fn a_message_that_is_not_a_request_is_refused() {
        for body in [
            json!({}),
            json!({ "jsonrpc": "2.0", "id": 1 }),
            json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": {}, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": 7 }),
        ] {
            assert_eq!(read(&[], body.clone()), Err(-32_600), "{body}");
        }
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1] });
        assert_eq!(read(&[], list), Err(-32_602));
    }
}
