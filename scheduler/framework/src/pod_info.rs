//! A pod with the values that scheduling computes from it once.

mod memo;
mod signature;

pub use signature::LabelSignature;

use berth_api::aggregate;
use berth_api::pod::{PodAffinity, PodAffinityTerm};
use berth_api::requests::{self, Footprint};
use berth_api::selector::SelectorError;
use berth_api::{Labels, Pod, Resources, Selector, Str};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

pub use memo::TemplateKey;

/// A host port of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// The address; `0.0.0.0` is all of them.
    pub ip: Str,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Str,
    /// The port, above zero.
    pub port: i32,
}

/// The address that means all addresses.
pub const ANY_IP: &str = "0.0.0.0";

impl HostPort {
    /// Returns whether a wanted port conflicts with one that is in use.
    pub fn conflicts_with(&self, used: &Self) -> bool {
        self.port == used.port
            && self.protocol == used.protocol
            && (self.ip == used.ip || self.ip == ANY_IP || used.ip == ANY_IP)
    }
}

/// An affinity term, parsed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// The namespaces by name.
    pub namespaces: SmallVec<[Str; 1]>,
    /// The pods.
    pub selector: Selector,
    /// The namespaces by label.
    pub namespace_selector: Selector,
    /// The node label whose values are the domains.
    pub topology_key: Str,
}

impl AffinityTerm {
    /// Parses a term of a pod in `namespace`.
    ///
    /// # Errors
    /// When a selector does not parse.
    pub fn parse(term: &PodAffinityTerm, namespace: &Str) -> Result<Self, SelectorError> {
        let selector = Selector::from_label_selector(term.label_selector.as_ref())?;
        let namespace_selector = Selector::from_label_selector(term.namespace_selector.as_ref())?;
        let namespaces = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
            SmallVec::from_iter([namespace.clone()])
        } else {
            term.namespaces.iter().cloned().collect()
        };
        Ok(Self {
            namespaces,
            selector,
            namespace_selector,
            topology_key: term.topology_key.clone(),
        })
    }

    /// Returns whether the term matches `pod`, whose namespace has the labels that `namespace_labels` returns. They are
    /// read only if the namespace is not listed by name.
    pub fn matches(&self, pod: &Pod, namespace_labels: impl FnOnce() -> Labels) -> bool {
        // Most pods differ in their labels, so that nothing is looked up for them.
        self.selector.matches(pod.labels())
            && (self.namespaces.contains(pod.namespace())
                || self.namespace_selector.matches(&namespace_labels()))
    }
}

/// The terms of a group. If one of them does not parse, the group is empty and an error is added.
fn or_none<T>(
    terms: Result<Vec<T>, SelectorError>,
    group: &str,
    errors: &mut Vec<String>,
) -> Vec<T> {
    terms.unwrap_or_else(|error| {
        errors.push(format!("{group}: {error}"));
        Vec::new()
    })
}

/// A preferred term with its weight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightedAffinityTerm {
    /// From 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: AffinityTerm,
}

/// The affinity and anti-affinity terms of a pod, parsed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AffinityTerms {
    /// Required affinity.
    pub required_affinity: Vec<AffinityTerm>,
    /// Required anti-affinity.
    pub required_anti_affinity: Vec<AffinityTerm>,
    /// Preferred affinity.
    pub preferred_affinity: Vec<WeightedAffinityTerm>,
    /// Preferred anti-affinity.
    pub preferred_anti_affinity: Vec<WeightedAffinityTerm>,
    /// The groups with a term that does not parse, and why.
    pub error: Option<String>,
}

impl AffinityTerms {
    /// Parses the terms of a pod. A group with a term that does not parse is omitted, and the reason is stored in
    /// `error`.
    pub fn parse(pod: &Pod) -> Self {
        let Some(affinity) = &pod.spec.affinity else {
            return Self::default();
        };
        let namespace = pod.namespace();
        let mut errors: Vec<String> = Vec::new();
        let required = |of: &Option<PodAffinity>| {
            let terms = of.iter().flat_map(|of| &of.required);
            let terms = terms.map(|term| AffinityTerm::parse(term, namespace));
            terms.collect::<Result<Vec<_>, SelectorError>>()
        };
        let preferred = |of: &Option<PodAffinity>| {
            let terms = of.iter().flat_map(|of| &of.preferred);
            let terms = terms.map(|weighted| {
                let term = AffinityTerm::parse(&weighted.pod_affinity_term, namespace)?;
                let weight = weighted.weight;
                Ok(WeightedAffinityTerm { weight, term })
            });
            terms.collect::<Result<Vec<_>, SelectorError>>()
        };
        let (near, far) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
        // As upstream, all errors are reported, not only the first one.
        let required_affinity = or_none(required(near), "requiredAffinityTerms", &mut errors);
        let required_anti_affinity =
            or_none(required(far), "requiredAntiAffinityTerms", &mut errors);
        let preferred_affinity = or_none(preferred(near), "preferredAffinityTerms", &mut errors);
        let preferred_anti_affinity =
            or_none(preferred(far), "preferredAntiAffinityTerms", &mut errors);
        Self {
            required_affinity,
            required_anti_affinity,
            preferred_affinity,
            preferred_anti_affinity,
            error: (!errors.is_empty()).then(|| aggregate(&errors)),
        }
    }

