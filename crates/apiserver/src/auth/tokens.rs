//! Tokens of service accounts: JSON Web Tokens (RFC 7519) that this server signs with ES256 and recognises.

use super::User;
use crate::access::gr;
use crate::controllers::object::is_deleting;
use crate::registry::{self, Api, meta};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use serde_json::{Value, json};

/// Who issues the tokens, and the audience of this server.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The claim with the objects that a token is bound to.
const BOUND: &str = "kubernetes.io";
const PREFIX: &str = "system:serviceaccount:";

/// The key of this server.
pub(crate) struct Tokens {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

impl Tokens {
    /// A new key, in PKCS #8; `None` when the system gives no random numbers.
    pub(crate) fn new_key() -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        key.ok().map(|key| key.as_ref().to_vec())
    }

    /// Signs with this key; `None` when it is none.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random).ok()?;
        Some(Self { key, random })
    }

    /// A token with these claims; `None` when the system gives no random numbers.
    pub(crate) fn sign(&self, claims: &Value) -> Option<String> {
        let head = json!({"alg": "ES256", "typ": "JWT"});
        let signed = format!("{}.{}", encoded(&head), encoded(claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token that this server signed.
    fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (_, claims) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key());
        key.verify(signed.as_bytes(), &signature).ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// The service account that a token was issued for, if the token is valid: signed, not expired, for this server,
    /// and bound to objects that still exist.
    pub(crate) fn user(&self, api: &Api, token: &str) -> Option<User> {
        let claims = self.claims(token)?;
        let now = api.now().as_second();
        let is_current = claims["exp"].as_i64().is_some_and(|end| now < end)
            && claims["nbf"].as_i64().is_none_or(|begin| begin <= now);
        let audiences = claims["aud"].as_array()?;
        if !is_current || claims["iss"] != ISSUER || !audiences.iter().any(|a| a == ISSUER) {
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
                let resource = registry::find("", plural)?;
                let found = api.get(resource, namespace, name).ok()?;
                if meta(&found.object(), "uid") != reference["uid"] || is_deleting(&found.object())
                {
                    return None;
                }
            }
        }
        let account = &bound["serviceaccount"];
        Some(service_account(
            namespace,
            account["name"].as_str()?,
            &account["uid"],
        ))
    }
}

/// The user that a service account is.
fn service_account(namespace: &str, name: &str, uid: &Value) -> User {
    User {
        name: format!("{PREFIX}{namespace}:{name}"),
        uid: uid.as_str().unwrap_or_default().to_owned(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
    }
}

/// The groups that a user has by its name: those of a service account.
pub(crate) fn groups_of(name: &str) -> Vec<String> {
    match name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once(':'))
    {
        Some((namespace, name)) => service_account(namespace, name, &Value::Null).groups,
        None => vec!["system:authenticated".to_owned()],
    }
}

/// The claims of a token for a service account, bound to this object besides: the name of its claim and the object.
pub(crate) fn claims(
    account: &Value,
    bound: Option<(&str, &Value)>,
    audiences: &Value,
    (now, seconds): (i64, i64),
    id: &str,
) -> Value {
    let reference =
        |object: &Value| json!({"name": meta(object, "name"), "uid": meta(object, "uid")});
    let (namespace, name) = (meta(account, "namespace"), meta(account, "name"));
    let mut objects = json!({"namespace": namespace, "serviceaccount": reference(account)});
    if let Some((claim, object)) = bound {
        objects[claim] = reference(object);
    }
    json!({
        "aud": audiences,
        "exp": now.saturating_add(seconds),
        "iat": now,
        "iss": ISSUER,
        "jti": id,
        BOUND: objects,
        "nbf": now,
        "sub": format!("{PREFIX}{namespace}:{name}"),
    })
}

/// The claim for an object that a token can be bound to, and the resource of the object.
pub(crate) fn bindable(kind: &str) -> Option<(&'static str, crate::access::GroupResource)> {
    Some(match kind {
        "Node" => ("node", gr("", "nodes")),
        "Pod" => ("pod", gr("", "pods")),
        "Secret" => ("secret", gr("", "secrets")),
        _ => return None,
    })
}
