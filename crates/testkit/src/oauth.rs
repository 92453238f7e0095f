//! An MCP server behind OAuth, with its authorization server, that can do what real ones get wrong.
//!
//! Both live on one address. The authorization endpoint approves at once: it redirects with a code. Tokens are plain
//! numbered texts, so that a test can look for them where they must not be.

mod mcp;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Form, Json, Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

type FormFields = BTreeMap<String, String>;

/// What the servers do wrong. The default is right in everything.
#[derive(Clone, Debug, Default)]
pub struct OauthBehaviour {
    /// Answers a refresh without a new refresh token, and accepts the old one again. Otherwise each works once.
    pub no_rotation: bool,
    /// The resource that the metadata claims to be.
    pub wrong_resource: Option<String>,
    /// The issuer that the metadata of the authorization server claims to be.
    pub wrong_issuer: Option<String>,
    /// The issuer that the answer to the browser names.
    pub wrong_iss: Option<String>,
    /// Names no issuer in the answer to the browser.
    pub no_iss: bool,
    /// Seconds that a token lives by its own account; 3 600 if absent.
    pub expires_in: Option<Value>,
    /// Where the token endpoint redirects to.
    pub token_redirect: Option<String>,
    /// The address of the token endpoint in the metadata.
    pub token_endpoint: Option<String>,
    /// Issues tokens for this audience, whatever was asked for.
    pub audience: Option<String>,
    /// Does not say that it supports PKCE.
    pub no_pkce: bool,
    /// Registers no clients.
    pub no_registration: bool,
    /// Reads client-id metadata documents.
    pub client_documents: bool,
    /// Has no metadata of the resource: the MCP server is its own authorization server.
    pub no_resource_metadata: bool,
}

/// A running pair of servers.
#[derive(Clone, Debug)]
pub struct OauthServer {
    /// The origin of both.
    pub url: String,
    shared: Arc<ServerPair>,
}

#[derive(Debug)]
struct ServerPair {
    url: String,
    behaviour: OauthBehaviour,
    ledger: Mutex<Ledger>,
}

/// What the servers have seen and granted.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The forms that the token endpoint got.
    pub token_forms: Vec<FormFields>,
    /// The bodies that the registration endpoint got.
    pub registrations: Vec<Value>,
    /// The queries that the authorization endpoint got.
    pub authorizations: Vec<FormFields>,
    /// Tokens that were revoked by a client.
    pub revoked: Vec<String>,
    /// Every access token with its audience, its scopes, and whether it still works.
    pub tokens: Vec<AccessToken>,
    /// The status with which every request for a token is answered, while a test has set one.
    pub token_status: Option<u16>,
    /// Requests to the MCP server, with the token of each.
    pub requests: Vec<(String, Option<String>)>,
    codes: BTreeMap<String, FormFields>,
    refresh_tokens: BTreeMap<String, String>,
    device_polls: u32,
    numbers: u32,
}

/// An access token.
#[derive(Clone, Debug)]
pub struct AccessToken {
    /// The token itself.
    pub token: String,
    /// The resource that it is for.
    pub audience: String,
    /// The rights that it has, separated by spaces.
    pub scope: String,
    /// Whether the server has had enough of it.
    pub is_expired: bool,
}

