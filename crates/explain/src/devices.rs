//! The devices that a pod's claims request: what each node has of them, what it lacks, and which pods hold the others.

use crate::answer::{DeviceHolder, DeviceNode, DeviceRequest, NodeDevice};
use crate::limits::{DEVICE_STEPS_MAX, EXAMPLES_MAX};
use crate::snapshot::Snapshot;
use berth_api::devices::{DeviceConstraint, ResourceClaim};
use berth_api::node_selector::CompiledNodeSelector;
use berth_api::{Pod, Str};
use berth_devices::{
    AllocateError, Allocator, AllocatorFeatures, ClaimRequests, DeviceId, DeviceState,
    RequestSurvey, SearchBudget, TargetNode,
};
use berth_framework::allocator::{allocator_features, skips_operations};
use berth_framework::{Cluster, NodeView};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The claims of a pod that exist, in the order of its spec.
pub(crate) fn claims_of(cluster: &Cluster, pod: &Pod) -> Vec<Arc<ResourceClaim>> {
    let claims = cluster.devices().claims();
    let entries = pod.spec.resource_claims.iter();
    let names = entries.filter_map(|entry| {
        if let Some(name) = &entry.resource_claim_name {
            return Some(name);
        }
        let mut made = pod.status.resource_claim_statuses.iter();
        let made = made.find(|made| made.name == entry.name)?;
        made.resource_claim_name.as_ref()
    });
    let found = names.filter_map(|name| claims.get(pod.namespace(), name));
    found.cloned().collect()
}

/// The devices that waiting pods request, such as `2 × gpu.example.com`.
pub(crate) fn requests_text(cluster: &Cluster, pod: &Pod) -> String {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for claim in claims_of(cluster, pod) {
        for request in &claim.spec.devices.requests {
            let exactly = request.exactly.iter();
            let first = exactly.chain(request.first_available.first()).next();
            if let Some(requested) = first {
                let class = requested.device_class_name.to_string();
                *counts.entry(class).or_default() += requested.count.max(1);
            }
        }
    }
    let parts = counts
        .iter()
        .map(|(class, count)| format!("{count} × {class}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Something that a node lacks of the devices that are requested.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DeviceLack {
    /// Too few devices for a request.
    Short {
        claim: usize,
        request: usize,
        missing: usize,
        per_mille: i64,
        text: String,
    },
    /// There are enough devices for each request, but none that satisfy a constraint together.
    Constraint { claim: usize, text: String },
    /// There are enough devices for each request, but not for all of them together.
    Together(String),
    /// A claim has devices that the node cannot use.
    Elsewhere(String),
    /// The search failed.
    Failed(String),
}

impl DeviceLack {
    /// The lack in words.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Short { text, .. }
            | Self::Constraint { text, .. }
            | Self::Together(text)
            | Self::Elsewhere(text)
            | Self::Failed(text) => text,
        }
    }

    /// The distance of the request from being satisfied, in thousandths.
    pub(crate) fn per_mille(&self) -> i64 {
        match self {
            Self::Short { per_mille, .. } => *per_mille,
            _ => 1000,
        }
    }
}

/// The claim that holds a device, and the pods for which it is reserved.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub(crate) claim: Arc<ResourceClaim>,
    pub(crate) pods: Vec<String>,
}

/// The claims of a pod, prepared for all nodes.
pub(crate) struct PodDevices {
    features: AllocatorFeatures,
    /// The claims that need devices.
    needing: Vec<Arc<ResourceClaim>>,
    requests: Vec<ClaimRequests>,
    /// The claims that have devices, with the nodes that can use them.
    having: Vec<(Arc<ResourceClaim>, Option<CompiledNodeSelector>)>,
    budget: RefCell<SearchBudget>,
}