    /// Every term, required or preferred.
    pub fn all(&self) -> impl Iterator<Item = &AffinityTerm> {
        let required = self.required_affinity.iter();
        let preferred = self.preferred_affinity.iter();
        required.chain(&self.required_anti_affinity).chain(
            preferred
                .chain(&self.preferred_anti_affinity)
                .map(|weighted| &weighted.term),
        )
    }
}

/// A pod with the values that scheduling computes from it. Pods of one template share the computed values, which are
/// read through `Deref`.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// The pod.
    pub pod: Arc<Pod>,
    computed: Arc<Computed>,
    signature: OnceLock<LabelSignature>,
}

/// The values that scheduling computes from a pod: its parsed terms and the sums of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Computed {
    /// The resources that the pod requests on a node.
    pub requests: Resources,
    /// The CPU of the pod in scores, in milli-CPU, defaults included.
    pub non_zero_milli_cpu: i64,
    /// The memory of the pod in scores, in bytes, defaults included.
    pub non_zero_memory: i64,
    /// The host ports of the pod.
    pub host_ports: SmallVec<[HostPort; 1]>,
    /// The terms; absent when the pod has neither affinity nor anti-affinity to pods.
    pub affinity: Option<Box<AffinityTerms>>,
    /// The bits in the signature of a pod that the first term matches, and of one that any other term matches.
    pub matched_by_terms: [LabelSignature; 2],
    items: ItemCount,
}

/// The number of items of a pod, counted at the first use. It is derived from the pod, so comparisons ignore it.
#[derive(Debug, Clone, Default)]
struct ItemCount(OnceLock<usize>);

impl PartialEq for ItemCount {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for ItemCount {}

/// The bytes of JSON that count as an item of a pod: of a toleration, a port or a requirement of a selector.
const BYTES_PER_ITEM: usize = 64;

/// Counts the written bytes.
#[derive(Default)]
struct ByteCount(usize);

impl std::io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Deref for PodInfo {
    type Target = Computed;
    fn deref(&self) -> &Computed {
        &self.computed
    }
}

impl PodInfo {
    /// Computes the values for `pod`, unless they are cached for its template.
    pub fn new(pod: Arc<Pod>) -> Self {
        Self::counting(pod, Footprint::default())
    }

    /// The same, with the counted resources during an in-place resize; see
    /// [`Cluster::footprint`](crate::Cluster::footprint).
    pub fn counting(pod: Arc<Pod>, footprint: Footprint) -> Self {
        Self {
            computed: memo::computed(&pod, footprint),
            pod,
            signature: OnceLock::new(),
        }
    }

    /// The signature of the pod's namespace and labels; computed at the first use.
    pub fn signature(&self) -> LabelSignature {
        let signature = || LabelSignature::of(self.pod.namespace(), self.pod.labels());
        *self.signature.get_or_init(signature)
    }

    /// The number of items of the pod that plugins may read: the size of its spec as JSON, and its labels.
    pub fn items(&self) -> usize {
        let of_template = self.computed.items.0.get_or_init(|| {
            let mut bytes = ByteCount::default();
            match serde_json::to_writer(&mut bytes, &*self.pod.spec.template) {
                Ok(()) => bytes.0 / BYTES_PER_ITEM,
                Err(_) => usize::MAX,
            }
        });
        of_template.saturating_add(self.pod.labels().len())
    }

    /// The key by which pods of one template are recognised; `None` for a pod with claims, volumes, a node, or a status
    /// that counts.
    pub fn template_key(&self) -> Option<TemplateKey> {
        TemplateKey::of(&self.pod)
    }

    /// The computed values, shared with other pods of the template.
    pub(crate) fn computed(&self) -> &Arc<Computed> {
        &self.computed
    }

