//! The search for a node with extenders (C-14, C-16, F-39, F-41).
//!
//! The plugins filter first, then each extender in turn is called with the remaining nodes; then the plugins score, and
//! all extenders that score are called at once. The cycle is parked until an extender answers. Events are still applied
//! during that time, so if the nodes have changed when the cycle continues, it filters the remaining nodes again, and
//! if none is left, the nodes that the plugins rejected. No extender is called again for a node that an extender has
//! rejected.

use super::{
    Attempt, Cycle, CycleStep, CycleWaits, Parked, ParkedAt, StageEnd, drops_deleting,
    percentage_of_nodes,
};
use crate::core::{Core, Framework, Settings, Waiter};
use crate::extenders::{Totals, add_scores, narrow};
use berth_api::Str;
use berth_evaluator::{Diagnosis, Found, Placement, PreFiltered, choose, insert_sorted, unfit};
use berth_framework::extender::{EXTENDER, Extender, ExtenderSpec, Extenders};
use berth_framework::job::{self, Job};
use berth_framework::stage::{Wait, WaitOn, WakeReason};
use berth_framework::{NodeTable, Slot, Status};
use berth_queue::Nominator;
use berth_telemetry::{Log, LogLine};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// The number of times that the plugins filter all nodes in one search.
const ROUNDS_MAX: usize = 4;

/// A search with extenders.
pub(super) struct ExtendedSearch {
    diagnosis: Diagnosis,
    /// The number of times that the plugins have filtered all nodes.
    rounds: usize,
    rejected: Rejected,
    /// The nodes that are left.
    slots: Vec<Slot>,
    /// Their names, while an answer about them is pending.
    names: Arc<[Str]>,
    /// The number of nodes that the plugins evaluated.
    visited: usize,
    excluded: Vec<Status>,
    /// While the nominated node is tried: the nodes that PreFilter keeps, in case the nominated node is rejected
    /// (C-16).
    nominated: Option<PreFiltered>,
    stage: SearchStage,
    /// The end of the table's log of changes at the last filtering of all nodes, and when the cycle was parked.
    searched: u64,
    seen: u64,
}

/// The nodes that extenders rejected.
#[derive(Default)]
struct Rejected {
    /// Nodes rejected by an extender that was called for all nodes.
    nodes: FxHashSet<Str>,
    /// The statuses by extenders for nodes.
    statuses: Vec<(Str, Status)>,
    /// Whether an extender has rejected any.
    any: bool,
}

enum SearchStage {
    /// The extender at this index is called to filter the remaining nodes.
    Filter(usize),
    /// The extenders at these indices are called to score.
    Prioritize { totals: Totals, asked: Vec<usize> },
}

/// The next step of a search.
enum NextRound {
    /// It is over.
    Found(Found),
    /// Answers are awaited.
    Wait(Box<ExtendedSearch>, CycleWaits),
}

impl ExtendedSearch {
    fn new(diagnosis: Diagnosis) -> Self {
        Self {
            diagnosis,
            rounds: 0,
            rejected: Rejected::default(),
            slots: Vec::new(),
            names: Arc::default(),
            visited: 0,
            excluded: Vec::new(),
            nominated: None,
            stage: SearchStage::Filter(0),
            searched: 0,
            seen: 0,
        }
    }

    /// The number of extenders that are scoring now.
    pub(super) fn prioritizing(&self) -> usize {
        match &self.stage {
            SearchStage::Filter(_) => 0,
            SearchStage::Prioritize { asked, .. } => asked.len(),
        }
    }
}

/// Returns whether extenders take part in the search for a node for the pod. Without scoring plugins they always do,
/// because then one feasible node is not as good as any other (C-20).
pub(super) fn takes_part(extenders: &Extenders, attempt: &Attempt) -> bool {
    if extenders.is_empty() {
        return false;
    }
    let does = |spec: &ExtenderSpec| spec.filters || spec.prioritizes;
    let pod = &attempt.pod.pod;
    extenders.next(0, pod, does).is_some() || attempt.profile.score.is_empty()
}

