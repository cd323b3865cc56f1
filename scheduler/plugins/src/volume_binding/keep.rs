//! The answers that may be kept.

use super::VolumeBinding;
use super::claims::{self, Claims};
use berth_framework::PodInfo;
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::Context;

impl Keep for VolumeBinding {
    /// Answers depend on the requests of the claims, or on the affinity of their volumes. They are not kept for pods
    /// that PreFilter rejects. Reserve looks the claims up again.
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        match claims::check_all(cx.cluster, &pod.pod) {
            Ok(true) => {}
            Ok(false) => return Kept::ByAmounts,
            Err(_) => return Kept::Never,
        }
        match Claims::of(cx.cluster, &pod.pod) {
            Ok(claims) if !claims.has_immediate => claims.fragment(cx.cluster, fragment),
            Ok(_) | Err(_) => Kept::Never,
        }
    }
}
