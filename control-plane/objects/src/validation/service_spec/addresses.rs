//! The checks of the cluster addresses of a Service and of their families.

use super::NOT_CHANGED;
use crate::enumerations::values;
use crate::validation::addresses::validate_ip;
use crate::validation::errors::{ErrorPath, Errors, Shown};
use crate::validation::names;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = values!(core.v1.ServiceSpec.ipFamilyPolicy);

/// `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` agree with each other.
pub(super) fn related_addresses(
    errors: &mut Errors,
    spec: &Value,
    old: Option<&Value>,
    path: &ErrorPath,
) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let (address, addresses) = (spec.text("clusterIP"), spec.strings("clusterIPs"));
    let at = path.child("clusterIPs");
    let shown = spec.part("clusterIPs");
    match (address, addresses.first()) {
        ("", Some(_)) => {
            errors.invalid(
                &at,
                shown,
                "must be empty when `clusterIP` is not specified",
            );
        }
        ("", None) => {}
        (_, None) => errors.required(&at, ""),
        (one, Some(first)) if *first != one => {
            errors.invalid(&at, shown, "first value must match `clusterIP`");
        }
        _ => {}
    }
    let families = spec.strings("ipFamilies");
    let mut seen = HashSet::new();
    for (i, family) in families.iter().enumerate() {
        let at = path.child("ipFamilies").index(i);
        if !FAMILIES.contains(family) {
            errors.not_supported(&at, family, &FAMILIES);
        }
        if !seen.insert(*family) {
            errors.duplicate(&at, *family);
        }
    }
    if let Some(policy) = spec.maybe_text("ipFamilyPolicy")
        && !POLICIES.contains(&policy)
    {
        errors.not_supported(&path.child("ipFamilyPolicy"), policy, &POLICIES);
    }
    let known = old.map_or_else(Vec::new, |old| old.strings("clusterIPs"));
    let mut are_valid = true;
    for (i, address) in addresses.iter().enumerate() {
        if i == 0 && *address == "None" {
            if addresses.len() > 1 {
                are_valid = false;
                errors.invalid(&at, shown, "'None' must be the first and only value");
            }
        } else if !known.contains(address) {
            are_valid &= validate_ip(errors, address, &at.index(i));
        }
    }
    if addresses.len() > 2 {
        errors.invalid(&at, shown, "may only hold up to 2 values");
    }
    if !are_valid {
        return;
    }
    let parsed: Vec<Option<IpAddr>> = addresses.iter().map(|a| names::parse_ip(a)).collect();
    let of_families: HashSet<bool> = parsed.iter().flatten().map(IpAddr::is_ipv4).collect();
    if addresses.len() > 1 && of_families.len() < 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid(&at, shown, detail);
    }
    for (i, (family, ip)) in families.iter().zip(parsed.iter()).enumerate() {
        let Some(ip) = ip else { continue };
        if FAMILIES.contains(family) && (*family == "IPv4") != ip.is_ipv4() {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.invalid(
                &at.index(i),
                addresses.get(i).copied().unwrap_or(""),
                detail,
            );
        }
    }
}

/// The families that the policy allows, in a cluster that has IPv4 alone.
pub(super) fn families(errors: &mut Errors, spec: &Value, old: Option<&Value>, path: &ErrorPath) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let policy = spec.text("ipFamilyPolicy");
    let at = path.child("ipFamilyPolicy");
    let shown = || match spec.field("ipFamilyPolicy") {
        Some(policy) => Shown::from(policy),
        None => Shown::null(),
    };
    let (addresses, families) = (spec.strings("clusterIPs"), spec.strings("ipFamilies"));
    if let Some(old) = old.filter(|_| policy != "SingleStack") {
        let reduced = |field: &str, new: &[&str]| {
            let before = old.strings(field);
            before.len() > 1 && new.len() == 1 && before.first() == new.first()
        };
        if reduced("clusterIPs", &addresses) {
            let detail = "must be 'SingleStack' to release the secondary cluster IP";
            errors.invalid(&at, shown(), detail);
        }
        if reduced("ipFamilies", &families) {
            let detail = "must be 'SingleStack' to release the secondary IP family";
            errors.invalid(&at, shown(), detail);
        }
    }
    if policy == "SingleStack" {
        for (list, what) in [(&addresses, "cluster IPs"), (&families, "IP families")] {
            if list.len() == 2 {
                let detail = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.invalid(&at, shown(), detail);
            }
        }
    }
    let is_selectorless = spec.map("selector").is_none_or(serde_json::Map::is_empty);
    if !errors.is_empty() || (spec.text("clusterIP") == "None" && is_selectorless) {
        return;
    }
    if policy == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid(&at, shown(), detail);
    }
    for (i, family) in families.iter().enumerate() {
        if *family != "IPv4" {
            let at = path.child("ipFamilies").index(i);
            errors.invalid(&at, *family, "not configured on this cluster");
        }
    }
}

/// The primary address or family stays; a second one may be added or removed.
pub(super) fn kept(
    errors: &mut Errors,
    spec: &Value,
    old: &Value,
    field: &'static str,
    singular: &str,
    path: &ErrorPath,
) {
    let (before, after) = (old.strings(field), spec.strings(field));
    let at = path.child(field);
    let shown = |errors: &mut Errors, i: usize, detail: String| {
        let value = spec.field(field).map_or_else(Shown::null, Shown::from);
        errors.invalid(&at.index(i), value, detail);
    };
    if before.len() == after.len() {
        for (i, _) in before
            .iter()
            .zip(&after)
            .enumerate()
            .filter(|(_, (b, a))| b != a)
        {
            // Upstream reports each changed family at the first.
            let i = if field == "ipFamilies" { 0 } else { i };
            shown(errors, i, NOT_CHANGED.to_owned());
        }
        return;
    }
    if after.is_empty() {
        shown(errors, 0, format!("primary {singular} can not be unset"));
    } else if !before.is_empty() && before.first() != after.first() {
        shown(errors, 0, NOT_CHANGED.to_owned());
    }
    if before.len() > after.len()
        && after.len() == 1
        && spec.text("ipFamilyPolicy") != "SingleStack"
    {
        let policy = spec.field("ipFamilyPolicy");
        let detail =
            format!("must be set to 'SingleStack' when releasing the secondary {singular}");
        let shown = policy.map_or_else(Shown::null, Shown::from);
        errors.invalid(&path.child("ipFamilyPolicy"), shown, detail);
    }
}
