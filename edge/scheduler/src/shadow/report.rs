//! The agreement: counts, distributions and the last disagreements, as JSON, text and metrics.

use berth_scheduler::families;
use berth_scheduler::metrics::{MetricKind, MetricsOf, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of disagreements that are kept; the oldest is forgotten first. All are counted.
const DISAGREEMENTS_MAX: usize = 200;
/// The upper bounds of the ranks that are counted.
const RANKS: [(&str, usize); 4] = [
    ("1", 1),
    ("2 to 5", 5),
    ("6 to 20", 20),
    ("over 20", usize::MAX),
];

use MetricKind::{Counter, Gauge};

families! {
    ShadowMetric:
    Decisions: Alpha Counter, "berth_shadow_decisions_total" ["decision", "result"]
        "Number of compared decisions of the other scheduler in shadow mode, by decision (bound, unschedulable, preemption) and result (agreed, agreed_reordered, agreed_later, other_reasons, node_infeasible, only_other_finds, only_berth_finds; for preemptions also agreed_other_node, other_victims).";
    Open: Alpha Gauge, "berth_shadow_open_comparisons" []
        "Number of differing decisions in shadow mode that are compared again within 15 seconds.";
    Ranks: Alpha Counter, "berth_shadow_node_ranks_total" ["rank"]
        "Number of bindings of the other scheduler in shadow mode, by the rank of its node among Berth's scores.";
}

/// The metrics of shadow mode.
#[cfg(test)]
pub(crate) const SHADOW_FAMILIES: &[berth_scheduler::metrics::Family] =
    <ShadowMetric as berth_scheduler::metrics::Families>::FAMILIES;

/// The comparison of a decision of the other scheduler with Berth's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Neither finds a node, for the same reasons.
    SameReasons,
    /// Neither finds a node, for other reasons.
    OtherReasons,
    /// Both find nodes, and the other scheduler's node is not feasible for Berth.
    NodeInfeasible,
    /// Only the other scheduler finds a node.
    OnlyOtherFinds,
    /// Only Berth finds a node.
    OnlyBerthFinds,
}

/// The comparison of a preemption of the other scheduler with Berth's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preempting {
    /// The same node and victims.
    SameNode,
    /// Berth would evict the same victims on that node, and chooses another node.
    OtherNode,
    /// Berth would evict other victims on that node.
    OtherVictims,
    /// Berth finds no preemption on that node.
    NotHere,
    /// The pod has become schedulable there, or no victim is visible.
    Superseded,
}

/// The preemptions that were compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ComparedPreemptions {
    /// The same node and victims.
    pub(crate) same_node: u64,
    /// The same victims on the node of the other scheduler; Berth chooses another node.
    pub(crate) other_node: u64,
    /// Other victims on the node of the other scheduler.
    pub(crate) other_victims: u64,
    /// No preemption on the node of the other scheduler.
    pub(crate) node_infeasible: u64,
    /// Not compared: the pod fitted by then, or no victim was visible.
    pub(crate) superseded: u64,
    /// Not compared: too many preemptions at once.
    pub(crate) skipped: u64,
}

/// A disagreement of the schedulers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disagreement {
    /// The time.
    pub(crate) at: String,
    /// `namespace/name`.
    pub(crate) pod: String,
    /// The decision of the other scheduler.
    pub(crate) other: String,
    /// The decision of Berth.
    pub(crate) berth: String,
    /// The file of its case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) case: Option<String>,
}

/// A distribution of durations: counts of powers of two of 10 µs, and the maximum.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Distribution {
    count: u64,
    sum: f64,
    max: f64,
    buckets: Vec<u64>,
}

/// The upper bound of the first bucket, in seconds.
const FIRST_BUCKET: f64 = 1e-5;
const BUCKETS: usize = 40;

impl Distribution {
    pub(crate) fn observe(&mut self, seconds: f64) {
        self.buckets.resize(BUCKETS, 0);
        let at = (seconds / FIRST_BUCKET).log2().ceil().max(0.0) as usize;
        self.buckets[at.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum += seconds;
        self.max = self.max.max(seconds);
    }

    /// An upper bound of a quantile, in seconds; at most twice the quantile.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        let wanted = (self.count as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return (FIRST_BUCKET * 2f64.powi(at as i32)).min(self.max);
            }
        }
        0.0
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |quantile| self.quantile(quantile) * 1e3;
        write!(
            f,
            "p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            millis(0.5),
            millis(0.9),
            millis(0.99),
            self.max * 1e3
        )
    }
}

