//! The rules of the queue: each test names those it shows (`Q-…` of the specification's section 2) and the edge cases
//! of its section 9. Most are scripts: one operation a line, and after `=>` where every pod is then.
//!
//! Not here, as they are not the queue's: durations (Q-27, Q-86, Q-110: the core has no clock), the in-tree plugins'
//! own messages and hints (Q-28, Q-51, Q-52, Q-96, edge cases 96 to 109, 125, 126), informers and event handlers (Q-50,
//! ), what plugins activate, pod groups, the dispatcher's part of KEP-5501
//! and signatures (140). Locks and wake-up broadcasts do not exist: one thread owns
//! the queue, and `SchedulingQueue::next_wake` tells when to look again. The cached expiry of is worked
//! out anew, from what only failing changes. Two heaps cannot hold one pod, so nothing heals itself (Q-19, edge case
//! 57).

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

pub(super) use script::{Bench, Setup, fields, profile, setup};
