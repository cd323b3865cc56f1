//! The keys of service account tokens, as the files of `--service-account-signing-key-file` and
//! `--service-account-key-file` have them: RSA (RS256) and P-256 (ES256), in PEM.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde_json::{Value, json};
use std::fmt;
use tokio_rustls::rustls::pki_types::pem::{PemObject, SectionKind};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::RSAPublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// The object identifiers of the public keys that are known.
const RSA: &str = "1.2.840.113549.1.1.1";
const EC: &str = "1.2.840.10045.2.1";

/// The algorithms in DER.
const RSA_ALGORITHM: &[u8] = &[
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
const EC_ALGORITHM: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 0x03, 0x01, 0x07,
];

/// A value in DER: its tag, its length and its contents.
fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len().to_be_bytes();
    let zeros = length.iter().take_while(|byte| **byte == 0).count();
    let length = length.get(zeros..).unwrap_or_default();
    let mut out = vec![tag];
    match length {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        long => {
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(0));
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(contents);
    out
}

/// The reason why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not PEM.
    #[error("it is not a PEM file: {0}")]
    Pem(String),
    /// The file contains no key.
    #[error("it contains no key; RSA and P-256 keys in PEM are supported")]
    Empty,
    /// The key is of another kind.
    #[error(
        "its key is not supported; RSA keys of 2,048 to 8,192 bits and P-256 keys in PKCS #8 are (openssl pkcs8 -topk8 \
         -nocrypt converts others)"
    )]
    Unsupported,
}

/// A key that signs tokens.
pub(super) enum SigningKey {
    P256(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm())
    }
}

impl SigningKey {
    /// A new P-256 key, in PKCS #8; `None` if the system has no random numbers.
    pub(super) fn generate(random: &SystemRandom) -> Option<Vec<u8>> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, random);
        key.ok().map(|key| key.as_ref().to_vec())
    }

    /// The key in PKCS #8.
    pub(super) fn from_pkcs8(key: &[u8], random: &SystemRandom) -> Option<Self> {
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, random)
            .map(|pair| Self::P256(Box::new(pair)))
            .or_else(|_| RsaKeyPair::from_pkcs8(key).map(|key| Self::Rsa(Box::new(key))))
            .ok()
    }

    /// The first private key of a PEM file.
    pub(super) fn from_pem(text: &str, random: &SystemRandom) -> Result<Self, KeyError> {
        for (kind, der) in sections(text)? {
            let key = match kind {
                SectionKind::PrivateKey => Self::from_pkcs8(&der, random),
                SectionKind::RsaPrivateKey => RsaKeyPair::from_der(&der)
                    .ok()
                    .map(|key| Self::Rsa(Box::new(key))),
                SectionKind::EcPrivateKey => None,
                _ => continue,
            };
            return key.ok_or(KeyError::Unsupported);
        }
        Err(KeyError::Empty)
    }

    /// The name of the algorithm in the head of a token.
    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// The signature of a text; `None` if the system has no random numbers.
    pub(super) fn sign(&self, random: &SystemRandom, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::P256(key) => key.sign(random, text).ok().map(|s| s.as_ref().to_vec()),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, random, text, &mut signature)
                    .ok()?;
                Some(signature)
            }
        }
    }

    /// The key that verifies the signatures of this key.
    pub(super) fn verifying(&self) -> VerifyingKey {
        match self {
            Self::P256(key) => VerifyingKey::P256(key.public_key().as_ref().to_vec()),
            Self::Rsa(key) => VerifyingKey::Rsa(key.public().as_ref().to_vec()),
        }
    }
}

/// A key that verifies tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VerifyingKey {
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An `RSAPublicKey` of PKCS #1.
    Rsa(Vec<u8>),
}

