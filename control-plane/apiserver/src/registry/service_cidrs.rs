//! ServiceCIDRs: the default object, finalizers and conditions.
//!
//! A deleted ServiceCIDR stays while it is the only range with the address of an IPAddress.

use super::api::Api;
use super::list::ListRequest;
use super::requester::Requester;
use crate::registry::request::{Method, UpdateInputs, WriteOptions};
use berth_objects::catalog::{self, ServedResource};
use berth_objects::status::ApiError;
use berth_objects::validation::names::{parse_cidr, parse_ip};
use berth_objects::view::{FieldView, meta, meta_mut};
use serde_json::{Value, json};
use std::net::IpAddr;

const GROUP: &str = "networking.k8s.io";
/// The name of the default ServiceCIDR.
const DEFAULT: &str = "kubernetes";
/// The default range of Service addresses.
pub const DEFAULT_CIDR: &str = "10.96.0.0/12";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// The messages of the condition `Ready`.
const READY_DEFAULT: &str = "Kubernetes default Service CIDR is ready";
const READY: &str = "Kubernetes Service CIDR is ready";
const BLOCKED: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

/// Creates the default ServiceCIDR, which is ready at once.
///
/// # Errors
/// When a write is refused.
pub(super) fn create_default(api: &Api) -> Result<(), ApiError> {
    let resource = catalog::find(GROUP, "servicecidrs").ok_or_else(ApiError::no_such_resource)?;
    if api.get(resource, "", DEFAULT).is_ok() {
        return Ok(());
    }
    let default = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": DEFAULT, "finalizers": [FINALIZER]},
        "spec": {"cidrs": [api.service_cidr]},
    });
    let options = options("kube-apiserver");
    api.create(resource, "", default, &options)?;
    write(api, resource, DEFAULT, "status", &options, |cidr| {
        set_ready(cidr, ReadyCondition::ready(READY_DEFAULT), &api.now_text());
    })
}

/// Updates finalizers and conditions. Returns whether a ServiceCIDR is being deleted and must be examined again.
pub(crate) fn sync(api: &Api) -> bool {
    let Some(resource) = catalog::find(GROUP, "servicecidrs") else {
        return false;
    };
    let listed = api.list(resource, &ListRequest::default());
    let cidrs: Vec<_> = listed.map(|l| l.items).unwrap_or_default();
    let cidrs: Vec<Value> = cidrs.iter().map(|v| Value::clone(&v.object())).collect();
    let options = options("kube-controller-manager");
    let mut is_busy = false;
    for cidr in &cidrs {
        let name = meta(cidr, "name");
        let is_deleted = cidr.part("metadata").field("deletionTimestamp").is_some();
        let done = match is_deleted {
            false => keep(api, resource, cidr, &options),
            true if is_needed(api, cidr, &cidrs) => {
                is_busy = true;
                let condition = ReadyCondition {
                    status: "False",
                    reason: "Terminating",
                    message: BLOCKED,
                };
                condition_of(api, resource, cidr, condition, &options)
            }
            true => write(api, resource, name, "", &options, |cidr| {
                let left: Vec<Value> = cidr.part("metadata").items("finalizers").to_vec();
                let left: Vec<Value> = left.into_iter().filter(|f| f != FINALIZER).collect();
                meta_mut(cidr).insert("finalizers".to_owned(), left.into());
            }),
        };
        // The next turn retries; the sync does not report an error to a client.
        if let Err(error) = done {
            tracing::debug!(name, %error, "failed to write a ServiceCIDR, retrying");
            is_busy = true;
        }
    }
    is_busy
}

/// A ServiceCIDR that exists has the finalizer and is ready.
fn keep(
    api: &Api,
    resource: &ServedResource,
    cidr: &Value,
    options: &WriteOptions,
) -> Result<(), ApiError> {
    let (name, finalizers) = (
        meta(cidr, "name"),
        cidr.part("metadata").strings("finalizers"),
    );
    if !finalizers.contains(&FINALIZER) {
        write(api, resource, name, "", options, |cidr| {
            let mut finalizers = cidr.part("metadata").items("finalizers").to_vec();
            finalizers.push(FINALIZER.into());
            meta_mut(cidr).insert("finalizers".to_owned(), finalizers.into());
        })?;
    }
    let message = match name {
        DEFAULT => READY_DEFAULT,
        _ => READY,
    };
    condition_of(api, resource, cidr, ReadyCondition::ready(message), options)
}

