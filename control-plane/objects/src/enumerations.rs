//! The values that Kubernetes enumerates for fields: `values!(core.v1.PodSpec.restartPolicy)`. `build.rs` generates the
//! macro from the facts, and a field that has no enumeration does not compile.

include!(concat!(env!("OUT_DIR"), "/enumerations.rs"));