/// The agreement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowReport {
    /// The start of the comparison.
    pub(crate) since: String,
    /// Pods that the other scheduler bound, with a decision of Berth at that moment.
    pub(crate) bound: u64,
    /// Reports of the other scheduler that it found no node.
    pub(crate) unschedulable: u64,
    /// Pods that were bound when the watch first showed them: not compared.
    pub(crate) unseen: u64,
    /// Unschedulable pods for which Berth's plugins find a node and which extenders may have rejected: not compared.
    #[serde(default)]
    pub(crate) extended: u64,
    /// Bindings to nodes that are feasible for Berth.
    pub(crate) feasible: u64,
    /// Nodes that are feasible without the pods that were bound in the last two seconds.
    pub(crate) reordered: u64,
    /// Neither found a node, for the same reasons.
    pub(crate) same_reasons: u64,
    /// Decisions that differed and were the same, or were superseded, within 15 seconds.
    pub(crate) later: u64,
    /// Decisions that are compared again.
    pub(crate) open: u64,
    /// Neither found a node, for other reasons.
    pub(crate) other_reasons: u64,
    /// Both found nodes, and the other scheduler's was not feasible for Berth.
    pub(crate) node_infeasible: u64,
    /// Only the other scheduler found a node.
    pub(crate) only_other_finds: u64,
    /// Only Berth found a node.
    pub(crate) only_berth_finds: u64,
    /// Bindings by the rank of their node.
    pub(crate) ranks: [u64; 4],
    /// The sum of the differences to the best score.
    pub(crate) deficit_sum: i64,
    /// Preemptions of the other scheduler.
    #[serde(default)]
    pub(crate) preemptions: ComparedPreemptions,
    /// The time that Berth took for a decision with every score.
    pub(crate) evaluation_seconds: Distribution,
    /// The time from the creation of a pod until the watch showed its binding.
    pub(crate) bound_seconds: Distribution,
    /// The last disagreements.
    pub(crate) disagreements: VecDeque<Disagreement>,
}

impl ShadowReport {
    pub(crate) fn same_node(&mut self, rank: usize, deficit: i64) {
        self.feasible += 1;
        self.deficit_sum = self.deficit_sum.saturating_add(deficit);
        let at = RANKS.iter().position(|(_, max)| rank <= *max);
        self.ranks[at.unwrap_or(RANKS.len() - 1)] += 1;
    }

    pub(crate) fn resolved_later(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.later += 1;
    }

    pub(crate) fn disagreed(&mut self, compared: Compared, disagreement: Disagreement) {
        let count = match compared {
            Compared::SameReasons => &mut self.same_reasons,
            Compared::OtherReasons => &mut self.other_reasons,
            Compared::NodeInfeasible => &mut self.node_infeasible,
            Compared::OnlyOtherFinds => &mut self.only_other_finds,
            Compared::OnlyBerthFinds => &mut self.only_berth_finds,
        };
        *count += 1;
        self.keep(disagreement);
    }

    pub(crate) fn preempted(&mut self, compared: Preempting, disagreement: Option<Disagreement>) {
        let counts = &mut self.preemptions;
        let count = match compared {
            Preempting::SameNode => &mut counts.same_node,
            Preempting::OtherNode => &mut counts.other_node,
            Preempting::OtherVictims => &mut counts.other_victims,
            Preempting::NotHere => &mut counts.node_infeasible,
            Preempting::Superseded => &mut counts.superseded,
        };
        *count += 1;
        if let Some(disagreement) = disagreement {
            self.keep(disagreement);
        }
    }

    fn keep(&mut self, disagreement: Disagreement) {
        if self.disagreements.len() >= DISAGREEMENTS_MAX {
            self.disagreements.pop_front();
        }
        self.disagreements.push_back(disagreement);
    }

    /// The number of decisions with another verdict about feasibility.
    pub fn other_verdicts(&self) -> u64 {
        self.node_infeasible + self.only_other_finds + self.only_berth_finds
    }

    /// The share of compared decisions with the same verdict about feasibility, in percent.
    pub fn agreement(&self) -> Option<f64> {
        let compared = self.bound + self.unschedulable - self.open.min(self.unschedulable);
        let differ = self.other_verdicts() as f64;
        (compared > 0).then(|| 100.0 * (1.0 - differ / compared as f64))
    }

