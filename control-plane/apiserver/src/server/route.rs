//! Paths and queries: which resource a request is about.

use crate::percent::decode;
use berth_objects::catalog::{Catalog, ServedResource};
use berth_objects::status::ApiError;
use std::sync::Arc;

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// Objects of a resource, or one of them.
    Resource(RouteTarget),
    /// A connection to a pod, a service or a node.
    Connect(Connect),
    /// A resource or subresource that is not served, within a group version that is.
    UnknownResource,
    /// An unknown path.
    NotFound,
    /// Any other path, by its segments.
    Other,
}

/// One or many objects of a resource.
#[derive(Debug, Clone)]
pub(super) struct RouteTarget {
    pub(super) resource: Arc<ServedResource>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) sub: Option<&'static str>,
}

/// A subresource that leads into a container or to another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Connect {
    pub(super) resource: &'static str,
    pub(super) namespace: String,
    /// The name in the path; for a proxy it can have a scheme as prefix and a port as suffix.
    pub(super) name: String,
    pub(super) sub: &'static str,
}

/// The subresources that need containers which really run.
const CONNECTS: [(&str, &str); 7] = [
    ("pods", "attach"),
    ("pods", "exec"),
    ("pods", "log"),
    ("pods", "portforward"),
    ("pods", "proxy"),
    ("services", "proxy"),
    ("nodes", "proxy"),
];

impl Connect {
    /// The name of the object: `name`, `name:port` or `scheme:name:port`.
    pub(super) fn object_name(&self) -> &str {
        if self.sub != "proxy" {
            return &self.name;
        }
        let parts: Vec<&str> = self.name.split(':').collect();
        match parts.as_slice() {
            [name] | [name, _] | [_, name, _] => name,
            _ => &self.name,
        }
    }
}

/// A connection, if the path after the namespace leads to one. For a proxy, the rest is the path on the target.
fn connect(namespace: Option<&str>, rest: &[&str]) -> Option<Connect> {
    let [plural, name, sub, below @ ..] = rest else {
        return None;
    };
    let (resource, sub) = CONNECTS
        .into_iter()
        .find(|known| *known == (*plural, *sub))?;
    let is_placed = (resource == "nodes") != namespace.is_some();
    (is_placed && (below.is_empty() || sub == "proxy")).then(|| Connect {
        resource,
        namespace: namespace.unwrap_or("").to_owned(),
        name: (*name).to_owned(),
        sub,
    })
}

impl PartialEq for RouteTarget {
    fn eq(&self, other: &Self) -> bool {
        self.resource.resource == other.resource.resource
            && (&self.namespace, &self.name, self.sub) == (&other.namespace, &other.name, other.sub)
    }
}

impl Eq for RouteTarget {}

/// The decoded segments of a path; `None` if one of them is not UTF-8.
pub(super) fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/')
        .filter(|s| !s.is_empty())
        .map(|segment| decode(segment, false))
        .collect()
}

/// The route of a path.
pub(super) fn route(catalog: &Catalog, segments: &[String]) -> Route {
    let texts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match texts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Route::Other,
    };
    if !catalog.group_versions().contains(&(group, version)) {
        return Route::NotFound;
    }
    let (namespace, rest) = match rest {
        // `namespaces/x` is the namespace itself, `namespaces/x/pods` its contents.
        ["namespaces", namespace, rest @ ..]
            if !rest.is_empty() && !is_namespace_part(catalog, group, rest) =>
        {
            (Some((*namespace).to_owned()), rest)
        }
        rest => (None, rest),
    };
    if let ("", Some(connect)) = (group, connect(namespace.as_deref(), rest)) {
        return Route::Connect(connect);
    }
    let (plural, name, sub) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some((*name).to_owned()), None),
        [plural, name, sub] => (*plural, Some((*name).to_owned()), Some(*sub)),
        _ => return Route::UnknownResource,
    };
    let Some(resource) = catalog.find_version(group, version, plural) else {
        return Route::UnknownResource;
    };
    let sub = match sub.map(|s| resource.subresource(s)) {
        None => None,
        Some(Some(sub)) => Some(sub.name),
        Some(None) => return Route::UnknownResource,
    };
    // A namespaced object has a namespace, an object of the cluster has none.
    if resource.namespaced != namespace.is_some() && (name.is_some() || !resource.namespaced) {
        return Route::UnknownResource;
    }
    Route::Resource(RouteTarget {
        resource: Arc::clone(resource),
        namespace,
        name,
        sub,
    })
}

/// Returns whether the rest of a path is a subresource of the namespace.
fn is_namespace_part(catalog: &Catalog, group: &str, rest: &[&str]) -> bool {
    match rest {
        [one] if group.is_empty() => catalog
            .find("", "namespaces")
            .is_some_and(|r| r.subresource(one).is_some()),
        _ => false,
    }
}

