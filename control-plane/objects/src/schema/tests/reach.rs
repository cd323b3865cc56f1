//! Checks that all rules are applied: a block for an unreachable type is never read.

use super::*;
use crate::access::gr;
use crate::kinds::strategy;
use crate::schema::model::{ObjectType, TypeId, ValueShape};
use crate::strategy::Subresource;
use crate::validation::engine;
use berth_protobuf::facts::ResourceFacts;
use std::collections::{BTreeSet, VecDeque};

/// The maximum number of examined places of each kind.
const PLACES_MAX: usize = 12;
/// The maximum depth of a place.
const DEPTH_MAX: usize = 14;

/// A field on the path to a type: its name, and whether it is a list or a map.
#[derive(Clone)]
struct Step {
    field: String,
    in_list: bool,
    in_map: bool,
}

/// An object that contains only the path to a place.
fn object_at(steps: &[Step]) -> Value {
    let mut value = json!({});
    for step in steps.iter().rev() {
        if step.in_list {
            value = json!([value]);
        } else if step.in_map {
            value = json!({"key": value});
        }
        value = json!({ step.field.as_str(): value });
    }
    value
}

fn below(object_type: &ObjectType) -> impl Iterator<Item = (Step, TypeId)> {
    object_type.fields.iter().filter_map(|field| {
        let step = Step {
            field: field.name.to_string(),
            in_list: matches!(field.shape, ValueShape::List(_)),
            in_map: matches!(field.shape, ValueShape::Map(_)),
        };
        Some((step, field.shape.object()?))
    })
}

/// The types that are visited when objects of a kind are created, updated, and have their status written, with one
/// object for each place below the kind.
fn reached_from(facts: &ResourceFacts, root: TypeId) -> BTreeSet<String> {
    let model = Schemas::get().model();
    let rules = strategy(gr(facts.group, facts.plural));
    let mut places = FxHashMap::default();
    let mut queue = VecDeque::from([(Vec::<Step>::new(), root)]);
    let mut reached = BTreeSet::new();
    while let Some((steps, id)) = queue.pop_front() {
        let count: &mut usize = places.entry(id).or_default();
        *count += 1;
        if *count > PLACES_MAX || steps.len() > DEPTH_MAX {
            continue;
        }
        let mut object = object_at(&steps);
        rules.default(&mut object);
        rules.validate(&object);
        for part in [Subresource::Main, Subresource::Status] {
            rules.validate_update(&object, &json!({}), part);
        }
        for (step, id) in below(model.object_type(id)) {
            let mut steps = steps.clone();
            steps.push(step);
            queue.push_back((steps, id));
        }
        reached.extend(engine::take_visited());
    }
    reached
}

#[test]
fn every_block_of_the_rules_is_reached_from_a_served_kind() {
    let schemas = Schemas::get();
    let model = schemas.model();
    let mut reached = BTreeSet::new();
    for facts in &Facts::get().resources {
        if let Some(root) = model.find(facts.type_name) {
            reached.extend(reached_from(facts, root));
        }
    }
    let with_rules = model.types.iter().filter(|t| !t.rules.is_empty());
    let unreached: Vec<&str> = with_rules
        .map(|t| &*t.name)
        .filter(|name| !reached.contains(*name))
        .collect();
    assert_eq!(unreached, [""; 0]);
}

/// The kinds without a block, and the reasons. Without a reason: Kubernetes has no rules for the kind.
const WITHOUT_BLOCK: [(&str, &str); 11] = [
    ("Binding", "checked by the registry, and not stored"),
    ("ComponentStatus", "computed when it is read"),
    ("Event", "in events.k8s.io: stored as events of core/v1"),
    (
        "HorizontalPodAutoscaler",
        "in autoscaling/v1: stored as those of autoscaling/v2",
    ),
    ("LocalSubjectAccessReview", "answered and not stored"),
    ("SelfSubjectAccessReview", "answered and not stored"),
    ("SelfSubjectReview", "answered and not stored"),
    ("SelfSubjectRulesReview", "answered and not stored"),
    ("ServiceAccount", ""),
    ("SubjectAccessReview", "answered and not stored"),
    ("TokenReview", "answered and not stored"),
];

#[test]
fn every_served_kind_has_a_block_or_is_known_to_need_none() {
    let schemas = Schemas::get();
    let model = schemas.model();
    let without = Facts::get().resources.iter().filter_map(|facts| {
        let object_type = model.object_type(model.find(facts.type_name)?);
        let kind = facts.type_name.rsplit('.').next()?;
        let has_block = !object_type.rules.is_empty() || !object_type.defaults.is_empty();
        // Objects of older versions are checked in their storage version.
        let is_converted = ["resource.v1beta", "scheduling.v1alpha"]
            .iter()
            .any(|version| facts.type_name.starts_with(version));
        (!has_block && !is_converted).then_some(kind)
    });
    let without: BTreeSet<&str> = without.collect();
    let known: BTreeSet<&str> = WITHOUT_BLOCK.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(without, known);
}
