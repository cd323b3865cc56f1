//! The in-tree plugins at work in the scheduling core: what only shows when they meet queue, cache and dispatcher.

mod bad_input;
mod batching;
mod claims;
mod default_profile;
mod defaults;
mod device_taints;
mod devices;
mod devices_random;
mod drivers;
mod extended_resources;
mod extenders;
mod gates;
mod group_devices;
mod group_preemption;
mod group_random;
mod group_topology;
mod group_trees;
mod groups;
mod node_resources;
mod nominated;
mod preemption;
mod reasons;
mod resizes;
mod searches;
mod templates;
mod volumes;