    /// This pod, with the values computed from a version that [counts as](Self::counts_as) it.
    pub(crate) fn with_computed_of(&self, other: &Self) -> Self {
        Self {
            pod: self.pod.clone(),
            computed: other.computed.clone(),
            signature: self.signature.clone(),
        }
    }

    /// Returns whether this is a version of the same pod with the same requests, labels and terms, so that it makes no
    /// difference for other pods which of the two is counted.
    pub fn counts_as(&self, other: &Self) -> bool {
        let (mine, others) = (&self.pod, &other.pod);
        // Versions that were decoded by different threads share nothing and can be equal.
        mine.uid() == others.uid()
            && mine.spec.template == others.spec.template
            && (Arc::ptr_eq(&self.computed, &other.computed) || self.computed == other.computed)
            && mine.namespace() == others.namespace()
            && mine.labels() == others.labels()
            && mine.metadata.deletion_timestamp == others.metadata.deletion_timestamp
            && mine.metadata.owner_references == others.metadata.owner_references
            && mine.status.start_time == others.status.start_time
    }
}

impl Computed {
    fn of(pod: &Pod, footprint: Footprint) -> Self {
        let placed = requests::SumOptions::PLACED.counting(footprint);
        let requests = requests::pod_resources(pod, placed);
        // If all containers request CPU and memory, no default applies, and a second sum is not needed.
        let plain = !pod.spec.containers.is_empty()
            && pod.all_containers().all(|c| {
                let r = &c.resources.requests;
                r.get("cpu").is_some() && r.get("memory").is_some()
            });
        let (non_zero_milli_cpu, non_zero_memory) = if plain {
            (requests.milli_cpu, requests.memory)
        } else {
            let non_zero = requests::SumOptions::PLACED_NON_ZERO.counting(footprint);
            let sum = requests::pod_resources(pod, non_zero);
            (sum.milli_cpu, sum.memory)
        };
        let affinity = pod
            .spec
            .affinity
            .as_ref()
            .filter(|a| a.pod_affinity.is_some() || a.pod_anti_affinity.is_some())
            .map(|_| Box::new(AffinityTerms::parse(pod)));
        Self {
            host_ports: host_ports(pod),
            requests,
            non_zero_milli_cpu,
            non_zero_memory,
            matched_by_terms: LabelSignature::required_by(
                affinity.iter().flat_map(|terms| terms.all()),
            ),
            affinity,
            items: ItemCount::default(),
        }
    }

    /// Returns whether the pod has affinity or anti-affinity to pods, even without a term.
    pub fn has_affinity(&self) -> bool {
        self.affinity.is_some()
    }
}

/// The host ports of the regular containers and the sidecars; ordinary init containers take none.
pub fn host_ports(pod: &Pod) -> SmallVec<[HostPort; 1]> {
    let mut ports = SmallVec::new();
    let sidecars = pod.spec.init_containers.iter().filter(|c| c.is_sidecar());
    for container in sidecars.chain(&pod.spec.containers) {
        for port in &container.ports {
            if port.host_port > 0 {
                ports.push(HostPort {
                    ip: if port.host_ip.is_empty() {
                        Str::new(ANY_IP)
                    } else {
                        port.host_ip.clone()
                    },
                    protocol: if port.protocol.is_empty() {
                        Str::new("TCP")
                    } else {
                        port.protocol.clone()
                    },
                    port: port.host_port,
                });
            }
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(ip: &str, protocol: &str, port: i32) -> HostPort {
        HostPort {
            ip: ip.into(),
            protocol: protocol.into(),
            port,
        }
    }

    fn pod(json: &str) -> Arc<Pod> {
        Arc::new(serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}")))
    }

    fn named(name: &str, namespace: &str, more: &str, status: &str) -> PodInfo {
        PodInfo::new(pod(&format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{name}"}},
            "spec":{{"containers":[{{"name":"main","resources":{{"requests":{{"cpu":"100m","memory":"1Mi"}}}}}}]{more}}},
            "status":{{{status}}}}}"#
        )))
    }

