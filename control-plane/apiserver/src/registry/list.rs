//! Lists: the parameters `resourceVersion`, `resourceVersionMatch`, `limit` and `continue`.

use super::api::{Api, store_error};
use super::component_statuses;
use crate::storage::{ListQuery, ObjectVersion, Parts, StoreError};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use berth_objects::catalog::ServedResource;
use berth_objects::field::ErrorType;
use berth_objects::selectors::Selectors;
use berth_objects::status::{ApiError, bad_option};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The values of `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    /// The state of exactly that revision.
    Exact,
    /// Any state that is not older.
    NotOlderThan,
}

/// The list request.
#[derive(Debug, Clone, Default)]
pub struct ListRequest<'a> {
    /// The namespace; `None` is all of them.
    pub namespace: Option<&'a str>,
    /// The selected objects.
    pub selectors: Selectors,
    /// At most this many; zero is all.
    pub limit: usize,
    /// The place where an earlier page ended.
    pub continue_token: &'a str,
    /// As the client gave it.
    pub resource_version: &'a str,
    /// As the client gave it.
    pub version_match: Option<VersionMatch>,
}

/// A page of a list.
#[derive(Debug, Default)]
pub struct ListPage {
    /// The objects, in order of namespace and name.
    pub items: Vec<Arc<ObjectVersion>>,
    /// The revision of the listed state.
    pub revision: u64,
    /// The place where the next page begins; empty on the last.
    pub continue_token: String,
    /// The number of objects that follow, where that is known.
    pub remaining: Option<usize>,
}

/// The state that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListedState {
    Now,
    Exact(u64),
    NotOlderThan(u64),
}

// === impl VersionMatch ===

impl VersionMatch {
    /// Reads the query parameter.
    ///
    /// # Errors
    /// 422 for another word than the two known ones.
    pub fn parse(text: &str) -> Result<Option<Self>, ApiError> {
        match text {
            "" => Ok(None),
            "Exact" => Ok(Some(Self::Exact)),
            "NotOlderThan" => Ok(Some(Self::NotOlderThan)),
            other => Err(list_option(
                "resourceVersionMatch",
                ErrorType::NotSupported,
                Some(format!("{other:?}")),
                "supported values: \"Exact\", \"NotOlderThan\", \"\"",
            )),
        }
    }
}

fn list_option(field: &str, error: ErrorType, value: Option<String>, detail: &str) -> ApiError {
    bad_option("ListOptions", field, error, value, detail)
}

/// Reads a revision; an empty text and `0` are read as none.
///
/// # Errors
/// 400 for a text that is not a number.
pub(crate) fn parse_revision(text: &str) -> Result<Option<u64>, ApiError> {
    match text {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

// === impl ListRequest ===

impl ListRequest<'_> {
    fn state(&self) -> Result<ListedState, ApiError> {
        if let Some(version_match) = self.version_match {
            let forbid = |detail| {
                Err(list_option(
                    "resourceVersionMatch",
                    ErrorType::Forbidden,
                    None,
                    detail,
                ))
            };
            if self.resource_version.is_empty() {
                return forbid(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !self.continue_token.is_empty() {
                return forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if version_match == VersionMatch::Exact && self.resource_version == "0" {
                return forbid(
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        let Some(revision) = parse_revision(self.resource_version)? else {
            return Ok(ListedState::Now);
        };
        // Without a match a limited list is exact, as it was before there were matches.
        match self.version_match {
            Some(VersionMatch::Exact) => Ok(ListedState::Exact(revision)),
            None if self.limit > 0 => Ok(ListedState::Exact(revision)),
            _ => Ok(ListedState::NotOlderThan(revision)),
        }
    }

    /// The revision that must have been written before the list can be answered.
    ///
    /// # Errors
    /// The fault of the options.
    pub fn awaits(&self) -> Result<Option<u64>, ApiError> {
        match self.state()? {
            ListedState::Now => Ok(None),
            ListedState::Exact(revision) | ListedState::NotOlderThan(revision) => {
                Ok(Some(revision))
            }
        }
    }
}

impl Api {
    /// Lists objects. Await [`Api::reached`] for [`ListRequest::awaits`] first.
    ///
    /// # Errors
    /// The fault of the options; 410 for a state that is forgotten; 504 for one that is not there yet.
    pub fn list(
        &self,
        resource: &ServedResource,
        request: &ListRequest<'_>,
    ) -> Result<ListPage, ApiError> {
        let store = resource.store.ok_or_else(ApiError::method_not_allowed)?;
        let state = request.state()?;
        if let Some(mut items) = component_statuses::all(self, resource) {
            items.retain(|version| request.selectors.matches(&version.object()));
            return Ok(ListPage {
                items,
                ..ListPage::default()
            });
        }
        let prefix = resource.key_prefix(request.namespace);
        if let Some(listed) = self.list_one(resource, store, request, state)? {
            return Ok(listed);
        }
        let position = if request.continue_token.is_empty() {
            None
        } else {
            if !matches!(request.resource_version, "" | "0") {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            Some(PageEnd::parse(request.continue_token, &prefix)?)
        };
        let at = match (&position, state) {
            (Some(position), _) => position.revision,
            (None, ListedState::Exact(revision)) => Some(revision),
            (None, _) => None,
        };
        let parts = Parts::at(request.selectors.pointers());
        let matches = |version: &ObjectVersion| request.selectors.matches(&version.parts(&parts));
        let query = ListQuery {
            prefix: &prefix,
            after: position.as_ref().map(|p| p.after.as_str()),
            limit: (request.limit > 0).then_some(request.limit),
            at,
            filter: if request.selectors.is_everything() {
                None
            } else {
                Some(&matches)
            },
        };
        let page = self.store.list(store, &query).map_err(|e| match &e {
            StoreError::Expired { .. } if position.is_some() => {
                let after = position.as_ref().map_or("", |p| p.after.as_str());
                ApiError {
                    continue_token: Some(token(None, &prefix, after)),
                    ..ApiError::expired(
                        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                    )
                }
            }
            StoreError::Expired { .. } => ApiError::expired(
                "The resourceVersion for the provided list is too old.",
            ),
            _ => store_error(&e),
        })?;
        if let ListedState::NotOlderThan(revision) = state
            && page.revision < revision
        {
            return Err(ApiError::resource_version_too_large(
                revision,
                page.revision,
            ));
        }
        Ok(ListPage {
            revision: page.revision,
            continue_token: page.more_after.map_or_else(String::new, |after| {
                token(Some(page.revision), &prefix, &after)
            }),
            remaining: page.remaining,
            items: page.items,
        })
    }

    /// A list with a selector for one name is a look-up.
    fn list_one(
        &self,
        resource: &ServedResource,
        store: usize,
        request: &ListRequest<'_>,
        state: ListedState,
    ) -> Result<Option<ListPage>, ApiError> {
        let Some(name) = request.selectors.fields.required("metadata.name") else {
            return Ok(None);
        };
        // A look-up returns the present state, and one namespace.
        if matches!(state, ListedState::Exact(_))
            || !request.continue_token.is_empty()
            || (resource.namespaced && request.namespace.is_none())
        {
            return Ok(None);
        }
        let key = resource.key(request.namespace.unwrap_or(""), name);
        let (found, revision) = self.store.get_at(store, &key);
        // The watch of the client is ahead of this state.
        if let ListedState::NotOlderThan(wanted) = state
            && revision < wanted
        {
            return Err(ApiError::resource_version_too_large(wanted, revision));
        }
        Ok(Some(ListPage {
            items: found
                .into_iter()
                .filter(|v| request.selectors.matches(&v.object()))
                .collect(),
            revision,
            ..ListPage::default()
        }))
    }
}

/// The place where a page ended.
struct PageEnd {
    /// The pinned revision; `None` continues with the current state.
    revision: Option<u64>,
    /// The last key of the page.
    after: String,
}

/// The version of the tokens.
const VERSION: &str = "meta.k8s.io/v1";
/// As Go decodes tokens: remaining bits do not count.
const TOKENS: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The contents of a token.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

/// A `continue` token: the revision, and the last key relative to the listed namespace.
fn token(revision: Option<u64>, prefix: &str, after: &str) -> String {
    let start = after.strip_prefix(prefix).unwrap_or(after);
    let revision = revision.map_or(json!(-1), |r| json!(r));
    let text = json!({"v": VERSION, "rv": revision, "start": format!("/{start}\u{0}")});
    TOKENS.encode(text.to_string())
}

impl PageEnd {
    fn parse(token: &str, prefix: &str) -> Result<Self, ApiError> {
        let bad = |why: &str| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = TOKENS
            .decode(token.trim_end_matches('='))
            .map_err(|e| bad(&e.to_string()))?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|e| bad(&e.to_string()))?;
        if token.v != VERSION {
            let version = token.v;
            return Err(bad(&format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        if token.rv == 0 {
            return Err(bad(&format!(
                "incorrect encoded start resourceVersion (version {VERSION})"
            )));
        }
        if token.start.is_empty() {
            return Err(bad(&format!("encoded start key empty (version {VERSION})")));
        }
        let start = token.start.strip_prefix('/').unwrap_or(&token.start);
        let leads_elsewhere = |part: &str| matches!(part, "" | "." | "..");
        if !start.is_empty() && start.split('/').any(leads_elsewhere) {
            return Err(bad(&token.start));
        }
        // A negative revision continues with the current state.
        let revision = u64::try_from(token.rv).ok();
        Ok(Self {
            revision,
            after: format!("{prefix}{}", start.trim_end_matches('\u{0}')),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_token_is_as_upstream_writes_it() {
        assert_eq!(
            token(Some(233), "default/", "default/gated").len(),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjMzLCJzdGFydCI6Ii9nYXRlZFx1MDAwMCJ9".len()
        );
        let position = PageEnd::parse(
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjMzLCJzdGFydCI6Ii9nYXRlZFx1MDAwMCJ9",
            "default/",
        );
        let got = position.map(|p| (p.revision, p.after)).ok();
        assert_eq!(got, Some((Some(233), "default/gated".to_owned())));
    }

    /// The texts equal kube-apiserver's, except for faults of the encoding.
    #[test]
    fn broken_tokens_are_refused() {
        let encoded = |json: Value| TOKENS.encode(json.to_string());
        let start = "encoded start key empty (version meta.k8s.io/v1)";
        let revision = "incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
        let version = "server does not recognize this encoded version v2";
        for (token, why) in [
            ("%%%".to_owned(), ""),
            ("bm8".to_owned(), ""),
            ("zzz".to_owned(), ""),
            ("e30".to_owned(), "encoded version "),
            (encoded(json!({"v": "v2", "rv": 1, "start": "/a"})), version),
            (encoded(json!({"v": VERSION, "start": "/a"})), revision),
            (encoded(json!({"v": VERSION, "rv": 1})), start),
            (
                encoded(json!({"v": VERSION, "rv": 1, "start": "/../a"})),
                "/../a",
            ),
            (
                encoded(json!({"v": VERSION, "rv": 1, "start": "a//b"})),
                "a//b",
            ),
        ] {
            let error = PageEnd::parse(&token, "").err();
            let (code, message) = error.map_or((0, String::new()), |e| (e.code, e.message));
            assert_eq!(code, 400, "{token}");
            let all = "invalid continue token: continue key is not valid: ";
            let rest = message.strip_prefix(all);
            assert!(
                rest.is_some_and(|rest| rest.contains(why)),
                "{token}: {message}"
            );
        }
    }
}
