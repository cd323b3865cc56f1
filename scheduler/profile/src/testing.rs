//! Profiles of fake plugins, for tests.

use crate::ProfileSpec;
use berth_framework::registry::{Extensions, Registry};

/// A registry of these plugins, and a profile of exactly them.
pub fn registered(plugins: impl IntoIterator<Item = Extensions>) -> (Registry, ProfileSpec) {
    let mut registry = Registry::default();
    let mut names = Vec::new();
    for extensions in plugins {
        let name = extensions.name.clone();
        registry
            .register(&name, move |_| Ok(extensions.clone()))
            .unwrap_or_else(|e| panic!("{e}"));
        names.push(name);
    }
    let names = names.iter().map(String::as_str);
    (
        registry,
        ProfileSpec::of_plugins(ProfileSpec::DEFAULT_SCHEDULER_NAME, names),
    )
}
