//! The missing things in words.

use super::{DeviceShortage, Lack, PodAffinityRule, SpreadLack, VolumeLack};
use crate::quantity;
use berth_api::resources::PODS;
use std::fmt;

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource { resource, .. } if *resource == *PODS => {
                f.write_str("no pod slot is free")
            }
            Self::Resource { resource, .. } => {
                write!(f, "{} short", quantity::with_name(resource, self.short()))
            }
            Self::Taint(taint) => write!(f, "taint {taint} not tolerated"),
            Self::Cordon => f.write_str("the node is cordoned"),
            Self::Label { key, value, found } => {
                write!(f, "nodeSelector wants label {key}={value}, ")?;
                match found {
                    Some(other) => write!(f, "the node has {other}"),
                    None => f.write_str("the node does not have the label"),
                }
            }
            Self::NodeAffinity { .. } => {
                f.write_str("required node affinity does not match the node")
            }
            Self::Port { port, holder } => {
                write!(f, "host port {}/{}", port.port, port.protocol)?;
                match holder {
                    Some(holder) => write!(f, " is used by pod {holder}"),
                    None => Ok(()),
                }
            }
            Self::NodeName { name } => write!(f, "the pod names node {name}"),
            Self::Volume(volume) => volume.fmt(f),
            Self::Volumes {
                driver,
                wanted,
                attached,
                limit,
            } => write!(
                f,
                "driver {driver} has attached {attached} of {limit} volumes, the pod adds {wanted}"
            ),
            Self::CsiDriver { driver } => {
                write!(f, "CSI driver {driver} is not installed on the node")
            }
            Self::Feature { feature } => write!(f, "the node does not declare feature {feature}"),
            Self::Spread(spread) => spread.fmt(f),
            Self::PodAffinity {
                rule,
                topology_key,
                domain,
            } => write_rule(f, *rule, topology_key, domain.as_deref()),
            Self::Devices(shortage) => shortage.fmt(f),
            Self::DeviceConstraint { claim, constraint } => {
                write!(f, "no free devices satisfy {constraint} of claim {claim}")
            }
            Self::DeviceCompetition { claim, request } => write!(
                f,
                "request {request} of claim {claim} competes with the others for the same devices"
            ),
            Self::DevicesTogether => f.write_str(
                "there are enough devices for each request, but not for all requests together",
            ),
            Self::DevicesElsewhere { claim } => {
                write!(f, "claim {claim} has devices of other nodes")
            }
            Self::DeviceSearch { error } => f.write_str(error),
            Self::KubeletRejections {
                rejections,
                reason,
                until,
            } => {
                let pods = if *rejections == 1 { "pod" } else { "pods" };
                write!(
                    f,
                    "the kubelet rejected {rejections} {pods} of the template, last with {reason}; \
                     the node is excluded until {}",
                    until.rfc3339()
                )
            }
            Self::Other { text, .. } => f.write_str(text),
        }
    }
}

fn write_rule(
    f: &mut fmt::Formatter<'_>,
    rule: PodAffinityRule,
    key: &str,
    domain: Option<&str>,
) -> fmt::Result {
    match (rule, domain) {
        (PodAffinityRule::Affinity, None) => {
            write!(f, "required pod affinity: the node has no label {key}")
        }
        (PodAffinityRule::Affinity, Some(domain)) => {
            write!(f, "required pod affinity: no such pod in {key}={domain}")
        }
        (PodAffinityRule::AntiAffinity, domain) => {
            let domain = domain.unwrap_or_default();
            write!(
                f,
                "required pod anti-affinity: such a pod is in {key}={domain}"
            )
        }
        (PodAffinityRule::ExistingAntiAffinity, domain) => {
            let domain = domain.unwrap_or_default();
            write!(
                f,
                "a pod in {key}={domain} has required anti-affinity to the pod"
            )
        }
    }
}

impl fmt::Display for VolumeLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeAffinity { volume } => {
                write!(f, "volume {volume} cannot be accessed from the node")
            }
            Self::Missing => f.write_str("the volume of a claim does not exist"),
            Self::Unavailable { claim } => {
                write!(f, "no volume can be found or provisioned for claim {claim}")
            }
            Self::Storage { claim } => write!(f, "too little storage is free for claim {claim}"),
            Self::Zone {
                key,
                allowed,
                found,
            } => {
                let allowed: Vec<&str> = allowed.iter().map(|value| value.as_str()).collect();
                write!(f, "a volume wants {key} {}, ", allowed.join(" or "))?;
                match found {
                    Some(found) => write!(f, "the node has {found}"),
                    None => f.write_str("the node does not have the label"),
                }
            }
            Self::DiskInUse { disk, holder } => write!(f, "disk {disk} is used by pod {holder}"),
            Self::ClaimInUse { claim, holder } => {
                write!(f, "claim {claim} is for one pod and is used by ")?;
                match holder {
                    Some(holder) => write!(f, "pod {holder}"),
                    None => f.write_str("another pod"),
                }
            }
        }
    }
}

