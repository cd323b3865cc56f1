//! Runs the workload files of Kubernetes' scheduler_perf, unchanged, against any scheduler and any API server.
//!
//! [`read_file`] reads a file with its templates and reports all its errors. [`run()`] executes the operations of one
//! workload on a cluster that a [`WorkloadTarget`] starts, and measures: throughput by upstream's rule
//! ([`throughput`]), the time from creation to binding, CPU, memory, API calls and attempts. Pods and nodes are watched
//! from the beginning. At the end, [`verify`] checks each binding, and a result with a violation is void. [`report`]
//! prints results and writes them as upstream's data items.
//!
//! This module talks to the cluster only through the Kubernetes API, so results differ only by the target.

mod api;
pub mod cluster;
pub mod decode;
pub mod error;
pub mod objects;
pub mod ops;
pub mod process;
pub mod prometheus;
pub mod report;
mod run;
pub mod select;
pub mod template;
pub mod throughput;
pub mod verify;
mod view;
mod watch;

pub use cluster::{ClusterFuture, RunningCluster, WorkloadSetup, WorkloadTarget};
pub use decode::{Workload, read_file};
pub use error::{FileError, RunError};
pub use process::{Process, Usage};
pub use run::{
    Histogram, PodCount, ProcessUsage, RunOptions, WorkloadMeasured, WorkloadOutcome,
    WorkloadProgress, run,
};
pub use select::Selection;
