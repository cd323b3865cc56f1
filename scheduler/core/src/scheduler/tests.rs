//! The core from its inputs to its outputs, in virtual time, with fake plugins and a small stand-in for the API.

mod bindings;
mod calls;
mod changes;
mod cycles;
mod deletions;
mod extenders;
mod failures;
mod fakes;
mod framework;
mod logs;
mod measures;
mod preemptions;
mod property;
mod reconfiguring;
mod reports;
mod statuses;
mod templates;
mod traces;
mod waiting;
mod wake_ups;
mod waking;

use crate::testing::Driver;
use fakes::{HandWatch, binder, driver, driver_of, driver_with, fits, fits_alike, node_changes};
