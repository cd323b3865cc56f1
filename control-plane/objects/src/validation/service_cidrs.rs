//! ServiceCIDRs.

use super::errors::{ErrorPath, Errors, IS_IMMUTABLE, Shown};
use super::names::parse_cidr;
use super::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;
use std::net::IpAddr;

const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.7/24 or 2001:db8::/64)";

pub(crate) fn cidrs(errors: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    let new = owner.value.strings("cidrs");
    let Some(old) = owner.old.map(|old| old.strings("cidrs")) else {
        check_cidrs(errors, owner.value, path);
        return;
    };
    match (old.as_slice(), new.as_slice()) {
        (old, new) if old.len() == new.len() => {
            for (i, (_, new)) in old.iter().zip(new).enumerate().filter(|(_, (o, n))| o != n) {
                errors.invalid(&path.index(i), *new, IS_IMMUTABLE);
            }
        }
        // A second family can be added.
        ([old], [first, _]) => {
            if old != first {
                errors.invalid(&path.index(0), *first, IS_IMMUTABLE);
            }
            check_cidrs(errors, owner.value, path);
        }
        _ => errors.invalid(path, Shown::from(owner.value.part("cidrs")), IS_IMMUTABLE),
    }
}

fn check_cidrs(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let cidrs = spec.strings("cidrs");
    match cidrs.len() {
        0 => return errors.required(path, "at least one CIDR required"),
        1 | 2 => {}
        _ => return errors.invalid(path, Shown::from(spec), "may only hold up to 2 values"),
    }
    for (i, cidr) in cidrs.iter().enumerate() {
        let at = path.index(i);
        match parse_cidr(cidr) {
            None => errors.invalid(&at, *cidr, NOT_A_CIDR),
            Some((address, bits)) => {
                let network = network(address, bits);
                // An address with host bits would hide a mistake.
                if network != address {
                    let detail = "must not have bits set beyond the prefix length";
                    errors.invalid(&at, *cidr, detail);
                } else if *cidr != format!("{network}/{bits}") {
                    let detail = format!("must be in canonical form (\"{network}/{bits}\")");
                    errors.invalid(&at, *cidr, detail);
                }
            }
        }
    }
    let families: Vec<bool> = cidrs
        .iter()
        .filter_map(|cidr| parse_cidr(cidr))
        .map(|(address, _)| address.is_ipv4())
        .collect();
    if let [one, other] = families[..]
        && one == other
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(path, Shown::from(spec.part("cidrs")), detail);
    }
}

/// The first address of a network.
fn network(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(bits.min(32)))
                .unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(bits.min(128)))
                .unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}
