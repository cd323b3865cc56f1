//! `/flagz` and `/statusz`: as text for people, and as JSON or YAML of `config.k8s.io` for programs that ask for that.

use super::pages::{Answer, JSON, Shown, TEXT, typed};
use super::status;
use crate::settings::KUBERNETES_VERSION;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

const GROUP: &str = "config.k8s.io";
/// The versions of the structured answers; the first one is on its way out.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];
const YAML: &str = "application/yaml";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Negotiated {
    Text,
    Json(&'static str),
    Yaml(&'static str),
    /// None of those that there are.
    NotAcceptable,
}

impl Negotiated {
    /// The first form in an `Accept` header that there is. `kind` is that of the object.
    pub(super) fn of(accept: Option<&HeaderValue>, kind: &str) -> Self {
        let accept = match accept.map(HeaderValue::to_str) {
            None => return Self::Text,
            Some(Err(_)) => return Self::NotAcceptable,
            Some(Ok(accept)) => accept,
        };
        let forms = accept.split(',').map(|form| Self::of_type(form, kind));
        forms.flatten().next().unwrap_or(Self::NotAcceptable)
    }

    fn of_type(form: &str, kind: &str) -> Option<Self> {
        let mut parts = form.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if matches!(media, "" | "*/*" | "text/*" | "text/plain") {
            return Some(Self::Text);
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| {
            let found = parameters.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| *value)
        };
        if parameter("as") != Some(kind) || parameter("g") != Some(GROUP) {
            return None;
        }
        let version = VERSIONS
            .into_iter()
            .find(|known| parameter("v") == Some(*known))?;
        match media {
            "application/json" => Some(Self::Json(version)),
            YAML => Some(Self::Yaml(version)),
            _ => None,
        }
    }
}

/// The flags.
pub(super) fn flagz(shown: &Shown, negotiated: Negotiated) -> Answer {
    let text = || {
        let mut text = format!("\n{} flagz\n{WARNING}\n", shown.component);
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
        let mut object = envelope("Flagz", version, shown);
        object["flags"] = Value::Object(flags);
        object
    };
    answer(negotiated, text, object)
}

/// The version, the uptime and the state.
pub(super) fn statusz(
    shown: &Shown,
    paths: &[&str],
    notes: &[(&'static str, String)],
    negotiated: Negotiated,
) -> Answer {
    let uptime = shown.started.elapsed().unwrap_or_default().as_secs();
    let started = jiff::Timestamp::try_from(shown.started).unwrap_or_default();
    let text = || {
        let mut text = format!("\n{} statusz\n{WARNING}\n\n", shown.component);
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
            ("Binary version", KUBERNETES_VERSION.to_owned()),
            ("Emulation version", KUBERNETES_VERSION.to_owned()),
            ("Paths", paths.join(" ")),
        ];
        lines.extend(notes.iter().cloned());
        for (name, value) in lines {
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    };
    let object = |version: &str| {
        let mut object = envelope("Statusz", version, shown);
        object["startTime"] = started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        object["uptimeSeconds"] = uptime.into();
        object["goVersion"] = "".into();
        object["binaryVersion"] = KUBERNETES_VERSION.into();
        object["emulationVersion"] = KUBERNETES_VERSION.into();
        object["paths"] = json!(paths);
        object
    };
    answer(negotiated, text, object)
}

fn envelope(kind: &str, version: &str, shown: &Shown) -> Value {
    json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{version}"),
        "metadata": {"name": shown.component},
    })
}

fn answer(
    negotiated: Negotiated,
    text: impl FnOnce() -> String,
    object: impl FnOnce(&str) -> Value,
) -> Answer {
    let (content_type, body) = match negotiated {
        Negotiated::Text => (TEXT, text()),
        Negotiated::Json(version) => (JSON, format!("{:#}", object(version))),
        Negotiated::Yaml(version) => {
            let object = object(version);
            // JSON is YAML too.
            (
                YAML,
                serde_saphyr::to_string(&object).unwrap_or_else(|_| object.to_string()),
            )
        }
        Negotiated::NotAcceptable => {
            return status::not_acceptable(
                "only the following media types are accepted: application/json, application/yaml, text/plain",
            );
        }
    };
    typed(StatusCode::OK, HeaderValue::from_static(content_type), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_take_the_form_that_is_asked_for() {
        for (accept, expected) in [
            (None, Negotiated::Text),
            (Some("*/*"), Negotiated::Text),
            (Some("text/plain;charset=utf-8"), Negotiated::Text),
            (
                Some("application/json;as=Statusz;v=v1beta1;g=config.k8s.io"),
                Negotiated::Json("v1beta1"),
            ),
            (
                Some("application/yaml; g=config.k8s.io; v=v1alpha1; as=Statusz, text/plain"),
                Negotiated::Yaml("v1alpha1"),
            ),
            (
                Some("application/json;as=Flagz;v=v1beta1;g=config.k8s.io"),
                Negotiated::NotAcceptable,
            ),
            (Some("application/json"), Negotiated::NotAcceptable),
            (Some("application/xml, */*;q=0.1"), Negotiated::Text),
        ] {
            let header = accept.map(HeaderValue::from_static);
            let got = Negotiated::of(header.as_ref(), "Statusz");
            assert_eq!(got, expected, "{accept:?}");
        }
    }
}
