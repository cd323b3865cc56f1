//! The answers of a group of per-node plugins about every node, for all pods with one fragment.
//!
//! The plugins of a profile are in two groups: those that read the node alone, whose answers change when nodes do, and
//! those that read its pods as well. Pods of many shapes share them: all that tolerate the same taints, for example, or
//! all that request the same.

use super::changes::{Changes, note_changes};
use super::plan::{Group, Plan, Unkeepable};
use super::rows::Rows;
use super::scratch::{Note, Scratch};
use super::store::Keepable;
use crate::{Evaluation, Evaluator, Tally};
use berth_api::{Pod, Str};
use berth_framework::keep::{Class, FollowOutcome, Fragment, Keep, Kept};
use berth_framework::plugin::{Context, MAX_NODE_SCORE, PreFilterResult};
use berth_framework::{PodInfo, Slot, Status};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The number of different statuses of the nodes, and of different raw scores. Beyond that keeping
/// answers is no gain.
const DIFFERENT_MAX: usize = 4096;

/// The answer of a node, as an index into the known statuses; see [`FEASIBLE`] and [`NO_NODE`].
pub(super) type NodeAnswer = u16;

/// The answer of a node that no filter rejected.
pub(super) const FEASIBLE: NodeAnswer = 0;

/// There is no node.
pub(super) const NO_NODE: NodeAnswer = NodeAnswer::MAX;

/// A sum of weighted scores.
pub(super) type Sum = i32;

/// A sum, so small that two of them can be added.
fn small(sum: i64) -> Result<Sum, Unkeepable> {
    let is_small = sum.unsigned_abs() < u64::from(Sum::MAX.unsigned_abs() / 2);
    Sum::try_from(sum)
        .ok()
        .filter(|_| is_small)
        .ok_or(Unkeepable)
}

/// The raw scores of a node from the plugins whose scores are normalised.
pub(super) type Grade = u16;

/// An answer that nodes gave, and which filter gave it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Known {
    pub(super) status: Status,
    /// The filter's place in the profile.
    pub(super) filter: usize,
}

impl Known {
    /// The value that means [`FEASIBLE`].
    pub(super) fn feasible() -> Self {
        Self {
            status: Status::success(),
            filter: usize::MAX,
        }
    }
}

/// The kept state of a node, or of the nodes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    /// The first answer against it, if any.
    pub(super) answer: NodeAnswer,
    /// The raw scores; of feasible nodes only.
    pub(super) grade: Grade,
    /// The sum of the scores that need no scale, weights included; of feasible nodes only.
    pub(super) score: Sum,
}

impl Cell {
    const NOTHING: Self = Self {
        answer: NO_NODE,
        grade: 0,
        score: 0,
    };
}

/// See the [module](self).
pub(super) struct NodeAnswers {
    /// Never given to another set of node answers.
    pub(super) id: u64,
    group: Group,
    /// One of the pods, without a UID, so that it is not taken for one of them.
    pub(super) pod: Arc<PodInfo>,
    /// The kept state of the plugins; those of the other group are left out.
    pub(super) evaluation: Evaluation,
    /// The scorers whose scores are added up, by their places in the profile.
    local: Vec<usize>,
    /// The scorers whose raw scores make up the grades.
    pub(super) scales: Vec<usize>,
    /// The plugins whose answers depend on what many nodes share.
    followers: Vec<Arc<dyn Keep>>,
    /// The number of changes that they have followed.
    followed: u64,
    /// Whether a plugin reads the pod again for each node, because its PreFilter or PreScore is not in the profile.
    reads_pod_again: bool,
    /// Whether nodes of one [row](super::rows) have one cell, because the plugins read their amounts alone.
    pub(super) is_by_row: bool,
    /// The number of rows that had been opened at the last use.
    opened: u64,
    /// By row, or by slot.
    cells: Vec<Cell>,
    /// Answers; the first means [`FEASIBLE`].
    pub(super) known: Vec<Known>,
    grades: Grades,
    /// The nodes for which a filter broke.
    broken: FxHashSet<Slot>,
    /// The nodes that are rejected although they pass with the pods that are nominated to them.
    needs_nominated: FxHashSet<Slot>,
    /// The position in the changes of the table, and in those of the nominations; `None` at first.
    seen: Option<(u64, u64)>,
    /// Nodes that answered for one pod alone: to be looked at again.
    again: Vec<Slot>,
    /// The nodes that were looked at again.
    pub(super) changes: Changes,
}

