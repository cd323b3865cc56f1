//! Shadow mode: Berth decides about each pod after another scheduler has decided about it, and compares both decisions.
//! It writes nothing.
//!
//! The watch shows a decision with a delay, and not always in the order of the decisions: bindings are written in
//! parallel. A different decision is therefore compared again, without the pods that were bound in the last seconds
//! (`CONCURRENT`), and, if the other scheduler found no node, some seconds later (`LOOK_AGAIN`). A difference that
//! remains is a disagreement. The report counts all of these separately.

mod cases;
mod preemptions;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use cases::Cases;
#[cfg(test)]
pub(crate) use report::SHADOW_FAMILIES;
pub use report::ShadowReport;
pub(crate) use report::SharedReport;

use berth_api::{Duration, Object, Pod, Str, Time};
use berth_framework::extender::{ExtenderSpec, Extenders};
use berth_scheduler::{ClusterChange, PodVerdict, Scheduler};
use preemptions::PreemptionComparer;
use report::{Compared, Disagreement};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Bindings of other pods in this time before a binding may have been decided after it.
const CONCURRENT: Duration = Duration::from_secs(2);
/// The number of pods that are left out of a comparison at most.
const CONCURRENT_MAX: usize = 512;
/// The times after which a different decision is compared again. The last time exceeds the longest backoff of a pod.
const LOOK_AGAIN: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
];
/// The number of decisions that may wait for another comparison. Further ones count as disagreements at once.
const OPEN_MAX: usize = 10_000;

/// A decision that differs and is compared again.
struct Open {
    uid: Str,
    since: Time,
    /// The next of [`LOOK_AGAIN`].
    next: usize,
}

/// Compares the decisions of another scheduler with the decisions of a core.
pub(crate) struct Shadow {
    shared: SharedReport,
    cases: Option<Cases>,
    /// The pods that were bound last.
    bound: VecDeque<(Time, Str)>,
    open: VecDeque<Open>,
    preemptions: PreemptionComparer,
    /// The extenders of the other scheduler. They are not called: an extender with state has counted the pod when the
    /// decision becomes visible, and a call could change its state.
    extenders: Extenders,
}

/// The message of a pod's condition PodScheduled if it is unschedulable.
fn unschedulable(pod: &Pod) -> Option<&str> {
    let condition = pod.condition("PodScheduled")?;
    let is = condition.status == "False" && condition.reason == "Unschedulable";
    is.then_some(&*condition.message)
}

/// The part of a message that is about the filters; the rest is about preemption.
fn about_filters(message: &str) -> &str {
    let end = message.find(" preemption:").unwrap_or(message.len());
    message[..end].trim_end()
}

