//! Finds the authorization server of an MCP server (RFC 9728, RFC 8414, OpenID Connect Discovery) and checks what the
//! two say.

use budao_core::world::World;
use http::{StatusCode, header};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuthError, allowed, token};
use crate::config::shown_url;

/// The most scopes that are read from any one place.
const SCOPES_MAX: usize = 200;

/// The parameters of a `WWW-Authenticate: Bearer` header that a client uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) error: Option<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) resource_metadata: Option<String>,
}

impl Challenge {
    /// Reads a header. What cannot be read is left out.
    pub(crate) fn parse(header: &str) -> Self {
        let mut challenge = Self::default();
        let mut rest = header.get(..8_192.min(header.len())).unwrap_or_default();
        while let Some(equals) = rest.find('=') {
            let name = rest[..equals].rsplit([' ', ',', '\t']).next().unwrap_or_default();
            let (value, next) = parameter_value(&rest[equals + 1..]);
            match name.to_ascii_lowercase().as_str() {
                "error" => challenge.error = Some(token::error_code(&value)),
                "scope" => challenge.scopes = scopes(&value),
                "resource_metadata" => challenge.resource_metadata = Some(value),
                _ => {}
            }
            rest = next;
        }
        challenge
    }

    /// Whether the server wants a token with more rights.
    pub(crate) fn wants_more_rights(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// A parameter's value, quoted or not, and the rest of the header.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}

pub(super) fn scopes(text: &str) -> Vec<String> {
    text.split_whitespace().take(SCOPES_MAX).map(str::to_owned).collect()
}

/// The metadata of a protected resource.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceMetadata {
    resource: String,
    authorization_servers: Vec<String>,
    scopes_supported: Vec<String>,
}

/// The metadata of an authorization server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    pub(super) device_authorization_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) code_challenge_methods_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(super) scopes_supported: Vec<String>,
    pub(super) client_id_metadata_document_supported: bool,
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// What is known before a login.
#[derive(Clone, Debug)]
pub(super) struct Discovery {
    /// The resource that tokens are asked for.
    pub(super) resource: String,
    pub(super) server: AuthorizationServer,
    /// The scopes that the server names, in its challenge or its metadata.
    pub(super) scopes: Vec<String>,
}

/// Finds the authorization server of the MCP server at a URL.
pub(super) async fn discover(base: &Url, world: &World) -> Result<Discovery, AuthError> {
    let challenge = challenge(base, world).await?;
    let metadata = resource_metadata(base, &challenge, world).await?;
    let (resource, issuer, supported) = match metadata {
        Some(metadata) => {
            check_resource(base, &metadata.resource)?;
            let issuer = metadata.authorization_servers.into_iter().next();
            let issuer = issuer.ok_or_else(|| {
                AuthError::unusable("the server names no authorization server in its metadata")
            })?;
            (metadata.resource, issuer, metadata.scopes_supported)
        }
        // Before 2025-06-18 the MCP server was its own authorization server.
        None => (canonical(base), base.origin().ascii_serialization(), Vec::new()),
    };
    let server = authorization_server(base, &issuer, world).await?;
    let scopes = if challenge.scopes.is_empty() { supported } else { challenge.scopes };
    Ok(Discovery { resource, server, scopes })
}

/// The challenge to a request without a token.
async fn challenge(base: &Url, world: &World) -> Result<Challenge, AuthError> {
    let message = json!({ "jsonrpc": "2.0", "id": "login", "method": "ping" });
    let answer = token::ask(base, world, |client| client.post(base.clone()).json(&message)).await?;
    let header = answer.headers.get(header::WWW_AUTHENTICATE).and_then(|it| it.to_str().ok());
    Ok(header
        .filter(|_| answer.status == StatusCode::UNAUTHORIZED)
        .map_or_else(Challenge::default, Challenge::parse))
}

async fn resource_metadata(
    base: &Url,
    challenge: &Challenge,
    world: &World,
) -> Result<Option<ResourceMetadata>, AuthError> {
    let mut places = Vec::new();
    if let Some(named) = &challenge.resource_metadata {
        places.push(allowed(base, named)?);
    }
    let path = base.path().trim_end_matches('/');
    places.extend(well_known(base, &format!("/.well-known/oauth-protected-resource{path}")));
    places.extend(well_known(base, "/.well-known/oauth-protected-resource"));
    for place in places {
        let Some(json) = document(&place, world).await? else { continue };
        if let Ok(metadata) = ResourceMetadata::deserialize(json) {
            return Ok(Some(metadata));
        }
    }
    Ok(None)
}

/// Tokens are asked for the resource of the metadata, so it must be the MCP server or a part of the path to it: another
/// value would make this client obtain tokens for a foreign service.
fn check_resource(base: &Url, resource: &str) -> Result<(), AuthError> {
    let wrong = || {
        let (resource, base) = (shown_url(resource), shown_url(base.as_str()));
        AuthError::unusable(format!("its metadata is about {resource}, not about {base}"))
    };
    let url = Url::parse(resource).map_err(|_| wrong())?;
    let prefix = url.path().trim_end_matches('/');
    let rest = base.path().strip_prefix(prefix);
    let is_above = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let fits = url.origin() == base.origin() && url.fragment().is_none() && is_above;
    if fits { Ok(()) } else { Err(wrong()) }
}

/// The URL of the MCP server as the name of a resource: without query and fragment.
fn canonical(base: &Url) -> String {
    let mut url = base.clone();
    url.set_query(None);
    url.set_fragment(None);
    match url.path() {
        "/" => url.origin().ascii_serialization(),
        _ => url.to_string(),
    }
}

async fn authorization_server(
    base: &Url,
    issuer: &str,
    world: &World,
) -> Result<AuthorizationServer, AuthError> {
    let url = allowed(base, issuer)?;
    let path = url.path().trim_end_matches('/');
    let mut places = vec![format!("/.well-known/oauth-authorization-server{path}")];
    places.push(format!("/.well-known/openid-configuration{path}"));
    if !path.is_empty() {
        places.push(format!("{path}/.well-known/openid-configuration"));
    }
    for place in places.iter().filter_map(|path| well_known(&url, path)) {
        let Some(json) = document(&place, world).await? else { continue };
        let Ok(server) = AuthorizationServer::deserialize(json) else { continue };
        return check_server(base, issuer, server);
    }
    if url.origin() == base.origin() && path.is_empty() {
        return Ok(default_endpoints(issuer));
    }
    Err(AuthError::unusable(format!("{} has no metadata", shown_url(issuer))))
}

/// The endpoints of a server of 2025-03-26 without metadata.
fn default_endpoints(issuer: &str) -> AuthorizationServer {
    let at = |path: &str| format!("{}{path}", issuer.trim_end_matches('/'));
    AuthorizationServer {
        issuer: issuer.to_owned(),
        authorization_endpoint: Some(at("/authorize")),
        token_endpoint: at("/token"),
        registration_endpoint: Some(at("/register")),
        ..AuthorizationServer::default()
    }
}

fn check_server(
    base: &Url,
    issuer: &str,
    server: AuthorizationServer,
) -> Result<AuthorizationServer, AuthError> {
    let shown = shown_url(issuer);
    if server.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
        let other = shown_url(&server.issuer);
        return Err(AuthError::unusable(format!("the metadata of {shown} is that of {other}")));
    }
    let methods = server.code_challenge_methods_supported.as_deref().unwrap_or_default();
    if server.authorization_endpoint.is_some() && !methods.iter().any(|method| method == "S256") {
        return Err(AuthError::unusable(format!("{shown} does not support PKCE with S256")));
    }
    let optional = [
        &server.authorization_endpoint,
        &server.registration_endpoint,
        &server.device_authorization_endpoint,
        &server.revocation_endpoint,
    ];
    for named in optional.into_iter().flatten().chain([&server.token_endpoint]) {
        allowed(base, named)?;
    }
    Ok(server)
}

