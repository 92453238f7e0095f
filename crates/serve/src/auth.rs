//! Authentication: static bearer tokens, or JSON Web Tokens signed with a configured key.
//!
//! Static tokens are compared by hash, in constant time and always against every known token. All failures give the
//! same answer.

use std::fmt;

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
};
use http::{HeaderMap, header};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::jwt_crypto;

/// The WebSocket sub-protocol that clients offer and the server selects.
pub const PROTOCOL: &str = "budao.v1";
/// Prefix of a token among the sub-protocols, for browsers, which cannot set headers.
const BEARER_PROTOCOL: &str = "bearer.";
/// The scope that permits offering tools to all sessions of the tenant.
const OFFER_SCOPE: &str = "tools:offer";
/// Longer tokens are rejected without a check.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The tenant that limits apply to.
    pub tenant: String,
    /// The owner of sessions, unique within the tenant.
    pub user: String,
    /// True if the caller may access all sessions, including those created outside this gateway.
    pub is_operator: bool,
    /// The tools that the caller may offer to all sessions of the tenant, by name or `prefix*`; none if empty. Every
    /// caller may offer tools to its own sessions.
    pub offers: Vec<String>,
}

impl Identity {
    /// The identity of the only user of a single-user machine, an operator.
    #[must_use]
    pub fn local() -> Self {
        let offers = vec!["*".to_owned()];
        Self { tenant: "local".to_owned(), user: "local".to_owned(), is_operator: true, offers }
    }

    /// `tenant/user` for records and signatures. Slashes in the tenant are escaped, so names are unique.
    #[must_use]
    pub fn name(&self) -> String {
        let tenant = self.tenant.replace('%', "%25").replace('/', "%2F");
        format!("{tenant}/{}", self.user)
    }
}

/// The accepted credentials. The default accepts none.
#[derive(Default)]
pub struct Auth {
    open: bool,
    tokens: Vec<([u8; 32], Identity)>,
    keys: Vec<JwtKey>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("open", &self.open)
            .field("tokens", &self.tokens.len())
            .field("keys", &self.keys.len())
            .finish()
    }
}

/// A key that verifies JSON Web Tokens.
struct JwtKey {
    key: DecodingKey,
    validation: Validation,
}

/// The claims read from a JSON Web Token. `exp` is required.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    operator: bool,
    /// Scopes, separated by spaces; `tools:offer` permits offers to all sessions of the tenant.
    #[serde(default)]
    scope: String,
    /// The names that may be offered, as names or `prefix*`; every name if absent.
    #[serde(default)]
    tool_patterns: Option<Vec<String>>,
    #[serde(default)]
    exp: Option<u64>,
    #[serde(default)]
    nbf: Option<u64>,
}

impl Auth {
    /// Accepts every request as [`Identity::local`].
    #[must_use]
    pub fn open() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// Accepts one token, with the operator identity [`Identity::local`].
    #[must_use]
    pub fn token(token: &str) -> Self {
        let mut auth = Self::default();
        auth.add_token(token, Identity::local());
        auth
    }

    /// True if no authentication is required.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Accepts this token with the given identity.
    pub fn add_token(&mut self, token: &str, identity: Identity) {
        self.tokens.push((Sha256::digest(token).into(), identity));
    }

    /// Accepts the tokens of a file with one `token tenant user [operator] [tools:offer=PATTERN,…]` per line; `#` starts
    /// a comment.
    ///
    /// # Errors
    /// `configuration_wrong`; it names the line, never the token.
    pub fn add_tokens(&mut self, file: &str) -> Result<(), Fault> {
        for (index, line) in file.lines().enumerate() {
            let words: Vec<&str> =
                line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let (token, tenant, user, rights) = match &words[..] {
                [] => continue,
                [token, tenant, user, rights @ ..] => (*token, *tenant, *user, rights),
                _ => return Err(line_fault(index + 1)),
            };
            let (tenant, user) = (tenant.to_owned(), user.to_owned());
            let mut identity = Identity { tenant, user, is_operator: false, offers: Vec::new() };
            for right in rights {
                match right.split_once('=').unwrap_or((right, "*")) {
                    ("operator", "*") => identity.is_operator = true,
                    (OFFER_SCOPE, patterns) => {
                        identity.offers.extend(patterns.split(',').map(str::to_owned));
                    }
                    _ => return Err(line_fault(index + 1)),
                }
            }
            self.add_token(token, identity);
        }
        Ok(())
    }

    /// Accepts JSON Web Tokens signed with a shared secret (HS256).
    pub fn add_shared_secret(&mut self, secret: &[u8], audience: &str) {
        self.add_key(DecodingKey::from_secret(secret), Algorithm::HS256, audience);
    }

