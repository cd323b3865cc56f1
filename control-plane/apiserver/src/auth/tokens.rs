//! Tokens of service accounts: JSON Web Tokens (RFC 7519) that this server signs and recognises.

use super::keys::{KeyError, SigningKey, VerifyingKey};
use super::user::{PREFIX, RequestUser, service_account};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use berth_objects::access::gr;
use berth_objects::catalog::{self, ServedResource};
use berth_objects::view::meta;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The issuer of the tokens, which is also the audience of this server, when no options name others.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The claim with the objects that a token is bound to.
const BOUND: &str = "kubernetes.io";
/// The keys that sign and verify service account tokens, and the accepted issuers. By default the server generates a
/// key.
#[derive(Clone, Default)]
pub struct TokenOptions {
    /// The issuer of new tokens, followed by others whose tokens are accepted.
    pub issuers: Vec<String>,
    /// The audiences of this server; the default is the first issuer.
    pub audiences: Vec<String>,
    /// The key that signs new tokens, in PEM; `None` is a key of the server's own.
    pub signing_key: Option<String>,
    /// Files of keys, in PEM, that accepted tokens may be signed with.
    pub keys: Vec<String>,
}

impl std::fmt::Debug for TokenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is a secret.
        f.debug_struct("TokenOptions")
            .field("issuers", &self.issuers)
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

/// The objects that tokens are bound to, as the API server has them.
pub trait BoundObjects {
    /// The time.
    fn now(&self) -> Timestamp;

    /// The UID of an object that exists and is not being deleted.
    fn uid_of(&self, resource: &ServedResource, namespace: &str, name: &str) -> Option<String>;
}

/// The keys of this server.
pub(crate) struct ServerTokens {
    signing: SigningKey,
    verifying: Vec<VerifyingKey>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    random: SystemRandom,
}

impl std::fmt::Debug for ServerTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

impl ServerTokens {
    /// A new key, in PKCS #8; `None` if the system has no random numbers.
    pub(crate) fn new_key() -> Option<Vec<u8>> {
        SigningKey::generate(&SystemRandom::new())
    }

