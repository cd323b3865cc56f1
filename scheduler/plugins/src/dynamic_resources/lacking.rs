//! The devices that a node lacks for the claims of a pod, as values for explanations.

use super::state::ClaimsState;
use berth_api::{ResourceClaim, Str};
use berth_devices::{Allocator, ClaimRequests, DeviceId, DeviceState, RequestSurvey, SearchBudget};
use berth_framework::allocator::{allocator, allocator_features, target};
use berth_framework::lack::{DeviceShortage, HeldDevice, TaintedDevice};
use berth_framework::plugin::Context;
use berth_framework::{Lack, NodeView};
use rustc_hash::FxHashMap;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// The maximum number of requests and constraints that are removed together to determine the missing devices of a node.
const TOGETHER_MAX: usize = 2;
/// The maximum number of devices checked for the nodes of one explanation.
const STEPS_MAX: u64 = 5_000_000;

/// A part of a claim: the index of the claim among the unallocated claims, and the index of the part in the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimPart {
    Request(usize, usize),
    Constraint(usize, usize),
}

/// The claims of a pod that need devices, on one node.
struct NeededDevices<'a> {
    cx: &'a Context<'a>,
    state: &'a ClaimsState,
    claims: Vec<&'a Arc<ResourceClaim>>,
    node: NodeView<'a>,
}

/// The devices that a node lacks.
pub(super) fn lacks<'a>(
    cx: &'a Context<'a>,
    state: &'a ClaimsState,
    node: NodeView<'a>,
) -> Vec<Lack> {
    let needing = state.claims.iter().filter(|c| c.allocation().is_none());
    let needed = NeededDevices {
        cx,
        state,
        claims: needing.map(|known| &known.claim).collect(),
        node,
    };
    let requests: Vec<&ClaimRequests> = state.requests.iter().collect();
    let allocator = needed.allocator();
    let surveys = needed.search(|budget| allocator.survey(target(node), &requests, budget));
    let surveys = match surveys {
        Ok(surveys) => surveys,
        Err(error) => {
            return vec![Lack::DeviceSearch {
                error: error.to_string(),
            }];
        }
    };
    // A list of alternatives is explained by the alternative with the smallest shortage.
    let short: Vec<RequestSurvey> = best(surveys)
        .into_iter()
        .filter(|survey| survey.missing() > 0)
        .collect();
    let shortages = short.iter().map(|survey| needed.shortage(survey));
    let mut lacks: Vec<Lack> = shortages.map(Lack::Devices).collect();
    lacks.extend(needed.together(&short));
    let elsewhere = state.claims.iter().filter(|known| {
        let selector = known.node_selector.as_ref();
        selector.is_some_and(|s| s.matches(node.labels(), node.name()) != Ok(true))
    });
    lacks.extend(elsewhere.map(|known| Lack::DevicesElsewhere {
        claim: key(&known.claim),
    }));
    lacks
}

/// The values that are computed once for all nodes of an explanation.
pub(super) struct ExplainedDevices {
    /// The claims that hold devices.
    holders: OnceCell<FxHashMap<DeviceId, Arc<ResourceClaim>>>,
    budget: Cell<SearchBudget>,
}

impl Default for ExplainedDevices {
    fn default() -> Self {
        Self {
            holders: OnceCell::new(),
            budget: Cell::new(SearchBudget::of_steps(STEPS_MAX)),
        }
    }
}

fn key(claim: &ResourceClaim) -> Str {
    Str::new(&claim.key())
}