impl OauthServer {
    /// Starts the servers on a port of their own.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(behaviour: OauthBehaviour) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let url = format!("http://{address}");
        let shared = Arc::new(ServerPair { url: url.clone(), behaviour, ledger: Mutex::default() });
        let router = Router::new()
            .route("/mcp", post(mcp::message).get(mcp::resume).delete(StatusCode::OK))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource_metadata))
            .route("/.well-known/oauth-authorization-server", get(server_metadata))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .route("/register", post(register))
            .route("/revoke", post(revoke))
            .route("/device", post(device))
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    /// The address of the MCP server.
    #[must_use]
    pub fn mcp(&self) -> String {
        format!("{}/mcp", self.url)
    }

    /// What was seen and granted.
    ///
    /// # Panics
    /// Never: a poisoned lock is taken over.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.shared.ledger()
    }

    /// Makes all access tokens expire, as a server does whose clock is ahead.
    pub fn expire_tokens(&self) {
        self.ledger().tokens.iter_mut().for_each(|token| token.is_expired = true);
    }

    /// Forgets the refresh tokens too.
    pub fn revoke_all(&self) {
        self.expire_tokens();
        self.ledger().refresh_tokens.clear();
    }

    /// How often tokens were asked for with this grant.
    #[must_use]
    pub fn grants(&self, grant: &str) -> usize {
        let is_it = |form: &&FormFields| form.get("grant_type").is_some_and(|it| it == grant);
        self.ledger().token_forms.iter().filter(is_it).count()
    }

    /// Does what a person's browser does: opens the address, and returns the address to which it is sent back.
    ///
    /// # Panics
    /// When the authorization endpoint does not redirect.
    pub async fn browse(&self, url: &str) -> String {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let client = client.no_proxy().build().expect("a client");
        let response = client.get(url).send().await.expect("an answer");
        let location = response.headers().get(header::LOCATION).expect("a redirect");
        location.to_str().expect("a readable address").to_owned()
    }
}

impl ServerPair {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resource(&self) -> String {
        format!("{}/mcp", self.url)
    }

    fn grant(&self, audience: &str, scope: &str, refresh: Option<&str>) -> Value {
        let audience = self.behaviour.audience.as_deref().unwrap_or(audience).to_owned();
        let mut ledger = self.ledger();
        ledger.numbers += 1;
        let number = ledger.numbers;
        let token = format!("access-token-number-{number}");
        let granted =
            AccessToken { token: token.clone(), audience, scope: scope.into(), is_expired: false };
        ledger.tokens.push(granted);
        let expires_in = self.behaviour.expires_in.clone().unwrap_or_else(|| 3_600.into());
        let mut grant = json!({
            "access_token": token, "token_type": "Bearer", "expires_in": expires_in, "scope": scope,
        });
        if refresh.is_none() || !self.behaviour.no_rotation {
            let refresh = format!("refresh-token-number-{number}");
            ledger.refresh_tokens.insert(refresh.clone(), scope.to_owned());
            grant["refresh_token"] = refresh.into();
        }
        grant
    }
}

async fn resource_metadata(State(shared): State<Arc<ServerPair>>) -> Response {
    if shared.behaviour.no_resource_metadata {
        return StatusCode::NOT_FOUND.into_response();
    }
    let resource = shared.behaviour.wrong_resource.clone().unwrap_or_else(|| shared.resource());
    let metadata = json!({
        "resource": resource, "authorization_servers": [shared.url], "scopes_supported": ["read"],
    });
    Json(metadata).into_response()
}

async fn server_metadata(State(shared): State<Arc<ServerPair>>) -> Json<Value> {
    let behaviour = &shared.behaviour;
    let at = |path: &str| format!("{}{path}", shared.url);
    let mut metadata = json!({
        "issuer": behaviour.wrong_issuer.clone().unwrap_or_else(|| shared.url.clone()),
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": behaviour.token_endpoint.clone().unwrap_or_else(|| at("/token")),
        "registration_endpoint": at("/register"),
        "revocation_endpoint": at("/revoke"),
        "device_authorization_endpoint": at("/device"),
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": behaviour.client_documents,
    });
    if behaviour.no_pkce {
        metadata["code_challenge_methods_supported"] = json!(["plain"]);
    }
    if behaviour.no_registration {
        metadata["registration_endpoint"] = Value::Null;
    }
    Json(metadata)
}

