//! The API of each release: which resources and fields a server of a release serves, and which of them depend on a
//! feature gate.
//!
//! The facts are in `facts/releases.txt`, and in `later.txt` of the protobuf crate. The types of this crate have the
//! fields of every release. [`ApiRelease`] selects among them where objects of clients are read, published or listed.
//! Objects of this process (controllers, the first objects) are read with [`ApiRelease::EVERY`].

use crate::schema::model::{Model, ModelField, TypeId, ValueShape};
use crate::schema::path::SchemaPath;
use crate::schema::{Schemas, words};
use berth_api::Release;
use rustc_hash::FxHashSet;
use serde_json::Value;
use std::sync::LazyLock;

const FACTS: &str = include_str!("../facts/releases.txt");

/// The API that a server serves: that of a release, with the feature gates that are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRelease {
    /// `None` serves what any release serves.
    release: Option<Release>,
    /// One bit for each gate of the table.
    on: u64,
}

/// The releases and the gate with which a resource or a field exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Availability {
    /// The first release.
    pub(crate) since: Release,
    /// The last release.
    pub(crate) until: Release,
    /// The gate, by its place in the table.
    pub(crate) gate: Option<usize>,
}

/// A feature gate of the API.
struct GateFacts {
    name: &'static str,
    /// The defaults by release; `None` where the release does not have the gate.
    defaults: [Option<bool>; 3],
}

static GATES: LazyLock<Vec<GateFacts>> = LazyLock::new(|| {
    let lines = FACTS.lines().filter_map(|line| line.strip_prefix("gate "));
    let gates = lines.filter_map(|line| {
        let mut words = words(line);
        let name = words.next()?;
        let mut default = || match words.next() {
            Some("on") => Some(true),
            Some("off") => Some(false),
            _ => None,
        };
        Some(GateFacts {
            name,
            defaults: [default(), default(), default()],
        })
    });
    gates.collect()
});

// === impl Availability ===

impl Default for Availability {
    fn default() -> Self {
        Self {
            since: Release::OLDEST,
            until: Release::NEWEST,
            gate: None,
        }
    }
}

impl Availability {
    /// Returns whether the release has it, with some setting of its gate.
    pub(crate) fn is_in(self, api: ApiRelease) -> bool {
        api.release
            .is_none_or(|release| (self.since..=self.until).contains(&release))
    }

    /// Returns whether objects of the release have it even when it is not set. Where no single release is served, those
    /// are the objects of the newest one.
    pub(crate) fn is_written_in(self, api: ApiRelease) -> bool {
        (self.since..=self.until).contains(&api.release())
    }

    /// Returns whether its gate is on.
    pub(crate) fn is_enabled(self, api: ApiRelease) -> bool {
        self.gate
            .is_none_or(|gate| api.on.checked_shr(gate_bit(gate)).unwrap_or(0) & 1 == 1)
    }

    /// The words `until=RELEASE` and `gate=NAME`.
    fn read(&mut self, words: impl Iterator<Item = &'static str>) -> Option<()> {
        for word in words {
            match word.split_once('=')? {
                ("until", name) => {
                    self.until = Release::ALL.into_iter().find(|r| r.as_str() == name)?;
                }
                ("gate", name) => self.gate = Some(GATES.iter().position(|g| g.name == name)?),
                _ => return None,
            }
        }
        Some(())
    }
}

fn gate_bit(gate: usize) -> u32 {
    u32::try_from(gate).unwrap_or(u32::MAX)
}

// === impl ApiRelease ===

impl ApiRelease {
    /// Everything that any release serves, with all gates on.
    pub const EVERY: Self = Self {
        release: None,
        on: u64::MAX,
    };

    /// The API of a release with the defaults of its gates.
    pub fn of(release: Release) -> Self {
        let mut api = Self {
            release: Some(release),
            on: 0,
        };
        for (i, gate) in GATES.iter().enumerate() {
            if gate.default_in(release) == Some(true) {
                api.put(i, true);
            }
        }
        api
    }