impl Cycle {
    /// Finds a node with the extenders.
    pub(super) fn search_extended(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
    ) -> StageEnd {
        let next = self.begin_search(framework, nominator, attempt);
        self.search_on(framework, nominator, attempt, next)
    }

    fn search_on(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        next: NextRound,
    ) -> StageEnd {
        match next {
            NextRound::Found(found) => {
                let begin = self.search_begin(&framework.settings, attempt, true);
                self.conclude(framework, nominator, attempt, found, begin)
            }
            NextRound::Wait(mut search, waits) => {
                search.seen = framework.cache.cluster().nodes.log().end();
                StageEnd::Waits(ParkedAt::Search(search), waits)
            }
        }
    }

    fn begin_search(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
    ) -> NextRound {
        let mut evaluator = framework.evaluator(nominator, attempt);
        let (possible, mut diagnosis) = match evaluator.possible() {
            Ok(possible) => possible,
            Err(found) => return NextRound::Found(found),
        };
        let nominated = evaluator.nominated_node(&mut diagnosis);
        let mut search = Box::new(ExtendedSearch::new(diagnosis));
        let Some(node) = nominated else {
            return self.search_all(framework, nominator, attempt, search, possible);
        };
        search.slots = vec![node];
        search.visited = 1;
        search.nominated = Some(possible);
        self.ask_next_filter(framework, nominator, attempt, search)
    }

    /// The plugins filter all nodes.
    fn search_all(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        mut search: Box<ExtendedSearch>,
        possible: PreFiltered,
    ) -> NextRound {
        let percentage = percentage_of_nodes(&framework.settings, attempt);
        // C-20: without a component that scores nodes, any feasible node is as good as another.
        let is_distinguished = !attempt.profile.score.is_empty()
            || framework
                .settings
                .extenders
                .any(|spec| spec.filters || spec.prioritizes);
        let feasible = framework.evaluator(nominator, attempt).feasible(
            possible,
            percentage,
            is_distinguished,
            &mut self.start_node,
            &mut search.diagnosis,
        );
        let (mut slots, visited, excluded) = match feasible {
            Err(status) => return NextRound::Found(Found::Failed(status)),
            Ok(found) => found,
        };
        let nodes = &framework.cache.cluster().nodes;
        search.searched = nodes.log().end();
        slots.retain(|slot| {
            let view = nodes.get(*slot);
            view.is_some_and(|view| !search.rejected.nodes.contains(view.name()))
        });
        search.slots = slots;
        search.visited = visited;
        search.excluded = excluded;
        search.stage = SearchStage::Filter(0);
        search.rounds += 1;
        self.ask_next_filter(framework, nominator, attempt, search)
    }

    /// No node is left. Nodes that have changed since the plugins filtered them are filtered again, so that no pod is
    /// evicted if a node has become feasible.
    fn search_again(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        mut search: Box<ExtendedSearch>,
    ) -> NextRound {
        let nodes = &framework.cache.cluster().nodes;
        if nodes.log().end() == search.searched {
            for (name, status) in std::mem::take(&mut search.rejected.statuses) {
                if let Some(node) = nodes.slot(&name) {
                    search.diagnosis.statuses.insert(node, status);
                }
            }
            if search.rejected.any {
                let plugins = &mut search.diagnosis.unschedulable_plugins;
                insert_sorted(plugins, &Str::new(EXTENDER));
            }
            return NextRound::Found(unfit(nodes.len(), search.diagnosis));
        }
        if search.rounds >= ROUNDS_MAX {
            // This is not a rejection of the pod, which is retried soon.
            let status = Status::error("the nodes keep changing while extenders are asked");
            return NextRound::Found(Found::Failed(status));
        }
        attempt.evaluation.begin_anew();
        match framework.evaluator(nominator, attempt).possible() {
            Ok((possible, diagnosis)) => {
                search.diagnosis = diagnosis;
                self.search_all(framework, nominator, attempt, search, possible)
            }
            Err(found) => NextRound::Found(found),
        }
    }

