//! The objects that the scheduler does not read, but that decide about the pods of a change.

use super::buffers::Buffers;
use super::priorities::{PriorityClasses, is_priority_class};
use super::{claims, daemons, quotas};
use super::{name_of, namespace_of};
use crate::InputError;
use serde_json::Value;

/// The objects of the cluster that the scheduler does not read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Others {
    pub(crate) quotas: quotas::Quotas,
    pub(crate) priorities: PriorityClasses,
    pub(crate) claims: claims::ClaimTemplates,
    pub(crate) buffers: Buffers,
    /// DaemonSets with the locations where they were read.
    pub(crate) daemons: Vec<(String, Value)>,
    pub(crate) notes: Vec<String>,
}

impl Others {
    /// Takes an object of one of these kinds, and records its effect if it is a change.
    pub(crate) fn take(
        &mut self,
        place: &str,
        object: Value,
        done: Option<&mut Vec<String>>,
    ) -> Result<Option<Value>, InputError> {
        let is_change = done.is_some();
        if self.buffers.take(place, &object, is_change)? {
            if let Some(done) = done {
                let kind = object["kind"].as_str().unwrap_or_default();
                let name = name_of(&object).unwrap_or_default();
                done.push(format!(
                    "{kind} {}/{name}: set or deleted",
                    namespace_of(&object)
                ));
            }
            return Ok(None);
        }
        // Priority classes have no namespace.
        let is_in_namespace = !is_priority_class(&object);
        let is_one = quotas::is_one(&object) || claims::is_one(&object) || !is_in_namespace;
        if is_one {
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = name_of(&object).unwrap_or_default();
            let line = if is_in_namespace {
                format!("{kind} {}/{name}: set or deleted", namespace_of(&object))
            } else {
                format!("{kind} {name}: set or deleted")
            };
            if quotas::is_one(&object) {
                quotas::change(&mut self.quotas, place, object)?;
            } else if claims::is_one(&object) {
                self.claims.change(place, object)?;
            } else {
                self.priorities.change(place, object)?;
            }
            if let Some(done) = done {
                done.push(line);
            }
        } else if daemons::is_one(&object) {
            self.daemons.push((place.to_owned(), object));
        } else {
            return Ok(Some(object));
        }
        Ok(None)
    }
}
