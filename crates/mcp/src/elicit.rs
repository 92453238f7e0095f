//! Questions of a server to a person, as questions of the session.
//!
//! A question that cannot be shown is declined, and the person sees why: its schema is not a flat form, it asks for a
//! secret, or its address is not one to open. An address is shown with its host and never opened here.

use budao_core::elicitation::{Elicitation, ElicitationAnswer};
use budao_tools::CallContext;
use reqwest::Url;
use rmcp::model::{ElicitResult, ElicitationAction};
use serde_json::Value;

use crate::error::bounded;

/// Asks a person, and waits for the answer. `place` tells the questions of a call apart, equal in all its attempts.
pub(crate) async fn ask(
    server: &str,
    params: &Value,
    place: &str,
    context: &CallContext,
) -> ElicitResult {
    let elicitation = match read(server, params) {
        Ok(elicitation) => elicitation,
        Err(reason) => {
            tracing::warn!(server, %reason, "declined a question of a server");
            let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
            let reason = bounded(&reason);
            context
                .notes
                .show(format!("[{server}: question declined, {reason}] {}\n", bounded(message)));
            return ElicitResult::new(ElicitationAction::Decline);
        }
    };
    match context.memory.ask_person(&elicitation, place).await {
        ElicitationAnswer::Accepted(content) => {
            let result = ElicitResult::new(ElicitationAction::Accept);
            if content.is_null() { result } else { result.with_content(content) }
        }
        ElicitationAnswer::Declined => ElicitResult::new(ElicitationAction::Decline),
        ElicitationAnswer::Expired => ElicitResult::new(ElicitationAction::Cancel),
    }
}

/// Reads the parameters of a question. The text of an error says why it cannot be shown.
fn read(server: &str, params: &Value) -> Result<Elicitation, String> {
    let text = |key: &str| params.get(key).and_then(Value::as_str);
    let message = text("message").ok_or("it has no message")?;
    match text("mode").unwrap_or("form") {
        "form" => {
            let schema = params.get("requestedSchema").ok_or("it has no schema")?;
            Elicitation::form(server, message, schema)
        }
        "url" => {
            let url = text("url").ok_or("it has no address")?;
            let url = Url::parse(url).map_err(|_| "its address cannot be read")?;
            let host = checked_host(&url)?;
            Elicitation::address(server, message, url.as_str(), &host)
        }
        _ => Err("it is of an unknown mode".to_owned()),
    }
}

/// The host of an address that a person may open.
fn checked_host(url: &Url) -> Result<String, String> {
    if !matches!(url.scheme(), "https" | "http") {
        return Err("its address is not one of the web".to_owned());
    }
    // A name before the host makes an address look like one of another host.
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its address carries a name or a password".to_owned());
    }
    let host = url.host_str().ok_or("its address has no host")?;
    match url.port() {
        Some(port) => Ok(format!("{host}:{port}")),
        None => Ok(host.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn address(url: &str) -> Result<Elicitation, String> {
        read("s", &json!({ "mode": "url", "message": "Sign in", "url": url, "elicitationId": "1" }))
    }

    #[test]
    fn an_address_is_shown_with_the_host_it_leads_to() {
        let shown = address("https://login.example/start?to=bank").unwrap();
        assert_eq!(shown.host.as_deref(), Some("login.example"));
        assert_eq!(shown.url.as_deref(), Some("https://login.example/start?to=bank"));
        // A name in other letters is shown as what it is.
        assert_eq!(
            address("https://аpple.example/").unwrap().host.unwrap(),
            "xn--pple-43d.example"
        );
        for refused in [
            "https://bank.example@evil.example/",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "nothing",
        ] {
            assert!(address(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_question_that_is_no_form_is_not_asked() {
        assert!(read("s", &json!({ "message": "m" })).is_err());
        assert!(read("s", &json!({ "requestedSchema": { "type": "object" } })).is_err());
        let other = json!({ "mode": "voice", "message": "m" });
        assert!(read("s", &other).is_err());
        let form =
            json!({ "message": "m", "requestedSchema": { "type": "object", "properties": {} } });
        assert!(read("s", &form).is_ok());
    }
}