/// Returns whether an address would be in no ServiceCIDR without this one.
fn is_needed(api: &Api, cidr: &Value, all: &[Value]) -> bool {
    let others: Vec<(IpAddr, u8)> = all
        .iter()
        .filter(|other| meta(other, "uid") != meta(cidr, "uid"))
        .flat_map(prefixes)
        .collect();
    let own = prefixes(cidr);
    let is_covered = |(network, bits): &(IpAddr, u8)| {
        let covers = |(other, other_bits): &(IpAddr, u8)| {
            other_bits <= bits && contains(*other, *other_bits, *network)
        };
        others.iter().any(covers)
    };
    if own.iter().all(is_covered) {
        return false;
    }
    let addresses = catalog::find(GROUP, "ipaddresses");
    let listed = addresses.and_then(|r| api.list(r, &ListRequest::default()).ok());
    let listed = listed.map(|l| l.items).unwrap_or_default();
    listed.iter().any(|address| {
        let Some(address) = parse_ip(meta(&address.object(), "name")) else {
            return false;
        };
        let is_in =
            |prefixes: &[(IpAddr, u8)]| prefixes.iter().any(|p| contains(p.0, p.1, address));
        is_in(&own) && !is_in(&others)
    })
}

fn prefixes(cidr: &Value) -> Vec<(IpAddr, u8)> {
    let stated = cidr.part("spec").strings("cidrs");
    stated.into_iter().filter_map(parse_cidr).collect()
}

/// Returns whether a network contains an address.
fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    let differ = match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)).leading_zeros(),
        _ => return false,
    };
    differ >= u32::from(bits)
}

/// The condition Ready of a ServiceCIDR.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ReadyCondition<'a> {
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

impl<'a> ReadyCondition<'a> {
    fn ready(message: &'a str) -> Self {
        Self {
            status: "True",
            reason: "",
            message,
        }
    }
}

fn condition_of(
    api: &Api,
    resource: &ServedResource,
    cidr: &Value,
    condition: ReadyCondition<'_>,
    options: &WriteOptions,
) -> Result<(), ApiError> {
    let mut conditions = cidr.part("status").items("conditions").iter();
    let known = conditions.find(|c| c.text("type") == "Ready");
    let known = known.map(|known| ReadyCondition {
        status: known.text("status"),
        reason: known.text("reason"),
        message: known.text("message"),
    });
    if known == Some(condition) {
        return Ok(());
    }
    write(
        api,
        resource,
        meta(cidr, "name"),
        "status",
        options,
        |cidr| {
            set_ready(cidr, condition, &api.now_text());
        },
    )
}

fn set_ready(cidr: &mut Value, condition: ReadyCondition<'_>, now: &str) {
    let ReadyCondition {
        status,
        reason,
        message,
    } = condition;
    let mut conditions = cidr.part("status").items("conditions").to_vec();
    let mut condition = json!({
        "type": "Ready", "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
    });
    match conditions.iter_mut().find(|c| c.text("type") == "Ready") {
        Some(known) => {
            if known.text("status") == status {
                condition["lastTransitionTime"] = known["lastTransitionTime"].take();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
    cidr["status"]["conditions"] = conditions.into();
}

fn options(manager: &str) -> WriteOptions {
    WriteOptions {
        manager: manager.to_owned(),
        requester: Requester::component(manager),
        ..WriteOptions::default()
    }
}

fn write(
    api: &Api,
    resource: &ServedResource,
    name: &str,
    sub: &str,
    options: &WriteOptions,
    change: impl Fn(&mut Value),
) -> Result<(), ApiError> {
    let request = UpdateInputs {
        resource,
        namespace: "",
        name,
        sub,
        options,
        by: Method::Put,
        is_decoded: false,
    };
    api.update(&request, |current| {
        let mut new = current.clone();
        change(&mut new);
        Ok(new)
    })?;
    Ok(())
}
