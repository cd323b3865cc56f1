//! `/flagz` and `/statusz`: as text for people, and as JSON, YAML or CBOR of `config.k8s.io` for programs that ask for
//! that. The component is `kube-scheduler`, which programs look for.

use super::cbor;
use super::pages::{JSON, PageAnswer, Shown, TEXT, typed};
use super::status;
use berth_api::Release;
use bytes::Bytes;
use http::header::WARNING;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The name under which components of Kubernetes are known here.
const COMPONENT: &str = "kube-scheduler";
const GROUP: &str = "config.k8s.io";
/// The versions of the structured answers; the first one is deprecated.
const VERSIONS: [&str; 2] = [DEPRECATED, "v1beta1"];
const DEPRECATED: &str = "v1alpha1";
const YAML: &str = "application/yaml";
const CBOR: &str = "application/cbor";
const NOT_FOR_MACHINES: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
                                compatibility guarantees and is for debugging purposes only.";

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Negotiated {
    Text,
    /// An object of this version.
    Object(Encoding, &'static str),
    /// No supported type.
    NotAcceptable,
}

/// The encoding of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Yaml,
    Cbor,
}

impl Negotiated {
    /// The supported media type with the highest quality in `Accept`; the first of equals. `kind` is the kind of the
    /// object.
    pub(super) fn of(accept: Option<&HeaderValue>, kind: &str) -> Self {
        let accept = match accept.map(HeaderValue::to_str) {
            None => return Self::Text,
            Some(Err(_)) => return Self::NotAcceptable,
            Some(Ok(accept)) if accept.trim().is_empty() => return Self::Text,
            Some(Ok(accept)) => accept,
        };
        let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::read).collect();
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        let mut forms = clauses.iter().filter_map(|clause| clause.form(kind));
        forms.next().unwrap_or(Self::NotAcceptable)
    }
}

/// A media type with its parameters.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f64,
}

impl<'a> Clause<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters = parts.filter_map(|part| part.split_once('='));
        let parameters: Vec<(&str, &str)> = parameters.collect();
        let mut clause = Self {
            media,
            parameters,
            quality: 1.0,
        };
        if let Some(quality) = clause.parameter("q").and_then(|q| q.parse().ok()) {
            clause.quality = quality;
        }
        clause
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        let found = self.parameters.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| *value)
    }

    fn form(&self, kind: &str) -> Option<Negotiated> {
        let asks_for_object = self.parameter("as").is_some();
        let accepts_text = matches!(self.media, "*/*" | "text/*" | "text/plain");
        if accepts_text && !asks_for_object {
            return Some(Negotiated::Text);
        }
        let encoding = match self.media {
            "application/json" | "application/*" | "*/*" => Encoding::Json,
            YAML => Encoding::Yaml,
            CBOR => Encoding::Cbor,
            _ => return None,
        };
        if self.parameter("as") != Some(kind) || self.parameter("g") != Some(GROUP) {
            return None;
        }
        let version = self.parameter("v")?;
        let version = VERSIONS.into_iter().find(|known| *known == version)?;
        Some(Negotiated::Object(encoding, version))
    }
}