    /// Calls the next filtering extender for the remaining nodes.
    fn ask_next_filter(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        mut search: Box<ExtendedSearch>,
    ) -> NextRound {
        let from = match search.stage {
            SearchStage::Filter(from) if !search.slots.is_empty() => from,
            _ => return self.filtered(framework, nominator, attempt, search),
        };
        let pod = attempt.pod.pod.clone();
        let extenders = framework.settings.extenders.clone();
        let Some((at, extender)) = extenders.next(from, &pod, |spec| spec.filters) else {
            return self.filtered(framework, nominator, attempt, search);
        };
        search.names = names(&framework.cache.cluster().nodes, &search.slots);
        search.stage = SearchStage::Filter(at);
        let answer = job::of(extender.filter(&pod, &search.names));
        let wait = ask(framework, extender, answer);
        NextRound::Wait(search, CycleWaits::from(wait))
    }

    /// All extenders have filtered, or no node is left.
    fn filtered(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        mut search: Box<ExtendedSearch>,
    ) -> NextRound {
        let nominated = search.nominated.take();
        match (search.slots.len(), nominated) {
            (0, Some(possible)) => {
                // The rejections count when all extenders have answered.
                search.rejected.any = false;
                self.search_all(framework, nominator, attempt, search, possible)
            }
            (0, None) => self.search_again(framework, nominator, attempt, search),
            (1, _) => {
                let only = search.slots.first().copied();
                chosen(&framework.cache.cluster().nodes, search, only)
            }
            _ => self.ask_prioritizers(framework, nominator, attempt, search),
        }
    }

    /// The plugins score; then all scoring extenders are called at once.
    fn ask_prioritizers(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        mut search: Box<ExtendedSearch>,
    ) -> NextRound {
        let scores: Vec<(Slot, i64)> = if attempt.profile.score.is_empty() {
            search.slots.iter().map(|slot| (*slot, 0)).collect()
        } else {
            match framework.evaluator(nominator, attempt).score(&search.slots) {
                Ok(scores) => scores.nodes,
                Err(status) => return NextRound::Found(Found::Failed(status)),
            }
        };
        search.names = names(&framework.cache.cluster().nodes, &search.slots);
        let pod = attempt.pod.pod.clone();
        let extenders = framework.settings.extenders.clone();
        let mut asked = Vec::new();
        let mut waits: Option<CycleWaits> = None;
        let mut from = 0;
        while let Some((at, extender)) = extenders.next(from, &pod, |spec| spec.prioritizes) {
            from = at + 1;
            asked.push(at);
            let answer = job::of(extender.prioritize(&pod, &search.names));
            let wait = (Waiter::Prioritizer(at), ask(framework, extender, answer));
            match &mut waits {
                Some(waits) => waits.others.push(wait),
                None => {
                    waits = Some(CycleWaits {
                        first: wait,
                        others: Vec::new(),
                    });
                }
            }
        }
        // No extender scores, so the choice is made at once.
        let Some(waits) = waits else {
            let best = choose(&scores, &mut self.rng);
            return chosen(&framework.cache.cluster().nodes, search, best);
        };
        let scores = scores.iter().map(|(_, score)| *score);
        let totals = search.names.iter().cloned().zip(scores).collect();
        search.stage = SearchStage::Prioritize { totals, asked };
        NextRound::Wait(search, waits)
    }

    /// A filtering extender has answered or failed.
    pub(super) fn resume_search(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        mut search: Box<ExtendedSearch>,
        wake: WakeReason,
    ) -> StageEnd {
        if drops_deleting(framework, attempt) {
            return StageEnd::Dropped(None);
        }
        let (settings, log) = (&framework.settings, &mut framework.outbound.log);
        let next = match take_filtered(settings, log, attempt, &mut search, wake) {
            Ok(()) => self.resumed(framework, nominator, attempt, search),
            Err(status) => NextRound::Found(Found::Failed(status)),
        };
        self.search_on(framework, nominator, attempt, next)
    }