    /// The release, the newest one where no single release is served.
    pub fn release(self) -> Release {
        self.release.unwrap_or(Release::NEWEST)
    }

    /// The same API with a gate on or off. Gates that no resource or field depends on have no effect.
    #[must_use]
    pub fn with_gate(mut self, name: &str, on: bool) -> Self {
        if let Some(gate) = GATES.iter().position(|g| g.name == name) {
            self.put(gate, on);
        }
        self
    }

    /// The gates on which resources or fields of some release depend.
    pub fn gates() -> impl Iterator<Item = &'static str> {
        GATES.iter().map(|gate| gate.name)
    }

    /// The default of a gate in a release; `None` when the release does not have it, or nothing depends on it.
    pub fn default_of_gate(name: &str, release: Release) -> Option<bool> {
        let gate = GATES.iter().find(|gate| gate.name == name)?;
        gate.default_in(release)
    }

    /// The resources and fields that a release has added or no longer has, in words.
    pub fn changes_of(release: Release) -> Vec<String> {
        let mut changes = Vec::new();
        let mut note = |name: String, availability: Availability| {
            let gate = availability.gate.and_then(|at| GATES.get(at));
            let gate = gate.map_or(String::new(), |gate| format!(" (gate {})", gate.name));
            if availability.since == release && release > Release::OLDEST {
                changes.push(format!("added: {name}{gate}"));
            }
            let next = Release::of_minor(availability.until.minor() + 1);
            if availability.until < Release::NEWEST && next == Some(release) {
                changes.push(format!("removed: {name}{gate}"));
            }
        };
        for resource in crate::catalog::built_in().resources() {
            let name = format!(
                "`{}` of `{}`",
                resource.resource.resource,
                resource.api_version()
            );
            note(name, resource.availability);
        }
        let model = Schemas::get().model();
        for object_type in model.object_types() {
            // A type that is new as a whole is listed once, as a resource, not field by field.
            let is_old = |field: &&ModelField| field.availability.since < release;
            if object_type.fields.iter().any(|field| is_old(&field)) {
                for field in &object_type.fields {
                    let name = format!("`{}` in `{}`", field.name, object_type.name);
                    note(name, field.availability);
                }
            }
        }
        changes
    }

    fn put(&mut self, gate: usize, on: bool) {
        let bit = 1_u64.checked_shl(gate_bit(gate)).unwrap_or(0);
        if on { self.on |= bit } else { self.on &= !bit }
    }

    /// Returns whether a resource is served.
    pub(crate) fn serves(self, availability: Availability) -> bool {
        availability.is_in(self) && availability.is_enabled(self)
    }

    /// The fields of an object that the release does not have, in the object's order.
    pub fn foreign_fields(self, model: &Model, root: TypeId, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        if self.release.is_some() {
            let mut note = |path: &SchemaPath<'_>, availability: Availability, _: TypeField| {
                if !availability.is_in(self) {
                    found.push(path.to_string());
                }
            };
            visit(
                model,
                &ValueShape::Object(root),
                object,
                &SchemaPath::Root,
                &mut note,
            );
        }
        found
    }
}

impl GateFacts {
    fn default_in(&self, release: Release) -> Option<bool> {
        let releases = Release::ALL.into_iter().zip(self.defaults);
        releases
            .into_iter()
            .find(|(r, _)| *r == release)
            .and_then(|(_, default)| default)
    }
}

/// A field of a type: the type and the place of the field in it.
type TypeField = (TypeId, usize);

