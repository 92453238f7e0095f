//! A client for the HTTP interface of a running server, for `budao top` and `budao tools`.

use std::time::Duration;

use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
};
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;

/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer.
const BODY_MAX: usize = 8 << 20;

/// A client for one server.
pub(crate) struct Remote {
    client: reqwest::Client,
    url: Url,
    token: Option<String>,
}

impl Remote {
    /// `url` may be the address as the server prints it, with `#token=…`; `token` takes precedence over that.
    ///
    /// # Errors
    /// `configuration_wrong` if it is not an http or https URL.
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Self, Fault> {
        let mut url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "--url")
                .with(Fact::Expected, "an http or https address, as `budao serve` prints it")
        })?;
        let printed =
            url.fragment().and_then(|text| text.strip_prefix("token=")).map(str::to_owned);
        url.set_fragment(None);
        let token = token.map(str::to_owned).or(printed);
        // Fails if a provider is installed already, which is fine. Without one, building a client panics.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Redirects are off, so that the token is sent to no other server.
        let client = reqwest::Client::builder()
            .user_agent(concat!("budao/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(|error| Fault::new(Kind::Bug, Operation::LoadConfig).caused_by(&error))?;
        Ok(Self { client, url, token })
    }

    /// Asks the server for a path and reads its JSON.
    ///
    /// # Errors
    /// The server is away, refuses the token, or is no `budao serve`.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Fault> {
        let mut url = self.url.join(path).map_err(|_| self.unread())?;
        url.query_pairs_mut().extend_pairs(query);
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut response = request.send().await.map_err(|error| self.away(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(status));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.away(&error))? {
            if body.len() + piece.len() > BODY_MAX {
                return Err(self.unread());
            }
            body.extend_from_slice(&piece);
        }
        serde_json::from_slice(&body).map_err(|error| self.unread().caused_by(&error))
    }

    /// The host of the server, with its port.
    pub(crate) fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    fn away(&self, error: &reqwest::Error) -> Fault {
        let kind = match error.is_timeout() {
            true => Kind::RequestTimedOut,
            false => Kind::ConnectionRefused,
        };
        Fault::new(kind, Operation::Connect)
            .with(Fact::Service, self.host())
            .with(Fact::Host, self.host())
            .caused_by(error)
    }

    fn refused(&self, status: StatusCode) -> Fault {
        let kind = match status {
            StatusCode::UNAUTHORIZED => Kind::NotAuthenticated,
            StatusCode::FORBIDDEN => Kind::NotAllowed,
            _ => return self.unread().with_cause(format!("status {status}")),
        };
        Fault::new(kind, Operation::Connect)
            .with(Fact::Reason, format!("refused by {}", self.host()))
    }

    /// The fault for an answer that does not come from a `budao serve`.
    pub(crate) fn unread(&self) -> Fault {
        Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "--url")
            .with(Fact::Expected, "the address of a `budao serve`")
            .with(Fact::Received, self.host())
    }
}
