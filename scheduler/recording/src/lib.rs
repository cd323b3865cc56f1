//! Recordings: the inputs of a scheduling core in files, and replays of these inputs.
//!
//! A [`Recorder`] observes a core and writes each input (a change of the cluster, the result of a call or job, the
//! time) with the resulting decisions and calls of the core. [`replay()`] passes the inputs to a core with the same
//! options and compares. The core does no I/O and takes time and randomness from its inputs, so it makes the same
//! decisions.
//!
//! `docs/use/recording.md` describes the files. **Architecture invariants:** a recorder never blocks the core; its
//! queue and its files are bounded, and dropped inputs are counted and recorded.

// The edge of a recording: it opens files and runs on a thread of its own.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod answers;
mod call;
mod entry;
mod model;
mod pseudonyms;
mod reader;
mod recorder;
mod replay;
mod segment;
mod state;
mod writer;

pub use answers::{RecordedAnswers, Used};
pub use call::describe;
pub use entry::{Entry, JobValue, Start};
pub use model::{Modelled, PodEnd, TakeOver, model};
pub use pseudonyms::Pseudonyms;
pub use reader::{Damage, FoundEntry, OpenError, RecordedRun, RunEntries, runs};
pub use recorder::{Recorder, RecorderOptions, RecordingStatus};
pub use replay::{
    Follow, ReplayDifference, ReplayOutput, Replayed, ReplayedTexts, Stop, Until, replay,
};
pub use segment::{FILE_HEADER_LEN, file_name};
pub use state::{ClusterObjects, ClusterState};
pub use writer::Limits;
