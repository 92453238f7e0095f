//! Requests to an authorization server, bounded in time and size. No redirect leads to another origin.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use budao_core::{Timestamp, world::World};
use http::{HeaderMap, StatusCode, header};
use reqwest::{RequestBuilder, Response, Url};
use serde::Deserialize;
use serde_json::Value;

use super::{AuthError, store::Login};
use crate::{config::shown_url, web};

/// The longest answer of an authorization server, in bytes.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// The time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The longest life of a token that is believed: ten years.
const LIFE_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
/// The longest token that is kept, in bytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// An answer to a request.
#[derive(Debug)]
pub(super) struct AuthAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The body, if it is JSON.
    pub(super) json: Option<Value>,
}

/// Sends a request that `build` makes.
pub(super) async fn ask(
    url: &Url,
    world: &World,
    build: impl FnOnce(&reqwest::Client) -> RequestBuilder,
) -> Result<AuthAnswer, AuthError> {
    let shown = shown_url(url.as_str());
    let failed = |why: &str| AuthError::Unavailable(format!("{shown} {why}"));
    let client = web::client(url, TIMEOUT).map_err(|_| failed("cannot be asked"))?;
    let request = build(&client).header(header::ACCEPT, "application/json");
    let answering = async {
        let response: Response = request.send().await.map_err(|_| failed("cannot be reached"))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_redirection() {
            return Err(AuthError::unusable(format!("{shown} leads to another address")));
        }
        let body = web::body(response, ANSWER_BYTES_MAX).await;
        let body = body.map_err(|_| failed("sent an answer that is too large or incomplete"))?;
        Ok(AuthAnswer { status, headers, json: serde_json::from_slice(&body).ok() })
    };
    tokio::select! {
        biased;
        answer = answering => answer,
        () = world.clock.sleep(TIMEOUT) => Err(failed("did not answer in time")),
    }
}

/// The tokens that an authorization server grants.
#[derive(Deserialize)]
pub(super) struct TokenGrant {
    access_token: String,
    token_type: String,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    expires_in: Option<Value>,
    #[serde(default)]
    scope: Option<String>,
}

/// How a client identifies itself at the token endpoint.
#[derive(Clone, Copy)]
pub(super) struct ClientIdentity<'a> {
    pub(super) id: &'a str,
    pub(super) secret: Option<&'a str>,
    pub(super) secret_in_body: bool,
}

impl<'a> ClientIdentity<'a> {
    pub(super) fn of(login: &'a Login) -> Self {
        let secret = login.client_secret.as_deref();
        Self { id: &login.client_id, secret, secret_in_body: login.secret_in_body }
    }
}

/// Sends a form to an endpoint. An error code of OAuth is returned as `Err(Ok(code))`.
pub(super) async fn post_form(
    endpoint: &Url,
    world: &World,
    client: ClientIdentity<'_>,
    form: &[(&str, &str)],
) -> Result<Result<Value, String>, AuthError> {
    let mut fields: BTreeMap<&str, &str> = form.iter().copied().collect();
    let basic = client.secret.filter(|_| !client.secret_in_body);
    if basic.is_none() {
        fields.insert("client_id", client.id);
    }
    if let Some(secret) = client.secret.filter(|_| client.secret_in_body) {
        fields.insert("client_secret", secret);
    }
    let body = encode(&fields);
    let answer = ask(endpoint, world, |http| {
        let request = http
            .post(endpoint.clone())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(body);
        match basic {
            Some(secret) => {
                let pair = format!("{}:{}", percent(client.id), percent(secret));
                request.header(header::AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)))
            }
            None => request,
        }
    })
    .await?;
    let shown = shown_url(endpoint.as_str());
    match (answer.status, answer.json) {
        (status, Some(json)) if status.is_success() => Ok(Ok(json)),
        (status, json) if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
            let code = json.as_ref().and_then(|json| json["error"].as_str());
            Ok(Err(code.map_or_else(|| format!("status_{}", status.as_u16()), error_code)))
        }
        (status, _) if status.is_success() => {
            Err(AuthError::unusable(format!("{shown} sent an answer that is not JSON")))
        }
        (status, _) => {
            Err(AuthError::Unavailable(format!("{shown} answered with status {}", status.as_u16())))
        }
    }
}

