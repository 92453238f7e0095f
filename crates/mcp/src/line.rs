//! Parses one message per line, and recovers the id from a line that is not a valid message.
//!
//! A call must not wait for its deadline because its answer is too long or unreadable. The parser looks for the id at
//! the beginning or end of the line, where every known SDK puts it, and substitutes an error for the answer.

use budao_tools::child::BoundedLine;
use rmcp::model::{ErrorCode, ErrorData, NumberOrString, RequestId, ServerJsonRpcMessage};
use serde_json::Value;

/// The code of the error that replaces an answer above the size limit.
pub(crate) const TOO_LONG: ErrorCode = ErrorCode(i32::MIN);

/// The code of the error that replaces an unreadable answer.
pub(crate) const UNREADABLE: ErrorCode = ErrorCode(i32::MIN + 1);

/// The result of parsing a line.
#[derive(Debug)]
pub(crate) enum ParsedMessage {
    /// A valid message.
    Message(ServerJsonRpcMessage),
    /// The error that replaces an unusable answer.
    StandIn(ServerJsonRpcMessage),
    /// A line that is neither a message nor an answer.
    Noise,
}

/// Parses a line, whole or cut.
pub(crate) fn read(line: &BoundedLine) -> ParsedMessage {
    let stand_in = match line {
        BoundedLine::Whole(line) => match message(line) {
            Ok(message) => return ParsedMessage::Message(message),
            Err(error) => {
                let text = String::from_utf8_lossy(line);
                let id = known_id(&text).or_else(|| answered_id(&text, &text));
                id.map(|id| stand_in(id, UNREADABLE, error.to_string()))
            }
        },
        BoundedLine::TooLong(skipped) => {
            let head = String::from_utf8_lossy(&skipped.head);
            let tail = String::from_utf8_lossy(&skipped.tail);
            answered_id(&head, &tail).map(|id| stand_in(id, TOO_LONG, skipped.bytes.to_string()))
        }
    };
    stand_in.map_or(ParsedMessage::Noise, ParsedMessage::StandIn)
}

/// Parses one JSON-RPC message.
pub(crate) fn message(text: &[u8]) -> Result<ServerJsonRpcMessage, serde_json::Error> {
    serde_json::from_slice(text)
}

fn stand_in(id: RequestId, code: ErrorCode, text: String) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::new(code, text, None), Some(id))
}

/// The id of a JSON text that is not a request, even if the rest of it is invalid.
fn known_id(text: &str) -> Option<RequestId> {
    let value: Value = serde_json::from_str(text).ok()?;
    if value.get("method").is_some() {
        return None;
    }
    as_id(value.get("id")?)
}

/// The id of an answer of which only the beginning and the end are known.
fn answered_id(head: &str, tail: &str) -> Option<RequestId> {
    let mut rest = head.trim_start().strip_prefix('{')?;
    let mut id = None;
    loop {
        let (key, after) = scalar(rest)?;
        let after = after.trim_start().strip_prefix(':')?;
        match key.as_str()? {
            // Servers use both orders: `jsonrpc, id, result` and `result, jsonrpc, id`.
            "result" | "error" => return id.or_else(|| id_at_end(tail)),
            "jsonrpc" => rest = scalar(after)?.1,
            "id" => {
                let (value, after) = scalar(after)?;
                id = Some(as_id(&value)?);
                rest = after;
            }
            _ => return None,
        }
        rest = rest.trim_start().strip_prefix(',')?;
    }
}

/// The id in a text that ends in `"id":7}`.
fn id_at_end(tail: &str) -> Option<RequestId> {
    let at = tail.rfind("\"id\"")?;
    let after = tail[at + 4..].trim_start().strip_prefix(':')?;
    let (value, rest) = scalar(after)?;
    let rest: String = rest.split_whitespace().collect();
    matches!(&*rest, "}" | ",\"jsonrpc\":\"2.0\"}").then(|| as_id(&value))?
}

/// The string or number at the beginning of a text, and the rest of the text.
fn scalar(text: &str) -> Option<(Value, &str)> {
    let text = text.trim_start();
    if !text.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let end = values.byte_offset();
    Some((value, &text[end..]))
}

fn as_id(value: &Value) -> Option<RequestId> {
    match value {
        Value::Number(number) => number.as_i64().map(NumberOrString::Number),
        Value::String(text) => Some(NumberOrString::String(text.as_str().into())),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use budao_tools::child::BoundedLines;

    use super::*;

    async fn first(text: &str, bytes_max: usize) -> BoundedLine {
        BoundedLines::new(text.as_bytes(), bytes_max).next().await.expect("a line")
    }

    fn id_of(line: &BoundedLine) -> Option<RequestId> {
        match read(line) {
            ParsedMessage::StandIn(ServerJsonRpcMessage::Error(error)) => error.id,
            ParsedMessage::Noise => None,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn the_call_of_an_answer_that_is_too_long_is_found() {
        let long = "x".repeat(2_000);
        let known = [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"text":"{long}"}}]}}}}"#),
            format!(r#"{{"result":{{"content":[{{"text":"{long}"}}]}},"jsonrpc":"2.0","id":7}}"#),
            format!(r#"{{ "jsonrpc": "2.0", "result": {{"text":"{long}"}}, "id": 7 }}"#),
        ];
        for text in known {
            assert_eq!(
                id_of(&first(&text, 1_000).await),
                Some(NumberOrString::Number(7)),
                "{}",
                &text[..60]
            );
        }
    }

    #[tokio::test]
    async fn a_request_or_an_inner_id_is_not_mistaken_for_an_answer() {
        let long = "x".repeat(2_000);
        let unknown = [
            format!(r#"{{"method":"m","params":{{"text":"{long}"}},"jsonrpc":"2.0","id":7}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"text":"{long}"}}}}"#),
            format!(r#"{{"result":{{"text":"{long}","id":7}}}}"#),
            long.clone(),
        ];
        for text in unknown {
            assert_eq!(id_of(&first(&text, 1_000).await), None, "{}", &text[..60]);
        }
    }

    #[test]
    fn an_unreadable_answer_still_ends_its_call() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#,
            "[".repeat(1_000),
            "]".repeat(1_000)
        );
        for text in [r#"{"jsonrpc":"2.0","id":7}"#, r#"{"jsonrpc":"2.0","id":7,"error":3}"#, &deep]
        {
            let line = BoundedLine::Whole(text.into());
            assert_eq!(id_of(&line), Some(NumberOrString::Number(7)), "{text}");
        }
        for text in ["log: ready", "{", r#"{"id":{}}"#, r#"{"id":7,"method":3}"#, "\u{1b}[0m"] {
            assert_eq!(id_of(&BoundedLine::Whole(text.into())), None, "{text}");
        }
    }
}
