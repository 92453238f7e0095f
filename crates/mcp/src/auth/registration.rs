//! The client's id at an authorization server: a given one, a metadata document, or a dynamic registration (RFC 7591).

use budao_core::world::World;
use reqwest::Url;
use serde::Deserialize;
use serde_json::json;

use super::{AuthError, allowed, discovery::AuthorizationServer, token};
use crate::config::{OauthConfig, shown_url};

/// The name under which this client registers.
const CLIENT_NAME: &str = "Budao";

/// A client that the authorization server knows.
#[derive(Clone)]
pub(super) struct RegisteredClient {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    pub(super) secret_in_body: bool,
}

/// The answer to a registration.
#[derive(Deserialize)]
struct Registration {
    client_id: String,
    #[serde(default)]
    client_secret: Option<String>,
    #[serde(default)]
    token_endpoint_auth_method: Option<String>,
}

/// Obtains a client id: the configured one, else a metadata document where the server reads them, else a registration.
pub(super) async fn register(
    base: &Url,
    oauth: &OauthConfig,
    server: &AuthorizationServer,
    redirect: &str,
    world: &World,
) -> Result<RegisteredClient, AuthError> {
    use secrecy::ExposeSecret as _;
    if let Some(id) = &oauth.client_id {
        let secret = oauth.client_secret.as_ref().map(|secret| secret.expose_secret().to_owned());
        let secret_in_body = secret_in_body(server, None);
        return Ok(RegisteredClient { id: id.clone(), secret, secret_in_body });
    }
    let document = oauth.client_metadata_url.as_ref();
    if let Some(id) = document.filter(|_| server.client_id_metadata_document_supported) {
        return Ok(RegisteredClient { id: id.clone(), secret: None, secret_in_body: false });
    }
    match &server.registration_endpoint {
        Some(endpoint) => {
            let endpoint = allowed(base, endpoint)?;
            register_dynamically(&endpoint, server, redirect, world).await
        }
        None => Err(AuthError::unusable(format!(
            "{} registers no clients by itself; set `oauth.client_id` of the server to an id that it knows",
            shown_url(&server.issuer)
        ))),
    }
}

async fn register_dynamically(
    endpoint: &Url,
    server: &AuthorizationServer,
    redirect: &str,
    world: &World,
) -> Result<RegisteredClient, AuthError> {
    let grants = match &server.device_authorization_endpoint {
        Some(_) => vec!["authorization_code", "refresh_token", super::flow::DEVICE_GRANT],
        None => vec!["authorization_code", "refresh_token"],
    };
    let request = json!({
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect],
        "grant_types": grants,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    });
    let answer =
        token::ask(endpoint, world, |client| client.post(endpoint.clone()).json(&request)).await?;
    let shown = shown_url(endpoint.as_str());
    let registration = answer.json.filter(|_| answer.status.is_success());
    let registration = registration.and_then(|json| Registration::deserialize(json).ok());
    let Some(registration) = registration.filter(|it| !it.client_id.is_empty()) else {
        let status = answer.status.as_u16();
        return Err(AuthError::unusable(format!(
            "{shown} refused the registration: status {status}"
        )));
    };
    let method = registration.token_endpoint_auth_method.as_deref();
    let secret = registration.client_secret.filter(|_| method != Some("none"));
    let secret_in_body = secret_in_body(server, method);
    Ok(RegisteredClient { id: registration.client_id, secret, secret_in_body })
}

/// Whether a secret goes into the body: if the registration says so, or if the server supports nothing else.
fn secret_in_body(server: &AuthorizationServer, registered: Option<&str>) -> bool {
    match (registered, &server.token_endpoint_auth_methods_supported) {
        (Some(method), _) => method == "client_secret_post",
        (None, Some(methods)) => !methods.iter().any(|method| method == "client_secret_basic"),
        (None, None) => false,
    }
}
