//! The rules of the queue (`docs/contribute/rules/queue.md`): each test names the rules that it checks. Most tests are
//! scripts: one operation per line, and after `=>` the place of every pod. The tests of the core check how watch events
//! reach the queue.
//!
//! Locks and wake-up broadcasts do not exist: one thread owns the queue, and `SchedulingQueue::next_wake` returns
//! when to flush again. The end of a backoff is computed from counters that change only when the pod fails.

mod against_model;
mod backoff;
mod counters;
mod flight;
mod gates;
mod groups;
mod hints;
mod model;
mod narrowing;
mod order;
mod property;
mod reports;
mod scale;
mod script;
mod updates;
mod wait_index;

pub(super) use script::{Bench, Setup, fields, numbers, profile, setup};
