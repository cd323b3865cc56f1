//! Conflicts of an applied configuration with the managers of the fields that it changes.

use super::fields::FieldSet;

/// A field that another manager owns and an applied configuration would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as messages name it.
    pub owner: String,
    /// The path of the field.
    pub field: String,
}

/// The fields of one manager that an applied configuration changes.
pub(super) struct LostFields {
    /// The manager as kube-apiserver identifies it.
    pub(super) identity: String,
    /// The manager as messages name it.
    pub(super) owner: String,
    pub(super) fields: FieldSet,
}

/// The conflicts about fields that are not in `allowed`, by manager. The fields of one manager are in the order of
/// kube-apiserver, whose order of several managers is random.
pub(super) fn conflicts(mut lost: Vec<LostFields>, allowed: &FieldSet) -> Vec<Conflict> {
    lost.sort_by(|a, b| a.identity.cmp(&b.identity));
    let mut conflicts = Vec::new();
    for mut lost in lost {
        lost.fields.subtract(allowed);
        let fields = lost.fields.paths().into_iter();
        conflicts.extend(fields.map(|field| Conflict {
            owner: lost.owner.clone(),
            field,
        }));
    }
    conflicts
}

/// The message about conflicts, which are in order of their managers.
pub fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        let Conflict { owner, field } = one;
        return format!("Apply failed with 1 conflict: conflict with {owner}: {field}");
    }
    let mut lines: Vec<String> = Vec::new();
    let mut last = "";
    for conflict in conflicts {
        if conflict.owner != last {
            lines.push(format!("conflicts with {}:", conflict.owner));
            last = &conflict.owner;
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}
