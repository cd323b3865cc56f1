//! The fields that kinds can be selected by.

/// A field that a kind can be selected by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selectable {
    /// The label in the selector.
    pub label: &'static str,
    /// The path of the value, as a JSON pointer.
    pub pointer: &'static str,
    /// The path of the value if it is empty at the first place.
    pub fallback: Option<&'static str>,
    /// The default of a missing value: `""`, `"false"` or `"0"`.
    pub absent: &'static str,
}

impl Selectable {
    /// A field that counts as empty when it is absent.
    pub(crate) const fn text(label: &'static str, pointer: &'static str) -> Self {
        Self {
            label,
            pointer,
            fallback: None,
            absent: "",
        }
    }
}
