//! The addresses of Services: an IPAddress for each, from the ranges of the ServiceCIDRs that are ready (KEP-1880).
//!
//! An address is allocated by the creation of its IPAddress, which succeeds for one Service only, before the Service is
//! stored. It is released when the Service is deleted or changes its address.

use super::api::Api;
use super::list::ListRequest;
use super::requester::Requester;
use crate::registry::request::{DeleteRequest, WriteOptions};
use berth_objects::access::gr;
use berth_objects::catalog::{self, ServedResource};
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::status::ApiError;
use berth_objects::validation::names::{parse_cidr, parse_ip};
use berth_objects::view::{FieldView, meta};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const GROUP: &str = "networking.k8s.io";
/// The label of the IPAddresses of Services, with its value.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
/// The first addresses of a range are left for Services that state theirs: a sixteenth, within these limits.
const STATED_MIN: u32 = 16;
const STATED_MAX: u32 = 256;

/// The addresses that a write of a Service has taken.
#[derive(Debug, Default)]
pub(super) struct Taken(Vec<String>);

/// Returns whether addresses belong to objects of a resource.
pub(super) fn has_addresses(resource: &ServedResource) -> bool {
    resource.resource == gr("", "services")
}

/// The addresses that a Service has or asks for.
pub(super) fn addresses(service: &Value) -> Vec<String> {
    let spec = service.part("spec");
    let mut all: Vec<&str> = spec.strings("clusterIPs").into_iter().collect();
    if all.is_empty() {
        all.push(spec.text("clusterIP"));
    }
    let is_address = |text: &&str| !matches!(*text, "" | "None");
    all.into_iter()
        .filter(is_address)
        .map(str::to_owned)
        .collect()
}

/// A range of IPv4 addresses: the first and the last that a Service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AddressRange {
    first: u32,
    last: u32,
}

impl AddressRange {
    fn of(cidr: &str) -> Option<Self> {
        let (IpAddr::V4(address), bits) = parse_cidr(cidr)? else {
            return None;
        };
        let size = 1_u64 << (32 - u32::from(bits));
        let network =
            u32::from(address) & (u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0));
        // Neither the network itself nor its broadcast address.
        let last = network.checked_add(u32::try_from(size - 1).ok()?)?;
        (size > 2).then(|| Self {
            first: network + 1,
            last: last - 1,
        })
    }

    /// The position in this range for an address of any range.
    fn place_of(self, suggested: Ipv4Addr) -> u32 {
        let suggested = u32::from(suggested);
        if (self.first..=self.last).contains(&suggested) {
            suggested
        } else {
            self.first + suggested % (self.last - self.first + 1)
        }
    }

    /// All addresses in the order of allocation, from `start` on and wrapping around. The block for Services that state
    /// their address is last.
    fn from(self, start: u32) -> impl Iterator<Item = Ipv4Addr> {
        // With the two addresses that no Service can have.
        let size = (self.last - self.first).saturating_add(3);
        let left = match size {
            ..=STATED_MIN => 0,
            size => (size / 16).clamp(STATED_MIN, STATED_MAX),
        };
        let offered = self.first + left..=self.last;
        let start = start.clamp(*offered.start(), self.last);
        let above = start..=self.last;
        let below = *offered.start()..start;
        let stated = self.first..*offered.start();
        above.chain(below).chain(stated).map(Ipv4Addr::from)
    }

    fn contains(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => (self.first..=self.last).contains(&u32::from(address)),
            IpAddr::V6(_) => false,
        }
    }
}

/// The first address of a range that a Service can have; the Service `kubernetes` has it. `None` if the range has none.
pub(super) fn first_of(cidr: &str) -> Option<String> {
    AddressRange::of(cidr).map(|range| Ipv4Addr::from(range.first).to_string())
}

/// Checks that Services can have addresses of a range.
///
/// # Errors
/// The range is not an IPv4 prefix, or has no address for a Service.
pub fn check_range(cidr: &str) -> Result<(), String> {
    match (parse_cidr(cidr), AddressRange::of(cidr)) {
        (Some((IpAddr::V6(_), _)), _) => Err(format!("{cidr:?} is not a range of IPv4 addresses")),
        (Some(_), Some(_)) => Ok(()),
        (Some(_), None) => Err(format!("{cidr:?} has no address for a Service")),
        (None, _) => Err(format!(
            "{cidr:?} is not a range of addresses such as 10.96.0.0/12"
        )),
    }
}

/// Takes and frees addresses.
pub(super) struct Allocator<'a>(pub(super) &'a Api);

