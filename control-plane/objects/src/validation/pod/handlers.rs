//! Validation of probes and lifecycle hooks.

use crate::validation::engine::run_field;
use crate::validation::errors::{ErrorPath, Errors, Shown};
use crate::validation::names;
use crate::validation::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;

pub(crate) fn probe_handler(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    handler(e, owner, "grpc", path)
}

pub(crate) fn lifecycle_handler(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    handler(e, owner, "sleep", path)
}

pub(crate) fn http_headers(e: &mut Errors, _: &Owner, headers: &Value, path: &ErrorPath) {
    for header in headers.as_array().into_iter().flatten() {
        let name = header.text("name");
        e.each_invalid(path, name, names::http_header_name(name));
    }
}

pub(crate) fn port(e: &mut Errors, _: &Owner, port: &Value, path: &ErrorPath) {
    validate_port(e, port, path)
}

/// Errors of a container's lifecycle and its three probes.
pub(super) fn validate_all(errors: &mut Errors, spec: &Owner, container: &Value, path: &ErrorPath) {
    let lifecycle = container.part("lifecycle");
    let at = path.child("lifecycle");
    for hook in ["postStart", "preStop"] {
        run_field(errors, "core.v1.Lifecycle", hook, lifecycle, spec, &at);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.field(name) else {
            continue;
        };
        run_field(errors, "core.v1.Container", name, container, spec, path);
        let path = path.child(name);
        // A failing readiness probe restarts no container, so it has no termination grace period.
        if name == "readinessProbe" {
            if let Some(seconds) = probe.maybe_int("terminationGracePeriodSeconds") {
                let at = path.child("terminationGracePeriodSeconds");
                errors.invalid(&at, seconds, "must not be set for readinessProbes");
            }
        // For liveness and startup, the first success is enough.
        } else if probe.int("successThreshold") != 1 {
            let at = path.child("successThreshold");
            errors.invalid(&at, probe.int("successThreshold"), "must be 1");
        }
    }
}

/// A handler has one action; `last` is the action that only this sort of handler has.
fn handler(errors: &mut Errors, owner: &Owner, last: &'static str, path: &ErrorPath) {
    let mut given = false;
    for kind in ["exec", "httpGet", "tcpSocket", last] {
        let Some(action) = owner.value.field(kind) else {
            continue;
        };
        let at = path.child(kind);
        if given {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        given = true;
        if kind == "sleep" {
            sleep(errors, owner, action, &at);
        } else {
            run_field(
                errors,
                owner.type_name,
                kind,
                owner.value,
                owner.parent.unwrap_or(owner),
                path,
            );
        }
    }
    if !given {
        errors.required(path, "must specify a handler type");
    }
}

fn sleep(errors: &mut Errors, owner: &Owner, action: &Value, path: &ErrorPath) {
    let spec = owner.enclosing("core.v1.PodSpec").unwrap_or(&Value::Null);
    let seconds = action.int("seconds");
    if let Some(grace) = spec.maybe_int("terminationGracePeriodSeconds")
        && !(0..=grace).contains(&seconds)
    {
        errors.invalid(
            path,
            seconds,
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        );
    }
}

/// Errors of a port that is given by number or by name.
pub(crate) fn validate_port(errors: &mut Errors, port: &Value, path: &ErrorPath) {
    if let Value::String(name) = port {
        errors.each_invalid(path, name, names::port_name(name));
        return;
    }
    let number = port.as_i64().unwrap_or(0);
    for message in names::port_number(number) {
        errors.invalid(path, Shown::from(number), message);
    }
}