/// The raw scores that grades mean; the first grade means none.
struct Grades {
    raw: Vec<Class>,
    ids: FxHashMap<Class, Grade>,
}

impl Grades {
    fn new() -> Self {
        Self {
            raw: vec![Class::new()],
            ids: FxHashMap::default(),
        }
    }

    /// The grade that means raw scores.
    fn of(&mut self, raw: Class) -> Result<Grade, Unkeepable> {
        if let Some(id) = self.ids.get(&raw) {
            return Ok(*id);
        }
        if self.raw.len() > DIFFERENT_MAX {
            return Err(Unkeepable);
        }
        let id = self.raw.len() as Grade;
        self.raw.push(raw.clone());
        self.ids.insert(raw, id);
        Ok(id)
    }
}

impl NodeAnswers {
    /// About no node yet, for the pods that are like this one.
    pub(super) fn new(id: u64, group: Group, pod: &PodInfo) -> Self {
        Self {
            id,
            group,
            pod: neutral(pod),
            evaluation: Evaluation::default(),
            local: Vec::new(),
            scales: Vec::new(),
            followers: Vec::new(),
            followed: 0,
            reads_pod_again: false,
            is_by_row: false,
            opened: 0,
            cells: Vec::new(),
            known: vec![Known::feasible()],
            grades: Grades::new(),
            broken: FxHashSet::default(),
            needs_nominated: FxHashSet::default(),
            seen: None,
            again: Vec::new(),
            changes: Changes::default(),
        }
    }

    /// Runs what runs once: PreFilter and PreScore.
    fn prepare(&mut self, evaluator: &Evaluator<'_>, plan: &Plan) -> Result<(), Unkeepable> {
        let profile = evaluator.profile;
        let cx = evaluator.context();
        let Evaluation {
            state,
            skip_filter,
            skip_score,
            ..
        } = &mut self.evaluation;
        for member in &profile.pre_filter {
            if plan.group(member.id) != Some(self.group) {
                skip_filter.insert(member.id);
                continue;
            }
            match member.plugin.pre_filter(&cx, state, &self.pod) {
                PreFilterResult::AllNodes => {}
                PreFilterResult::Skip => skip_filter.insert(member.id),
                PreFilterResult::Nodes(_) | PreFilterResult::Reject(_) => return Err(Unkeepable),
            }
        }
        for keep in plan.keeps(self.group) {
            match keep.follow(&cx, state, &mut Vec::new()) {
                FollowOutcome::Nothing => {}
                FollowOutcome::Same | FollowOutcome::Changes => {
                    self.followers.push(keep.clone());
                }
                FollowOutcome::Lost => return Err(Unkeepable),
            }
        }
        for member in &profile.filter {
            if plan.group(member.id) != Some(self.group) {
                skip_filter.insert(member.id);
                continue;
            }
            let mut prepared = profile.pre_filter.iter();
            self.reads_pod_again |= !prepared.any(|other| other.id == member.id);
        }
        for member in &profile.pre_score {
            if plan.group(member.id) != Some(self.group) {
                skip_score.insert(member.id);
                continue;
            }
            let status = member.plugin.pre_score(&cx, state, &self.pod, &[]);
            if status.is_skip() {
                skip_score.insert(member.id);
            } else if !status.is_success() {
                return Err(Unkeepable);
            }
        }
        for (at, scorer) in profile.score.iter().enumerate() {
            let id = scorer.member.id;
            if plan.group(id) != Some(self.group) || skip_score.contains(id) {
                continue;
            }
            let is_prepared = profile.pre_score.iter().any(|member| member.id == id);
            self.reads_pod_again |= !is_prepared;
            if plan.normalizes(id) {
                self.scales.push(at);
            } else {
                self.local.push(at);
            }
        }
        let reads_amounts_alone = |keep: &Arc<dyn Keep>| {
            keep.fragment(&cx, &self.pod, &mut Fragment::default()) == Kept::ByAmounts
        };
        self.is_by_row = self.group == Group::Pods
            && self.scales.is_empty()
            && self.followers.is_empty()
            && plan.keeps(self.group).all(reads_amounts_alone);
        Ok(())
    }