impl Allocator<'_> {
    /// Allocates the new addresses of a Service. `stated` addresses were requested by the client; others are
    /// suggestions, which are replaced if they are not free.
    ///
    /// # Errors
    /// 422 when a stated address is not free; 500 when there is none left.
    pub(super) fn take_all(
        &self,
        service: &mut Value,
        stated: &[String],
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Taken, ApiError> {
        let had = old.map(addresses).unwrap_or_default();
        let mut taken = Taken::default();
        for address in addresses(service) {
            // An update keeps the addresses of the service.
            if had.contains(&address) {
                continue;
            }
            let result = if stated.contains(&address) {
                self.take_stated(service, &address, dry_run)
            } else {
                self.take_free(service, &address, dry_run)
            };
            match result {
                Ok(found) if dry_run => replace(service, &address, &found),
                Ok(found) => {
                    replace(service, &address, &found);
                    taken.0.push(found);
                }
                Err(error) => {
                    // A failure returns the addresses that this request took.
                    self.release(taken);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn take_stated(
        &self,
        service: &Value,
        address: &str,
        dry_run: bool,
    ) -> Result<String, ApiError> {
        let parsed = parse_ip(address);
        let failed = |why: &str| {
            let spec = service.part("spec");
            let error = FieldError {
                kind: ErrorType::Invalid,
                field: "spec.clusterIPs".to_owned(),
                value: Some(spec.part("clusterIPs").to_string()),
                detail: format!("failed to allocate IP {address}: {why}"),
            };
            let services = catalog::find("", "services");
            services.map_or_else(ApiError::no_such_resource, |services| {
                let subject = services.kind_subject(meta(service, "name"));
                ApiError::invalid(subject, &[error])
            })
        };
        // The ranges of this cluster have one family; addresses of the other family are not allocated.
        let Some(parsed @ IpAddr::V4(_)) = parsed else {
            return Ok(address.to_owned());
        };
        if !self.ranges().iter().any(|range| range.contains(parsed)) {
            return Err(failed(
                "the provided network does not match the current range",
            ));
        }
        if self.take(service, address, dry_run)? {
            Ok(address.to_owned())
        } else {
            Err(failed("provided IP is already allocated"))
        }
    }

    fn take_free(
        &self,
        service: &Value,
        suggested: &str,
        dry_run: bool,
    ) -> Result<String, ApiError> {
        let Some(IpAddr::V4(suggested)) = parse_ip(suggested) else {
            return Ok(suggested.to_owned());
        };
        let mut ranges = self.ranges();
        // The range of the suggestion first.
        ranges.sort_by_key(|range| !range.contains(IpAddr::V4(suggested)));
        for range in ranges {
            // Each allocated address has an IPAddress.
            for address in range.from(range.place_of(suggested)) {
                let address = address.to_string();
                if self.take(service, &address, dry_run)? {
                    return Ok(address);
                }
            }
        }
        let name = meta(service, "name");
        Err(ApiError::internal(format!(
            "failed to allocate a serviceIP for Service {name:?}: range is full"
        )))
    }

    /// Creates the IPAddress of an address. Returns whether the address was free.
    fn take(&self, service: &Value, address: &str, dry_run: bool) -> Result<bool, ApiError> {
        let addresses = ip_addresses().ok_or_else(ApiError::no_such_resource)?;
        // The look-up avoids the failing write in the usual case; the creation decides.
        if self.0.get(addresses, "", address).is_ok() {
            return Ok(false);
        }
        let family = if address.contains(':') {
            "IPv6"
        } else {
            "IPv4"
        };
        let object = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IPAddress",
            "metadata": {"name": address, "labels": {MANAGED_BY.0: MANAGED_BY.1, FAMILY: family}},
            "spec": {"parentRef": {
                "resource": "services",
                "namespace": meta(service, "namespace"),
                "name": meta(service, "name"),
            }},
        });
        let options = WriteOptions {
            manager: "kube-apiserver".to_owned(),
            requester: Requester::component("kube-apiserver"),
            dry_run,
            ..WriteOptions::default()
        };
        match self.0.create(addresses, "", object, &options) {
            Ok(_) => Ok(true),
            Err(error) if error.reason == "AlreadyExists" => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Frees the addresses of a write that has failed.
    pub(super) fn release(&self, taken: Taken) {
        for address in &taken.0 {
            self.delete_address(address);
        }
    }

    /// Frees the addresses that a Service had and no longer has; `None` when it was deleted.
    pub(super) fn release_unused(&self, old: &Value, new: Option<&Value>) {
        let kept = new.map(addresses).unwrap_or_default();
        for address in addresses(old) {
            if kept.contains(&address) {
                continue;
            }
            let found = ip_addresses().and_then(|r| self.0.get(r, "", &address).ok());
            let is_own = found.is_some_and(|found| is_of(&found.object(), old));
            if is_own {
                self.delete_address(&address);
            }
        }
    }

    fn delete_address(&self, address: &str) {
        let Some(addresses) = ip_addresses() else {
            return;
        };
        let request = DeleteRequest {
            requester: Requester::component("kube-apiserver"),
            ..DeleteRequest::default()
        };
        match self.0.delete(addresses, "", address, &request) {
            Err(error) if error.code != 404 => {
                tracing::warn!(address, %error, "failed to delete an IPAddress; no Service gets the address");
            }
            _ => {}
        }
    }

    /// Creates missing IPAddresses of Services, and deletes IPAddresses of deleted Services: a data directory can be
    /// older than IPAddresses, and a server can end between two writes.
    pub(super) fn repair(&self) {
        let (Some(services), Some(addresses)) = (catalog::find("", "services"), ip_addresses())
        else {
            return;
        };
        let listed = |resource: &ServedResource| {
            let listed = self.0.list(resource, &ListRequest::default());
            listed.map(|l| l.items).unwrap_or_default()
        };
        for service in listed(services) {
            let service = service.object();
            for address in self::addresses(&service) {
                if let Err(error) = self.take(&service, &address, false) {
                    tracing::warn!(address, %error, "failed to create the IPAddress of a Service");
                }
            }
        }
        for address in listed(addresses) {
            let address = address.object();
            let parent = address.part("spec").part("parentRef");
            let (namespace, name) = (parent.text("namespace"), parent.text("name"));
            let labels = address.part("metadata").part("labels");
            let is_orphan = labels.text(MANAGED_BY.0) == MANAGED_BY.1
                && self.0.get(services, namespace, name).is_err();
            if is_orphan {
                self.delete_address(meta(&address, "name"));
            }
        }
    }

    /// The ranges of the ServiceCIDRs that are ready.
    fn ranges(&self) -> Vec<AddressRange> {
        let cidrs = catalog::find(GROUP, "servicecidrs");
        let listed = cidrs.and_then(|r| self.0.list(r, &ListRequest::default()).ok());
        let listed = listed.map(|l| l.items).unwrap_or_default();
        let mut ranges = Vec::new();
        for cidr in listed.iter().map(|v| v.object()) {
            let mut conditions = cidr.part("status").items("conditions").iter();
            let is_ready =
                conditions.any(|c| c.text("type") == "Ready" && c.text("status") == "True");
            if is_ready && cidr.part("metadata").field("deletionTimestamp").is_none() {
                let stated = cidr.part("spec").strings("cidrs");
                ranges.extend(stated.into_iter().filter_map(AddressRange::of));
            }
        }
        ranges
    }
}

fn ip_addresses() -> Option<&'static Arc<ServedResource>> {
    catalog::find(GROUP, "ipaddresses")
}

/// Returns whether an IPAddress belongs to a Service.
fn is_of(address: &Value, service: &Value) -> bool {
    let parent = address.part("spec").part("parentRef");
    (
        parent.text("resource"),
        parent.text("namespace"),
        parent.text("name"),
    ) == (
        "services",
        meta(service, "namespace"),
        meta(service, "name"),
    )
}

/// Replaces an address of a Service.
fn replace(service: &mut Value, address: &str, by: &str) {
    let spec = &mut service["spec"];
    if spec["clusterIP"] == address {
        spec["clusterIP"] = by.into();
    }
    for known in spec["clusterIPs"].as_array_mut().into_iter().flatten() {
        if known == address {
            *known = by.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_offers_its_upper_part_first_and_each_address_once() {
        let range = |cidr: &str| AddressRange::of(cidr);
        let small = range("10.0.0.0/29").expect("a range");
        let all: Vec<String> = small
            .from(u32::from(Ipv4Addr::new(10, 0, 0, 4)))
            .map(|a| a.to_string())
            .collect();
        let expect = [
            "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.1", "10.0.0.2", "10.0.0.3",
        ];
        assert_eq!(all, expect);
        let large = range("10.96.0.0/12").expect("a range");
        let first = large.from(0).next().map(|a| a.to_string());
        assert_eq!(first.as_deref(), Some("10.96.1.1"));
        assert_eq!(large.from(u32::MAX).count(), (1 << 20) - 2);
        assert!(!large.contains(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 0))));
        assert!(large.contains(IpAddr::V4(Ipv4Addr::new(10, 111, 255, 254))));
        for none in ["10.0.0.0/31", "2001:db8::/64", "x"] {
            assert_eq!(range(none), None, "{none}");
        }
    }
}