    fn snapshot(&self) -> Snapshot {
        let mut metrics = MetricsOf::<ShadowMetric>::default();
        for (decision, result, count) in [
            ("bound", "agreed", self.feasible),
            ("bound", "agreed_reordered", self.reordered),
            ("bound", "node_infeasible", self.node_infeasible),
            ("bound", "only_other_finds", self.only_other_finds),
            ("unschedulable", "agreed", self.same_reasons),
            ("unschedulable", "agreed_later", self.later),
            ("unschedulable", "other_reasons", self.other_reasons),
            ("unschedulable", "only_berth_finds", self.only_berth_finds),
            ("preemption", "agreed", self.preemptions.same_node),
            (
                "preemption",
                "agreed_other_node",
                self.preemptions.other_node,
            ),
            (
                "preemption",
                "other_victims",
                self.preemptions.other_victims,
            ),
            (
                "preemption",
                "node_infeasible",
                self.preemptions.node_infeasible,
            ),
        ] {
            metrics.set(ShadowMetric::Decisions, &[decision, result], count as f64);
        }
        metrics.set(ShadowMetric::Open, &[], self.open as f64);
        // The last rank counts all worse ones.
        for ((rank, _), count) in RANKS.iter().zip(self.ranks) {
            metrics.set(ShadowMetric::Ranks, &[rank], count as f64);
        }
        metrics.snapshot()
    }
}

/// As `berth shadow report` prints it.
impl fmt::Display for ShadowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "since                 {}", self.since)?;
        match self.agreement() {
            Some(percent) => writeln!(
                f,
                "feasibility           {percent:.2} % of {} decisions agree",
                self.bound + self.unschedulable - self.open.min(self.unschedulable)
            )?,
            None => writeln!(f, "feasibility           no decision was compared yet")?,
        }
        writeln!(
            f,
            "bound                 {}: {} on a feasible node, {} on one that was feasible before concurrent bindings",
            self.bound, self.feasible, self.reordered
        )?;
        let ranks = RANKS.iter().zip(self.ranks);
        let ranks: Vec<String> = ranks
            .map(|((rank, _), count)| format!("{rank}: {count}"))
            .collect();
        writeln!(f, "rank of the node      {}", ranks.join(", "))?;
        if self.feasible > 0 {
            let mean = self.deficit_sum as f64 / self.feasible as f64;
            writeln!(f, "below the best score  {mean:.2} on average")?;
        }
        writeln!(
            f,
            "unschedulable         {}: {} for the same reasons, {} the same or superseded within 15 s, {} for other \
             reasons, {} still compared",
            self.unschedulable, self.same_reasons, self.later, self.other_reasons, self.open
        )?;
        writeln!(
            f,
            "disagreements         {} nodes infeasible for Berth, {} pods only the other scheduler finds a node for, {} \
             only Berth",
            self.node_infeasible, self.only_other_finds, self.only_berth_finds
        )?;
        let ComparedPreemptions {
            same_node,
            other_node,
            other_victims,
            node_infeasible,
            superseded,
            skipped,
        } = self.preemptions;
        let compared = same_node + other_node + other_victims + node_infeasible;
        writeln!(
            f,
            "preemptions           {compared}: {same_node} with the same node and victims, {other_node} with the same victims \
             where Berth chooses another node, {other_victims} with other victims, {node_infeasible} where Berth finds none; \
             {} not compared",
            superseded + skipped
        )?;
        writeln!(f, "Berth's evaluation    {}", self.evaluation_seconds)?;
        writeln!(f, "creation to binding   {}", self.bound_seconds)?;
        if self.unseen > 0 {
            writeln!(
                f,
                "not compared          {} pods were bound when first seen",
                self.unseen
            )?;
        }
        if self.extended > 0 {
            writeln!(
                f,
                "not compared          {} reports that no node was found, which extenders may have caused",
                self.extended
            )?;
        }
        for one in &self.disagreements {
            writeln!(f, "\n{} {}", one.at, one.pod)?;
            writeln!(f, "  other  {}", one.other)?;
            writeln!(f, "  Berth  {}", one.berth)?;
            if let Some(case) = &one.case {
                writeln!(f, "  case   {case}")?;
            }
        }
        Ok(())
    }
}

/// The report, shared between the core's thread, which updates it, and the HTTPS port.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedReport(Arc<Mutex<ShadowReport>>);

impl SharedReport {
    /// An empty report that begins then.
    pub(crate) fn since(time: berth_api::Time) -> Self {
        Self(Arc::new(Mutex::new(ShadowReport {
            since: time.rfc3339(),
            ..ShadowReport::default()
        })))
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut ShadowReport)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The report as it is now.
    pub(crate) fn get(&self) -> ShadowReport {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The metrics.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.get().snapshot()
    }
}