    #[test]
    fn pods_of_a_template_share_what_is_computed() {
        let near = r#","affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
            {"topologyKey":"zone","labelSelector":{}}]}}"#;
        let resized =
            r#""containerStatuses":[{"name":"main","resources":{"requests":{"cpu":"300m"}}}]"#;
        let plain = named("a", "x", "", "");
        for (situation, other, shared) in [
            ("another pod", named("b", "x", "", ""), true),
            ("another namespace", named("b", "y", "", ""), true),
            (
                "a condition",
                named(
                    "a",
                    "x",
                    "",
                    r#""conditions":[{"type":"PodScheduled","status":"True"}]"#,
                ),
                true,
            ),
            (
                "another template",
                named("b", "x", r#","hostNetwork":true"#, ""),
                false,
            ),
            ("a resize", named("b", "x", "", resized), false),
        ] {
            assert_eq!(
                Arc::ptr_eq(&plain.computed, &other.computed),
                shared,
                "{situation}"
            );
        }
        // A term without namespaces means the pod's own.
        let (x, y) = (named("a", "x", near, ""), named("b", "y", near, ""));
        assert_ne!(x.affinity, y.affinity);
        assert_eq!(named("b", "x", "", resized).requests.milli_cpu, 300);
    }

    #[test]
    fn pods_of_a_template_have_one_key() {
        let plain = named("a", "x", "", "");
        let with = |change: &dyn Fn(&mut Pod)| {
            let mut pod = Pod::clone(&plain.pod);
            change(&mut pod);
            PodInfo::new(Arc::new(pod)).template_key()
        };
        let key = plain.template_key();
        assert!(key.is_some());
        let condition = r#""conditions":[{"type":"PodScheduled","status":"False"}]"#;
        let labels = || Labels::from_pairs([("a", "b")]);
        for (situation, other, is_same) in [
            ("another pod", named("b", "x", "", "").template_key(), true),
            (
                "a condition",
                named("b", "x", "", condition).template_key(),
                true,
            ),
            (
                "another namespace",
                named("b", "y", "", "").template_key(),
                false,
            ),
            ("another spec", with(&|p| p.spec.host_network = true), false),
            ("a label", with(&|p| p.metadata.labels = labels()), false),
            (
                "an annotation",
                with(&|p| p.metadata.annotations = labels()),
                false,
            ),
            (
                "an owner",
                with(&|p| p.metadata.owner_references = vec![Default::default()].into()),
                false,
            ),
        ] {
            assert!(other.is_some(), "{situation}");
            assert_eq!(other == key, is_same, "{situation}");
        }
        let claim = r#","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]"#;
        let resized = r#""containerStatuses":[{"name":"main"}]"#;
        for (situation, key) in [
            ("a node", with(&|p| p.spec.node_name = "n".into())),
            ("a claim", named("b", "x", claim, "").template_key()),
            (
                "a status that counts",
                named("b", "x", "", resized).template_key(),
            ),
        ] {
            assert_eq!(key, None, "{situation}");
        }
    }

    #[test]
    fn versions_of_a_pod_count_the_same_unless_others_see_a_difference() {
        let before = named("a", "x", "", "");
        let changed = |change: &dyn Fn(&mut Pod)| {
            let mut pod = Pod::clone(&before.pod);
            change(&mut pod);
            PodInfo::new(Arc::new(pod))
        };
        for (situation, after, same) in [
            ("bound", changed(&|p| p.spec.node_name = "n".into()), true),
            (
                "decoded elsewhere",
                changed(&|p| {
                    p.spec.priority = Some(1);
                    p.spec.priority = before.pod.spec.priority;
                }),
                true,
            ),
            (
                "a version",
                changed(&|p| p.metadata.resource_version = "2".into()),
                true,
            ),
            (
                "a label",
                changed(&|p| p.metadata.labels = Labels::from_pairs([("a", "b")])),
                false,
            ),
            (
                "on its way out",
                changed(&|p| p.metadata.deletion_timestamp = Some(berth_api::Time::EPOCH)),
                false,
            ),
            (
                "another pod",
                changed(&|p| p.metadata.uid = "b".into()),
                false,
            ),
            ("a priority", changed(&|p| p.spec.priority = Some(1)), false),
        ] {
            assert_eq!(after.counts_as(&before), same, "{situation}");
        }
    }

    /// PL-50, PL-51.
    #[test]
    fn the_wildcard_address_conflicts_with_every_address() {
        for (wanted, used, conflict) in [
            (port("127.0.0.1", "TCP", 80), port(ANY_IP, "TCP", 80), true),
            (port(ANY_IP, "TCP", 80), port("127.0.0.1", "TCP", 80), true),
            (
                port("127.0.0.1", "TCP", 80),
                port("127.0.0.2", "TCP", 80),
                false,
            ),
            (port(ANY_IP, "TCP", 80), port(ANY_IP, "UDP", 80), false),
            (port(ANY_IP, "TCP", 80), port(ANY_IP, "TCP", 81), false),
        ] {
            assert_eq!(
                wanted.conflicts_with(&used),
                conflict,
                "{wanted:?} {used:?}"
            );
        }
    }
}
