//! OAuth 2.1 for HTTP servers: login, stored tokens, renewal.
//!
//! `discovery` finds the authorization server of a resource and checks what it says, `registration` obtains a client
//! id, `token` speaks to the token endpoint, `flow` is a person's login in a browser or on another device, `store` keeps
//! the tokens in a file of their owner, and `source` gives them to requests and renews them once for all who wait.
//! Nothing that a server says names a host that gets a secret without a check. Tokens appear in no fault and no log.

mod discovery;
mod flow;
mod loopback;
mod registration;
mod source;
mod store;
mod token;

use std::fmt;

use budao_core::fault::{Fact, Fault, Kind, Operation};
use reqwest::Url;

use crate::config::{McpServerConfig, shown_url};

pub use flow::{DeviceLogin, LoginFlow};
pub use loopback::LoopbackListener;
pub(crate) use source::TokenSource;
pub use store::{LoginState, LoginStatus, LoginStore};

/// Why a step of a login or a renewal failed. The texts contain no secret.
#[derive(Debug)]
pub(crate) enum AuthError {
    /// Nobody answered, or the service is in trouble: trying later can help.
    Unavailable(String),
    /// The authorization server rejected the grant: only another login helps.
    Rejected(String),
    /// What a server says cannot be used.
    Unusable(String),
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unavailable(text) | Self::Rejected(text) | Self::Unusable(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for AuthError {}

impl AuthError {
    pub(crate) fn unusable(text: impl Into<String>) -> Self {
        Self::Unusable(text.into())
    }

    /// The fault of a login that a person began.
    fn login_fault(&self, config: &McpServerConfig) -> Fault {
        Fault::new(Kind::McpLoginFailed, Operation::StartMcpServer)
            .with(Fact::McpServer, config.name.clone())
            .with(Fact::Reason, crate::error::bounded(&self.to_string()))
    }
}

/// Why a request cannot be sent with a usable token.
#[derive(Debug)]
pub(crate) enum LoginError {
    /// A person has to log in.
    Needed(LoginNeed),
    /// The token could not be renewed now.
    Unavailable(AuthError),
}

/// Why a person has to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginNeed {
    /// There was no login yet.
    Missing,
    /// The login has expired or was revoked, or the server does not accept its token.
    Expired,
    /// The login does not cover the request.
    MoreRights,
}

impl LoginNeed {
    /// The value of the fact `auth_action`.
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::Missing => "login_missing",
            Self::Expired => "login_expired",
            Self::MoreRights => "more_rights",
        }
    }
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needed(need) => f.write_str(need.action()),
            Self::Unavailable(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LoginError {}

/// Whether a URL that a server named may be asked. `base` is the configured URL of the MCP server.
///
/// Plain HTTP and addresses of this machine or a private network are allowed only if the MCP server is there itself, so
/// that no server on the Internet makes this client talk to services behind the firewall.
pub(crate) fn allowed(base: &Url, named: &str) -> Result<Url, AuthError> {
    let refused = |why: &str| AuthError::unusable(format!("{} {why}", shown_url(named)));
    let url = Url::parse(named).map_err(|_| refused("is not a URL"))?;
    let is_plain = url.scheme() == "http";
    if url.scheme() != "https" && !is_plain {
        return Err(refused("is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(refused("has a user or a fragment"));
    }
    if is_private(&url) && !is_private(base) {
        return Err(refused("is an address of a private network"));
    }
    if is_plain && !is_private(&url) {
        return Err(refused("is not encrypted"));
    }
    Ok(url)
}

/// Whether a URL names this machine or an address that is not on the Internet. Names are not resolved.
fn is_private(url: &Url) -> bool {
    use std::net::IpAddr;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    match host.parse() {
        Ok(IpAddr::V4(ip)) => {
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()
        }
        Ok(IpAddr::V6(ip)) => {
            let mapped = ip.to_ipv4_mapped();
            let is_local =
                |ip: std::net::Ipv4Addr| ip.is_loopback() || ip.is_private() || ip.is_link_local();
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || mapped.is_some_and(is_local)
        }
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_the_internet_names_no_host_behind_the_firewall() {
        let base = Url::parse("https://mcp.example/mcp").unwrap();
        assert!(allowed(&base, "https://login.example/token").is_ok());
        for named in [
            "http://login.example/token",
            "https://127.0.0.1/token",
            "https://[::1]/token",
            "https://[::ffff:10.0.0.1]/token",
            "https://169.254.169.254/latest",
            "https://192.168.1.1/",
            "https://localhost/",
            "https://a.localhost/",
            "https://user@login.example/",
            "ftp://login.example/",
            "login",
        ] {
            assert!(allowed(&base, named).is_err(), "{named}");
        }
        let local = Url::parse("http://127.0.0.1:8000/mcp").unwrap();
        assert!(allowed(&local, "http://localhost:9000/token").is_ok());
        assert!(allowed(&local, "http://login.example/token").is_err());
    }
}