impl PodDevices {
    /// The claims of a pod; `None` if it has none.
    pub(crate) fn new(snapshot: &Snapshot, pod: &Pod) -> Option<Self> {
        let claims = claims_of(&snapshot.cluster, pod);
        if claims.is_empty() {
            return None;
        }
        let features = allocator_features(&snapshot.features);
        let (having, needing): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.is_allocated());
        let requests = needing
            .iter()
            .map(|claim| prepared(&snapshot.cluster, claim, features));
        let having = having.into_iter().map(|claim| {
            let allocation = claim.status.allocation.as_ref();
            let selector = allocation.and_then(|allocation| allocation.node_selector.as_ref());
            let selector = selector.map(CompiledNodeSelector::new);
            (claim, selector)
        });
        Some(Self {
            features,
            requests: requests.collect(),
            having: having.collect(),
            needing,
            budget: RefCell::new(SearchBudget::of_steps(DEVICE_STEPS_MAX)),
        })
    }

    /// The claim of a survey.
    pub(crate) fn claim(&self, index: usize) -> &ResourceClaim {
        &self.needing[index]
    }

    /// The devices of a node for each alternative of each request.
    pub(crate) fn survey(
        &self,
        cluster: &Cluster,
        node: NodeView<'_>,
    ) -> Result<Vec<RequestSurvey>, AllocateError> {
        let claims: Vec<&ClaimRequests> = self.requests.iter().collect();
        let allocator = Allocator::new(cluster.devices().inventory(), self.features);
        allocator.survey(target(node), &claims, &mut self.budget.borrow_mut())
    }

    /// Returns whether a node has the devices of changed claims.
    fn fits(
        &self,
        cluster: &Cluster,
        node: NodeView<'_>,
        change: impl Fn(usize, &mut ResourceClaim),
    ) -> bool {
        let claims = self.needing.iter().enumerate().map(|(index, claim)| {
            let mut changed = ResourceClaim::clone(claim);
            change(index, &mut changed);
            prepared(cluster, &Arc::new(changed), self.features)
        });
        let claims: Vec<ClaimRequests> = claims.collect();
        let claims: Vec<&ClaimRequests> = claims.iter().collect();
        let allocator = Allocator::new(cluster.devices().inventory(), self.features);
        let found = allocator.allocate(target(node), &claims, &mut self.budget.borrow_mut());
        matches!(found, Ok(Some(_)))
    }

    /// The devices that a node lacks.
    pub(crate) fn lacks(&self, cluster: &Cluster, node: NodeView<'_>) -> Vec<DeviceLack> {
        let mut lacks = match self.survey(cluster, node) {
            Ok(surveys) => self.short(&surveys),
            Err(error) => return vec![DeviceLack::Failed(error.to_string())],
        };
        lacks.extend(self.together(cluster, node, &lacks));
        let elsewhere = self.having.iter().filter(|(_, selector)| {
            let selector = selector.as_ref();
            selector.is_some_and(|s| s.matches(node.labels(), node.name()) != Ok(true))
        });
        lacks.extend(elsewhere.map(|(claim, _)| {
            let text = format!("claim {} has devices of other nodes", claim.key());
            DeviceLack::Elsewhere(text)
        }));
        lacks
    }

    /// The requests for which there are too few devices.
    fn short(&self, surveys: &[RequestSurvey]) -> Vec<DeviceLack> {
        let short = best(surveys)
            .into_iter()
            .filter(|survey| survey.missing() > 0);
        short
            .map(|survey| {
                let missing = survey.missing();
                let wanted = survey.wanted.unwrap_or(survey.selected.len()).max(1);
                let per_mille = missing.saturating_mul(1000) / wanted;
                DeviceLack::Short {
                    claim: survey.claim,
                    request: survey.request,
                    missing,
                    per_mille: i64::try_from(per_mille).unwrap_or(i64::MAX),
                    text: self.text(survey),
                }
            })
            .collect()
    }

    fn text(&self, survey: &RequestSurvey) -> String {
        let claim = self.claim(survey.claim).key();
        let wanted = match survey.wanted {
            Some(wanted) => format!("wants {wanted}"),
            None => "wants all".to_owned(),
        };
        format!(
            "request {} of claim {claim} {wanted}: {}",
            survey.name,
            counts(survey)
        )
    }

    /// The fewest further requests and constraints without which the node has the devices, although there are enough
    /// devices for each of these requests by itself.
    fn together(
        &self,
        cluster: &Cluster,
        node: NodeView<'_>,
        short: &[DeviceLack],
    ) -> Vec<DeviceLack> {
        let is_short = |item: &ClaimPart| {
            short.iter().any(|lack| match lack {
                DeviceLack::Short { claim, request, .. } => {
                    *item == ClaimPart::Request(*claim, *request)
                }
                _ => false,
            })
        };
        let (given, others): (Vec<ClaimPart>, Vec<ClaimPart>) =
            self.items().into_iter().partition(is_short);
        for count in 0..=others.len().min(TOGETHER_MAX) {
            for chosen in combinations(&others, count) {
                let without: Vec<ClaimPart> = given.iter().chain(&chosen).copied().collect();
                if self.fits(cluster, node, |claim, changed| {
                    remove(&without, claim, changed)
                }) {
                    return chosen.iter().map(|item| self.lack_of(*item)).collect();
                }
            }
        }
        let text = "there are enough devices for each request, but not for all requests together";
        vec![DeviceLack::Together(text.to_owned())]
    }

    /// The requests and constraints of the claims.
    fn items(&self) -> Vec<ClaimPart> {
        let claims = self.needing.iter().enumerate();
        let items = claims.flat_map(|(at, claim)| {
            let devices = &claim.spec.devices;
            let constraints =
                (0..devices.constraints.len()).map(move |c| ClaimPart::Constraint(at, c));
            let requests = (0..devices.requests.len()).map(move |r| ClaimPart::Request(at, r));
            constraints.chain(requests)
        });
        items.collect()
    }

    fn lack_of(&self, item: ClaimPart) -> DeviceLack {
        match item {
            ClaimPart::Constraint(claim, at) => {
                let known = &self.needing[claim];
                let constraint = constraint_text(&known.spec.devices.constraints[at]);
                let text = format!(
                    "no free devices satisfy {constraint} of claim {}",
                    known.key()
                );
                DeviceLack::Constraint { claim, text }
            }
            ClaimPart::Request(claim, at) => {
                let known = &self.needing[claim];
                let request = &known.spec.devices.requests[at].name;
                DeviceLack::Together(format!(
                    "request {request} of claim {} competes with the others for the same devices",
                    known.key()
                ))
            }
        }
    }
}