    /// Takes in what has changed since the last use: everything at first. After an error they must not be used again.
    pub(super) fn catch_up(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        plan: &Plan,
        (rows, scratch): (&mut Rows, &mut Scratch),
    ) -> Result<(), Unkeepable> {
        let table = &evaluator.cluster.nodes;
        let seen = (table.log().end(), evaluator.nominated.changes_end());
        let before = self.seen.replace(seen);
        if before == Some(seen) && self.followers.is_empty() && self.again.is_empty() {
            return Ok(());
        }
        scratch.begin(table.slots());
        if before.is_none() {
            self.prepare(evaluator, plan)?;
        }
        let table = &evaluator.cluster.nodes;
        let cells = if self.is_by_row {
            rows.len()
        } else {
            table.slots()
        };
        self.cells.resize(cells, Cell::NOTHING);
        let Some(before) = before else {
            self.opened = rows.opened();
            if self.is_by_row {
                rows.one_of_each(&mut scratch.dirty);
            } else {
                scratch.begin_with_all(table);
            }
            return self.ask(evaluator, rows, scratch);
        };
        let is_known = !self.is_by_row || rows.are_known_since(self.opened);
        if !is_known || !note_changes(evaluator, scratch, before, self.group == Group::Pods) {
            return Err(Unkeepable);
        }
        let again = std::mem::take(&mut self.again);
        for slot in self.follow(evaluator)?.iter().chain(&again) {
            scratch.note(*slot, Note::Answer);
        }
        // The values that a plugin reads of the first pod and of the cluster may have changed. The pod at hand has the
        // fragment of these answers now.
        let is_read_again = self.reads_pod_again && !scratch.dirty.is_empty();
        if is_read_again && !self.pod.pod.reads_as(&evaluator.pod.pod) {
            self.pod = neutral(evaluator.pod);
        }
        for slot in scratch.noted() {
            self.needs_nominated.remove(slot);
            self.changes.push(*slot);
        }
        if self.is_by_row {
            let mut asked = FxHashSet::default();
            scratch.dirty.retain(|slot| {
                let is_new = rows.is_new(*slot, self.opened) && asked.insert(rows.of(*slot));
                is_new || again.contains(slot)
            });
            self.opened = rows.opened();
        }
        self.ask(evaluator, rows, scratch)
    }

    /// The place of the cell of a node that there is.
    fn place(&self, rows: &Rows, slot: Slot) -> Result<usize, Unkeepable> {
        if self.is_by_row {
            rows.of(slot).map(|row| row as usize).ok_or(Unkeepable)
        } else {
            Ok(slot.index())
        }
    }

    /// The nodes about which the plugins may answer otherwise because of what many nodes share.
    fn follow(&mut self, evaluator: &Evaluator<'_>) -> Result<Vec<Slot>, Unkeepable> {
        let mut changed = Vec::new();
        let cx = evaluator.context();
        for keep in &self.followers {
            let state = &mut self.evaluation.state;
            match keep.follow(&cx, state, &mut changed) {
                FollowOutcome::Nothing | FollowOutcome::Same => {}
                FollowOutcome::Changes => self.followed += 1,
                FollowOutcome::Lost => return Err(Unkeepable),
            }
        }
        Ok(changed)
    }

    /// Grows with each change of what many nodes share. Nodes that were not reported answer the same, but perhaps not in
    /// a dry run, in which they are not rejected for another reason before.
    pub(super) fn followed(&self) -> u64 {
        self.followed
    }