/// An error code of OAuth, without anything that is none: the description could repeat a secret.
pub(super) fn error_code(code: &str) -> String {
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    code.chars().filter(plain).take(60).collect()
}

/// Reads a grant into a login. A token of the old login that the answer does not replace stays.
pub(super) fn read_grant(json: Value, now: Timestamp, login: &mut Login) -> Result<(), AuthError> {
    let unusable = |what: &str| AuthError::unusable(format!("the authorization server {what}"));
    let grant = TokenGrant::deserialize(json).map_err(|_| unusable("sent no usable token"))?;
    if !grant.token_type.eq_ignore_ascii_case("bearer") {
        return Err(unusable("sent a token that is not a bearer token"));
    }
    let is_usable = |token: &str| {
        !token.is_empty()
            && token.len() <= TOKEN_BYTES_MAX
            && token.bytes().all(|b| b.is_ascii_graphic())
    };
    if !is_usable(&grant.access_token) {
        return Err(unusable("sent a token that cannot be sent in a header"));
    }
    // Some servers send the seconds as a text.
    let seconds = grant.expires_in.as_ref().and_then(|value| match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    });
    login.access_token = grant.access_token;
    login.expires_at =
        seconds.map(|life| now.after(Duration::from_secs(life).min(LIFE_MAX)).as_micros());
    if let Some(token) = grant.refresh_token.filter(|token| is_usable(token)) {
        login.refresh_token = Some(token);
    }
    if let Some(scope) = grant.scope {
        login.scopes = scope.split_whitespace().take(200).map(str::to_owned).collect();
    }
    login.is_expired = false;
    Ok(())
}

/// A form as it is sent.
pub(super) fn encode(fields: &BTreeMap<&str, &str>) -> String {
    let Ok(mut url) = Url::parse("http://form/") else { return String::new() };
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

fn percent(text: &str) -> String {
    let encoded = encode(&BTreeMap::from([("a", text)]));
    encoded.strip_prefix("a=").unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_grant_without_a_new_refresh_token_keeps_the_old_one() {
        let mut login = Login { refresh_token: Some("old".into()), ..Login::default() };
        let now = Timestamp::from_micros(1_000_000);
        let grant = json!({ "access_token": "a", "token_type": "bearer", "expires_in": "60" });
        read_grant(grant, now, &mut login).unwrap();
        assert_eq!(login.refresh_token.as_deref(), Some("old"));
        assert_eq!(login.expires_at, Some(61_000_000));
    }

    #[test]
    fn an_invalid_bearer_token_is_refused() {
        let now = Timestamp::from_micros(0);
        for grant in [
            json!({}),
            json!([1]),
            json!({ "access_token": "a", "token_type": "mac" }),
            json!({ "access_token": "", "token_type": "Bearer" }),
            json!({ "access_token": "a b", "token_type": "Bearer" }),
            json!({ "access_token": "a\r\nx: y", "token_type": "Bearer" }),
            json!({ "access_token": "é", "token_type": "Bearer" }),
        ] {
            assert!(read_grant(grant.clone(), now, &mut Login::default()).is_err(), "{grant}");
        }
        let endless =
            json!({ "access_token": "a", "token_type": "Bearer", "expires_in": u64::MAX });
        read_grant(endless, now, &mut Login::default()).unwrap();
    }

    #[test]
    fn an_error_of_a_server_brings_its_code_and_nothing_else() {
        assert_eq!(error_code("invalid_grant"), "invalid_grant");
        assert_eq!(error_code("no <b>\n token"), "nobtoken");
    }
}