/// The number of requests and constraints that are removed together at most to determine what a node lacks.
const TOGETHER_MAX: usize = 2;

/// A part of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimPart {
    /// The request of a claim, by places.
    Request(usize, usize),
    /// The constraint of a claim, by places.
    Constraint(usize, usize),
}

/// All choices of so many items, two at most.
fn combinations(items: &[ClaimPart], count: usize) -> Vec<Vec<ClaimPart>> {
    match count {
        0 => vec![Vec::new()],
        1 => items.iter().map(|item| vec![*item]).collect(),
        _ => {
            let firsts = items.iter().enumerate();
            let pairs = firsts.flat_map(|(at, first)| {
                let seconds = items.iter().skip(at + 1);
                seconds.map(|second| vec![*first, *second])
            });
            pairs.collect()
        }
    }
}

/// Removes items from a claim.
fn remove(items: &[ClaimPart], claim: usize, changed: &mut ResourceClaim) {
    let devices = &mut changed.spec.devices;
    let mut at = 0;
    devices.constraints.retain(|_| {
        at += 1;
        !items.contains(&ClaimPart::Constraint(claim, at - 1))
    });
    at = 0;
    devices.requests.retain(|_| {
        at += 1;
        !items.contains(&ClaimPart::Request(claim, at - 1))
    });
    keep_known_requests(changed);
}

/// The devices that exist of a class, match, are free, tainted, or held.
fn counts(survey: &RequestSurvey) -> String {
    let count = |wanted: fn(&DeviceState) -> bool| {
        let states = survey.selected.iter();
        states.filter(|(_, state)| wanted(state)).count()
    };
    let mut parts = vec![
        format!("{} of its class", survey.of_class.len()),
        format!("{} match", survey.selected.len()),
        format!("{} free", survey.free()),
    ];
    for (number, text) in [
        (count(|state| *state == DeviceState::Held), "held"),
        (
            count(|state| matches!(state, DeviceState::Tainted(_))),
            "tainted",
        ),
        (
            count(|state| *state == DeviceState::NoCapacity),
            "without the capacity",
        ),
        (
            count(|state| *state == DeviceState::NoCounters),
            "without free counters",
        ),
    ] {
        // Counts of zero are left out, except for the three above.
        if number > 0 {
            parts.push(format!("{number} {text}"));
        }
    }
    parts.join(", ")
}