async fn authorize(
    State(shared): State<Arc<ServerPair>>,
    Query(query): Query<FormFields>,
) -> Redirect {
    let behaviour = &shared.behaviour;
    let code = {
        let mut ledger = shared.ledger();
        ledger.authorizations.push(query.clone());
        let code = format!("code-number-{}", ledger.authorizations.len());
        ledger.codes.insert(code.clone(), query.clone());
        code
    };
    let field = |name: &str| query.get(name).cloned().unwrap_or_default();
    let issuer = behaviour.wrong_iss.clone().unwrap_or_else(|| shared.url.clone());
    let mut answer = vec![("code", code), ("state", field("state"))];
    if !behaviour.no_iss {
        answer.push(("iss", issuer));
    }
    let mut url = reqwest::Url::parse(&field("redirect_uri")).expect("a redirect address");
    url.query_pairs_mut().extend_pairs(answer);
    Redirect::to(url.as_str())
}

async fn register(State(shared): State<Arc<ServerPair>>, Json(body): Json<Value>) -> Response {
    shared.ledger().registrations.push(body);
    (StatusCode::CREATED, Json(json!({ "client_id": "registered-client" }))).into_response()
}

async fn revoke(
    State(shared): State<Arc<ServerPair>>,
    Form(form): Form<FormFields>,
) -> Json<Value> {
    shared.ledger().revoked.extend(form.get("token").cloned());
    Json(json!({}))
}

async fn device(State(shared): State<Arc<ServerPair>>) -> Json<Value> {
    Json(json!({
        "device_code": "the-device-code", "user_code": "ABCD-EFGH", "interval": 1, "expires_in": 600,
        "verification_uri": format!("{}/activate", shared.url),
    }))
}

async fn token(State(shared): State<Arc<ServerPair>>, Form(form): Form<FormFields>) -> Response {
    let status = {
        let mut ledger = shared.ledger();
        ledger.token_forms.push(form.clone());
        ledger.token_status
    };
    if let Some(elsewhere) = &shared.behaviour.token_redirect {
        return Redirect::temporary(elsewhere).into_response();
    }
    if let Some(status) = status.and_then(|it| StatusCode::from_u16(it).ok()) {
        return status.into_response();
    }
    let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let refused = |code: &str| {
        // A description that repeats a secret must not get into a fault.
        let text = format!("not valid: {} {}", field("refresh_token"), field("code"));
        let body = json!({ "error": code, "error_description": text });
        (StatusCode::BAD_REQUEST, Json(body)).into_response()
    };
    let granted = match field("grant_type") {
        "authorization_code" => redeem_code(&shared, &form),
        "refresh_token" => redeem_refresh_token(&shared, field("refresh_token"), field("resource")),
        "urn:ietf:params:oauth:grant-type:device_code" => {
            let polls = {
                let mut ledger = shared.ledger();
                ledger.device_polls += 1;
                ledger.device_polls
            };
            match polls {
                1 => return refused("authorization_pending"),
                _ => Some(shared.grant(field("resource"), "read", None)),
            }
        }
        _ => None,
    };
    granted.map_or_else(|| refused("invalid_grant"), |grant| Json(grant).into_response())
}

/// A code works once, with the verifier of its challenge and the same redirect.
fn redeem_code(shared: &ServerPair, form: &FormFields) -> Option<Value> {
    let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let asked = shared.ledger().codes.remove(field("code"))?;
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(field("code_verifier").as_bytes()));
    let is_same = |name: &str| asked.get(name).is_some_and(|value| value == field(name));
    let fits = asked.get("code_challenge") == Some(&challenge)
        && ["redirect_uri", "client_id", "resource"].into_iter().all(is_same);
    let scope = asked.get("scope").cloned().unwrap_or_default();
    fits.then(|| shared.grant(field("resource"), &scope, None))
}

fn redeem_refresh_token(shared: &ServerPair, token: &str, resource: &str) -> Option<Value> {
    let scope = match shared.behaviour.no_rotation {
        true => shared.ledger().refresh_tokens.get(token).cloned(),
        false => shared.ledger().refresh_tokens.remove(token),
    }?;
    Some(shared.grant(resource, &scope, Some(token)))
}
