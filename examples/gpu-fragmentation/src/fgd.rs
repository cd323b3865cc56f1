//! FGD: fragmentation gradient descent. A pod is placed where the expected fragmentation of GPUs grows least.
//!
//! The **target workload** is a list of typical pods, each with the probability that the next pod is one. The
//! fragmentation of a node for a typical pod is the free GPU milli that this pod cannot use: all of it if the node cannot
//! run the pod, or if the pod needs no GPU; otherwise the sum of the GPUs with less free milli than it needs. The
//! fragmentation of a node is the mean over the target workload. The rate of a placement is
//! `⌊100 · sigmoid((fragmentation before − fragmentation after) / 1,000)⌋`; a shared GPU is chosen by the same rate.
//!
//! ```text
//! target: 60 % need 1,000 milli and 4 CPU, 40 % need 300 milli and 2 CPU
//! node with 3 CPU and GPUs with 1,000 and 200 milli free → 0.6 · 1,200 + 0.4 · 200 = 800
//! ```
//!
//! Source: Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
//! Descent*, USENIX ATC 2023, parts 4 and 5, and its simulator for the sigmoid.

use crate::devices::{DEVICES, Demand, Room};
use crate::policy::Policy;
use berth_framework::assignment::devices::UnitRequest;
use berth_framework::registry::ArgsError;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FgdArgs {
    /// The target workload.
    pub target_workload: Vec<TypicalPod>,
}

/// A typical pod.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TypicalPod {
    /// CPU in milli-CPU.
    pub milli_cpu: i64,
    /// GPU in milli: below 1,000 of one GPU, otherwise a multiple of it.
    pub gpu_milli: u32,
    /// The models of GPUs on which it runs; empty for all.
    pub models: Vec<String>,
    /// Its share of all pods, relative to the shares of the others.
    pub share: f64,
}

/// Keeps fragmentation low.
#[derive(Debug)]
pub struct Fgd {
    /// The target workload by the GPUs that pods need. The shares are probabilities.
    target: BTreeMap<UnitRequest, Vec<TypicalPod>>,
}

impl Fgd {
    /// The policy for a target workload.
    ///
    /// # Errors
    /// All invalid arguments, each with its path.
    pub fn new(args: FgdArgs) -> Result<Self, ArgsError> {
        let mut target: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut problems = Vec::new();
        if args.target_workload.is_empty() {
            let problem = "Required value: the pods that are expected".to_owned();
            problems.push(("targetWorkload".to_owned(), problem));
        }
        let all: f64 = args.target_workload.iter().map(|pod| pod.share).sum();
        for (at, mut pod) in args.target_workload.into_iter().enumerate() {
            let mut problem = |field: &str, text: &str| {
                problems.push((format!("targetWorkload[{at}].{field}"), text.to_owned()));
            };
            if !(pod.share > 0.0 && pod.share.is_finite()) {
                problem("share", "Invalid value: must be greater than 0");
            }
            pod.share /= all;
            match DEVICES.split(pod.gpu_milli.into()) {
                Some(gpus) => target.entry(gpus).or_default().push(pod),
                None => problem(
                    "gpuMilli",
                    "Invalid value: must be below 1000 or a multiple of it",
                ),
            }
        }
        if problems.is_empty() {
            Ok(Self { target })
        } else {
            Err(ArgsError { problems })
        }
    }

    /// The fragmentation of a node in milli: the free milli minus the mean that typical pods can use.
    pub fn fragmentation(&self, room: &Room<'_>) -> f64 {
        let free: i64 = room.free.iter().sum();
        let runs = |pod: &&TypicalPod| {
            let mut models = pod.models.iter();
            let is_allowed = pod.models.is_empty() || models.any(|model| model == room.model);
            is_allowed && pod.milli_cpu <= room.milli_cpu
        };
        let mut usable = 0.0;
        for (gpus, pods) in &self.target {
            if gpus.count > 0 && gpus.fits(&room.free) {
                let milli: i64 = gpus.fitting(&room.free).map(|gpu| room.free[gpu]).sum();
                let probability: f64 = pods.iter().filter(runs).map(|pod| pod.share).sum();
                usable += probability * milli as f64;
            }
        }
        free as f64 - usable
    }
}

impl Policy for Fgd {
    const NAME: &'static str = "GpuFragmentation";

    /// The first choice of GPUs with the highest rate.
    fn place(&self, demand: &Demand, room: &Room<'_>) -> Option<(i64, Vec<usize>)> {
        let before = self.fragmentation(room);
        let choices = demand.gpus.choices(&room.free).into_iter();
        let rates = choices.filter_map(|gpus| {
            let after = self.fragmentation(&room.after(demand, &gpus)?);
            let rate = 100.0 / (1.0 + (-(before - after) / 1_000.0).exp());
            Some((rate as i64, Reverse(gpus)))
        });
        rates.max().map(|(rate, Reverse(gpus))| (rate, gpus))
    }
}