/// A constraint in words.
pub(crate) fn constraint_text(constraint: &DeviceConstraint) -> String {
    match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(attribute), _) => format!("matchAttribute {attribute}"),
        (None, Some(attribute)) => format!("distinctAttribute {attribute}"),
        (None, None) => "a constraint".to_owned(),
    }
}

/// Removes names of requests that the claim does not have any more from its constraints.
fn keep_known_requests(claim: &mut ResourceClaim) {
    let devices = &mut claim.spec.devices;
    let known: Vec<Str> = devices.requests.iter().map(|r| r.name.clone()).collect();
    let is_known = |name: &Str| {
        let own = name
            .split_once('/')
            .map_or(name.as_str(), |(request, _)| request);
        known.iter().any(|known| *known == *own)
    };
    devices.constraints.retain_mut(|constraint| {
        let was_for_all = constraint.requests.is_empty();
        constraint.requests.retain(|name| is_known(name));
        was_for_all || !constraint.requests.is_empty()
    });
}

fn prepared(
    cluster: &Cluster,
    claim: &Arc<ResourceClaim>,
    features: AllocatorFeatures,
) -> ClaimRequests {
    let class = |name: &str| cluster.devices().classes().get(name).cloned();
    ClaimRequests::new(claim, features, class)
}

fn target(node: NodeView<'_>) -> TargetNode<'_> {
    TargetNode {
        name: node.name(),
        labels: node.labels(),
        skips_operations: skips_operations(node),
    }
}

/// The alternative of each request that lacks the least.
pub(crate) fn best(surveys: &[RequestSurvey]) -> Vec<&RequestSurvey> {
    let mut best: Vec<&RequestSurvey> = Vec::new();
    for survey in surveys {
        match best.last_mut() {
            Some(last) if (last.claim, last.request) == (survey.claim, survey.request) => {
                if survey.missing() < last.missing() {
                    *last = survey;
                }
            }
            _ => best.push(survey),
        }
    }
    best
}

/// The claims that hold devices.
pub(crate) fn holders(cluster: &Cluster) -> HashMap<DeviceId, Holder> {
    let mut holders = HashMap::new();
    for claim in cluster.devices().claims().iter() {
        let Some(allocation) = &claim.status.allocation else {
            continue;
        };
        let pods = claim.status.reserved_for.iter();
        let pods = pods.filter(|consumer| consumer.resource == "pods");
        let pods = pods.map(|consumer| format!("{}/{}", claim.metadata.namespace, consumer.name));
        let holder = Holder {
            claim: claim.clone(),
            pods: pods.collect(),
        };
        for result in &allocation.devices.results {
            if result.admin_access != Some(true) {
                let id = DeviceId {
                    driver: result.driver.clone(),
                    pool: result.pool.clone(),
                    device: result.device.clone(),
                };
                holders.insert(id, holder.clone());
            }
        }
    }
    holders
}

/// A request, summed up over all nodes.
#[derive(Default)]
struct RequestSum {
    of_class: HashSet<DeviceId>,
    selected: HashMap<DeviceId, DeviceState>,
    /// Missing devices, node and free devices of the node that lacks the least.
    closest: Option<(usize, String, usize)>,
}

/// Each request with what the cluster has for it. The notes are the limits that were reached.
pub(crate) fn device_requests(
    snapshot: &Snapshot,
    pod: &Pod,
    notes: &mut Vec<String>,
) -> Vec<DeviceRequest> {
    let Some(devices) = PodDevices::new(snapshot, pod) else {
        return Vec::new();
    };
    let cluster = &snapshot.cluster;
    let mut sums: BTreeMap<(usize, usize, usize), (RequestSurvey, RequestSum)> = BTreeMap::new();
    for view in cluster.nodes.iter() {
        let surveys = match devices.survey(cluster, view) {
            Ok(surveys) => surveys,
            // A count of some nodes is better than no answer.
            Err(AllocateError::OutOfSteps) => {
                notes.push(format!(
                    "devices are counted on some nodes only: no more than {DEVICE_STEPS_MAX} devices are looked at"
                ));
                break;
            }
            Err(error) => {
                // The same error on many nodes is noted once.
                let text = error.to_string();
                if !notes.contains(&text) {
                    notes.push(text);
                }
                continue;
            }
        };
        for survey in surveys {
            let key = (survey.claim, survey.request, survey.alternative);
            let (_, sum) = sums
                .entry(key)
                .or_insert_with(|| (survey.clone(), RequestSum::default()));
            let candidate = (survey.missing(), view.name().to_string(), survey.free());
            let is_closer = |known: &(usize, String, usize)| candidate < *known;
            if !survey.of_class.is_empty() && sum.closest.as_ref().is_none_or(is_closer) {
                sum.closest = Some(candidate);
            }
            sum.of_class.extend(survey.of_class);
            sum.selected.extend(survey.selected);
        }
    }
    let holders = holders(cluster);
    let requests = sums.into_values();
    requests
        .map(|(survey, sum)| summed(&devices, &survey, sum, &holders))
        .collect()
}

fn summed(
    devices: &PodDevices,
    survey: &RequestSurvey,
    sum: RequestSum,
    holders: &HashMap<DeviceId, Holder>,
) -> DeviceRequest {
    let claim = devices.claim(survey.claim);
    let request = &claim.spec.devices.requests[survey.request];
    let requested = match &request.exactly {
        Some(exactly) if request.first_available.is_empty() => Some(exactly),
        _ => request.first_available.get(survey.alternative),
    };
    let count = |wanted: fn(&DeviceState) -> bool| {
        let states = sum.selected.values();
        states.filter(|state| wanted(state)).count()
    };
    let taints = sum.selected.values().filter_map(|state| match state {
        DeviceState::Tainted(taint) => Some(taint_text(&taint.key, &taint.value)),
        _ => None,
    });
    let taints: BTreeSet<String> = taints.collect();
    let mut held: Vec<&DeviceId> = sum
        .selected
        .iter()
        .filter(|(_, state)| **state == DeviceState::Held)
        .map(|(id, _)| id)
        .collect();
    held.sort();
    let held_by = held.iter().filter_map(|id| {
        let holder = holders.get(*id)?;
        Some(DeviceHolder {
            device: id.to_string(),
            claim: holder.claim.key(),
            pods: holder.pods.clone(),
        })
    });
    DeviceRequest {
        claim: claim.key(),
        request: survey.name.to_string(),
        class: requested.map_or_else(String::new, |r| r.device_class_name.to_string()),
        wanted: survey.wanted,
        exist: sum.of_class.len(),
        matching: sum.selected.len(),
        free: count(|state| *state == DeviceState::Free),
        held: held.len(),
        tainted: count(|state| matches!(state, DeviceState::Tainted(_))),
        exhausted: count(|s| matches!(s, DeviceState::NoCapacity | DeviceState::NoCounters)),
        taints: taints.into_iter().take(EXAMPLES_MAX).collect(),
        held_by: held_by.take(EXAMPLES_MAX).collect(),
        closest: sum.closest.map(|(missing, node, free)| DeviceNode {
            node,
            free,
            missing,
        }),
    }
}

/// A taint of a device in words.
pub(crate) fn taint_text(key: &str, value: &str) -> String {
    match value {
        "" => key.to_owned(),
        value => format!("{key}={value}"),
    }
}

/// The devices that a node can use.
pub(crate) fn node_devices(snapshot: &Snapshot, node: NodeView<'_>) -> Vec<NodeDevice> {
    let cluster = &snapshot.cluster;
    let inventory = cluster.devices().inventory();
    if inventory.is_empty() {
        return Vec::new();
    }
    let features = allocator_features(&snapshot.features);
    let Ok(devices) = inventory.devices_of(target(node), features) else {
        return Vec::new();
    };
    let holders = holders(cluster);
    let devices = devices.into_iter().map(|(id, device)| {
        let holder = holders.get(&id);
        let state = match (holder.is_some(), device.allow_multiple_allocations) {
            (false, _) => "free",
            (true, true) => "shared",
            (true, false) => "held",
        };
        let taints = device.taints.iter();
        NodeDevice {
            device: id.to_string(),
            state: state.to_owned(),
            taints: taints.map(|t| taint_text(&t.key, &t.value)).collect(),
            claim: holder.map_or_else(String::new, |holder| holder.claim.key()),
            pods: holder.map_or_else(Vec::new, |holder| holder.pods.clone()),
        }
    });
    devices.collect()
}