fn well_known(base: &Url, path: &str) -> Option<Url> {
    let mut url = base.clone();
    url.set_query(None);
    url.set_path(path);
    Some(url)
}

/// A document of metadata; `None` if it does not exist.
async fn document(place: &Url, world: &World) -> Result<Option<Value>, AuthError> {
    let answer = token::ask(place, world, |client| client.get(place.clone())).await?;
    match answer.status {
        status if status.is_success() => Ok(answer.json.filter(Value::is_object)),
        status if status.is_client_error() => Ok(None),
        status => Err(AuthError::Unavailable(format!(
            "{} answered with status {}",
            shown_url(place.as_str()),
            status.as_u16()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_read_whatever_its_form() {
        let header = r#"Bearer realm="a, b", error="insufficient_scope", scope="files:read  files:write", resource_metadata="https://a.example/x?y=\"z\"""#;
        let challenge = Challenge::parse(header);
        assert!(challenge.wants_more_rights());
        assert_eq!(challenge.scopes, ["files:read", "files:write"]);
        assert_eq!(challenge.resource_metadata.as_deref(), Some("https://a.example/x?y=\"z\""));
        assert_eq!(Challenge::parse("Bearer error=invalid_token,scope=a").scopes, ["a"]);
        for odd in ["", "Bearer", "Basic realm=\"x", "=", "Bearer scope=\"\\", "é=é", "a=\"é"] {
            assert!(!Challenge::parse(odd).wants_more_rights(), "{odd}");
        }
    }

    #[test]
    fn the_resource_of_the_metadata_is_the_server_or_above_it() {
        let base = Url::parse("https://mcp.example/team/mcp?x=1").unwrap();
        for fits in
            ["https://mcp.example", "https://mcp.example/team/", "https://mcp.example/team/mcp"]
        {
            check_resource(&base, fits).unwrap();
        }
        for wrong in [
            "https://other.example/team/mcp",
            "http://mcp.example/team/mcp",
            "https://mcp.example/te",
            "https://mcp.example/team/mcp/deeper",
            "",
        ] {
            assert!(check_resource(&base, wrong).is_err(), "{wrong}");
        }
    }
}
