//! A person's login: in a browser that returns to an address on this machine, or on another device (RFC 8628).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use budao_core::{fault::Fault, world::World};
use reqwest::Url;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{
    AuthError, LoginStatus, LoginStore, allowed,
    discovery::{Discovery, discover},
    registration::{RegisteredClient, register},
    store::Login,
    token::{self, ClientIdentity},
};
use crate::{config::McpServerConfig, servers::ServerEnvironment, store};

/// The grant type of a login on another device.
pub(super) const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The longest time that a person has on another device.
const DEVICE_MAX: Duration = Duration::from_secs(30 * 60);
/// The shortest pause between two questions for the outcome, and what `slow_down` adds to it.
const DEVICE_PAUSE: Duration = Duration::from_secs(5);

/// What every login knows of its server.
struct LoginTarget {
    config: McpServerConfig,
    base: Url,
    discovery: Discovery,
    client: RegisteredClient,
    scopes: Vec<String>,
    logins: Arc<LoginStore>,
    world: World,
}

/// A login in a browser that has begun: the person opens [`LoginFlow::url`], and the browser returns with a code.
pub struct LoginFlow {
    target: LoginTarget,
    redirect: String,
    state: String,
    verifier: String,
    url: String,
}

/// A login on another device that has begun: the person opens the address there and enters the code.
pub struct DeviceLogin {
    target: LoginTarget,
    answer: DeviceAnswer,
}

#[derive(Deserialize)]
struct DeviceAnswer {
    device_code: String,
    user_code: String,
    verification_uri: String,
    #[serde(default)]
    interval: Option<u64>,
    #[serde(default)]
    expires_in: Option<u64>,
}

impl std::fmt::Debug for LoginFlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginFlow")
            .field("server", &self.target.config.name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for DeviceLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceLogin")
            .field("server", &self.target.config.name)
            .finish_non_exhaustive()
    }
}

impl LoginTarget {
    async fn find(
        config: &McpServerConfig,
        environment: &ServerEnvironment,
        redirect: &str,
    ) -> Result<Self, AuthError> {
        let url = config.login_url();
        let url =
            url.ok_or_else(|| AuthError::unusable("it is not a server that takes a login"))?;
        let base = Url::parse(url).map_err(|_| AuthError::unusable("its URL cannot be read"))?;
        let world = environment.world.clone();
        let discovery = discover(&base, &world).await?;
        let client = register(&base, &config.oauth, &discovery.server, redirect, &world).await?;
        let logins = environment.logins.clone();
        let logins = logins.ok_or_else(|| AuthError::unusable("there is no place to keep it"))?;
        logins.reload();
        let before = logins.get(&store::key(config)).unwrap_or_default();
        let scopes = scopes(config, &discovery, &before);
        Ok(Self { config: config.clone(), base, discovery, client, scopes, logins, world })
    }

    fn identity(&self) -> ClientIdentity<'_> {
        let RegisteredClient { id, secret, secret_in_body } = &self.client;
        ClientIdentity { id, secret: secret.as_deref(), secret_in_body: *secret_in_body }
    }

    fn token_endpoint(&self) -> Result<Url, AuthError> {
        allowed(&self.base, &self.discovery.server.token_endpoint)
    }

    /// Stores the tokens of a grant. Returns the status of the login.
    fn keep(&self, grant: serde_json::Value) -> Result<LoginStatus, AuthError> {
        let now = self.world.clock.now();
        let Discovery { resource, server, .. } = &self.discovery;
        let mut login = Login {
            issuer: server.issuer.clone(),
            token_endpoint: server.token_endpoint.clone(),
            revocation_endpoint: server.revocation_endpoint.clone(),
            resource: resource.clone(),
            client_id: self.client.id.clone(),
            client_secret: self.client.secret.clone(),
            secret_in_body: self.client.secret_in_body,
            // Without another word of the server, what was asked for was granted.
            scopes: self.scopes.clone(),
            ..Login::default()
        };
        token::read_grant(grant, now, &mut login)?;
        self.logins.set(&store::key(&self.config), Some(&login));
        let status = self.logins.status(&self.config, now);
        status.ok_or_else(|| AuthError::unusable("the login could not be kept"))
    }
}