    /// Asks about every node that was noted.
    fn ask(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        rows: &Rows,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let Scratch {
            left,
            answered,
            with_nominations,
            ..
        } = scratch;
        left.clear();
        answered.clear();
        with_nominations.clear();
        let may_have_nominations = self.group == Group::Pods && !evaluator.nominated.is_empty();
        for slot in &scratch.dirty {
            if !self.broken.is_empty() {
                self.broken.remove(slot);
            }
            match evaluator.cluster.nodes.get(*slot) {
                None if self.is_by_row => {}
                None => self.cells[slot.index()] = Cell::NOTHING,
                Some(view)
                    if may_have_nominations && self.has_nominations(evaluator, view.name()) =>
                {
                    with_nominations.push(*slot);
                }
                Some(_) => left.push(*slot),
            }
        }
        self.filter(evaluator, left, answered);
        for slot in with_nominations.iter() {
            let mut own = own_evaluator(&self.pod, &mut self.evaluation, evaluator);
            let (status, needs_nominated) = own.filter_in_passes(*slot);
            if needs_nominated {
                self.needs_nominated.insert(*slot);
            }
            if status.is_success() {
                left.push(*slot);
            } else {
                answered.push((*slot, status));
            }
        }
        for (slot, status) in answered.iter() {
            let answer = if status.is_rejected() {
                self.answer_of(evaluator, status)?
            } else if self.is_by_row {
                return Err(Unkeepable);
            } else {
                self.broken.insert(*slot);
                NO_NODE
            };
            let place = self.place(rows, *slot)?;
            self.cells[place] = Cell {
                answer,
                ..Cell::NOTHING
            };
        }
        self.score(evaluator, rows, scratch)
    }

    /// Returns whether pods that count for these are nominated to a node.
    fn has_nominations(&self, evaluator: &Evaluator<'_>, name: &Str) -> bool {
        let mut has_nominations = false;
        let priority = self.pod.pod.priority();
        evaluator.nominated.on_node(name, &mut |pod| {
            has_nominations |= pod.pod.priority() >= priority;
        });
        has_nominations
    }

    /// Lets a node answer for the evaluator's pod alone, whose own nomination does not count; it is asked again for the
    /// next.
    pub(super) fn answer_for_now(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        (rows, scratch): (&Rows, &mut Scratch),
        slot: Slot,
    ) -> Result<(), Unkeepable> {
        scratch.begin(evaluator.cluster.nodes.slots());
        scratch.note(slot, Note::Answer);
        let of_all = std::mem::replace(&mut self.pod, evaluator.pod.clone());
        self.needs_nominated.remove(&slot);
        let asked = self.ask(evaluator, rows, scratch);
        self.pod = of_all;
        self.again.push(slot);
        self.changes.push(slot);
        asked
    }