/// Calls `found` for each field of an object, the outer ones first.
fn visit(
    model: &Model,
    shape: &ValueShape,
    value: &Value,
    path: &SchemaPath<'_>,
    found: &mut dyn FnMut(&SchemaPath<'_>, Availability, TypeField),
) {
    match (shape, value) {
        (ValueShape::Object(id), Value::Object(object)) => {
            let object_type = model.object_type(*id);
            for (name, value) in object {
                // Unknown fields are reported by the decoder.
                let Some(at) = object_type.position(name) else {
                    continue;
                };
                let field = &object_type.fields[at];
                let path = SchemaPath::Field(path, name);
                found(&path, field.availability, (*id, at));
                visit(model, &field.shape, value, &path, found);
            }
        }
        (ValueShape::List(items), Value::Array(list)) => {
            for (i, value) in list.iter().enumerate() {
                visit(model, items, value, &SchemaPath::Index(path, i), found);
            }
        }
        (ValueShape::Map(values), Value::Object(map)) => {
            for (key, value) in map {
                visit(model, values, value, &SchemaPath::Key(path, key), found);
            }
        }
        _ => {}
    }
}

/// Drops the fields of a new object whose gates are off. A field that the stored object has somewhere is kept, so that
/// objects can be changed after a gate was switched off.
pub fn drop_disabled(
    api: ApiRelease,
    (group, version, kind): (&str, &str, &str),
    new: &mut Value,
    old: Option<&Value>,
) {
    let schemas = Schemas::get();
    let Some(root) = schemas.find(group, version, kind) else {
        return;
    };
    let model = schemas.model();
    if api == ApiRelease::EVERY || !model.object_type(root).has_gates {
        return;
    }
    let mut used = FxHashSet::default();
    if let Some(old) = old {
        let mut note = |_: &SchemaPath<'_>, availability: Availability, place: TypeField| {
            if !availability.is_enabled(api) {
                used.insert(place);
            }
        };
        visit(
            model,
            &ValueShape::Object(root),
            old,
            &SchemaPath::Root,
            &mut note,
        );
    }
    drop_below(api, model, &ValueShape::Object(root), new, &used);
}

fn drop_below(
    api: ApiRelease,
    model: &Model,
    shape: &ValueShape,
    value: &mut Value,
    used: &FxHashSet<TypeField>,
) {
    match (shape, value) {
        (ValueShape::Object(id), Value::Object(object)) => {
            let object_type = model.object_type(*id);
            // Most types have no gated field below them; they are not visited.
            if !object_type.has_gates {
                return;
            }
            object.retain(|name, value| {
                let Some(at) = object_type.position(name) else {
                    return true;
                };
                let field = &object_type.fields[at];
                // A field that the stored object uses already is kept, or an update would lose data.
                if !field.availability.is_enabled(api) && !used.contains(&(*id, at)) {
                    return false;
                }
                drop_below(api, model, &field.shape, value, used);
                true
            });
        }
        (ValueShape::List(items), Value::Array(list)) => {
            for value in list {
                drop_below(api, model, items, value, used);
            }
        }
        (ValueShape::Map(values), Value::Object(map)) => {
            for value in map.values_mut() {
                drop_below(api, model, values, value, used);
            }
        }
        _ => {}
    }
}

/// The availability of a resource of a first release.
pub(crate) fn of_resource(
    since: Release,
    group: &str,
    version: &str,
    plural: &str,
) -> Option<Availability> {
    let mut availability = Availability {
        since,
        ..Availability::default()
    };
    for line in FACTS.lines() {
        let Some(rest) = line.strip_prefix("resource ") else {
            continue;
        };
        let mut words = words(rest);
        let (named, listed) = (words.next()?, words.next()?);
        let (of_group, of_version) = named.split_once('/').unwrap_or(("", named));
        if (of_group, of_version, listed) == (group, version, plural) {
            availability.read(words)?;
        }
    }
    Some(availability)
}

/// Adds the releases and gates of fields to a model. Returns the lines that could not be read.
pub(crate) fn apply(
    mut field_of: impl FnMut(&str, &str, &mut dyn FnMut(&mut Availability)),
) -> Vec<String> {
    let mut faults = Vec::new();
    for line in FACTS.lines() {
        let Some(rest) = line.strip_prefix("field ") else {
            continue;
        };
        let mut words = words(rest);
        let (Some(type_name), Some(name)) = (words.next(), words.next()) else {
            faults.push(line.to_owned());
            continue;
        };
        let mut done = false;
        field_of(type_name, name, &mut |availability| {
            done = availability.read(words.clone()).is_some();
        });
        if !done {
            faults.push(line.to_owned());
        }
    }
    faults
}