impl fmt::Display for SpreadLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.topology_key;
        f.write_str("node(s) didn't match pod topology spread constraints")?;
        match &self.domain {
            Some(domain) => write!(f, ": maxSkew {} over {key} ({domain})", self.max_skew),
            None => write!(f, " (missing required label): the node has no label {key}"),
        }
    }
}

impl fmt::Display for DeviceShortage {
    /// Counts of zero are left out, except for the first three.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of claim {} wants ", self.request, self.claim)?;
        match self.wanted {
            Some(wanted) => write!(f, "{wanted}: ")?,
            None => f.write_str("all: ")?,
        }
        let (exist, matching, free) = (self.exist, self.matching, self.free);
        write!(f, "{exist} of its class, {matching} match, {free} free")?;
        for (number, text) in [
            (self.held.len(), "held"),
            (self.tainted.len(), "tainted"),
            (self.without_capacity, "without the capacity"),
            (self.without_counters, "without free counters"),
        ] {
            if number > 0 {
                write!(f, ", {number} {text}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lack::{HeldDevice, TaintedDevice};
    use crate::pod_info::HostPort;
    use berth_api::{Taint, TaintEffect};
    use serde_json::json;

    fn shortage(wanted: Option<usize>) -> DeviceShortage {
        let device = || "d/p/dev-0".to_owned();
        DeviceShortage {
            claim: "default/c".into(),
            request: "gpu".into(),
            wanted,
            exist: 5,
            matching: 4,
            free: 1,
            held: vec![HeldDevice {
                device: device(),
                claim: Some("default/other".into()),
                pods: vec!["default/p".into()],
            }],
            tainted: vec![TaintedDevice {
                device: device(),
                key: "broken".into(),
                value: "".into(),
            }],
            without_capacity: 1,
            without_counters: 0,
        }
    }

    /// Each value is printed with its numbers and names, and programs read the same value from JSON.
    #[test]
    fn values_are_printed_and_read_again() {
        let port = HostPort {
            ip: "0.0.0.0".into(),
            protocol: "TCP".into(),
            port: 80,
        };
        let resource = |resource: &str| Lack::Resource {
            resource: resource.into(),
            wanted: 2000,
            free: 1500,
        };
        for (lack, text, kind) in [
            (resource("cpu"), "500m CPU short", "resource"),
            (resource("pods"), "no pod slot is free", "resource"),
            (
                Lack::Taint(Taint::new("gpu", "true", TaintEffect::NoSchedule)),
                "taint gpu=true:NoSchedule not tolerated",
                "taint",
            ),
            (
                Lack::Label {
                    key: "disk".into(),
                    value: "ssd".into(),
                    found: Some("hdd".into()),
                },
                "nodeSelector wants label disk=ssd, the node has hdd",
                "label",
            ),
            (
                Lack::Port {
                    port,
                    holder: Some("default/web".into()),
                },
                "host port 80/TCP is used by pod default/web",
                "port",
            ),
            (
                Lack::Volumes {
                    driver: "ebs".into(),
                    wanted: 2,
                    attached: 3,
                    limit: 4,
                },
                "driver ebs has attached 3 of 4 volumes, the pod adds 2",
                "volumes",
            ),
            (
                Lack::Devices(shortage(Some(3))),
                "request gpu of claim default/c wants 3: 5 of its class, 4 match, 1 free, 1 held, \
                 1 tainted, 1 without the capacity",
                "devices",
            ),
        ] {
            assert_eq!(lack.to_string(), text);
            let json = json!(lack);
            assert_eq!(json["kind"], kind, "{text}");
            let read: Result<Lack, _> = serde_json::from_value(json);
            assert_eq!(read.ok(), Some(lack), "{text}");
        }
    }

    /// A request for all devices lacks each one that is not free; a request for a number lacks the rest of it.
    #[test]
    fn distances_are_parts_of_what_is_requested() {
        for (wanted, missing, per_mille) in [(Some(3), 2, 666), (Some(1), 0, 0), (None, 3, 750)] {
            let shortage = shortage(wanted);
            assert_eq!(shortage.missing(), missing, "{wanted:?}");
            let lack = Lack::Devices(shortage);
            assert_eq!((lack.short(), lack.per_mille()), (0, per_mille));
        }
        let memory = Lack::Resource {
            resource: "memory".into(),
            wanted: 1000,
            free: -250,
        };
        assert_eq!((memory.short(), memory.per_mille()), (1250, 1250));
    }
}