/// The alternative of each request that lacks the least.
fn best(surveys: Vec<RequestSurvey>) -> Vec<RequestSurvey> {
    let mut best: Vec<RequestSurvey> = Vec::new();
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

impl<'a> NeededDevices<'a> {
    fn allocator(&self) -> Allocator<'a> {
        allocator(self.cx.cluster, self.cx.features)
    }

    /// Searches within the budget that all nodes of the explanation share.
    fn search<T>(&self, search: impl FnOnce(&mut SearchBudget) -> T) -> T {
        let mut budget = self.state.explained.budget.get();
        let result = search(&mut budget);
        self.state.explained.budget.set(budget);
        result
    }

    /// A request with the devices of the node.
    fn shortage(&self, survey: &RequestSurvey) -> DeviceShortage {
        let mut shortage = DeviceShortage {
            claim: key(self.claims[survey.claim]),
            request: survey.name.clone(),
            wanted: survey.wanted,
            exist: survey.of_class.len(),
            matching: survey.selected.len(),
            free: survey.free(),
            held: Vec::new(),
            tainted: Vec::new(),
            without_capacity: 0,
            without_counters: 0,
        };
        for (id, state) in &survey.selected {
            match state {
                DeviceState::Free => {}
                DeviceState::Held => shortage.held.push(self.held(id)),
                DeviceState::Tainted(taint) => shortage.tainted.push(TaintedDevice {
                    device: id.to_string(),
                    key: taint.key.clone(),
                    value: taint.value.clone(),
                }),
                DeviceState::NoCapacity => shortage.without_capacity += 1,
                DeviceState::NoCounters => shortage.without_counters += 1,
            }
        }
        shortage
    }

    fn held(&self, id: &DeviceId) -> HeldDevice {
        let devices = self.cx.cluster.devices();
        let holders = self
            .state
            .explained
            .holders
            .get_or_init(|| devices.holders());
        let holder = holders.get(id).map(|claim| &**claim);
        HeldDevice {
            device: id.to_string(),
            claim: holder.map(key),
            pods: holder.map_or_else(Vec::new, |claim| {
                let pods = claim.reserving_pods();
                pods.map(|pod| Str::new(&pod)).collect()
            }),
        }
    }

    /// Returns whether the node has the devices of changed claims.
    fn fits(&self, change: impl Fn(usize, &mut ResourceClaim)) -> bool {
        let features = allocator_features(self.cx.features);
        let class = |name: &str| self.cx.cluster.devices().classes().get(name).cloned();
        let claims = self.claims.iter().enumerate().map(|(index, claim)| {
            let mut changed = ResourceClaim::clone(claim);
            change(index, &mut changed);
            ClaimRequests::new(&Arc::new(changed), features, class)
        });
        let claims: Vec<ClaimRequests> = claims.collect();
        let claims: Vec<&ClaimRequests> = claims.iter().collect();
        let allocator = self.allocator();
        let found = self.search(|budget| allocator.allocate(target(self.node), &claims, budget));
        matches!(found, Ok(Some(_)))
    }

    /// The fewest further requests and constraints without which the node has the devices, although there are enough
    /// devices for each single request.
    fn together(&self, short: &[RequestSurvey]) -> Vec<Lack> {
        let is_short = |part: &ClaimPart| {
            let mut short = short.iter();
            short.any(|survey| *part == ClaimPart::Request(survey.claim, survey.request))
        };
        let (given, others): (Vec<ClaimPart>, Vec<ClaimPart>) =
            self.parts().into_iter().partition(is_short);
        for count in 0..=others.len().min(TOGETHER_MAX) {
            for chosen in combinations(&others, count) {
                let without: Vec<ClaimPart> = given.iter().chain(&chosen).copied().collect();
                if self.fits(|claim, changed| remove(&without, claim, changed)) {
                    return chosen.iter().map(|part| self.lack_of(*part)).collect();
                }
            }
        }
        vec![Lack::DevicesTogether]
    }

    /// The requests and constraints of the claims.
    fn parts(&self) -> Vec<ClaimPart> {
        let claims = self.claims.iter().enumerate();
        let parts = claims.flat_map(|(at, claim)| {
            let devices = &claim.spec.devices;
            let constraints =
                (0..devices.constraints.len()).map(move |c| ClaimPart::Constraint(at, c));
            let requests = (0..devices.requests.len()).map(move |r| ClaimPart::Request(at, r));
            constraints.chain(requests)
        });
        parts.collect()
    }

    fn lack_of(&self, part: ClaimPart) -> Lack {
        match part {
            ClaimPart::Constraint(claim, at) => {
                let claim = self.claims[claim];
                Lack::DeviceConstraint {
                    claim: key(claim),
                    constraint: claim.spec.devices.constraints[at].to_string(),
                }
            }
            ClaimPart::Request(claim, at) => {
                let claim = self.claims[claim];
                Lack::DeviceCompetition {
                    claim: key(claim),
                    request: claim.spec.devices.requests[at].name.clone(),
                }
            }
        }
    }
}

/// All choices of a number of parts, at most two.
fn combinations(parts: &[ClaimPart], count: usize) -> Vec<Vec<ClaimPart>> {
    match count {
        0 => vec![Vec::new()],
        1 => parts.iter().map(|part| vec![*part]).collect(),
        _ => {
            let firsts = parts.iter().enumerate();
            let pairs = firsts.flat_map(|(at, first)| {
                let seconds = parts.iter().skip(at + 1);
                seconds.map(|second| vec![*first, *second])
            });
            pairs.collect()
        }
    }
}

/// Removes parts from a claim.
fn remove(parts: &[ClaimPart], claim: usize, changed: &mut ResourceClaim) {
    let devices = &mut changed.spec.devices;
    let mut at = 0;
    devices.constraints.retain(|_| {
        at += 1;
        !parts.contains(&ClaimPart::Constraint(claim, at - 1))
    });
    at = 0;
    devices.requests.retain(|_| {
        at += 1;
        !parts.contains(&ClaimPart::Request(claim, at - 1))
    });
    keep_known_requests(changed);
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
