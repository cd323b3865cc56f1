//! The document of a trace as YAML.

use super::values::{
    Amounts, BurstSize, Count, GracePeriod, Hour, Placed, Price, Rate, Resource, Share, Text,
    mistake,
};
use crate::distribution::Distribution;
use crate::span::Moment;
use crate::text::TextError;
use crate::text::fields::Removal;
use crate::trace::generate::{AmountDistribution, Arrivals};
use berth_api::devices::{CounterSet, Device};
use berth_api::{Duration, Labels, ResourceList, Str, Taint, Time};
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct TraceText {
    pub(super) start: Option<Text<Time>>,
    pub(super) world: WorldText,
    pub(super) pods: Vec<PodText>,
    pub(super) generate: Vec<GeneratorText>,
    pub(super) groups: Vec<GroupText>,
    pub(super) nodes: Vec<NodeText>,
    pub(super) node_groups: Vec<NodeGroupText>,
    pub(super) capacity_buffers: Vec<BufferText>,
    pub(super) quotas: Vec<QuotaText>,
    pub(super) objects: Vec<Spanned<Value>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WorldText {
    pub(super) api_latency: Option<Text<Distribution>>,
    pub(super) start_latency: Option<Text<Distribution>>,
    pub(super) recreate_latency: Option<Text<Distribution>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodText {
    pub(super) name: Placed<Str>,
    #[serde(default)]
    pub(super) namespace: Str,
    #[serde(default)]
    pub(super) arrival: Option<Placed<Moment>>,
    #[serde(default)]
    pub(super) every: Option<Text<Duration>>,
    #[serde(default)]
    pub(super) duration: Option<Text<Distribution>>,
    #[serde(default)]
    pub(super) requests: Amounts,
    #[serde(default)]
    pub(super) labels: Labels,
    #[serde(default)]
    pub(super) priority: Option<Text<i32>>,
    #[serde(default)]
    pub(super) priority_class_name: Str,
    #[serde(default)]
    pub(super) count: Option<Text<Count>>,
    #[serde(default)]
    pub(super) template: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) group: Option<Str>,
    #[serde(default)]
    pub(super) gates: BTreeMap<String, Text<Removal>>,
    #[serde(default)]
    pub(super) recreated: Option<Text<bool>>,
    #[serde(default)]
    pub(super) scheduler: Str,
    #[serde(default)]
    pub(super) node_selector: Labels,
    #[serde(default)]
    pub(super) node: Str,
    #[serde(default)]
    pub(super) grace_period: Option<Text<GracePeriod>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GeneratorText {
    pub(super) name: Placed<Str>,
    #[serde(default)]
    pub(super) namespace: Str,
    pub(super) arrivals: ArrivalsText,
    #[serde(default)]
    pub(super) from: Option<Text<Duration>>,
    pub(super) until: Placed<Duration>,
    #[serde(default)]
    pub(super) maximum: Option<Text<u64>>,
    #[serde(default)]
    pub(super) duration: Option<Text<Distribution>>,
    #[serde(default)]
    pub(super) requests: BTreeMap<Text<Resource>, Text<AmountDistribution>>,
    #[serde(default)]
    pub(super) labels: Labels,
    #[serde(default)]
    pub(super) priority: Option<Text<i32>>,
    #[serde(default)]
    pub(super) priority_class_name: Str,
    #[serde(default)]
    pub(super) template: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) recreated: Option<Text<bool>>,
    #[serde(default)]
    pub(super) scheduler: Str,
    #[serde(default)]
    pub(super) node_selector: Labels,
    #[serde(default)]
    pub(super) grace_period: Option<Text<GracePeriod>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ArrivalsText {
    per_hour: Text<Rate>,
    /// The hour of the highest rate makes it a daily pattern.
    #[serde(default)]
    peak_hour: Option<Text<Hour>>,
    #[serde(default)]
    swing: Option<Placed<Share>>,
    /// The mean size makes it bursts.
    #[serde(default)]
    burst_size: Option<Placed<BurstSize>>,
}

impl ArrivalsText {
    /// The pattern of arrivals.
    ///
    /// # Errors
    /// When fields of two patterns are given.
    pub(super) fn arrivals(self) -> Result<Arrivals, TextError> {
        let per_hour = self.per_hour.0.0;
        match (self.peak_hour, self.burst_size, self.swing) {
            (Some(_), Some(size), _) => Err(mistake(
                size.referenced,
                "arrivals has peakHour and burstSize; give one of them",
            )),
            (None, _, Some(swing)) => Err(mistake(
                swing.referenced,
                "arrivals.swing needs peakHour, the hour of the highest rate",
            )),
            (Some(hour), None, swing) => Ok(Arrivals::Daily {
                per_hour,
                peak_hour: hour.0.0,
                swing: swing.map_or(0.5, |swing| swing.value.0.0),
            }),
            (None, Some(size), None) => Ok(Arrivals::Bursts {
                per_hour,
                size: size.value.0.0,
            }),
            (None, None, None) => Ok(Arrivals::Poisson { per_hour }),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GroupText {
    pub(super) name: Placed<Str>,
    #[serde(default)]
    pub(super) namespace: Str,
    pub(super) minimum: Text<u32>,
    #[serde(default)]
    pub(super) topology: Option<Str>,
    #[serde(default)]
    pub(super) priority: Option<Text<i32>>,
    #[serde(default)]
    pub(super) priority_class_name: Option<Str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeText {
    pub(super) name: Placed<Str>,
    #[serde(default)]
    pub(super) count: Option<Text<Count>>,
    #[serde(default)]
    pub(super) resources: Amounts,
    #[serde(default)]
    pub(super) labels: Labels,
    #[serde(default)]
    pub(super) taints: Vec<Text<Taint>>,
    #[serde(default)]
    pub(super) joins: Option<Text<Moment>>,
    #[serde(default)]
    pub(super) leaves: Option<Placed<Moment>>,
    #[serde(default)]
    pub(super) outages: Vec<OutageText>,
    #[serde(default)]
    pub(super) price_per_hour: Option<Text<Price>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OutageText {
    pub(super) at: Text<Moment>,
    #[serde(default, rename = "for")]
    pub(super) length: Option<Text<Duration>>,
    #[serde(default)]
    pub(super) drain: Option<Text<bool>>,
}

/// The fields of a ResourceSlice that are the same for each node.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SliceText {
    pub(super) driver: Text<Str>,
    #[serde(default)]
    pub(super) devices: Vec<Device>,
    #[serde(default)]
    pub(super) shared_counters: Vec<CounterSet>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeGroupText {
    pub(super) name: Placed<Str>,
    pub(super) resources: Amounts,
    #[serde(default)]
    pub(super) resource_slices: Vec<SliceText>,
    #[serde(default)]
    pub(super) labels: Labels,
    #[serde(default)]
    pub(super) taints: Vec<Text<Taint>>,
    #[serde(default)]
    pub(super) minimum: Option<Placed<u32>>,
    pub(super) maximum: Text<u32>,
    #[serde(default)]
    pub(super) boot: Option<Text<Distribution>>,
    #[serde(default)]
    pub(super) idle: Option<Text<Duration>>,
    #[serde(default)]
    pub(super) price_per_hour: Option<Text<Price>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BufferText {
    pub(super) name: Placed<Str>,
    #[serde(default)]
    pub(super) namespace: Str,
    #[serde(default)]
    pub(super) requests: Amounts,
    #[serde(default)]
    pub(super) labels: Labels,
    #[serde(default)]
    pub(super) template: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) node_selector: Labels,
    pub(super) replicas: Placed<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct QuotaText {
    pub(super) namespace: Text<Str>,
    pub(super) hard: BTreeMap<Str, Text<berth_api::Quantity>>,
}

impl QuotaText {
    /// The amounts, by resource without `requests.`.
    pub(super) fn amounts(self) -> ResourceList {
        let amounts = self.hard.into_iter().map(|(name, amount)| {
            let name = name.strip_prefix("requests.").unwrap_or(&name);
            (Str::from(name), amount.0)
        });
        ResourceList::from_pairs(amounts)
    }
}