/// The scopes to ask for: the configured ones or those that the server names, and what it asked for later.
fn scopes(config: &McpServerConfig, discovery: &Discovery, before: &Login) -> Vec<String> {
    let mut scopes = match config.oauth.scopes.is_empty() {
        true => discovery.scopes.clone(),
        false => config.oauth.scopes.clone(),
    };
    let offline = "offline_access".to_owned();
    let has_offline = discovery.server.scopes_supported.contains(&offline);
    // A server that asks for more rights must not cost the rights there are.
    let earlier = if before.wanted.is_empty() { [].iter() } else { before.scopes.iter() };
    let more = earlier.chain(&before.wanted).cloned().chain(has_offline.then_some(offline));
    for scope in more {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes
}

impl LoginFlow {
    /// Finds the authorization server, registers and prepares the address to open. `redirect` is the address on this
    /// machine to which the browser returns.
    ///
    /// # Errors
    /// `mcp_login_failed` with the reason.
    pub async fn begin(
        config: &McpServerConfig,
        environment: &ServerEnvironment,
        redirect: &str,
    ) -> Result<Self, Fault> {
        let begun = async {
            let target = LoginTarget::find(config, environment, redirect).await?;
            Self::prepare(target, redirect)
        };
        begun.await.map_err(|error| error.login_fault(config))
    }

    fn prepare(target: LoginTarget, redirect: &str) -> Result<Self, AuthError> {
        let Discovery { resource, server, .. } = &target.discovery;
        let endpoint = server.authorization_endpoint.as_deref();
        let endpoint =
            endpoint.ok_or_else(|| AuthError::unusable("it has no login in a browser"))?;
        let mut url = allowed(&target.base, endpoint)?;
        let (state, verifier) = (random(&target.world), random(&target.world));
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let scope = target.scopes.join(" ");
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", &target.client.id),
            ("redirect_uri", redirect),
            ("state", &state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("resource", resource),
        ];
        if !scope.is_empty() {
            query.push(("scope", &scope));
        }
        url.query_pairs_mut().extend_pairs(query);
        let (url, redirect) = (url.to_string(), redirect.to_owned());
        Ok(Self { target, redirect, state, verifier, url })
    }

    /// The address that the person opens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The random text that the browser brings back; an answer without it is not one to this login.
    #[must_use]
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Ends the login with what the browser brought, or what the person pasted: the address to which the browser
    /// returned, its query, or the code alone.
    ///
    /// # Errors
    /// `mcp_login_failed` with the reason.
    pub async fn finish(self, answer: &str) -> Result<LoginStatus, Fault> {
        let config = self.target.config.clone();
        self.exchange(answer).await.map_err(|error| error.login_fault(&config))
    }

    async fn exchange(self, answer: &str) -> Result<LoginStatus, AuthError> {
        let code = self.code(answer)?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", self.redirect.as_str()),
            ("code_verifier", self.verifier.as_str()),
            ("resource", self.target.discovery.resource.as_str()),
        ];
        let endpoint = self.target.token_endpoint()?;
        let target = &self.target;
        match token::post_form(&endpoint, &target.world, target.identity(), &form).await? {
            Ok(grant) => target.keep(grant),
            Err(code) => Err(AuthError::Rejected(format!(
                "the authorization server rejected the code: {code}"
            ))),
        }
    }

    /// The code of an answer, after the checks of `state` and `iss`.
    fn code(&self, answer: &str) -> Result<String, AuthError> {
        let answer = answer.trim();
        let query = match (answer.split_once('?'), answer.contains('=')) {
            (Some((_, query)), _) => query,
            (None, true) => answer,
            (None, false) if !answer.is_empty() => return Ok(answer.to_owned()),
            (None, false) => return Err(AuthError::unusable("there is no code in the answer")),
        };
        let query = query.split('#').next().unwrap_or_default();
        let fields = parse_query(query);
        let field = |name: &str| fields.get(name).map(String::as_str);
        if field("state") != Some(&self.state) {
            return Err(AuthError::unusable("the answer belongs to another login"));
        }
        let server = &self.target.discovery.server;
        match field("iss") {
            Some(issuer) if issuer != server.issuer => {
                return Err(AuthError::unusable(
                    "the answer comes from another authorization server",
                ));
            }
            None if server.authorization_response_iss_parameter_supported => {
                return Err(AuthError::unusable(
                    "the answer does not name its authorization server",
                ));
            }
            _ => {}
        }
        if let Some(code) = field("error") {
            let code = token::error_code(code);
            return Err(AuthError::Rejected(format!("the authorization server answered {code}")));
        }
        let code = field("code").filter(|code| !code.is_empty());
        code.map(str::to_owned).ok_or_else(|| AuthError::unusable("there is no code in the answer"))
    }
}

impl DeviceLogin {
    /// Asks for a code to enter on another device.
    ///
    /// # Errors
    /// `mcp_login_failed` with the reason, also if the authorization server has no such login.
    pub async fn begin(
        config: &McpServerConfig,
        environment: &ServerEnvironment,
    ) -> Result<Self, Fault> {
        Self::ask(config, environment).await.map_err(|error| error.login_fault(config))
    }