    /// Accepts JSON Web Tokens signed with the private part of this PEM key (EdDSA or RS256).
    ///
    /// # Errors
    /// `configuration_wrong` if the key is of neither type.
    pub fn add_public_key(&mut self, pem: &[u8], audience: &str) -> Result<(), Fault> {
        if let Ok(key) = DecodingKey::from_ed_pem(pem) {
            self.add_key(key, Algorithm::EdDSA, audience);
            return Ok(());
        }
        let key = DecodingKey::from_rsa_pem(pem).map_err(|error| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "jwt_key")
                .with(Fact::Expected, "an Ed25519 or RSA public key in PEM form")
                .with(Fact::Received, "something else")
                .caused_by(&error)
        })?;
        self.add_key(key, Algorithm::RS256, audience);
        Ok(())
    }

    fn add_key(&mut self, key: DecodingKey, algorithm: Algorithm, audience: &str) {
        jwt_crypto::install();
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&[audience]);
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        // Expiry is checked in `verify_jwt`, against the injected clock.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        self.keys.push(JwtKey { key, validation });
    }

    /// Authenticates a request by its headers.
    ///
    /// # Errors
    /// `not_authenticated`, without the reason.
    pub fn identify(&self, headers: &HeaderMap, now: Timestamp) -> Result<Identity, Fault> {
        if self.open {
            return Ok(Identity::local());
        }
        read_token(headers)
            .filter(|token| token.len() <= TOKEN_BYTES_MAX)
            .and_then(|token| self.find_by_token(token).or_else(|| self.verify_jwt(token, now)))
            .ok_or_else(|| Fault::new(Kind::NotAuthenticated, Operation::Authenticate))
    }

    fn find_by_token(&self, token: &str) -> Option<Identity> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (known, identity) in &self.tokens {
            if bool::from(known.ct_eq(&digest)) {
                found = Some(identity);
            }
        }
        found.cloned()
    }

    fn verify_jwt(&self, token: &str, now: Timestamp) -> Option<Identity> {
        let seconds = u64::try_from(now.as_millis() / 1000).unwrap_or(0);
        let claims = self.keys.iter().find_map(|JwtKey { key, validation }| {
            let data = jsonwebtoken::decode::<Claims>(token, key, validation).ok()?;
            // RFC 7515: a token whose `crit` names an extension that is not understood is invalid. None is.
            data.header.crit.is_none().then_some(data.claims)
        })?;
        let Claims { sub, tenant, operator, scope, tool_patterns, exp, nbf } = claims;
        let offers = match scope.split_whitespace().any(|scope| scope == OFFER_SCOPE) {
            true => tool_patterns.unwrap_or_else(|| vec!["*".to_owned()]),
            false => Vec::new(),
        };
        let in_time = exp? > seconds && nbf.is_none_or(|from| from <= seconds);
        let tenant = tenant.unwrap_or_else(|| "default".to_owned());
        in_time.then_some(Identity { tenant, user: sub, is_operator: operator, offers })
    }
}

/// The token of a request: from `Authorization`, or from a WebSocket sub-protocol.
fn read_token(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(token.trim());
    }
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .find_map(|protocol| protocol.trim().strip_prefix(BEARER_PROTOCOL))
}