    /// A scoring extender has answered or failed; failures are ignored. The cycle continues after the last answer.
    pub(crate) fn resume_prioritizer(
        &mut self,
        core: &mut Core,
        at: usize,
        reason: WakeReason,
    ) -> Option<CycleStep> {
        let Core {
            framework, queue, ..
        } = &mut *core;
        let extender = framework.settings.extenders.get(at).cloned()?;
        let Parked {
            attempt,
            at: ParkedAt::Search(search),
            ..
        } = &mut **self.parked.as_mut()?
        else {
            return None;
        };
        let SearchStage::Prioritize { totals, asked } = &mut search.stage else {
            return None;
        };
        // Each extender answers once or misses its deadline, so the last one resumes the cycle.
        asked.retain(|other| *other != at);
        let spec = extender.spec();
        match spec.answer(reason.into_value()) {
            Ok(given) => add_scores(totals, spec, given),
            Err(error) => {
                let pod = &attempt.pod.pod;
                framework.outbound.log.v(
                    5,
                    "Failed to run extender's priority function. No score given by this extender.",
                    |line| {
                        let line = line.with("err", error.to_string()).with("pod", &**pod);
                        line.with("extender", &*spec.name)
                    },
                );
            }
        }
        if !asked.is_empty() {
            return None;
        }
        let Parked {
            mut attempt, at, ..
        } = *self.parked.take()?;
        let ParkedAt::Search(search) = at else {
            return None;
        };
        let end = if drops_deleting(framework, &mut attempt) {
            StageEnd::Dropped(None)
        } else {
            let nominator = queue.nominator();
            let next = self.resumed(framework, nominator, &mut attempt, search);
            self.search_on(framework, nominator, &mut attempt, next)
        };
        Some(self.apply(core, attempt, end))
    }

    /// Continues with the remaining nodes.
    fn resumed(
        &mut self,
        framework: &mut Framework,
        nominator: &Nominator,
        attempt: &mut Attempt,
        mut search: Box<ExtendedSearch>,
    ) -> NextRound {
        if let Err(found) = look_again(framework, nominator, attempt, &mut search) {
            return NextRound::Found(found);
        }
        if search.slots.is_empty() {
            return self.filtered(framework, nominator, attempt, search);
        }
        let SearchStage::Prioritize { totals, .. } = &search.stage else {
            return self.ask_next_filter(framework, nominator, attempt, search);
        };
        let nodes = &framework.cache.cluster().nodes;
        let left = search.slots.iter().filter_map(|slot| {
            let name = nodes.get(*slot)?.name();
            Some((*slot, *totals.get(name)?))
        });
        let left: Vec<(Slot, i64)> = left.collect();
        let best = choose(&left, &mut self.rng);
        chosen(&framework.cache.cluster().nodes, search, best)
    }

    /// The number of extenders that are scoring now.
    pub(crate) fn prioritizing_extenders(&self) -> usize {
        match self.parked.as_ref().map(|parked| &parked.at) {
            Some(ParkedAt::Search(search)) => search.prioritizing(),
            _ => 0,
        }
    }
}

/// The search is over.
fn chosen(nodes: &NodeTable, search: Box<ExtendedSearch>, node: Option<Slot>) -> NextRound {
    let search = *search;
    NextRound::Found(match node.and_then(|slot| nodes.get(slot)) {
        Some(view) => Found::Placed(Placement {
            node: view.slot(),
            name: view.name().clone(),
            evaluated: search.visited,
            feasible: search.slots.len(),
            scores: None,
            excluded: search.excluded,
        }),
        None => unfit(nodes.len(), search.diagnosis),
    })
}

fn names(nodes: &NodeTable, slots: &[Slot]) -> Arc<[Str]> {
    let views = slots.iter().filter_map(|slot| nodes.get(*slot));
    views.map(|view| view.name().clone()).collect()
}