    async fn ask(
        config: &McpServerConfig,
        environment: &ServerEnvironment,
    ) -> Result<Self, AuthError> {
        let target = LoginTarget::find(config, environment, "http://127.0.0.1/callback").await?;
        let endpoint = target.discovery.server.device_authorization_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| {
            AuthError::unusable("its authorization server has no login on another device")
        })?;
        let endpoint = allowed(&target.base, endpoint)?;
        let scope = target.scopes.join(" ");
        let mut form = vec![("resource", target.discovery.resource.as_str())];
        if !scope.is_empty() {
            form.push(("scope", &scope));
        }
        let answer = token::post_form(&endpoint, &target.world, target.identity(), &form).await?;
        let answer = answer.map_err(|code| {
            AuthError::Rejected(format!("the authorization server answered {code}"))
        })?;
        let answer = DeviceAnswer::deserialize(answer)
            .map_err(|_| AuthError::unusable("the authorization server sent no code"))?;
        allowed(&target.base, &answer.verification_uri)?;
        Ok(Self { target, answer })
    }

    /// The address that the person opens on the other device.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.answer.verification_uri
    }

    /// The code that the person enters there.
    #[must_use]
    pub fn user_code(&self) -> String {
        self.answer.user_code.chars().filter(|letter| !letter.is_control()).take(40).collect()
    }

    /// Waits until the person has logged in, or the code has expired.
    ///
    /// # Errors
    /// `mcp_login_failed` with the reason.
    pub async fn finish(self) -> Result<LoginStatus, Fault> {
        let config = self.target.config.clone();
        self.wait().await.map_err(|error| error.login_fault(&config))
    }

    async fn wait(self) -> Result<LoginStatus, AuthError> {
        let (target, answer) = (&self.target, &self.answer);
        let endpoint = target.token_endpoint()?;
        let life = answer.expires_in.map_or(DEVICE_MAX, Duration::from_secs).min(DEVICE_MAX);
        let asked = answer.interval.map_or(DEVICE_PAUSE, Duration::from_secs);
        let mut pause = asked.clamp(Duration::from_secs(1), Duration::from_secs(60));
        let mut waited = Duration::ZERO;
        let form = [
            ("grant_type", DEVICE_GRANT),
            ("device_code", answer.device_code.as_str()),
            ("resource", target.discovery.resource.as_str()),
        ];
        while waited < life {
            target.world.clock.sleep(pause).await;
            waited += pause;
            match token::post_form(&endpoint, &target.world, target.identity(), &form).await {
                Ok(Ok(grant)) => return target.keep(grant),
                Ok(Err(code)) if code == "authorization_pending" => {}
                Ok(Err(code)) if code == "slow_down" => pause += DEVICE_PAUSE,
                Ok(Err(code)) => {
                    return Err(AuthError::Rejected(format!(
                        "the authorization server answered {code}"
                    )));
                }
                Err(AuthError::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(AuthError::Rejected("the code has expired".into()))
    }
}

impl LoginStore {
    /// Removes the login to a server. Asks the authorization server to revoke it, if it can be asked. Returns whether
    /// there was one.
    pub async fn log_out(&self, config: &McpServerConfig, world: &World) -> bool {
        let key = store::key(config);
        self.reload();
        let Some(login) = self.get(&key) else { return false };
        self.set(&key, None);
        let base = config.login_url().and_then(|url| Url::parse(url).ok());
        let endpoint = login.revocation_endpoint.as_deref();
        let endpoint = base.zip(endpoint).and_then(|(base, named)| allowed(&base, named).ok());
        if let Some(endpoint) = endpoint {
            let token = login.refresh_token.as_deref().unwrap_or(&login.access_token);
            let form = [("token", token)];
            let asked = token::post_form(&endpoint, world, ClientIdentity::of(&login), &form).await;
            if let Err(error) = asked {
                tracing::debug!(%error, "revoking a login failed");
            }
        }
        true
    }
}

/// The fields of a query; the last of several equal names counts.
pub(super) fn parse_query(query: &str) -> BTreeMap<String, String> {
    let Ok(mut url) = Url::parse("http://query/") else { return BTreeMap::new() };
    url.set_query(Some(query));
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// 256 random bits as text.
fn random(world: &World) -> String {
    let bytes: Vec<u8> = (0..4).flat_map(|_| world.entropy.bits().to_be_bytes()).collect();
    URL_SAFE_NO_PAD.encode(bytes)
}
