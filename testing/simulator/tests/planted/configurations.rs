//! Configurations that schedulers must reject, or that they apply wrongly.

use super::found_from;
use berth_simulator::{CONFIGURATION_SEEDS, Faults, Subject};

/// Schedulers start with all plugins, so only a change of configuration can show this.
#[test]
fn a_configuration_without_a_filter_overcommits() {
    let mut subject = Subject::in_tree().unwrap_or_else(|e| panic!("{e}"));
    for profile in subject
        .others
        .iter_mut()
        .flat_map(|other| &mut other.profiles)
    {
        let disabled = &mut profile.plugins.multi_point.disabled;
        disabled.push("NodeResourcesFit".to_owned());
        profile.plugin_config.clear();
    }
    let shrunk = found_from(
        CONFIGURATION_SEEDS.start,
        &subject,
        Faults::NONE,
        &["overcommit"],
    );
    let text = shrunk.to_string();
    assert!(text.contains("take over configuration"), "{text}");
}