    /// Signs and accepts tokens by these options; `own` is the key of the server, in PKCS #8.
    ///
    /// # Errors
    /// When a key cannot be used.
    pub(crate) fn new(own: &[u8], options: TokenOptions) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let signing = match &options.signing_key {
            Some(pem) => SigningKey::from_pem(pem, &random)?,
            None => SigningKey::from_pkcs8(own, &random).ok_or(KeyError::Unsupported)?,
        };
        let mut verifying = Vec::new();
        for pem in &options.keys {
            verifying.extend(VerifyingKey::all_from_pem(pem, &random)?);
        }
        let own = signing.verifying();
        // Tokens of this server are accepted without being listed among the keys.
        if !verifying.contains(&own) {
            verifying.push(own);
        }
        let mut issuers = options.issuers;
        if issuers.is_empty() {
            issuers.push(ISSUER.to_owned());
        }
        let mut audiences = options.audiences;
        if audiences.is_empty() {
            audiences.extend(issuers.first().cloned());
        }
        Ok(Self {
            signing,
            verifying,
            issuers,
            audiences,
            random,
        })
    }

    /// The issuer of new tokens.
    pub(crate) fn issuer(&self) -> &str {
        self.issuers.first().map_or(ISSUER, String::as_str)
    }

    /// The audiences of this server.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// A token with these claims; `None` if the system has no random numbers.
    pub(crate) fn sign(&self, claims: &Value) -> Option<String> {
        let (algorithm, id) = (self.signing.algorithm(), self.signing.verifying().id());
        let head = json!({"alg": algorithm, "kid": id, "typ": "JWT"});
        let signed = format!("{}.{}", encoded(&head), encoded(claims));
        let signature = self.signing.sign(&self.random, signed.as_bytes())?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The signing algorithms of tokens.
    pub(crate) fn algorithms(&self) -> Vec<&'static str> {
        let mut algorithms: Vec<&str> =
            self.verifying.iter().map(VerifyingKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        algorithms
    }

    /// The key set (RFC 7517) for the verification of tokens by other components.
    pub(crate) fn key_set(&self) -> Value {
        let keys: Vec<Value> = self.verifying.iter().map(VerifyingKey::jwk).collect();
        json!({"keys": keys})
    }

    /// The claims of a token that one of the keys has signed.
    fn verified(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (_, claims) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut keys = self.verifying.iter();
        if !keys.any(|key| key.verifies(signed.as_bytes(), &signature)) {
            return None;
        }
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// The claims of a token for a service account that is also bound to these objects, given by the names of their
    /// claims.
    pub(crate) fn claims(
        &self,
        account: &Value,
        bound: &[(&str, &Value)],
        audiences: &Value,
        now: i64,
        seconds: i64,
        id: &str,
    ) -> Value {
        let reference =
            |object: &Value| json!({"name": meta(object, "name"), "uid": meta(object, "uid")});
        let (namespace, name) = (meta(account, "namespace"), meta(account, "name"));
        let mut objects = json!({"namespace": namespace, "serviceaccount": reference(account)});
        for (claim, object) in bound {
            objects[*claim] = reference(object);
        }
        json!({
            "aud": audiences,
            "exp": now.saturating_add(seconds),
            "iat": now,
            "iss": self.issuer(),
            "jti": id,
            BOUND: objects,
            "nbf": now,
            "sub": format!("{PREFIX}{namespace}:{name}"),
        })
    }

    /// The service account that a token was issued for, if the token is valid: signed, not expired, for this server,
    /// and bound to objects that still exist.
    pub(crate) fn user(&self, objects: &dyn BoundObjects, token: &str) -> Option<RequestUser> {
        let claims = self.verified(token)?;
        let now = objects.now().as_second();
        let is_current = claims["exp"].as_i64().is_some_and(|end| now < end)
            && claims["nbf"].as_i64().is_none_or(|begin| begin <= now);
        let issuer = claims["iss"].as_str()?;
        // Several issuers can be known, so that tokens stay valid while the issuer is changed.
        let is_known = self.issuers.iter().any(|known| known == issuer);
        let is_for_this_server = claims["aud"].as_array()?.iter().any(|audience| {
            let audience = audience.as_str();
            self.audiences.iter().any(|own| audience == Some(own))
        });
        if !is_current || !is_known || !is_for_this_server {
            return None;
        }
        let bound = &claims[BOUND];
        let namespace = bound["namespace"].as_str()?;
        for (field, plural) in [
            ("serviceaccount", "serviceaccounts"),
            ("pod", "pods"),
            ("secret", "secrets"),
        ] {
            let reference = &bound[field];
            if let Some(name) = reference["name"].as_str() {
                let resource = catalog::find("", plural)?;
                let uid = objects.uid_of(resource, namespace, name)?;
                // An object of the same name with another UID is not the one to which the token was bound.
                if reference["uid"] != uid {
                    return None;
                }
            }
        }
        let account = &bound["serviceaccount"];
        let name = account["name"].as_str()?;
        Some(RequestUser {
            extra: extra(&claims),
            ..service_account(namespace, name, &account["uid"])
        })
    }
}

/// The claims of a token other than its account: its own identity, and the bound pod and node.
fn extra(claims: &Value) -> BTreeMap<String, Vec<String>> {
    const DOMAIN: &str = "authentication.kubernetes.io";
    let mut extra = BTreeMap::new();
    if let Some(id) = claims["jti"].as_str() {
        extra.insert(format!("{DOMAIN}/credential-id"), vec![format!("JTI={id}")]);
    }
    for object in ["pod", "node"] {
        for field in ["name", "uid"] {
            if let Some(text) = claims[BOUND][object][field].as_str() {
                extra.insert(format!("{DOMAIN}/{object}-{field}"), vec![text.to_owned()]);
            }
        }
    }
    extra
}

/// The claim for an object that a token can be bound to, and the resource of the object.
pub(crate) fn bindable(kind: &str) -> Option<(&'static str, berth_objects::access::GroupResource)> {
    Some(match kind {
        "Node" => ("node", gr("", "nodes")),
        "Pod" => ("pod", gr("", "pods")),
        "Secret" => ("secret", gr("", "secrets")),
        _ => return None,
    })
}
