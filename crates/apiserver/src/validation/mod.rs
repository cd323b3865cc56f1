//! The rules of the kinds: defaulting, preparation and validation.
