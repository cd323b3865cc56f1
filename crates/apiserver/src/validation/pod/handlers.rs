//! Validation of probes and lifecycle hooks.

use crate::validation::errors::{Errors, Path, Shown};
use crate::validation::names;
use crate::validation::view::View;
use serde_json::Value;

/// Errors of a container's lifecycle and its three probes.
pub(crate) fn validate_all(
    errors: &mut Errors,
    container: &Value,
    grace_period: Option<i64>,
    path: &Path,
) {
    if let Some(lifecycle) = container.field("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.field(hook) {
                let path = path.child("lifecycle").child(hook);
                validate_handler(errors, handler, grace_period, false, &path);
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.field(name) else {
            continue;
        };
        let path = path.child(name);
        validate_probe(errors, probe, grace_period, &path);
        if name == "readinessProbe" {
            if let Some(seconds) = probe.maybe_int("terminationGracePeriodSeconds") {
                errors.invalid(
                    &path.child("terminationGracePeriodSeconds"),
                    seconds,
                    "must not be set for readinessProbes",
                );
            }
        } else if probe.int("successThreshold") != 1 {
            errors.invalid(
                &path.child("successThreshold"),
                probe.int("successThreshold"),
                "must be 1",
            );
        }
    }
}

fn validate_probe(errors: &mut Errors, probe: &Value, grace_period: Option<i64>, path: &Path) {
    validate_handler(errors, probe, grace_period, true, path);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.nonnegative(&path.child(field), probe.int(field));
    }
    if let Some(seconds) = probe.maybe_int("terminationGracePeriodSeconds")
        && seconds <= 0
    {
        errors.invalid(
            &path.child("terminationGracePeriodSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
}

fn validate_handler(
    errors: &mut Errors,
    handler: &Value,
    grace_period: Option<i64>,
    is_probe: bool,
    path: &Path,
) {
    let last = if is_probe { "grpc" } else { "sleep" };
    let mut given = false;
    for kind in ["exec", "httpGet", "tcpSocket", last] {
        let Some(action) = handler.field(kind) else {
            continue;
        };
        let path = path.child(kind);
        if given {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        given = true;
        match kind {
            "exec" => {
                if action.items("command").is_empty() {
                    errors.required(&path.child("command"), "");
                }
            }
            "httpGet" => validate_http(errors, action, &path),
            "tcpSocket" => {
                validate_port(errors, action.field("port"), &path.child("port"));
            }
            "grpc" => {
                let port = action.int("port");
                for message in names::port_number(port) {
                    errors.invalid(&path.child("port"), port, message);
                }
            }
            _ => {
                let seconds = action.int("seconds");
                if let Some(grace) = grace_period
                    && !(0..=grace).contains(&seconds)
                {
                    errors.invalid(
                        &path,
                        seconds,
                        format!(
                            "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                        ),
                    );
                }
            }
        }
    }
    if !given {
        errors.required(path, "must specify a handler type");
    }
}

fn validate_http(errors: &mut Errors, action: &Value, path: &Path) {
    if action.text("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    validate_port(errors, action.field("port"), &path.child("port"));
    let scheme = action.text("scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in action.items("httpHeaders") {
        let name = header.text("name");
        errors.each_invalid(
            &path.child("httpHeaders"),
            name,
            names::http_header_name(name),
        );
    }
}

/// Errors of a port that is given by number or by name.
pub(crate) fn validate_port(errors: &mut Errors, port: Option<&Value>, path: &Path) {
    match port {
        Some(Value::String(name)) => {
            errors.each_invalid(path, name, names::port_name(name));
        }
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            for message in names::port_number(number) {
                errors.invalid(path, Shown::from(number), message);
            }
        }
    }
}
