//! Signed states: a client's position in a session, signed by the server.
//!
//! A state is opaque to its holder: base64url over a body and a MAC. The body names session, position, audience and
//! validity; it contains no secret. A state can be used once: the server that accepts it records its nonce in the
//! session.

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use budao_core::{
    event::{Epoch, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
    world::World,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretBox};
use sha2::Sha256;

const VERSION: u8 = 1;
const MAC_BYTES: usize = 32;
/// Version, key id, session, epoch, seq, issued, expires, nonce.
const FIXED_BYTES: usize = 1 + 4 + 16 + 4 + 8 + 8 + 8 + 16;
/// Upper bound for the audience in a received state.
const AUDIENCE_BYTES: usize = 1024;
/// Tolerated clock difference between servers.
const SKEW: Duration = Duration::from_secs(60);

/// Keys for signed states. The first key signs, all keys verify.
pub struct Keyring(Vec<Key>);

struct Key {
    id: u32,
    secret: SecretBox<[u8; 32]>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| key.id)).finish()
    }
}

impl Keyring {
    /// Derives keys from secrets of at least 32 bytes each.
    ///
    /// # Errors
    /// `configuration_wrong` if there is no secret, or one is too short.
    pub fn new<S: AsRef<[u8]>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, Fault> {
        let wrong = |received: String| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "state_keys")
                .with(Fact::Expected, "keys of at least 32 bytes")
                .with(Fact::Received, received)
        };
        let mut keys = Vec::new();
        for secret in secrets {
            let secret = secret.as_ref();
            if secret.len() < 32 {
                return Err(wrong(format!("{} bytes", secret.len())));
            }
            keys.push(Key::derive(secret));
        }
        if keys.is_empty() {
            return Err(wrong("none".to_owned()));
        }
        Ok(Self(keys))
    }

    /// Derives a token from a secret. The result is deterministic and does not reveal the secret.
    #[must_use]
    pub fn token(secret: &str) -> String {
        let mut mac = mac(secret.as_bytes());
        mac.update(b"budao web token");
        URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..24])
    }

    /// Creates a key for the lifetime of this process. Its states are invalid after a restart.
    #[must_use]
    pub fn random(high: u128, low: u128) -> Self {
        let mut secret = [0; 32];
        secret[..16].copy_from_slice(&high.to_be_bytes());
        secret[16..].copy_from_slice(&low.to_be_bytes());
        Self(vec![Key::derive(&secret)])
    }
}

impl Key {
    /// Derives the key and its id from the secret, so that neither reveals it.
    fn derive(secret: &[u8]) -> Self {
        let derive = |label: &[u8]| {
            let mut mac = mac(secret);
            mac.update(label);
            <[u8; 32]>::from(mac.finalize().into_bytes())
        };
        let id = derive(b"budao state key id");
        let id = u32::from_be_bytes([id[0], id[1], id[2], id[3]]);
        Self { id, secret: SecretBox::new(Box::new(derive(b"budao state key"))) }
    }

    fn mac(&self, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = mac(self.secret.expose_secret());
        mac.update(body);
        mac
    }
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// A client's position in a session, before signing or after verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedState {
    /// The identity that may use the state, as `tenant/user`.
    pub audience: String,
    /// The session that the state belongs to.
    pub session: SessionId,
    /// The incarnation of the history.
    pub epoch: Epoch,
    /// The last position that the client had.
    pub seq: Seq,
    /// The start of the validity.
    pub issued: Timestamp,
    /// The end of the validity, exclusive.
    pub expires: Timestamp,
    /// A random number; the server accepts each one once.
    pub nonce: u128,
}

impl SignedState {
    /// Creates a state that is valid from now on, for `valid`.
    #[must_use]
    pub fn new(
        audience: String,
        session: SessionId,
        (epoch, seq): (Epoch, Seq),
        valid: Duration,
        world: &World,
    ) -> Self {
        let issued = world.clock.now();
        let nonce = u128::from(world.entropy.bits()) << 64 | u128::from(world.entropy.bits());
        let expires = issued.after(valid);
        Self { audience, session, epoch, seq, issued, expires, nonce }
    }