/// Passes a call to the edge as a job. Returns the wait for its answer.
fn ask(framework: &mut Framework, extender: &Arc<dyn Extender>, answer: Job) -> Wait {
    Wait {
        on: WaitOn::Job(framework.outbound.start(answer)),
        deadline: framework.clock.now() + extender.spec().timeout,
    }
}

/// Applies the answer of a filtering extender.
fn take_filtered(
    settings: &Settings,
    log: &mut Log,
    attempt: &Attempt,
    search: &mut ExtendedSearch,
    wake: WakeReason,
) -> Result<(), Status> {
    let SearchStage::Filter(at) = search.stage else {
        return Ok(());
    };
    let Some(extender) = settings.extenders.get(at).cloned() else {
        return Ok(());
    };
    search.stage = SearchStage::Filter(at + 1);
    let spec = extender.spec();
    let stated = spec
        .answer(wake.into_value())
        .and_then(|stated| narrow(&spec.name, &search.names, stated));
    match stated {
        Ok(stated) => {
            search.rejected.any |= stated.nodes.len() < search.names.len();
            if search.nominated.is_none() {
                let left: FxHashSet<&Str> = stated.nodes.iter().collect();
                let gone = search.names.iter().filter(|name| !left.contains(name));
                search.rejected.nodes.extend(gone.cloned());
            }
            search.names = stated.nodes.into();
            search.rejected.statuses.extend(stated.statuses);
        }
        Err(error) if spec.ignorable => {
            let line = LogLine::info(spec.skipped(&error));
            log.push(line.with("pod", &*attempt.pod.pod));
        }
        // The other nodes are tried next (C-16).
        Err(error) if search.nominated.is_some() => {
            search.names = Arc::default();
            log_broken_nomination(log, attempt, error.to_string());
        }
        Err(error) => return Err(Status::error(error.to_string())),
    }
    Ok(())
}

/// Finds the nodes by their names. If any node has changed since the cycle was parked, all of them are filtered again.
/// A node whose filter fails is left out. If no node is left, all nodes are filtered again, and then the failure
/// counts.
fn look_again(
    framework: &mut Framework,
    nominator: &Nominator,
    attempt: &mut Attempt,
    search: &mut ExtendedSearch,
) -> Result<(), Found> {
    let stored = framework.cache.stored(attempt.pod.pod.uid());
    if stored.is_none_or(|pod| pod.is_assigned()) {
        let status = Status::error("the pod was deleted, or another scheduler has bound it");
        return Err(Found::Failed(status));
    }
    let names = std::mem::take(&mut search.names);
    // Nothing has changed, so only the slots of the names are looked up.
    if framework.cache.cluster().nodes.log().end() == search.seen {
        let nodes = &framework.cache.cluster().nodes;
        search.slots = names.iter().filter_map(|name| nodes.slot(name)).collect();
        return Ok(());
    }
    attempt.evaluation.begin_anew();
    let mut evaluator = framework.evaluator(nominator, attempt);
    let (possible, _) = evaluator.possible()?;
    // A failing filter rejects one node, not the pod, because others may be left.
    let mut broken = Vec::new();
    search.slots.clear();
    for name in names.iter() {
        let Some(slot) = evaluator.cluster.nodes.slot(name) else {
            continue;
        };
        let left = possible.nodes.as_ref();
        if left.is_some_and(|nodes| nodes.binary_search(name).is_err()) {
            continue;
        }
        let status = evaluator.filter_node(slot);
        if status.is_success() {
            search.slots.push(slot);
        } else if !status.is_rejected() {
            broken.push(status);
        }
    }
    if search.nominated.is_some() {
        search.nominated = Some(possible);
        for status in broken {
            log_broken_nomination(&mut framework.outbound.log, attempt, status.message());
        }
    } else {
        search.excluded.extend(broken);
    }
    Ok(())
}

fn log_broken_nomination(log: &mut Log, attempt: &Attempt, error: String) {
    let line = LogLine::error("Evaluation failed on nominated node, all nodes are evaluated");
    log.push(line.with("pod", &*attempt.pod.pod).with("err", error));
}