/// The parameters of a query.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// 400 if it is not UTF-8.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, ApiError> {
        let pairs = text
            .unwrap_or("")
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((decode(key, true)?, decode(value, true)?))
            })
            .collect::<Option<Vec<_>>>();
        pairs
            .map(Self)
            .ok_or_else(|| ApiError::bad_request("the query of the URL is not valid UTF-8"))
    }

    /// All parameters, in order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The first value of a parameter, empty when it is not there.
    pub(super) fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or("")
    }

    /// The first value of a parameter.
    pub(super) fn find(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns whether a parameter is set to something that means yes.
    pub(super) fn flag(&self, name: &str) -> bool {
        !matches!(
            self.find(name),
            None | Some("0" | "false" | "False" | "FALSE")
        )
    }

    /// A number; a negative number is zero.
    ///
    /// # Errors
    /// 400 when it is none.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => match text.parse::<i64>() {
                Ok(number) => Ok(Some(u64::try_from(number).unwrap_or(0))),
                Err(_) => Err(ApiError::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_objects::catalog;

    #[test]
    fn paths_name_resources() {
        let target = |group: &str, plural, namespace: Option<&str>, name: Option<&str>, sub| {
            catalog::find(group, plural).map(|resource| {
                Route::Resource(RouteTarget {
                    resource: Arc::clone(resource),
                    namespace: namespace.map(str::to_owned),
                    name: name.map(str::to_owned),
                    sub,
                })
            })
        };
        let cases = [
            ("/api/v1/pods", target("", "pods", None, None, None)),
            (
                "/api/v1/namespaces/a/pods",
                target("", "pods", Some("a"), None, None),
            ),
            (
                "/api/v1/namespaces/a/pods/p/status",
                target("", "pods", Some("a"), Some("p"), Some("status")),
            ),
            (
                "/api/v1/namespaces",
                target("", "namespaces", None, None, None),
            ),
            (
                "/api/v1/namespaces/a",
                target("", "namespaces", None, Some("a"), None),
            ),
            (
                "/api/v1/namespaces/a/finalize",
                target("", "namespaces", None, Some("a"), Some("finalize")),
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                target("apps", "deployments", Some("a"), Some("d"), Some("scale")),
            ),
            (
                "/api/v1/nodes/n%2d1",
                target("", "nodes", None, Some("n-1"), None),
            ),
            ("/api/v1/namespaces/a/widgets", Some(Route::UnknownResource)),
            ("/api/v1/namespaces/a/nodes", Some(Route::UnknownResource)),
            ("/api/v1/pods/p", Some(Route::UnknownResource)),
            (
                "/api/v1/namespaces/a/pods/p/log",
                Some(Route::Connect(Connect {
                    resource: "pods",
                    namespace: "a".to_owned(),
                    name: "p".to_owned(),
                    sub: "log",
                })),
            ),
            (
                "/api/v1/namespaces/a/services/https:s:443/proxy/x/y",
                Some(Route::Connect(Connect {
                    resource: "services",
                    namespace: "a".to_owned(),
                    name: "https:s:443".to_owned(),
                    sub: "proxy",
                })),
            ),
            (
                "/api/v1/nodes/n/proxy/metrics",
                Some(Route::Connect(Connect {
                    resource: "nodes",
                    namespace: String::new(),
                    name: "n".to_owned(),
                    sub: "proxy",
                })),
            ),
            (
                "/api/v1/namespaces/a/pods/p/exec/x",
                Some(Route::UnknownResource),
            ),
            (
                "/api/v1/namespaces/a/pods/p/evil",
                Some(Route::UnknownResource),
            ),
            ("/apis/example.com/v1/things", Some(Route::NotFound)),
            ("/api/v2/pods", Some(Route::NotFound)),
            ("/apis/apps/v1", Some(Route::Other)),
            ("/version", Some(Route::Other)),
        ];
        for (path, expect) in cases {
            let got = segments(path).map(|s| route(catalog::built_in(), &s));
            assert_eq!(got, expect, "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let Ok(query) = Query::parse(Some("labelSelector=app+in+(a%2Cb)&watch=1&x=%zz&limit=-1"))
        else {
            panic!("the query is UTF-8");
        };
        assert_eq!(query.get("labelSelector"), "app in (a,b)");
        assert!(query.flag("watch"));
        assert!(!query.flag("absent"));
        assert_eq!(query.get("x"), "%zz");
        assert_eq!(query.number("limit").ok(), Some(Some(0)));
        assert_eq!(query.number("x").err().map(|e| e.code), Some(400));
        assert!(Query::parse(Some("a=%ff")).is_err());
    }
}
