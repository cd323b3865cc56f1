//! Label and field selectors of lists and watches.

pub mod field;
pub mod workload;

use crate::catalog::ServedResource;
use crate::status::ApiError;
use crate::view::at_path;
use berth_api::selector::{Selector, SelectorError};
use field::FieldSelector;
use serde_json::Value;

/// The restrictions of a list or watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selectors {
    /// By labels.
    pub labels: Selector,
    /// By fields.
    pub fields: FieldSelector,
}

impl Default for Selectors {
    /// Everything.
    fn default() -> Self {
        Self {
            labels: Selector::everything(),
            fields: FieldSelector::default(),
        }
    }
}

impl Selectors {
    /// Parses the two query parameters for a resource.
    ///
    /// # Errors
    /// 400 with upstream's words.
    pub fn parse(resource: &ServedResource, labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self {
            labels: labels
                .parse()
                .map_err(|e: SelectorError| ApiError::bad_request(e.to_string()))?,
            fields: FieldSelector::parse(resource, fields).map_err(ApiError::bad_request)?,
        })
    }

    /// Returns whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_everything()
    }

    /// The parts of objects that decide whether they match, as JSON pointers.
    pub fn pointers(&self) -> impl Iterator<Item = &'static str> {
        let labels = (!self.labels.is_empty()).then_some("/metadata/labels");
        self.fields.pointers().chain(labels)
    }

    /// Returns whether this object matches.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = at_path(object, "/metadata/labels");
        self.fields.matches(object) && self.labels.matches_with(|key| labels?.get(key)?.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use serde_json::json;

    #[test]
    fn labels_and_fields_must_both_match() {
        let pods = catalog::find("", "pods").expect("pods are served");
        let object = json!({
            "metadata": {"name": "a", "labels": {"app": "web", "tier": "1"}},
            "status": {"phase": "Running"},
        });
        let bare = json!({"metadata": {"name": "b"}});
        // (labels, fields, matches the object, matches one without labels)
        let cases = [
            ("", "", true, true),
            ("app", "", true, false),
            ("!app", "", false, true),
            ("app in (db, web),tier>0", "", true, false),
            ("app!=web", "", false, true),
            ("app=web", "metadata.name=a", true, false),
            ("app=web", "status.phase=Failed", false, false),
        ];
        for (labels, fields, first, second) in cases {
            let Ok(selectors) = Selectors::parse(pods, labels, fields) else {
                panic!("{labels:?} {fields:?} can be parsed");
            };
            assert_eq!(selectors.matches(&object), first, "{labels:?} {fields:?}");
            assert_eq!(selectors.matches(&bare), second, "{labels:?} {fields:?}");
            let is_everything = labels.is_empty() && fields.is_empty();
            assert_eq!(selectors.is_everything(), is_everything);
        }
        let refused = Selectors::parse(pods, "app inn (x)", "").err();
        assert_eq!(
            refused.map(|e| (e.code, e.message)),
            Some((
                400,
                "unable to parse requirement: found 'inn', expected: in, notin, =, ==, !=, gt, lt"
                    .to_owned()
            ))
        );
    }
}
