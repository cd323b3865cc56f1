//! Which answers may be kept.

use super::VolumeBinding;
use berth_api::volumes::claims;
use berth_framework::PodInfo;
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::Context;

impl Keep for VolumeBinding {
    /// For pods without claims, about which there is nothing to say. Reserve finds no state of theirs.
    fn fragment(&self, _cx: &Context<'_>, pod: &PodInfo, _fragment: &mut Fragment) -> Kept {
        if claims(&pod.pod).next().is_some() {
            Kept::Never
        } else {
            Kept::ByFragment
        }
    }
}