fn line_fault(line: usize) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, format!("token file, line {line}"))
        .with(Fact::Expected, "token tenant user [operator] [tools:offer=PATTERN,…]")
        .with(Fact::Received, "something else")
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn asks(auth: &Auth, header: (&'static str, &str)) -> Option<Identity> {
        let mut headers = HeaderMap::new();
        headers.insert(header.0, header.1.parse().unwrap());
        auth.identify(&headers, NOW).ok()
    }

    fn user(name: &str) -> Identity {
        let (tenant, user) = ("acme".to_owned(), name.to_owned());
        Identity { tenant, user, is_operator: false, offers: Vec::new() }
    }

    #[test]
    fn a_token_comes_by_header_or_by_sub_protocol() {
        let mut auth = Auth::default();
        auth.add_tokens("# people\nabc acme ann\n\nxyz acme bob # the other one\n").unwrap();
        assert_eq!(asks(&auth, ("authorization", "Bearer abc")), Some(user("ann")));
        assert_eq!(asks(&auth, ("authorization", "bearer xyz")), Some(user("bob")));
        let offered = ("sec-websocket-protocol", "budao.v1, bearer.xyz");
        assert_eq!(asks(&auth, offered), Some(user("bob")));
        for wrong in ["Bearer ab", "Bearer abcd", "Basic abc", "abc", "Bearer "] {
            assert_eq!(asks(&auth, ("authorization", wrong)), None, "{wrong}");
        }
        assert!(auth.identify(&HeaderMap::new(), NOW).is_err());
    }

    #[test]
    fn no_two_people_share_a_name() {
        let identity = |tenant: &str, user: &str| Identity {
            tenant: tenant.to_owned(),
            user: user.to_owned(),
            is_operator: false,
            offers: Vec::new(),
        };
        assert_ne!(identity("a/b", "c").name(), identity("a", "b/c").name());
        assert_ne!(identity("a%2Fb", "c").name(), identity("a/b", "c").name());
    }

    #[test]
    fn every_refusal_reads_the_same() {
        let auth = Auth::token("right");
        let mut headers = HeaderMap::new();
        let nothing = auth.identify(&headers, NOW).unwrap_err();
        headers.insert("authorization", "Bearer wrong".parse().unwrap());
        assert_eq!(nothing, auth.identify(&headers, NOW).unwrap_err());
    }

    #[test]
    fn a_line_that_is_wrong_is_named_without_its_token() {
        let fault = Auth::default().add_tokens("good acme ann\nsecret-token acme\n").unwrap_err();
        assert!(fault.to_string().contains("line 2"), "{fault}");
        assert!(!format!("{fault:?}").contains("secret-token"));
    }

    #[test]
    fn signed_tokens_are_held_to_algorithm_audience_and_time() {
        let mut auth = Auth::default();
        auth.add_shared_secret(b"shared", "budao");
        let seconds = 1_800_000_000_u64;
        let sign = |header: &Header, key: &[u8], claims: serde_json::Value| {
            jsonwebtoken::encode(header, &claims, &EncodingKey::from_secret(key)).unwrap()
        };
        let hs256 = Header::new(Algorithm::HS256);
        let claims =
            |exp: u64, aud: &str| json!({"sub": "ann", "tenant": "acme", "exp": exp, "aud": aud});
        let good = sign(&hs256, b"shared", claims(seconds + 60, "budao"));
        let identity = asks(&auth, ("authorization", &format!("Bearer {good}")));
        assert_eq!(identity, Some(user("ann")));
        let critical = Header { crit: Some(vec!["exp".to_owned()]), ..hs256.clone() };
        let mut later = claims(seconds + 60, "budao");
        later["nbf"] = json!(seconds + 30);
        for (what, token) in [
            ("expired", sign(&hs256, b"shared", claims(seconds - 1, "budao"))),
            ("another audience", sign(&hs256, b"shared", claims(seconds + 60, "other"))),
            ("another key", sign(&hs256, b"guessed", claims(seconds + 60, "budao"))),
            (
                "another algorithm",
                sign(&Header::new(Algorithm::HS512), b"shared", claims(seconds + 60, "budao")),
            ),
            ("not yet", sign(&hs256, b"shared", later)),
            ("an unknown extension", sign(&critical, b"shared", claims(seconds + 60, "budao"))),
            ("no expiry", sign(&hs256, b"shared", json!({"sub": "ann", "aud": "budao"}))),
            ("cut", good[..good.len() - 2].to_owned()),
        ] {
            let identity = asks(&auth, ("authorization", &format!("Bearer {token}")));
            assert_eq!(identity, None, "{what}");
        }
    }

    /// Goal: a public key accepts tokens of its private part, and no others.
    /// Method: also sign with the public key itself, as if it were a shared secret.
    #[test]
    fn a_public_key_verifies_and_is_no_secret() {
        let claims =
            json!({"sub": "ann", "tenant": "acme", "exp": 1_800_000_060_u64, "aud": "budao"});
        let ed = EncodingKey::from_ed_pem(include_bytes!("../tests/keys/ed25519.pem")).unwrap();
        let rsa = EncodingKey::from_rsa_pem(include_bytes!("../tests/keys/rsa.pem")).unwrap();
        let ed_public: &[u8] = include_bytes!("../tests/keys/ed25519.pub.pem");
        let rsa_public: &[u8] = include_bytes!("../tests/keys/rsa.pub.pem");
        for (public, own, algorithm, foreign) in [
            (ed_public, &ed, Algorithm::EdDSA, (&rsa, Algorithm::RS256)),
            (rsa_public, &rsa, Algorithm::RS256, (&ed, Algorithm::EdDSA)),
        ] {
            let mut auth = Auth::default();
            auth.add_public_key(public, "budao").unwrap();
            let sign = |key: &EncodingKey, algorithm| {
                let token = jsonwebtoken::encode(&Header::new(algorithm), &claims, key).unwrap();
                asks(&auth, ("authorization", &format!("Bearer {token}")))
            };
            assert_eq!(sign(own, algorithm), Some(user("ann")), "{algorithm:?}");
            assert_eq!(sign(foreign.0, foreign.1), None, "{algorithm:?}");
            assert_eq!(sign(&EncodingKey::from_secret(public), Algorithm::HS256), None);
        }
        assert!(Auth::default().add_public_key(b"no key", "budao").is_err());
    }
}