impl VerifyingKey {
    /// All keys of a PEM file: public keys, certificates and private keys.
    pub(super) fn all_from_pem(text: &str, random: &SystemRandom) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for (kind, der) in sections(text)? {
            let key = match kind {
                SectionKind::PublicKey => SubjectPublicKeyInfo::from_der(&der)
                    .ok()
                    .and_then(|(_, key)| Self::from_info(&key)),
                SectionKind::Certificate => X509Certificate::from_der(&der)
                    .ok()
                    .and_then(|(_, certificate)| Self::from_info(certificate.public_key())),
                SectionKind::RsaPrivateKey => RsaKeyPair::from_der(&der)
                    .ok()
                    .map(|key| Self::Rsa(key.public().as_ref().to_vec())),
                SectionKind::PrivateKey => {
                    SigningKey::from_pkcs8(&der, random).map(|key| key.verifying())
                }
                SectionKind::EcPrivateKey => None,
                _ => continue,
            };
            keys.push(key.ok_or(KeyError::Unsupported)?);
        }
        if keys.is_empty() {
            Err(KeyError::Empty)
        } else {
            Ok(keys)
        }
    }

    /// The name of the algorithm in the head of a token.
    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// The identity of the key: the hash of its form in X.509, as other issuers of Kubernetes form it.
    pub(super) fn id(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, &self.info()))
    }

    /// The key as a JSON Web Key (RFC 7517).
    pub(super) fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::P256(point) => {
                // An uncompressed point: a byte 4 and two coordinates.
                let coordinates = point.get(1..).unwrap_or_default();
                let (x, y) = coordinates.split_at(coordinates.len() / 2);
                json!({
                    "use": "sig", "kty": "EC", "kid": self.id(), "crv": "P-256", "alg": "ES256",
                    "x": encode(x), "y": encode(y),
                })
            }
            Self::Rsa(key) => {
                let parsed = RSAPublicKey::from_der(key).ok().map(|(_, key)| key);
                let number = |of: fn(&RSAPublicKey<'_>) -> Vec<u8>| {
                    let bytes = parsed.as_ref().map(of).unwrap_or_default();
                    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                    encode(bytes.get(zeros..).unwrap_or_default())
                };
                json!({
                    "use": "sig", "kty": "RSA", "kid": self.id(), "alg": "RS256",
                    "n": number(|key| key.modulus.to_vec()),
                    "e": number(|key| key.exponent.to_vec()),
                })
            }
        }
    }

    /// The key as `SubjectPublicKeyInfo` (RFC 5280) in DER.
    fn info(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            Self::P256(point) => (EC_ALGORITHM, point),
            Self::Rsa(key) => (RSA_ALGORITHM, key),
        };
        // No bit of the last byte of the key is unused.
        let key = der(0x03, &[&[0], key.as_slice()].concat());
        der(0x30, &[algorithm, &key].concat())
    }

    fn from_info(info: &SubjectPublicKeyInfo<'_>) -> Option<Self> {
        /// The length of an uncompressed point of P-256.
        const POINT_BYTES: usize = 65;
        let key = info.subject_public_key.data.to_vec();
        match info.algorithm.algorithm.to_id_string().as_str() {
            RSA => Some(Self::Rsa(key)),
            EC => (key.len() == POINT_BYTES).then_some(Self::P256(key)),
            _ => None,
        }
    }

    /// Returns whether this key has signed a text.
    pub(super) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        let (algorithm, key): (&'static dyn VerificationAlgorithm, &[u8]) = match self {
            Self::P256(key) => (&ECDSA_P256_SHA256_FIXED, key),
            Self::Rsa(key) => (&RSA_PKCS1_2048_8192_SHA256, key),
        };
        let key = UnparsedPublicKey::new(algorithm, key);
        key.verify(text, signature).is_ok()
    }
}

/// The sections of a PEM file.
fn sections(text: &str) -> Result<Vec<(SectionKind, Vec<u8>)>, KeyError> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| KeyError::Pem(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, PublicKeyData};

    #[test]
    fn keys_are_read_from_every_form_in_which_files_have_them() {
        let random = SystemRandom::new();
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = CertificateParams::default()
            .self_signed(&key)
            .expect("a certificate");
        let signing = SigningKey::from_pem(&key.serialize_pem(), &random).expect("a private key");
        assert_eq!(signing.algorithm(), "ES256");
        let signature = signing.sign(&random, b"text").expect("a signature");
        let public = key.public_key_pem();
        let both = format!("{public}{public}");
        assert!(!key.subject_public_key_info().is_empty());
        for (text, count) in [
            (public.as_str(), 1),
            (&both, 2),
            (&certificate.pem(), 1),
            (&key.serialize_pem(), 1),
        ] {
            let keys = VerifyingKey::all_from_pem(text, &random).expect(text);
            assert_eq!(keys.len(), count, "{text}");
            for key in keys {
                assert!(key.verifies(b"text", &signature), "{text}");
                assert!(!key.verifies(b"texts", &signature), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let random = SystemRandom::new();
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        for (text, expect) in [
            ("", KeyError::Empty),
            ("secret", KeyError::Empty),
            (other.serialize_pem().as_str(), KeyError::Unsupported),
        ] {
            let signing = SigningKey::from_pem(text, &random).map(|key| key.algorithm());
            assert_eq!(signing.as_ref().err(), Some(&expect), "{text}");
            let verifying = VerifyingKey::all_from_pem(text, &random);
            assert_eq!(verifying.err(), Some(expect), "{text}");
        }
    }
}
