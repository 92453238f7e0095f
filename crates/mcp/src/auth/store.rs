//! The file of logins: one record per server, readable by its owner alone.
//!
//! A server's record is found by its name and a digest of its URL, so a token goes to no other URL. Processes share the
//! file: each change reads it again under a lock. A file that cannot be written, such as a mounted secret, is read; the
//! tokens that a process renews stay in its memory.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use budao_core::{
    Timestamp,
    fault::{Fact, Fault, Kind, Operation},
    world::World,
};
use serde::{Deserialize, Serialize};

use crate::{
    config::McpServerConfig,
    store::{self, digest, private, read, replace},
};

/// Bits of a file's mode that let anybody read or change it.
const OTHERS: u32 = 0o007;
/// How long a process waits for another one that renews the same login.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// How often it looks.
const LOCK_POLL: Duration = Duration::from_millis(25);

type Logins = BTreeMap<String, Login>;

/// The logins of all servers; in a file, or in memory only.
#[derive(Debug, Default)]
pub struct LoginStore {
    file: Option<PathBuf>,
    cache: Mutex<LoginCache>,
}

/// The logins in memory.
#[derive(Debug, Default)]
struct LoginCache {
    current: Logins,
    /// The file when it was last read. A record that has changed since then replaces the current one.
    stored: Logins,
}

/// The login to one server. Debug output omits the secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Login {
    pub(crate) issuer: String,
    pub(crate) token_endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revocation_endpoint: Option<String>,
    /// The resource that the tokens are for.
    pub(crate) resource: String,
    pub(crate) client_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<String>,
    /// Whether the secret is sent in the body instead of a header.
    pub(crate) secret_in_body: bool,
    pub(crate) access_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<String>,
    /// When the token expires by the clock of this machine, in microseconds; unknown if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<i64>,
    pub(crate) scopes: Vec<String>,
    /// Scopes that the server asked for later; the next login asks for them too.
    pub(crate) wanted: Vec<String>,
    /// Whether the authorization server rejected the renewal.
    pub(crate) is_expired: bool,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .field("scopes", &self.scopes)
            .field("is_expired", &self.is_expired)
            .finish_non_exhaustive()
    }
}

/// What is known of the login to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginStatus {
    /// Whether the login can be used.
    pub state: LoginState,
    /// The authorization server.
    pub issuer: String,
    /// The rights that were granted.
    pub scopes: Vec<String>,
    /// When the access token expires; `None` if the authorization server did not say.
    pub expires_at: Option<Timestamp>,
    /// Whether the login renews itself.
    pub renews: bool,
}

/// The state of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// There is a token, or one can be obtained without a person.
    Valid,
    /// A person has to log in again.
    Expired,
    /// The server asked for more rights than the login has.
    MoreRights,
}

