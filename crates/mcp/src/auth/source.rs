//! The token of a server for its requests. Many requests that find the token expired renew it once, also in several
//! processes.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use budao_core::{Timestamp, world::World};
use reqwest::Url;

use super::{
    AuthError, LoginError, LoginNeed, LoginStore, allowed,
    discovery::Challenge,
    store::Login,
    token::{self, ClientIdentity},
};
use crate::{config::McpServerConfig, store};

/// A token that expires within this time is renewed before it is used, so that it does not expire on the way.
const AHEAD: Duration = Duration::from_secs(30);
/// A token that is refused within this time after its renewal is not renewed again.
const JUST_RENEWED: Duration = Duration::from_secs(20);
/// How many tokens are removed from what the server sends: the current one and those that it replaced.
const REDACTED_MAX: usize = 4;

/// The login of one server, shared by all of its requests.
#[derive(Clone)]
pub(crate) struct TokenSource(Arc<TokenSourceState>);

struct TokenSourceState {
    key: String,
    /// The configured URL.
    base: Url,
    logins: Arc<LoginStore>,
    world: World,
    /// Held while the token is renewed.
    renewing: tokio::sync::Mutex<()>,
    renewed_at: Mutex<Option<Timestamp>>,
    /// The tokens that this process has sent.
    sent: Mutex<Vec<String>>,
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").field("key", &self.0.key).finish_non_exhaustive()
    }
}

impl TokenSource {
    /// The login to a server; `None` if the server takes none, or if there is no place for logins.
    pub(crate) fn of(
        config: &McpServerConfig,
        logins: Option<&Arc<LoginStore>>,
        world: &World,
    ) -> Option<Self> {
        let base = Url::parse(config.login_url()?).ok()?;
        Some(Self(Arc::new(TokenSourceState {
            key: store::key(config),
            base,
            logins: Arc::clone(logins?),
            world: world.clone(),
            renewing: tokio::sync::Mutex::default(),
            renewed_at: Mutex::default(),
            sent: Mutex::default(),
        })))
    }

    /// The token to send; `None` without a login. A token that expires soon is renewed first, if that works.
    pub(crate) async fn token(&self) -> Option<String> {
        let shared = &*self.0;
        let login =
            shared.logins.get(&shared.key).filter(|login| !login.access_token.is_empty())?;
        let soon = shared.world.clock.now().after(AHEAD).as_micros();
        let is_due = login.expires_at.is_some_and(|at| at <= soon);
        let token = match is_due && login.refresh_token.is_some() {
            true => {
                let renewed = self.renewed(Some(&login.access_token), false).await;
                renewed.unwrap_or(login.access_token)
            }
            false => login.access_token,
        };
        Some(shared.remember(token))
    }

    /// Another token after the server refused this one, or a request without any (status 401).
    pub(crate) async fn renew(&self, refused: Option<&str>) -> Result<String, LoginError> {
        let token = self.renewed(refused, true).await?;
        Ok(self.0.remember(token))
    }

    /// Remembers which rights a refused request needs (status 403), so that the next login asks for them.
    pub(crate) fn need_rights(&self, challenge: &str) -> Option<LoginError> {
        let challenge = Challenge::parse(challenge);
        if !challenge.wants_more_rights() {
            return None;
        }
        let shared = &*self.0;
        if let Some(mut login) = shared.logins.get(&shared.key) {
            let new = challenge.scopes.into_iter().filter(|scope| !login.wanted.contains(scope));
            let new: Vec<String> = new.collect();
            if !new.is_empty() {
                login.wanted.extend(new);
                shared.logins.set(&shared.key, Some(&login));
            }
        }
        Some(LoginError::Needed(LoginNeed::MoreRights))
    }

    /// The token that replaces `old`. `is_refused` says that the server does not accept it.
    async fn renewed(&self, old: Option<&str>, is_refused: bool) -> Result<String, LoginError> {
        let shared = &*self.0;
        let _renewing = shared.renewing.lock().await;
        let _lock = shared.logins.renewal_lock(&shared.key, &shared.world).await;
        shared.logins.reload();
        let needed = |need| Err(LoginError::Needed(need));
        let Some(login) = shared.logins.get(&shared.key) else { return needed(LoginNeed::Missing) };
        if !login.access_token.is_empty() && old != Some(&login.access_token) {
            return Ok(login.access_token);
        }
        // A token that its server refuses before it expires is not accepted there at all.
        let now = shared.world.clock.now().as_micros();
        let is_over = is_refused && login.expires_at.is_some_and(|at| at <= now);
        let is_useless = shared.is_just_renewed() && !is_over;
        if login.is_expired || login.refresh_token.is_none() || is_useless {
            return needed(LoginNeed::Expired);
        }
        shared.refresh(login).await
    }

    /// The text of an event without the tokens of this login.
    pub(crate) fn redact_text(&self, text: String) -> String {
        let mut bytes = text.into_bytes();
        self.redact(&mut bytes);
        // Tokens are ASCII, so what remains is a text.
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Removes the tokens of this login from a text of the server.
    pub(crate) fn redact(&self, text: &mut Vec<u8>) {
        let sent = self.0.sent.lock().unwrap_or_else(PoisonError::into_inner);
        for token in sent.iter() {
            while let Some(at) = find(text, token.as_bytes()) {
                text.splice(at..at + token.len(), *b"[token]");
            }
        }
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    // A short token would make ordinary texts unreadable, and an empty one would never end.
    if wanted.len() < 8 {
        return None;
    }
    text.windows(wanted.len()).position(|window| window == wanted)
}

impl TokenSourceState {
    async fn refresh(&self, mut login: Login) -> Result<String, LoginError> {
        match self.ask_for_token(&mut login).await {
            Ok(()) => {
                self.logins.set(&self.key, Some(&login));
                let mut renewed_at = self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
                *renewed_at = Some(self.world.clock.now());
                Ok(login.access_token)
            }
            Err(AuthError::Rejected(reason)) => {
                tracing::warn!(login = %self.key, %reason, "login not renewed");
                login.is_expired = true;
                self.logins.set(&self.key, Some(&login));
                Err(LoginError::Needed(LoginNeed::Expired))
            }
            Err(error) => Err(LoginError::Unavailable(error)),
        }
    }

    async fn ask_for_token(&self, login: &mut Login) -> Result<(), AuthError> {
        let endpoint = allowed(&self.base, &login.token_endpoint)?;
        let refresh_token = login.refresh_token.clone().unwrap_or_default();
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.as_str()),
            ("resource", login.resource.as_str()),
        ];
        let client = ClientIdentity::of(login);
        match token::post_form(&endpoint, &self.world, client, &form).await? {
            Ok(json) => token::read_grant(json, self.world.clock.now(), login),
            Err(code) => Err(AuthError::Rejected(code)),
        }
    }

    fn is_just_renewed(&self) -> bool {
        let renewed_at = *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
        renewed_at.is_some_and(|at| self.world.clock.now().since(at) < JUST_RENEWED)
    }

    fn remember(&self, token: String) -> String {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if !sent.contains(&token) {
            sent.push(token.clone());
            let excess = sent.len().saturating_sub(REDACTED_MAX);
            sent.drain(..excess);
        }
        token
    }
}
