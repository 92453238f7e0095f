//! Verifies the signatures of JSON Web Tokens with `ring`, which TLS uses too: HS256, RS256 and EdDSA.
//!
//! The crate `jsonwebtoken` uses one cryptography provider per process. This provider signs only in tests.

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature::{self, Verifier},
};
use ring::{
    hmac,
    signature::{ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm},
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs the provider of this process. A provider that the embedding program has installed before stays.
pub(crate) fn install() {
    let _ = PROVIDER.install_default();
}

/// A key with the algorithm of its tokens.
enum VerificationKey {
    Shared(hmac::Key),
    Public { algorithm: Algorithm, key: UnparsedPublicKey<Vec<u8>> },
}

impl Verifier<Vec<u8>> for VerificationKey {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match self {
            Self::Shared(key) => hmac::verify(key, message, signature),
            Self::Public { key, .. } => key.verify(message, signature),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for VerificationKey {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Shared(_) => Algorithm::HS256,
            Self::Public { algorithm, .. } => *algorithm,
        }
    }
}

/// The verifier for a token's algorithm. A key of another family is refused, so that a public key cannot serve as a
/// shared secret.
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let public = |parameters: &'static dyn VerificationAlgorithm| {
        let key = UnparsedPublicKey::new(parameters, key.try_get_as_bytes()?.to_vec());
        Ok(VerificationKey::Public { algorithm: *algorithm, key })
    };
    let key: Result<VerificationKey, Error> = match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.try_get_as_bytes()?);
            Ok(VerificationKey::Shared(key))
        }
        (Algorithm::RS256, AlgorithmFamily::Rsa) => public(&RSA_PKCS1_2048_8192_SHA256),
        (Algorithm::EdDSA, AlgorithmFamily::Ed) => public(&ED25519),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    };
    Ok(Box::new(key?))
}

#[cfg(not(test))]
fn signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

#[cfg(test)]
use tests::signer;

#[cfg(test)]
mod tests {
    use jsonwebtoken::signature::Signer;
    use ring::{
        rand::SystemRandom,
        signature::{Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair},
    };

    use super::*;

    struct SigningKey {
        algorithm: Algorithm,
        key: Vec<u8>,
    }

    impl Signer<Vec<u8>> for SigningKey {
        fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
            let mac = |algorithm| {
                hmac::sign(&hmac::Key::new(algorithm, &self.key), message).as_ref().to_vec()
            };
            Ok(match self.algorithm {
                Algorithm::HS256 => mac(hmac::HMAC_SHA256),
                Algorithm::HS512 => mac(hmac::HMAC_SHA512),
                Algorithm::EdDSA => {
                    let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&self.key).unwrap();
                    pair.sign(message).as_ref().to_vec()
                }
                Algorithm::RS256 => {
                    let pair = RsaKeyPair::from_der(&self.key).unwrap();
                    let mut signature = vec![0; pair.public().modulus_len()];
                    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
                        .unwrap();
                    signature
                }
                _ => return Err(signature::Error::new()),
            })
        }
    }

    impl JwtSigner for SigningKey {
        fn algorithm(&self) -> Algorithm {
            self.algorithm
        }
    }

    pub(super) fn signer(
        algorithm: &Algorithm,
        key: &EncodingKey,
    ) -> Result<Box<dyn JwtSigner>, Error> {
        Ok(Box::new(SigningKey { algorithm: *algorithm, key: key.as_bytes().to_vec() }))
    }

    #[test]
    fn a_key_verifies_only_the_algorithm_of_its_family() {
        let secret = DecodingKey::from_secret(b"shared");
        assert!(verifier(&Algorithm::HS256, &secret).is_ok());
        let others = [Algorithm::HS384, Algorithm::HS512, Algorithm::RS256, Algorithm::EdDSA];
        for algorithm in others {
            assert!(verifier(&algorithm, &secret).is_err(), "{algorithm:?}");
        }
    }
}