    /// Asks the filters about nodes; those that are rejected go among the answered.
    fn filter(
        &self,
        evaluator: &mut Evaluator<'_>,
        left: &mut Vec<Slot>,
        answered: &mut Vec<(Slot, Status)>,
    ) {
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            work: evaluator.work,
        };
        for (at, member) in evaluator.profile.filter.iter().enumerate() {
            if self.evaluation.skip_filter.contains(member.id) {
                continue;
            }
            if left.is_empty() {
                break;
            }
            let asked = u32::try_from(left.len()).unwrap_or(u32::MAX);
            Tally::add(&mut evaluator.evaluation.tally.filter, at, asked);
            let state = &self.evaluation.state;
            member
                .plugin
                .filter_many(&cx, state, &self.pod, left, &mut |slot, status| {
                    answered.push((slot, status.from_plugin(&member.name)));
                });
        }
    }

    /// Scores the nodes that are left.
    fn score(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        rows: &Rows,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let Scratch { left, raw, .. } = scratch;
        if left.is_empty() {
            return Ok(());
        }
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            work: evaluator.work,
        };
        let count = u32::try_from(left.len()).unwrap_or(u32::MAX);
        raw.clear();
        // First the sums, then the raw scores of each plugin that are brought to scale.
        raw.resize(left.len(), 0);
        let scales = self.scales.iter().map(|scorer| (*scorer, true));
        let local = self.local.iter().map(|scorer| (*scorer, false));
        for (at, is_raw) in local.chain(scales) {
            let scorer = &evaluator.profile.score[at];
            let began = raw.len();
            Tally::add(&mut evaluator.evaluation.tally.score, at, count);
            let plugin = &scorer.member.plugin;
            let asked = plugin.score_many(&cx, &self.evaluation.state, &self.pod, left, raw);
            if asked.is_err() || raw.len() != began + left.len() {
                return Err(Unkeepable);
            }
            if is_raw {
                continue;
            }
            let (sums, scores) = raw.split_at_mut(began);
            let is_outside = |score: &i64| !(0..=MAX_NODE_SCORE).contains(score);
            // One pass without a way out each: they are vectorised.
            if scores.iter().filter(|score| is_outside(score)).count() > 0 {
                return Err(Unkeepable);
            }
            for (sum, score) in sums.iter_mut().zip(scores.iter()) {
                *sum += score * scorer.weight;
            }
            raw.truncate(began);
        }
        let (sums, scaled) = raw.split_at(left.len());
        let of_node = |at: usize| scaled[at..].iter().step_by(left.len());
        let mut latest = (Class::new(), 0);
        for (at, (slot, score)) in left.iter().zip(sums).enumerate() {
            let is_known = scaled.is_empty() || (at > 0 && of_node(at).eq(latest.0.iter()));
            if !is_known {
                let grade: Class = of_node(at).copied().collect();
                latest = (grade.clone(), self.grades.of(grade)?);
            }
            let place = self.place(rows, *slot)?;
            self.cells[place] = Cell {
                answer: FEASIBLE,
                grade: latest.1,
                score: small(*score)?,
            };
        }
        Ok(())
    }

    /// The answer for a status.
    fn answer_of(
        &mut self,
        evaluator: &Evaluator<'_>,
        status: &Status,
    ) -> Result<NodeAnswer, Unkeepable> {
        if let Some(at) = self.known.iter().position(|k| k.status == *status) {
            return Ok(at as NodeAnswer);
        }
        if self.known.len() >= DIFFERENT_MAX {
            return Err(Unkeepable);
        }
        let plugin = status.plugin().ok_or(Unkeepable)?;
        let mut filters = evaluator.profile.filter.iter();
        let filter = filters.position(|member| member.name == *plugin);
        self.known.push(Known {
            status: status.clone(),
            filter: filter.ok_or(Unkeepable)?,
        });
        Ok((self.known.len() - 1) as NodeAnswer)
    }

    /// The kept state of a slot or of a row.
    #[inline]
    pub(super) fn cell(&self, place: usize) -> Cell {
        self.cells.get(place).copied().unwrap_or(Cell::NOTHING)
    }

    /// The kept state of every node, by slot or by row.
    pub(super) fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The raw scores that a grade means, in the order of [`NodeAnswers::scales`].
    pub(super) fn grade(&self, grade: Grade) -> &[i64] {
        self.grades.raw.get(grade as usize).map_or(&[], |raw| raw)
    }

    /// Returns whether a scorer, by its place, adds to the sums.
    pub(super) fn is_scored_by(&self, scorer: usize) -> bool {
        self.local.contains(&scorer)
    }

    /// Returns whether a node is rejected although it passes with the pods that are nominated to it.
    pub(super) fn needs_nominated(&self, slot: Slot) -> bool {
        self.needs_nominated.contains(&slot)
    }

    /// Returns whether a filter broke on some node: the plain evaluator has to determine the result.
    pub(super) fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }
}

impl Keepable for NodeAnswers {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.cells.capacity() * size_of::<Cell>() + self.changes.bytes()
    }
}

/// A pod like this one that is none of those that there are: without a UID.
pub(super) fn neutral(pod: &PodInfo) -> Arc<PodInfo> {
    let mut neutral = Pod::clone(&pod.pod);
    neutral.metadata.uid = Str::default();
    Arc::new(PodInfo::new(Arc::new(neutral)))
}

/// An evaluator for the plugins and the pod of a set of node answers.
fn own_evaluator<'b>(
    pod: &'b Arc<PodInfo>,
    evaluation: &'b mut Evaluation,
    evaluator: &'b mut Evaluator<'_>,
) -> Evaluator<'b> {
    Evaluator {
        profile: evaluator.profile,
        features: evaluator.features,
        now: evaluator.now,
        cluster: evaluator.cluster,
        nominated: evaluator.nominated,
        pod,
        evaluation,
        work: evaluator.work,
        stopwatch: evaluator.stopwatch,
    }
}
