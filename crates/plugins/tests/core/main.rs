//! The in-tree plugins at work in the scheduling core: what only shows when they meet queue, cache and dispatcher.

mod bad_input;
mod batching;
mod claims;
mod defaults;
mod devices;
mod devices_random;
mod drivers;
mod extended_resources;
mod extenders;
mod gates;
mod nominated;
mod preemption;
mod reasons;
mod volumes;
