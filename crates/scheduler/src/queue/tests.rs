//! The rules of the queue (`docs/rules/queue.md`): each test names those that it holds the queue to. Most are scripts:
//! one operation a line, and after `=>` where every pod is then. What watches feed the queue with is tested with the
//! core.
//!
//! Locks and wake-up broadcasts do not exist: one thread owns the queue, and `SchedulingQueue::next_wake` tells
//! when to look again. The end of a backoff is worked out anew, from what only failing changes.

mod against_model;
mod backoff;
mod counters;
mod flight;
mod gates;
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