impl LoginStore {
    /// Opens the file, or starts without one if it does not exist yet.
    ///
    /// # Errors
    /// When the file cannot be read, or when everybody on this machine can.
    pub fn open(file: impl Into<PathBuf>) -> Result<Self, Fault> {
        let file = file.into();
        let unusable = |expected: &'static str| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, file.display().to_string())
                .with(Fact::Expected, expected)
        };
        if let Ok(about) = fs::metadata(&file)
            && about.permissions().mode() & OTHERS != 0
        {
            return Err(unusable("a file of logins that other users cannot read: chmod 600"));
        }
        let stored: Logins = read(&file).map_err(|error| {
            unusable("the file of logins as Budao wrote it, or none").caused_by(&error)
        })?;
        let cache = LoginCache { current: stored.clone(), stored };
        Ok(Self { file: Some(file), cache: Mutex::new(cache) })
    }

    /// What is known of the login to a server; `None` if there is none.
    #[must_use]
    pub fn status(&self, config: &McpServerConfig, now: Timestamp) -> Option<LoginStatus> {
        let login = self.get(&store::key(config))?;
        let expires_at = login.expires_at.map(Timestamp::from_micros);
        let is_over = expires_at.is_some_and(|at| at <= now) && login.refresh_token.is_none();
        let state = match () {
            () if login.is_expired || is_over => LoginState::Expired,
            () if login.wanted.iter().any(|scope| !login.scopes.contains(scope)) => {
                LoginState::MoreRights
            }
            () => LoginState::Valid,
        };
        let renews = login.refresh_token.is_some() && !login.is_expired;
        Some(LoginStatus { state, issuer: login.issuer, scopes: login.scopes, expires_at, renews })
    }

    pub(crate) fn get(&self, key: &str) -> Option<Login> {
        self.lock().current.get(key).cloned()
    }

    /// Reads the file again: another process may have logged in or renewed a token.
    pub(crate) fn reload(&self) {
        let Some(file) = &self.file else { return };
        match read::<Logins>(file) {
            Ok(stored) => self.lock().merge(stored),
            Err(error) => tracing::warn!(file = %file.display(), %error, "reading logins failed"),
        }
    }

    /// Replaces or removes the record of a server.
    pub(crate) fn set(&self, key: &str, login: Option<&Login>) {
        let change = |logins: &mut Logins| match login {
            Some(login) => drop(logins.insert(key.to_owned(), login.clone())),
            None => drop(logins.remove(key)),
        };
        let mut cache = self.lock();
        change(&mut cache.current);
        let Some(file) = &self.file else { return };
        match replace(file, change) {
            Ok(()) => change(&mut cache.stored),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "writing logins failed, keeping the login in memory");
            }
        }
    }

    /// Waits for the right to renew the login of a server, which one process has at a time. Without a file that can be
    /// locked, every process renews for itself.
    pub(super) async fn renewal_lock(&self, key: &str, world: &World) -> Option<fs::File> {
        let file = self.file.as_ref()?;
        let lock = file.with_extension(format!("{}.lock", digest(key.as_bytes())));
        fs::create_dir_all(file.parent()?).ok()?;
        let lock = private(&lock).ok()?;
        let mut waited = Duration::ZERO;
        while waited < LOCK_WAIT {
            let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
            match rustix::fs::flock(&lock, exclusive) {
                Ok(()) => return Some(lock),
                Err(rustix::io::Errno::WOULDBLOCK) => world.clock.sleep(LOCK_POLL).await,
                Err(_) => return None,
            }
            waited += LOCK_POLL;
        }
        tracing::warn!(file = %file.display(), "another process holds the lock of a login");
        None
    }

    fn lock(&self) -> MutexGuard<'_, LoginCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoginCache {
    fn merge(&mut self, stored: Logins) {
        let before = std::mem::replace(&mut self.stored, stored);
        for (key, login) in &self.stored {
            if before.get(key) != Some(login) {
                self.current.insert(key.clone(), login.clone());
            }
        }
        let is_gone = |key: &String| before.contains_key(key) && !self.stored.contains_key(key);
        self.current.retain(|key, _| !is_gone(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_every_user_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logins.json");
        fs::write(&file, "{}").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(LoginStore::open(&file).unwrap_err().kind(), Kind::ConfigurationWrong);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        LoginStore::open(&file).unwrap();
        fs::write(&file, "{").unwrap();
        assert_eq!(LoginStore::open(&file).unwrap_err().kind(), Kind::ConfigurationWrong);
    }

    #[test]
    fn a_login_is_written_for_its_owner_alone_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/logins.json");
        let store = LoginStore::open(&file).unwrap();
        let secret = || "correct-horse".to_owned();
        let login = Login {
            access_token: secret(),
            refresh_token: Some(secret()),
            client_secret: Some(secret()),
            ..Login::default()
        };
        store.set("a", Some(&login));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{store:?} {login:?}").contains("correct-horse"));
        let next = LoginStore::open(&file).unwrap();
        assert_eq!(next.get("a"), Some(login));
        next.set("a", None);
        store.reload();
        assert_eq!(store.get("a"), None);
    }

    #[test]
    fn a_login_that_could_not_be_written_holds_until_the_file_has_another_one() {
        let login = |token: &str| Login { access_token: token.into(), ..Login::default() };
        let logins = |token| Logins::from([("a".to_owned(), login(token))]);
        let mut cache = LoginCache { current: logins("renewed"), stored: logins("old") };
        cache.merge(logins("old"));
        assert_eq!(cache.current, logins("renewed"));
        cache.merge(logins("new"));
        assert_eq!(cache.current, logins("new"));
        cache.merge(Logins::new());
        assert_eq!(cache.current, Logins::new());
    }
}
