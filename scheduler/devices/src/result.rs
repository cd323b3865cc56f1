//! The conversion of the devices of a claim to its allocation: results, configuration, and the nodes that can use the
//! devices.

use crate::claims::Alternative;
use crate::search::{DeviceSearch, Pick};
use berth_api::Str;
use berth_api::devices::{
    AllocationConfigSource, AllocationResult, DeviceAllocationConfiguration,
    DeviceAllocationResult, DeviceRequestAllocationResult,
};
use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use std::collections::BTreeSet;

/// The allocation of a claim.
///
/// # Errors
/// The node selectors of slices cannot be combined.
pub(crate) fn of_claim(
    search: &DeviceSearch<'_, '_>,
    claim: usize,
) -> Result<AllocationResult, String> {
    let picks = &search.picks[claim];
    let results = picks.iter().map(|pick| result(search, claim, pick));
    let node_selector = node_selector(search, picks).map_err(|why| {
        let name = &search.claims[claim].claim().metadata.name;
        format!("create NodeSelector for claim {name}: {why}")
    })?;
    Ok(AllocationResult {
        devices: DeviceAllocationResult {
            results: results.collect(),
            config: config(search, claim),
        },
        node_selector,
        allocation_timestamp: None,
    })
}

fn result(
    search: &DeviceSearch<'_, '_>,
    claim: usize,
    pick: &Pick<'_>,
) -> DeviceRequestAllocationResult {
    let (slice, device) = search.device_of(pick);
    let requests = search.claims[claim];
    let alternative = &requests.requests[pick.request].alternatives[pick.alternative];
    let requested = requests.requested(pick.request, pick.alternative);
    let spec = &slice.slice().spec;
    DeviceRequestAllocationResult {
        request: alternative.name.clone(),
        driver: spec.driver.clone(),
        pool: spec.pool.name.clone(),
        device: device.name.clone(),
        admin_access: alternative.admin_access.then_some(true),
        tolerations: requested.tolerations.clone(),
        binding_conditions: device.binding_conditions.clone(),
        binding_failure_conditions: device.binding_failure_conditions.clone(),
        share_id: pick.share.as_ref().map(|_| Str::default()),
        consumed_capacity: pick.share.clone().unwrap_or_default(),
        skip_node_operations: spec.skip_node_operations.clone(),
    }
}

/// The configuration of the classes, once per class, then that of the claim.
fn config(search: &DeviceSearch<'_, '_>, claim: usize) -> Vec<DeviceAllocationConfiguration> {
    let prepared = search.claims[claim];
    let selected = |request: usize| -> &Alternative {
        &prepared.requests[request].alternatives[search.selected[claim][request]]
    };
    let mut config: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut classes: Vec<(&Str, std::ops::Range<usize>)> = Vec::new();
    for request in 0..prepared.requests.len() {
        let alternative = selected(request);
        let Some(class) = &alternative.class else {
            continue;
        };
        let name = &class.metadata.name;
        if let Some((_, range)) = classes.iter().find(|(known, _)| *known == name) {
            for entry in &mut config[range.clone()] {
                entry.requests.push(alternative.name.clone());
            }
            continue;
        }
        let start = config.len();
        config.extend(
            class
                .spec
                .config
                .iter()
                .map(|given| DeviceAllocationConfiguration {
                    source: AllocationConfigSource::FromClass,
                    requests: vec![alternative.name.clone()],
                    opaque: given.opaque.clone(),
                }),
        );
        classes.push((name, start..config.len()));
    }
    for given in &prepared.claim().spec.devices.config {
        let applies = |request: &usize| {
            let names = [prepared.request_name(*request), &selected(*request).name];
            given.requests.iter().any(|name| names.contains(&name))
        };
        // As upstream, a configuration for several requests is listed once for each of them.
        let times = if given.requests.is_empty() {
            1
        } else {
            (0..prepared.requests.len()).filter(applies).count()
        };
        let entry = DeviceAllocationConfiguration {
            source: AllocationConfigSource::FromClaim,
            requests: given.requests.clone(),
            opaque: given.opaque.clone(),
        };
        config.extend(std::iter::repeat_n(entry, times));
    }
    config
}

/// The nodes that can use the devices; `None` if all can.
fn node_selector(
    search: &DeviceSearch<'_, '_>,
    picks: &[Pick<'_>],
) -> Result<Option<NodeSelector>, String> {
    let mut combined = NodeSelectorTerm::default();
    for pick in picks {
        let (slice, device) = search.device_of(pick);
        let spec = &slice.slice().spec;
        let (name, selector) = if spec.per_device_node_selection {
            (device.node_name.as_ref(), device.node_selector.as_ref())
        } else {
            (spec.node_name.as_ref(), spec.node_selector.as_ref())
        };
        // A device of one node decides the node of the pod.
        if name.is_some() || device.binds_to_node {
            return Ok(Some(only(search.target.name)));
        }
        match selector.map(|selector| selector.node_selector_terms.as_slice()) {
            None | Some([]) => {}
            Some([term]) => {
                add_new(&term.match_fields, &mut combined.match_fields);
                add_new(&term.match_expressions, &mut combined.match_expressions);
            }
            // The terms of a selector are alternatives, which cannot be combined with the terms of other selectors.
            Some(terms) => {
                let count = terms.len();
                return Err(format!(
                    "unsupported ResourceSlice.NodeSelector with {count} terms"
                ));
            }
        }
    }
    let is_restricted = !combined.match_fields.is_empty() || !combined.match_expressions.is_empty();
    Ok(is_restricted.then(|| NodeSelector {
        node_selector_terms: vec![combined],
    }))
}

/// Selects one node by its name.
fn only(name: &str) -> NodeSelector {
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: vec![NodeSelectorRequirement {
                key: "metadata.name".into(),
                operator: "In".into(),
                values: vec![name.into()],
            }],
            ..NodeSelectorTerm::default()
        }],
    }
}

/// Adds requirements that are not in the list, whatever the order of their values.
fn add_new(from: &[NodeSelectorRequirement], to: &mut Vec<NodeSelectorRequirement>) {
    for requirement in from {
        let values =
            |r: &NodeSelectorRequirement| r.values.iter().cloned().collect::<BTreeSet<_>>();
        let is_known = to.iter().any(|known| {
            known.key == requirement.key
                && known.operator == requirement.operator
                && values(known) == values(requirement)
        });
        if !is_known {
            to.push(requirement.clone());
        }
    }
}
