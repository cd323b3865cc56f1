//! Scheduling of pods that share GPUs, and how much of the GPUs each policy can use.
//!
//! The policies are scheduler plugins outside of Berth's own tree:
//!
//! | module | policy |
//! |---|---|
//! | [`random`] | each node and GPU with the same chance |
//! | [`best_fit`] | the fullest node and GPU |
//! | [`fgd`] | least growth of the fragmentation that a target workload would see |
//!
//! [`devices`] describes the GPUs, and [`policy`] has the score that policies share.
//!
//! [`experiment`] plays the experiment of *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
//! Gradient Descent* (Weng et al., USENIX ATC 2023) with the scheduling core of Berth, and [`claims`] the same with
//! resource claims and the standard allocator of devices.

pub mod best_fit;
pub mod chart;
pub mod claims;
pub mod devices;
pub mod experiment;
pub mod fgd;
pub mod policy;
pub mod random;
pub mod results;

use berth_framework::registry::{AlreadyRegistered, Extensions, FactoryContext, Registry};
use policy::{GpuPlugin, Policy};

/// The in-tree plugins, and the policies of this crate.
///
/// # Errors
/// Berth has a plugin with the same name.
pub fn registry() -> Result<Registry, AlreadyRegistered> {
    let mut registry = berth_plugins::in_tree();
    registry.register(best_fit::BestFit::NAME, |_| {
        Ok(GpuPlugin::extensions(best_fit::BestFit))
    })?;
    registry.register(random::Random::NAME, |cx: &FactoryContext<'_>| {
        let args: random::RandomArgs = cx.decode_args("GpuRandomArgs")?;
        let random = random::Random { seed: args.seed };
        Ok(Extensions::of(random).devices().node_score().build())
    })?;
    registry.register(fgd::Fgd::NAME, |cx: &FactoryContext<'_>| {
        let args: fgd::FgdArgs = cx.decode_args("GpuFragmentationArgs")?;
        Ok(GpuPlugin::extensions(fgd::Fgd::new(args)?))
    })?;
    Ok(registry)
}
