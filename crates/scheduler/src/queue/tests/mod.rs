//! The rules of the queue: each test names those it shows (`Q-…` of the specification's section 2) and the edge cases
//! of its section 9. Most are scripts: one operation a line, and after `=>` where every pod is then.
//!
//! Not here, as they are not the queue's: the in-tree plugins' own hints (Q-51, Q-52, edge cases 96 to 109, 125,
//! 126), event handlers (2.16), pod groups (2.17), informers, metric buffers, and signatures (140).
//! Locks and wake-up broadcasts do not exist: one thread owns the queue, and [`SchedulingQueue::next_wake`]
//! tells when to look again. The cached expiry of is worked out anew, from what only failing changes.

mod backoff;
mod counters;
mod flight;
mod gates;
mod hints;
mod narrowing;
mod order;
mod property;
mod reports;
mod scale;
mod script;
mod updates;

pub(super) use script::{Bench, Setup, fields, profile, setup};
