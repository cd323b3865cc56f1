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

use crate::devices::{Demand, Room, WHOLE};
use crate::policy::Policy;
use berth_api::Pod;
use berth_framework::registry::ArgsError;
use serde::{Deserialize, Serialize};

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

/// Typical pods that need the same GPUs, with the CPU that each needs.
#[derive(Debug)]
struct TypicalGpus {
    milli: u32,
    count: usize,
    models: Vec<String>,
    /// CPU, and the probability of pods that need as much or less; ascending.
    by_cpu: Vec<(i64, f64)>,
}

/// Keeps fragmentation low.
#[derive(Debug)]
pub struct Fgd {
    gpus: Vec<TypicalGpus>,
    /// The probability of pods without GPUs.
    without_gpus: f64,
}

impl Fgd {
    /// The policy for a target workload.
    ///
    /// # Errors
    /// All invalid arguments, each with its path.
    pub fn new(args: FgdArgs) -> Result<Self, ArgsError> {
        let mut problems = Vec::new();
        if args.target_workload.is_empty() {
            let problem = "Required value: the pods that are expected".to_owned();
            problems.push(("targetWorkload".to_owned(), problem));
        }
        for (at, pod) in args.target_workload.iter().enumerate() {
            let mut problem = |field: &str, text: &str| {
                problems.push((format!("targetWorkload[{at}].{field}"), text.to_owned()));
            };
            if !(pod.share > 0.0 && pod.share.is_finite()) {
                problem("share", "Invalid value: must be greater than 0");
            }
            if pod.gpu_milli >= WHOLE && !pod.gpu_milli.is_multiple_of(WHOLE) {
                problem(
                    "gpuMilli",
                    "Invalid value: must be below 1000 or a multiple of it",
                );
            }
        }
        if !problems.is_empty() {
            return Err(ArgsError { problems });
        }
        let all: f64 = args.target_workload.iter().map(|pod| pod.share).sum();
        let mut fgd = Self {
            gpus: Vec::new(),
            without_gpus: 0.0,
        };
        for pod in args.target_workload {
            fgd.expect(pod, all);
        }
        for gpus in &mut fgd.gpus {
            gpus.by_cpu.sort_by_key(|(cpu, _)| *cpu);
            let mut sum = 0.0;
            for (_, probability) in &mut gpus.by_cpu {
                sum += *probability;
                *probability = sum;
            }
        }
        Ok(fgd)
    }

    fn expect(&mut self, pod: TypicalPod, all: f64) {
        let probability = pod.share / all;
        if pod.gpu_milli == 0 {
            self.without_gpus += probability;
            return;
        }
        let milli = pod.gpu_milli.min(WHOLE);
        let count = (pod.gpu_milli / WHOLE).max(1) as usize;
        let same = |gpus: &&mut TypicalGpus| {
            gpus.milli == milli && gpus.count == count && gpus.models == pod.models
        };
        let entry = (pod.milli_cpu, probability);
        match self.gpus.iter_mut().find(same) {
            Some(gpus) => gpus.by_cpu.push(entry),
            None => self.gpus.push(TypicalGpus {
                milli,
                count,
                models: pod.models,
                by_cpu: vec![entry],
            }),
        }
    }

    /// The fragmentation of a node in milli.
    pub fn fragmentation(&self, room: &Room<'_>) -> f64 {
        let free = f64::from(room.free_in_all());
        let of_gpus = self.gpus.iter().map(|gpus| gpus.fragmentation(room, free));
        self.without_gpus * free + of_gpus.sum::<f64>()
    }

    fn rate_of(&self, before: f64, after: &Room<'_>) -> i64 {
        let gradient = (before - self.fragmentation(after)) / 1_000.0;
        (100.0 / (1.0 + (-gradient).exp())) as i64
    }

    /// The rate of each GPU for a pod that shares it. GPUs with the same free milli have the same rate.
    fn rates(&self, demand: &Demand, room: &Room<'_>) -> Vec<(usize, i64)> {
        let before = self.fragmentation(room);
        let free = room.free();
        let distinct = |gpu: &usize| !free[..*gpu].contains(&free[*gpu]);
        let gpus = room.fitting(demand).filter(distinct);
        gpus.map(|gpu| (gpu, self.rate_of(before, &room.without(demand, [gpu]))))
            .collect()
    }
}

impl TypicalGpus {
    /// The part of the fragmentation that these typical pods add.
    fn fragmentation(&self, room: &Room<'_>, free: f64) -> f64 {
        let (_, all) = self.by_cpu.last().copied().unwrap_or_default();
        let runs_on = |model: &String| model == room.model;
        let fitting = room.free().iter().filter(|free| **free >= self.milli);
        if (!self.models.is_empty() && !self.models.iter().any(runs_on))
            || fitting.count() < self.count
        {
            return all * free;
        }
        let enough = self
            .by_cpu
            .partition_point(|(cpu, _)| *cpu <= room.milli_cpu);
        let enough_cpu = enough.checked_sub(1).map_or(0.0, |at| self.by_cpu[at].1);
        let small = room.free().iter().filter(|free| **free < self.milli);
        (all - enough_cpu) * free + enough_cpu * f64::from(small.sum::<u32>())
    }
}

impl Policy for Fgd {
    const NAME: &'static str = "GpuFragmentation";

    fn rate(&self, demand: &Demand, room: &Room<'_>) -> i64 {
        if demand.is_shared() {
            let rates = self.rates(demand, room);
            return rates.into_iter().map(|(_, rate)| rate).max().unwrap_or(0);
        }
        let gpus: Vec<usize> = room.fitting(demand).take(demand.count as usize).collect();
        self.rate_of(self.fragmentation(room), &room.without(demand, gpus))
    }

    fn choose(&self, demand: &Demand, room: &Room<'_>, _pod: &Pod) -> Option<usize> {
        let rates = self.rates(demand, room).into_iter();
        // The first of the best.
        rates
            .rev()
            .max_by_key(|(_, rate)| *rate)
            .map(|(gpu, _)| gpu)
    }
}