/// Returns whether two messages have the same reasons. In the message of the other scheduler, texts of PostFilter
/// plugins follow the reasons.
fn same_reasons(other: &str, ours: &str) -> bool {
    let ours = about_filters(ours);
    let rest = about_filters(other).strip_prefix(ours);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

impl Shadow {
    pub(crate) fn new(shared: SharedReport, cases: Option<Cases>, extenders: Extenders) -> Self {
        Self {
            shared,
            cases,
            bound: VecDeque::new(),
            open: VecDeque::new(),
            preemptions: PreemptionComparer::default(),
            extenders,
        }
    }

    /// Returns whether extenders that do this take part in decisions about the pod.
    fn is_extended(&self, pod: &Pod, does: impl Fn(&ExtenderSpec) -> bool) -> bool {
        self.extenders.next(0, pod, does).is_some()
    }

    /// Waits until every case is written.
    pub(crate) fn end(self) {
        if let Some(cases) = self.cases {
            cases.wait();
        }
    }

    /// The time of the next repeated comparison.
    pub(crate) fn next_look(&self) -> Option<Time> {
        let times = self.open.iter().filter_map(|open| {
            let after = LOOK_AGAIN.get(open.next)?;
            Some(open.since + *after)
        });
        times.chain(self.preemptions.next_look()).min()
    }

    /// Compares the visible decisions of the other scheduler in a change, before the core receives it.
    pub(crate) fn before(&mut self, scheduler: &mut Scheduler, change: &ClusterChange, now: Time) {
        self.preemptions.note_victim(scheduler, change, now);
        let ClusterChange::Applied(Object::Pod(new)) = change else {
            return;
        };
        if scheduler.profiles().get(&new.spec.scheduler_name).is_none() {
            return;
        }
        // A pod that is bound when it is first seen was decided before this process started.
        let Some(old) = scheduler.cache().stored(new.uid()).cloned() else {
            if new.is_assigned() {
                self.shared.update(|report| report.unseen += 1);
            }
            return;
        };
        if old.is_assigned() {
            return;
        }
        if new.is_assigned() {
            self.other_bound(scheduler, &old, new, now);
            self.bound.push_back((now, new.uid().clone()));
            // The list is bounded; the oldest binding is the least likely to matter.
            if self.bound.len() > CONCURRENT_MAX {
                self.bound.pop_front();
            }
            return;
        }
        let nominated = &new.status.nominated_node_name;
        if !nominated.is_empty() && *nominated != old.status.nominated_node_name {
            if self.is_extended(new, |spec| spec.preempts) {
                self.shared.update(|report| report.preemptions.skipped += 1)
            } else {
                self.preemptions
                    .nominated(&self.shared, scheduler, new, now)
            }
        }
        if let Some(message) = unschedulable(new)
            && unschedulable(&old) != Some(message)
        {
            self.other_found_none(scheduler, new, message, now);
        }
    }

    /// Compares differing decisions again.
    pub(crate) fn look_again(&mut self, scheduler: &mut Scheduler, now: Time) {
        self.preemptions.look(&self.shared, now);
        for _ in 0..self.open.len() {
            let Some(mut open) = self.open.pop_front() else {
                return;
            };
            let Some(after) = LOOK_AGAIN.get(open.next) else {
                continue;
            };
            if now < open.since + *after {
                self.open.push_back(open);
                continue;
            }
            let pod = scheduler.cache().stored(&open.uid).cloned();
            let waiting = pod.filter(|pod| !pod.is_assigned() && !pod.is_terminating());
            let message = waiting.as_ref().and_then(|pod| unschedulable(pod));
            let (Some(pod), Some(message)) = (&waiting, message) else {
                // It was bound, deleted or gated in the meantime: the other scheduler has decided again.
                self.shared.update(|report| report.resolved_later());
                continue;
            };
            let Some(verdict) = judged(&self.shared, scheduler, pod, &[]) else {
                continue;
            };
            let compared = compare_unschedulable(message, &verdict);
            if compared == Compared::SameReasons {
                self.shared.update(|report| report.resolved_later());
                continue;
            }
            open.next += 1;
            if open.next < LOOK_AGAIN.len() {
                self.open.push_back(open);
                continue;
            }
            self.shared
                .update(|report| report.open = report.open.saturating_sub(1));
            let disagreement = unschedulable_elsewhere(pod, message, &verdict, now);
            self.settle(scheduler, pod, compared, disagreement, now);
        }
    }

    fn other_bound(&mut self, scheduler: &mut Scheduler, old: &Arc<Pod>, new: &Pod, now: Time) {
        let node = &new.spec.node_name;
        let created = new.metadata.creation_timestamp;
        let Some(verdict) = judged(&self.shared, scheduler, old, &[]) else {
            return;
        };
        self.shared.update(|report| {
            report.bound += 1;
            if let Some(created) = created {
                report
                    .bound_seconds
                    .observe(now.since(created).as_secs_f64());
            }
        });
        // An open comparison of the pod ends here: it has a node now.
        let before = self.open.len();
        self.open.retain(|open| open.uid != *new.uid());
        if self.open.len() < before {
            self.shared.update(|report| report.resolved_later());
        }
        if let (Some(rank), Some(deficit)) = (verdict.rank(node), verdict.deficit(node)) {
            let is_ranked = !self.is_extended(new, |spec| spec.prioritizes);
            self.shared.update(|report| {
                if is_ranked {
                    report.same_node(rank, deficit)
                } else {
                    report.feasible += 1
                }
            });
            return;
        }
        let concurrent: Vec<Str> = self
            .bound
            .iter()
            .filter(|(at, _)| now.since(*at) <= CONCURRENT)
            .map(|(_, uid)| uid.clone())
            .collect();
        let again = if concurrent.is_empty() {
            None
        } else {
            judged(&self.shared, scheduler, old, &concurrent)
        };
        if again.is_some_and(|again| again.rank(node).is_some()) {
            self.shared.update(|report| report.reordered += 1);
            return;
        }
        let disagreement = Disagreement {
            at: now.rfc3339(),
            pod: new.key(),
            other: format!("bound to {node}"),
            berth: summary(&verdict),
            case: None,
        };
        let compared = if verdict.feasible.is_empty() {
            Compared::OnlyOtherFinds
        } else {
            Compared::NodeInfeasible
        };
        self.settle(scheduler, new, compared, disagreement, now);
    }

    fn other_found_none(
        &mut self,
        scheduler: &mut Scheduler,
        pod: &Arc<Pod>,
        message: &str,
        now: Time,
    ) {
        let Some(verdict) = judged(&self.shared, scheduler, pod, &[]) else {
            return;
        };
        let compared = compare_unschedulable(message, &verdict);
        // Extenders may have rejected the nodes that the plugins leave.
        if compared == Compared::OnlyBerthFinds && self.is_extended(pod, |spec| spec.filters) {
            self.shared.update(|report| report.extended += 1);
            return;
        }
        let is_open = self.open.iter().any(|open| open.uid == *pod.uid());
        let is_full = self.open.len() >= OPEN_MAX;
        self.shared.update(|report| {
            report.unschedulable += 1;
            match compared {
                Compared::SameReasons if is_open => report.resolved_later(),
                Compared::SameReasons => report.same_reasons += 1,
                _ if is_open || is_full => {}
                _ => report.open += 1,
            }
        });
        if compared == Compared::SameReasons {
            self.open.retain(|open| open.uid != *pod.uid());
            return;
        }
        if is_open {
            return;
        }
        if !is_full {
            self.open.push_back(Open {
                uid: pod.uid().clone(),
                since: now,
                next: 0,
            });
            return;
        }
        let disagreement = unschedulable_elsewhere(pod, message, &verdict, now);
        self.settle(scheduler, pod, compared, disagreement, now);
    }

    /// Notes a disagreement for good, with its case if cases are kept.
    fn settle(
        &mut self,
        scheduler: &Scheduler,
        pod: &Pod,
        compared: Compared,
        mut disagreement: Disagreement,
        now: Time,
    ) {
        if let Some(cases) = &mut self.cases {
            disagreement.case = cases.save(scheduler, pod, &disagreement, now);
        }
        tracing::warn!(
            pod = disagreement.pod,
            other = disagreement.other,
            berth = disagreement.berth,
            "the other scheduler and Berth disagree"
        );
        self.shared
            .update(|report| report.disagreed(compared, disagreement));
    }
}

fn compare_unschedulable(message: &str, verdict: &PodVerdict) -> Compared {
    if !verdict.feasible.is_empty() {
        Compared::OnlyBerthFinds
    } else if same_reasons(message, &verdict.message) {
        Compared::SameReasons
    } else {
        Compared::OtherReasons
    }
}

/// A disagreement about a pod that the other scheduler reported as unschedulable with `message`.
fn unschedulable_elsewhere(
    pod: &Pod,
    message: &str,
    verdict: &PodVerdict,
    now: Time,
) -> Disagreement {
    Disagreement {
        at: now.rfc3339(),
        pod: pod.key(),
        other: format!("unschedulable: {message}"),
        berth: summary(verdict),
        case: None,
    }
}

/// Berth's decision in a line.
fn summary(verdict: &PodVerdict) -> String {
    match verdict.feasible.first() {
        Some((node, _)) => format!("{} feasible nodes, such as {node}", verdict.feasible.len()),
        None => format!("unschedulable: {}", verdict.message),
    }
}

/// The parts that shadow mode does not compare because it does not call extenders: one line for each extender.
pub(crate) fn left_out(extenders: &Extenders) -> Vec<String> {
    let specs = (0..).map_while(|at| extenders.get(at));
    let lines = specs.map(|extender| {
        let spec = extender.spec();
        let parts = [
            (spec.filters, "the nodes that it rejects"),
            (spec.prioritizes, "its scores"),
            (spec.preempts, "preemptions in which it takes part"),
        ];
        let parts: Vec<&str> = parts
            .iter()
            .filter_map(|(does, what)| does.then_some(*what))
            .collect();
        let parts = if parts.is_empty() {
            "nothing".to_owned()
        } else {
            parts.join(", ")
        };
        format!(
            "shadow mode sends no requests to extender {}, because its verbs may write; left out of comparisons: {parts}",
            spec.name
        )
    });
    lines.collect()
}

/// The decision of the core, timed.
fn judged(
    shared: &SharedReport,
    scheduler: &mut Scheduler,
    pod: &Arc<Pod>,
    without: &[Str],
) -> Option<PodVerdict> {
    let began = Instant::now();
    let verdict = scheduler.judge(pod, without)?;
    let seconds = began.elapsed().as_secs_f64();
    shared.update(|report| report.evaluation_seconds.observe(seconds));
    Some(verdict)
}