/// The flags.
pub(super) fn flagz(shown: &Shown, negotiated: Negotiated) -> PageAnswer {
    let text = || {
        let mut text = format!("\n{COMPONENT} flagz\n{NOT_FOR_MACHINES}\n");
        for (name, value) in &shown.flags {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    };
    let object = |version: &str| {
        let flags: Map<String, Value> = shown
            .flags
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        let mut object = envelope("Flagz", version);
        object["flags"] = Value::Object(flags);
        object
    };
    answer("flagz", negotiated, text, object)
}

/// The version, the uptime and the state.
pub(super) fn statusz(
    shown: &Shown,
    paths: &[&str],
    notes: &[(&'static str, String)],
    negotiated: Negotiated,
) -> PageAnswer {
    let uptime = shown.started.elapsed().unwrap_or_default().as_secs();
    let emulated = shown.versions.emulated;
    let started = jiff::Timestamp::try_from(shown.started).unwrap_or_default();
    // The page is formed only in the format that was asked for.
    let text = || {
        let mut text = format!("\n{COMPONENT} statusz\n{NOT_FOR_MACHINES}\n\n");
        let (hours, minutes) = (uptime / 3600, uptime / 60 % 60);
        let mut lines = vec![
            (
                "Started",
                started.strftime("%a %b %e %H:%M:%S UTC %Y").to_string(),
            ),
            (
                "Up",
                format!("{hours} hr {minutes:02} min {:02} sec", uptime % 60),
            ),
            ("Berth version", env!("CARGO_PKG_VERSION").to_owned()),
            ("Binary version", Release::NEWEST.to_string()),
            ("Emulation version", emulated.to_string()),
            ("Paths", paths.join(" ")),
        ];
        lines.extend(notes.iter().cloned());
        for (name, value) in lines {
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    };
    let object = |version: &str| {
        let mut object = envelope("Statusz", version);
        object["startTime"] = started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        object["uptimeSeconds"] = uptime.into();
        object["goVersion"] = "".into();
        object["binaryVersion"] = Release::NEWEST.as_str().into();
        object["emulationVersion"] = emulated.as_str().into();
        object["paths"] = json!(paths);
        object
    };
    answer("statusz", negotiated, text, object)
}

fn envelope(kind: &str, version: &str) -> Value {
    json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{version}"),
        "metadata": {"name": COMPONENT},
    })
}

fn answer(
    page: &str,
    negotiated: Negotiated,
    text: impl FnOnce() -> String,
    object: impl FnOnce(&str) -> Value,
) -> PageAnswer {
    let ok = |content_type, body: Bytes| {
        let content_type = HeaderValue::from_static(content_type);
        typed(StatusCode::OK, content_type, body)
    };
    let (encoding, version) = match negotiated {
        Negotiated::Text => return ok(TEXT, text().into()),
        Negotiated::Object(encoding, version) => (encoding, version),
        Negotiated::NotAcceptable => {
            return status::not_acceptable(
                "only the following media types are accepted: application/cbor, application/json, application/yaml, \
                 text/plain",
            );
        }
    };
    let object = object(version);
    let mut answer = match encoding {
        Encoding::Json => ok(JSON, format!("{object:#}").into()),
        Encoding::Yaml => {
            // JSON is YAML too.
            let yaml = serde_saphyr::to_string(&object).unwrap_or_else(|_| object.to_string());
            ok(YAML, yaml.into())
        }
        Encoding::Cbor => ok(CBOR, cbor::encode(&object).into()),
    };
    let warning = format!(
        "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
    );
    if version == DEPRECATED
        && let Ok(warning) = HeaderValue::try_from(warning)
    {
        answer.headers_mut().insert(WARNING, warning);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms of kube-scheduler's own tests of its pages, and further ones.
    #[test]
    fn answers_take_the_form_that_is_asked_for() {
        let object = Negotiated::Object;
        for (accept, expected) in [
            (None, Negotiated::Text),
            (Some(""), Negotiated::Text),
            (Some("*/*"), Negotiated::Text),
            (Some("text/plain"), Negotiated::Text),
            (Some("text/plain;charset=utf-8"), Negotiated::Text),
            (
                Some("application/json;v=v1beta1;g=config.k8s.io;as=Statusz"),
                object(Encoding::Json, "v1beta1"),
            ),
            (
                Some("application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz"),
                object(Encoding::Yaml, "v1beta1"),
            ),
            (
                Some("application/cbor;v=v1beta1;g=config.k8s.io;as=Statusz"),
                object(Encoding::Cbor, "v1beta1"),
            ),
            (
                Some("application/yaml; g=config.k8s.io; v=v1alpha1; as=Statusz, text/plain"),
                object(Encoding::Yaml, "v1alpha1"),
            ),
            (
                Some(
                    "application/json;g=config.k8s.io;v=v1alpha1;as=Statusz,application/json;g=config.k8s.io;v=v1beta1;as=Statusz",
                ),
                object(Encoding::Json, "v1alpha1"),
            ),
            (
                Some(
                    "application/json;g=config.k8s.io;v=v1beta1;as=Statusz,application/json;g=config.k8s.io;v=v1alpha1;as=Statusz",
                ),
                object(Encoding::Json, "v1beta1"),
            ),
            (
                Some(
                    "text/plain;q=0.5,application/json;g=config.k8s.io;v=v1beta1;as=Statusz;q=0.9",
                ),
                object(Encoding::Json, "v1beta1"),
            ),
            (
                Some("application/json;v=foo;g=config.k8s.io;as=Statusz,*/*"),
                Negotiated::Text,
            ),
            (
                Some("application/json;as=Flagz;v=v1beta1;g=config.k8s.io"),
                Negotiated::NotAcceptable,
            ),
            (
                Some("application/json;v=v1beta1;g=config.k8s.io"),
                Negotiated::NotAcceptable,
            ),
            (
                Some("text/plain;v=v1beta1;g=config.k8s.io;as=Statusz"),
                Negotiated::NotAcceptable,
            ),
            (Some("application/json"), Negotiated::NotAcceptable),
            (Some("application/cbor"), Negotiated::NotAcceptable),
            (Some("application/xml"), Negotiated::NotAcceptable),
            (Some("application/xml, */*;q=0.1"), Negotiated::Text),
        ] {
            for kind in ["Statusz", "Flagz"] {
                // Each page has its own kind; the kind of the other page is unknown.
                let accept = accept.map(|accept| {
                    if accept.contains("as=Flagz") {
                        accept.replace("as=Flagz", "as=Pod")
                    } else {
                        accept.replace("as=Statusz", &format!("as={kind}"))
                    }
                });
                let header = accept
                    .as_deref()
                    .map(|accept| HeaderValue::try_from(accept).expect("a header"));
                let got = Negotiated::of(header.as_ref(), kind);
                assert_eq!(got, expected, "{kind}: {accept:?}");
            }
        }
    }
}
