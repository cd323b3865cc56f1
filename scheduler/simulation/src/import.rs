//! Traces of other tools. Values that a format does not contain have the defaults of [`crate::trace`].
//!
//! | module | format |
//! |---|---|
//! | [`read_openb`] | the CSV files of the public GPU trace of Alibaba, `cluster-trace-gpu-v2023` |
//! | [`read_simkube`] | the traces of SimKube, version 2 |

mod msgpack;
mod openb;
mod simkube;

pub use openb::{GPU_MILLI, GPU_MODEL, is_openb, read_openb};
pub use simkube::{Imported, SimkubeError, read_simkube};