    fn body(&self, key: u32) -> Vec<u8> {
        let mut body = Vec::with_capacity(FIXED_BYTES + self.audience.len() + MAC_BYTES);
        body.push(VERSION);
        body.extend(key.to_be_bytes());
        body.extend(self.session.0.as_bytes());
        body.extend(self.epoch.0.to_be_bytes());
        body.extend(self.seq.to_be_bytes());
        body.extend(self.issued.as_micros().to_be_bytes());
        body.extend(self.expires.as_micros().to_be_bytes());
        body.extend(self.nonce.to_be_bytes());
        body.extend(self.audience.as_bytes());
        body
    }

    /// Encodes the state and signs it with the first key.
    #[must_use]
    pub fn sign(&self, keys: &Keyring) -> String {
        let key = keys.0.first().expect("a keyring has a key");
        let mut bytes = self.body(key.id);
        let mac = key.mac(&bytes).finalize().into_bytes();
        bytes.extend(mac);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a state and checks signature, audience and validity. It does not check whether the state was used
    /// before.
    ///
    /// # Errors
    /// `state_forged` if the signature or the audience is wrong; `state_expired` after the validity.
    pub fn verify(
        text: &str,
        audience: &str,
        keys: &Keyring,
        now: Timestamp,
    ) -> Result<Self, Fault> {
        let forged = || Fault::new(Kind::StateForged, Operation::VerifyState);
        if text.len() > (FIXED_BYTES + AUDIENCE_BYTES + MAC_BYTES) * 4 / 3 + 4 {
            return Err(forged());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| forged())?;
        let split = bytes.len().checked_sub(MAC_BYTES).filter(|at| *at >= FIXED_BYTES);
        let (body, mac) = bytes.split_at(split.ok_or_else(forged)?);
        let state = Self::read(body, mac, keys).ok_or_else(forged)?;
        if state.audience != audience || state.issued > now.after(SKEW) {
            return Err(forged());
        }
        if state.expires <= now {
            return Err(Fault::new(Kind::StateExpired, Operation::VerifyState)
                .with(Fact::Session, state.session.to_string())
                .with(Fact::LimitMs, state.expires.since(state.issued))
                .with(Fact::ElapsedMs, now.since(state.issued)));
        }
        Ok(state)
    }

    /// Decodes a body, if one of the keys signed it.
    fn read(body: &[u8], mac: &[u8], keys: &Keyring) -> Option<Self> {
        let mut rest = body;
        let [version] = take(&mut rest)?;
        let id = u32::from_be_bytes(take(&mut rest)?);
        let key = keys.0.iter().find(|key| key.id == id)?;
        key.mac(body).verify_slice(mac).ok()?;
        if version != VERSION {
            return None;
        }
        Some(Self {
            session: SessionId(uuid::Uuid::from_bytes(take(&mut rest)?)),
            epoch: Epoch(u32::from_be_bytes(take(&mut rest)?)),
            seq: Seq::from_be_bytes(take(&mut rest)?),
            issued: Timestamp::from_micros(i64::from_be_bytes(take(&mut rest)?)),
            expires: Timestamp::from_micros(i64::from_be_bytes(take(&mut rest)?)),
            nonce: u128::from_be_bytes(take(&mut rest)?),
            audience: String::from_utf8(rest.to_vec()).ok()?,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "how many were tried is part of the result")]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn state() -> SignedState {
        SignedState {
            audience: "acme/ann".to_owned(),
            session: SessionId(uuid::Uuid::from_u128(7)),
            epoch: Epoch(0xabcd),
            seq: 42,
            issued: NOW,
            expires: NOW.after(Duration::from_secs(60)),
            nonce: 99,
        }
    }

    fn kind(text: &str, audience: &str, keys: &Keyring, now: Timestamp) -> Kind {
        SignedState::verify(text, audience, keys, now).unwrap_err().kind()
    }

    #[test]
    fn a_signed_state_is_verified_and_returned_unchanged() {
        let keys = Keyring::random(1, 2);
        let signed = state().sign(&keys);
        assert_eq!(SignedState::verify(&signed, "acme/ann", &keys, NOW).unwrap(), state());
    }

    /// Goal: every change to a state is detected. Method: replace each character with each of four others.
    #[test]
    fn every_altered_character_is_noticed() {
        let keys = Keyring::random(1, 2);
        let signed = state().sign(&keys);
        for at in 0..signed.len() {
            for other in ["A", "B", "_", "9"] {
                let mut altered = signed.clone();
                altered.replace_range(at..=at, other);
                if altered != signed {
                    assert_eq!(kind(&altered, "acme/ann", &keys, NOW), Kind::StateForged, "{at}");
                }
            }
        }
    }

    /// Goal: every modified state is rejected. Method: flip each bit, then pairs of bits, then splice two states.
    /// `BUDAO_FULL` raises the number of cases.
    #[test]
    fn no_altered_state_is_accepted() {
        let count = if std::env::var_os("BUDAO_FULL").is_some() { 1_000_000 } else { 20_000 };
        let keys = Keyring::random(1, 2);
        let good = URL_SAFE_NO_PAD.decode(state().sign(&keys)).unwrap();
        let later = SignedState { seq: 43, nonce: 100, ..state() }.sign(&keys);
        let later = URL_SAFE_NO_PAD.decode(later).unwrap();
        let bits = good.len() * 8;
        for case in 0..count {
            let mut altered = good.clone();
            altered[case % bits / 8] ^= 1 << (case % 8);
            if case >= bits {
                // Far from the first bit, and never the same bit.
                let other = (case * 7 + case / bits) % bits;
                altered[other / 8] ^= 1 << (other % 8);
                if case % 5 == 0 {
                    altered.splice(..case % good.len(), later[..case % good.len()].iter().copied());
                }
            }
            if altered == good || altered == later {
                continue;
            }
            let text = URL_SAFE_NO_PAD.encode(&altered);
            assert_eq!(kind(&text, "acme/ann", &keys, NOW), Kind::StateForged, "case {case}");
        }
        eprintln!("security T9: {count} altered states, none taken in");
    }

    #[test]
    fn every_cut_is_noticed() {
        let keys = Keyring::random(1, 2);
        let signed = state().sign(&keys);
        for length in 0..signed.len() {
            let cut = &signed[..length];
            assert_eq!(kind(cut, "acme/ann", &keys, NOW), Kind::StateForged, "{length}");
        }
        let long = "A".repeat(100_000);
        assert_eq!(kind(&long, "acme/ann", &keys, NOW), Kind::StateForged);
    }

    #[test]
    fn a_signed_state_is_valid_for_its_audience_and_its_time() {
        let keys = Keyring::random(1, 2);
        let signed = state().sign(&keys);
        assert_eq!(kind(&signed, "acme/bob", &keys, NOW), Kind::StateForged);
        let later = NOW.after(Duration::from_secs(60));
        assert_eq!(kind(&signed, "acme/ann", &keys, later), Kind::StateExpired);
        let before = Timestamp::from_micros(NOW.as_micros() - 120_000_000);
        assert_eq!(kind(&signed, "acme/ann", &keys, before), Kind::StateForged);
    }

    #[test]
    fn keys_are_rotated_without_losing_states() {
        let (old, new) = ([1_u8; 32], [2_u8; 32]);
        let signed = state().sign(&Keyring::new([old]).unwrap());
        let both = Keyring::new([new, old]).unwrap();
        assert!(SignedState::verify(&signed, "acme/ann", &both, NOW).is_ok());
        let only_new = Keyring::new([new]).unwrap();
        assert_eq!(kind(&signed, "acme/ann", &only_new, NOW), Kind::StateForged);
        let signed = state().sign(&both);
        assert!(
            SignedState::verify(&signed, "acme/ann", &only_new, NOW).is_ok(),
            "the first one signs"
        );
    }

    #[test]
    fn a_key_that_is_too_short_is_refused() {
        assert!(Keyring::new([[1_u8; 31]]).is_err());
        assert!(Keyring::new(Vec::<[u8; 32]>::new()).is_err());
    }
}
