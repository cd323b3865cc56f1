//! The answers of a group of per-node plugins about every node, for all pods with one fragment: a **column**.
//!
//! The plugins of a profile are in two groups: plugins that read the node alone, and plugins that also read its pods. Pods
//! of different shapes can share a column, for example all pods with the same tolerations, or all pods with the same
//! requests. A column of the second group has one entry for each [row](super::rows), instead of each node, if its plugins
//! read only amounts.

use super::cell::{Answer, Cell, FEASIBLE, NO_NODE, REJECTED, Rejection};
use super::changes::{Changes, has_nominated, note_changes};
use super::plan::{Group, Plan, Unkeepable};
use super::rows::Rows;
use super::scratch::Scratch;
use super::shape::BLOCK;
use super::store::Keepable;
use crate::{Evaluation, Evaluator, Tally};
use berth_api::{Pod, Str};
use berth_framework::keep::{Class, FollowOutcome, Fragment, Keep, Kept};
use berth_framework::plugin::{MAX_NODE_SCORE, PreFilterResult};
use berth_framework::vectors::{RUN, in_vectors};
use berth_framework::{PodInfo, Slot, Status};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// See the [module](self).
pub(super) struct Column {
    /// Never given to another column.
    pub(super) id: u64,
    group: Group,
    /// One of the pods, without a UID, so that it is not taken for one of them.
    pub(super) pod: Arc<PodInfo>,
    /// The kept state of the plugins; those of the other group are left out.
    pub(super) evaluation: Evaluation,
    /// The scorers whose scores are added up, by their places in the profile.
    pub(super) summed: Vec<usize>,
    /// The scorers whose scores are normalised, by their places in the profile.
    pub(super) normalized: Vec<usize>,
    /// The plugins whose answers depend on what many nodes share.
    followers: Vec<Arc<dyn Keep>>,
    /// The number of changes that they have followed. Nodes that were not reported answer the same, but perhaps not in a
    /// dry run, in which they are not rejected for another reason before.
    pub(super) followed: u64,
    /// Whether a plugin reads the pod again for each node, because its PreFilter or PreScore is not in the profile.
    reads_pod_again: bool,
    /// Whether the nodes of one row have one cell.
    pub(super) is_by_row: bool,
    /// What is kept of each row, or of each slot.
    pub(super) cells: Vec<Cell>,
    /// The answer about each slot, with the grade if it is feasible; empty without scorers whose scores are normalised.
    pub(super) answers: Vec<Answer>,
    rejections: IndexSet<Rejection, FxBuildHasher>,
    /// The raw scores of each grade, in the order of `normalized`.
    grades: IndexSet<Class, FxBuildHasher>,
    /// The nodes for which a filter failed.
    broken: FxHashSet<Slot>,
    /// The nodes that are rejected although they pass with the pods that are nominated to them.
    needs_nominated: FxHashSet<Slot>,
    /// See [`Column::position`]; `None` at first.
    seen: Option<(u64, u64)>,
    /// Nodes that answered for one pod alone: to be asked again.
    again: Vec<Slot>,
    /// The nodes whose answers may have changed.
    pub(super) changes: Changes,
}

impl Column {
    /// About no node yet, for the pods that are like this one.
    pub(super) fn new(id: u64, group: Group, pod: &PodInfo) -> Self {
        Self {
            id,
            group,
            pod: neutral(pod),
            evaluation: Evaluation::default(),
            summed: Vec::new(),
            normalized: Vec::new(),
            followers: Vec::new(),
            followed: 0,
            reads_pod_again: false,
            is_by_row: false,
            cells: Vec::new(),
            answers: Vec::new(),
            rejections: IndexSet::default(),
            grades: IndexSet::default(),
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
        let group = self.group;
        let is_of_group = |id| plan.keep(id).is_some_and(|(of, _)| *of == group);
        let Evaluation {
            state,
            skip_filter,
            skip_score,
            ..
        } = &mut self.evaluation;
        for member in &profile.pre_filter {
            if !is_of_group(member.id) {
                skip_filter.insert(member.id);
                continue;
            }
            match member.plugin.pre_filter(&cx, state, &self.pod) {
                PreFilterResult::AllNodes => {}
                PreFilterResult::Skip => skip_filter.insert(member.id),
                PreFilterResult::Nodes(_) | PreFilterResult::Reject(_) => return Err(Unkeepable),
            }
        }
        // After PreFilter: what they follow can depend on what that has written.
        for keep in plan.keeps(group) {
            match keep.follow(&cx, state, &mut Vec::new()) {
                FollowOutcome::Nothing => {}
                FollowOutcome::Same | FollowOutcome::Changes => self.followers.push(keep.clone()),
                FollowOutcome::Lost => return Err(Unkeepable),
            }
        }
        for member in &profile.filter {
            if !is_of_group(member.id) {
                skip_filter.insert(member.id);
                continue;
            }
            let mut prepared = profile.pre_filter.iter();
            self.reads_pod_again |= !prepared.any(|other| other.id == member.id);
        }
        for member in &profile.pre_score {
            if !is_of_group(member.id) {
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
        let reads_amounts_alone = |keep: &Arc<dyn Keep>| {
            keep.fragment(&cx, &self.pod, &mut Fragment::default()) == Kept::ByAmounts
        };
        for (at, scorer) in profile.score.iter().enumerate() {
            let id = scorer.member.id;
            let Some((of, keep)) = plan.keep(id) else {
                continue;
            };
            if *of != group || skip_score.contains(id) {
                continue;
            }
            let mut prepared = profile.pre_score.iter();
            self.reads_pod_again |= !prepared.any(|member| member.id == id);
            if keep.normalizes() && !reads_amounts_alone(keep) {
                self.normalized.push(at);
            } else {
                self.summed.push(at);
            }
        }
        let weights = self.summed.iter().map(|at| profile.score[*at].weight);
        let weights = weights.fold(0, i64::saturating_add);
        if weights.saturating_mul(MAX_NODE_SCORE) >= i64::from(i32::MAX / 2) {
            return Err(Unkeepable);
        }
        // Raw scores are parts of the classes of nodes, which rows are not.
        self.is_by_row = group == Group::Pods
            && self.normalized.is_empty()
            && self.followers.is_empty()
            && plan.keeps(group).all(reads_amounts_alone);
        Ok(())
    }

    /// The position in what the column follows: in the changes of the rows and in the rows that were opened, or in the
    /// changes of the table and of the nominations.
    fn position(&self, evaluator: &Evaluator<'_>, rows: &Rows) -> (u64, u64) {
        if self.is_by_row {
            (rows.changes.end(), rows.opened)
        } else {
            let log = evaluator.cluster.nodes.log();
            (log.end(), evaluator.nominated.changes_end())
        }
    }

    /// Takes in what has changed since the last use: everything at first. After an error it must not be used again.
    pub(super) fn catch_up(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        plan: &Plan,
        rows: &Rows,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let before = self.seen;
        if before.is_none() {
            self.prepare(evaluator, plan)?;
        }
        let now = self.position(evaluator, rows);
        self.seen = Some(now);
        if before == self.seen && self.followers.is_empty() && self.again.is_empty() {
            return Ok(());
        }
        let table = &evaluator.cluster.nodes;
        scratch.begin();
        let cells = if self.is_by_row {
            rows.len()
        } else {
            table.slots().next_multiple_of(BLOCK)
        };
        let Some(before) = before else {
            if self.is_by_row {
                self.ask_rows(evaluator, rows, scratch)?;
                let Scratch { fits, dirty, .. } = scratch;
                for (start, fits) in (0..).step_by(RUN).zip(fits.chunks(RUN)) {
                    if fits.contains(&false) {
                        let left = (start..).zip(fits).filter(|(_, fits)| !**fits);
                        dirty.extend(left.filter_map(|(row, _)| rows.example(row)));
                    }
                }
            } else {
                scratch.begin_with_all(table);
            }
            self.resize(cells);
            return self.ask(evaluator, rows, scratch);
        };
        self.resize(cells);
        if self.is_by_row {
            for slot in rows.changes.since(before.0).ok_or(Unkeepable)? {
                scratch.note(slot);
            }
        } else if !note_changes(
            evaluator,
            scratch,
            before.0,
            before.1,
            self.group == Group::Pods,
        ) {
            return Err(Unkeepable);
        }
        let again = std::mem::take(&mut self.again);
        for slot in self.follow(evaluator)?.iter().chain(&again) {
            scratch.note(*slot);
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
                let is_new = rows.is_new(*slot, before.1) && asked.insert(rows.of(*slot));
                is_new || again.contains(slot)
            });
        }
        self.ask(evaluator, rows, scratch)
    }

    /// The nodes about which the plugins may answer otherwise because of what many nodes share.
    fn follow(&mut self, evaluator: &Evaluator<'_>) -> Result<Vec<Slot>, Unkeepable> {
        let mut changed = Vec::new();
        let cx = evaluator.context();
        for keep in &self.followers {
            match keep.follow(&cx, &mut self.evaluation.state, &mut changed) {
                FollowOutcome::Nothing | FollowOutcome::Same => {}
                FollowOutcome::Changes => self.followed += 1,
                FollowOutcome::Lost => return Err(Unkeepable),
            }
        }
        Ok(changed)
    }

    /// Lets a node answer for the evaluator's pod alone, whose own nomination does not count; it is asked again for the
    /// next.
    pub(super) fn answer_for_now(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        rows: &Rows,
        scratch: &mut Scratch,
        slot: Slot,
    ) -> Result<(), Unkeepable> {
        scratch.begin();
        scratch.note(slot);
        let of_all = std::mem::replace(&mut self.pod, evaluator.pod.clone());
        self.needs_nominated.remove(&slot);
        let asked = self.ask(evaluator, rows, scratch);
        self.pod = of_all;
        self.again.push(slot);
        self.changes.push(slot);
        asked
    }

    /// Makes room for the cells of new slots or rows.
    fn resize(&mut self, cells: usize) {
        self.cells.resize(cells, Cell::NO_NODE);
        if !self.normalized.is_empty() {
            self.answers.resize(cells, NO_NODE);
        }
    }

    /// Keeps what is known about a node, or about its row.
    fn set(
        &mut self,
        rows: &Rows,
        slot: Slot,
        cell: Cell,
        answer: Answer,
    ) -> Result<(), Unkeepable> {
        let place = if self.is_by_row {
            rows.of(slot).ok_or(Unkeepable)? as usize
        } else {
            slot.index()
        };
        *self.cells.get_mut(place).ok_or(Unkeepable)? = cell;
        if let Some(of_slot) = self.answers.get_mut(place) {
            *of_slot = answer;
        }
        Ok(())
    }

    /// Asks about every node that was noted.
    fn ask(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        rows: &Rows,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let Scratch { left, answered, .. } = scratch;
        left.clear();
        answered.clear();
        let mut with_nominations = Vec::new();
        let reads_pods = self.group == Group::Pods;
        let priority = self.pod.pod.priority();
        let counts = |pod: &PodInfo| pod.pod.priority() >= priority;
        let is_node = evaluator.cluster.nodes.is_node();
        for slot in &scratch.dirty {
            if !self.broken.is_empty() {
                self.broken.remove(slot);
            }
            if !is_node[slot.index()] {
                // Rows without nodes are not read.
                if !self.is_by_row {
                    self.set(rows, *slot, Cell::NO_NODE, NO_NODE)?;
                }
            } else if reads_pods && has_nominated(evaluator, *slot, counts) {
                with_nominations.push(*slot);
            } else {
                left.push(*slot);
            }
        }
        self.filter(evaluator, left, answered);
        for slot in with_nominations {
            let (status, needs_nominated) = Evaluator {
                pod: &self.pod,
                evaluation: &mut self.evaluation,
                cluster: evaluator.cluster,
                ..*evaluator
            }
            .filter_in_passes(slot);
            if needs_nominated {
                self.needs_nominated.insert(slot);
            }
            if status.is_success() {
                left.push(slot);
            } else {
                answered.push((slot, status));
            }
        }
        for (slot, status) in answered.drain(..) {
            let answer = if status.is_rejected() {
                self.answer_of(evaluator, status)?
            } else if self.is_by_row {
                // All nodes of the row would have to be known as broken.
                return Err(Unkeepable);
            } else {
                self.broken.insert(slot);
                NO_NODE
            };
            self.set(rows, slot, Cell::infeasible(answer), answer)?;
        }
        self.score(evaluator, rows, scratch)
    }

    /// Asks about all rows in one pass over their amounts, and appends a cell for each row. The feasible rows are true in
    /// `scratch.fits`; the nodes of the other rows have to be asked: all nodes, if a plugin cannot answer about amounts.
    fn ask_rows(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        rows: &Rows,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let Scratch {
            fits, scores, sums, ..
        } = scratch;
        let (profile, amounts) = (evaluator.profile, &rows.amounts);
        let state = &self.evaluation.state;
        rows.begin_with_all(fits);
        for member in &profile.filter {
            if !self.evaluation.skip_filter.contains(member.id) {
                member.plugin.filter_amounts(state, amounts, fits);
            }
        }
        if !fits.contains(&true) {
            return Ok(());
        }
        // A plugin sets all of them.
        scores.resize(rows.len(), 0);
        sums.clear();
        sums.resize(rows.len(), 0);
        for at in &self.summed {
            let scorer = &profile.score[*at];
            if !scorer.member.plugin.score_amounts(state, amounts, scores) {
                fits.fill(false);
                return Ok(());
            }
            in_vectors(
                #[inline(always)]
                || add_up(sums, scores.iter().copied(), scorer.weight),
            )?;
        }
        self.cells.resize(rows.len(), Cell::NO_NODE);
        let (cells, fits, sums) = (&mut *self.cells, &**fits, &**sums);
        let count = in_vectors(
            #[inline(always)]
            move || {
                let mut count = 0;
                for (cell, (fits, sum)) in cells.iter_mut().zip(fits.iter().zip(sums)) {
                    *cell = Cell::feasible(*sum).or_no_node(*fits);
                    count += u32::from(*fits);
                }
                count
            },
        );
        // The other rows are counted when one of their nodes is asked.
        let tally = &mut evaluator.evaluation.tally;
        for (at, member) in profile.filter.iter().enumerate() {
            if !self.evaluation.skip_filter.contains(member.id) {
                Tally::add(&mut tally.filter, at, count);
            }
        }
        for at in &self.summed {
            Tally::add(&mut tally.score, *at, count);
        }
        Ok(())
    }

    /// Asks the filters about nodes, and moves rejected nodes to `answered`.
    fn filter(
        &self,
        evaluator: &mut Evaluator<'_>,
        left: &mut Vec<Slot>,
        answered: &mut Vec<(Slot, Status)>,
    ) {
        let profile = evaluator.profile;
        let (cx, evaluation) = evaluator.split();
        for (at, member) in profile.filter.iter().enumerate() {
            if self.evaluation.skip_filter.contains(member.id) {
                continue;
            }
            if left.is_empty() {
                break;
            }
            let asked = u32::try_from(left.len()).unwrap_or(u32::MAX);
            Tally::add(&mut evaluation.tally.filter, at, asked);
            let state = &self.evaluation.state;
            let mut reject = |slot, status: Status| {
                answered.push((slot, status.from_plugin(&member.name)));
            };
            member
                .plugin
                .filter_many(&cx, state, &self.pod, left, &mut reject);
        }
    }

    /// Scores the nodes that are left.
    fn score(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        rows: &Rows,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let Scratch {
            left, raw, sums, ..
        } = scratch;
        if left.is_empty() {
            return Ok(());
        }
        let profile = evaluator.profile;
        let (cx, evaluation) = evaluator.split();
        let count = u32::try_from(left.len()).unwrap_or(u32::MAX);
        sums.clear();
        sums.resize(left.len(), 0);
        raw.clear();
        let summed = self.summed.iter().map(|scorer| (*scorer, true));
        let normalized = self.normalized.iter().map(|scorer| (*scorer, false));
        for (at, is_summed) in summed.chain(normalized) {
            let scorer = &profile.score[at];
            let began = raw.len();
            Tally::add(&mut evaluation.tally.score, at, count);
            let plugin = &scorer.member.plugin;
            let asked = plugin.score_many(&cx, &self.evaluation.state, &self.pod, left, raw);
            if asked.is_err() || raw.len() != began + left.len() {
                return Err(Unkeepable);
            }
            if is_summed {
                let scores = raw.drain(began..);
                // A number that is too large is outside like a negative one.
                let scores = scores.map(|score| i32::try_from(score).unwrap_or(-1));
                add_up(sums, scores, scorer.weight)?;
            }
        }
        // The raw scores of each plugin whose scores are normalised.
        let of_plugins: SmallVec<[&[i64]; 4]> = raw.chunks(left.len()).collect();
        let mut grade = FEASIBLE;
        for (at, (slot, sum)) in left.iter().zip(&*sums).enumerate() {
            // Neighbours are alike, mostly.
            let mut plugins = of_plugins.iter();
            if plugins.any(|raw| at == 0 || raw[at] != raw[at - 1]) {
                let raw = of_plugins.iter().map(|raw| raw[at]);
                let (place, _) = self.grades.insert_full(raw.collect());
                if place >= REJECTED.into() {
                    return Err(Unkeepable);
                }
                grade = place as Answer;
            }
            self.set(rows, *slot, Cell::feasible(*sum), grade)?;
        }
        Ok(())
    }

    /// The answer that stands for a rejection.
    fn answer_of(
        &mut self,
        evaluator: &Evaluator<'_>,
        status: Status,
    ) -> Result<Answer, Unkeepable> {
        let plugin = status.plugin().ok_or(Unkeepable)?;
        let mut filters = evaluator.profile.filter.iter();
        let filter = filters.position(|member| member.name == *plugin);
        let filter = filter.ok_or(Unkeepable)?;
        let (place, _) = self.rejections.insert_full(Rejection { status, filter });
        if place >= REJECTED.into() {
            return Err(Unkeepable);
        }
        Ok(REJECTED + place as Answer)
    }

    /// The rejection behind an answer, if it is one.
    pub(super) fn rejection(&self, answer: Answer) -> Option<&Rejection> {
        let place = answer.checked_sub(REJECTED)?;
        self.rejections.get_index(place.into())
    }

    /// The answer about a slot or a row.
    #[inline]
    pub(super) fn answer(&self, place: usize) -> Answer {
        let answer = self.answers.get(place).copied();
        answer.unwrap_or_else(|| self.cells[place].answer())
    }

    /// The raw scores of a grade, in the order of `normalized`.
    pub(super) fn grade(&self, grade: Answer) -> &[i64] {
        let grade = self.grades.get_index(grade.into());
        grade.map_or(&[], |raw| raw)
    }

    /// Returns whether a node is rejected although it passes with the pods that are nominated to it.
    pub(super) fn needs_nominated(&self, slot: Slot) -> bool {
        self.needs_nominated.contains(&slot)
    }

    /// Returns whether a filter failed on some node: the plain evaluator has to determine the result.
    pub(super) fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }
}

/// Adds weighted scores to the sums, which do not exceed the range: see [`Column::prepare`].
///
/// # Errors
/// When a score is out of range.
#[inline(always)]
fn add_up(
    sums: &mut [i32],
    scores: impl Iterator<Item = i32>,
    weight: i64,
) -> Result<(), Unkeepable> {
    const MAX: i32 = MAX_NODE_SCORE as i32;
    let weight = weight as i32;
    // Negative if a score is below zero, or above the greatest.
    let mut outside = 0;
    // One pass without a way out, so that it is vectorised.
    for (sum, score) in sums.iter_mut().zip(scores) {
        outside |= score | MAX.wrapping_sub(score);
        *sum = sum.wrapping_add(score.wrapping_mul(weight));
    }
    if outside < 0 { Err(Unkeepable) } else { Ok(()) }
}

impl Keepable for Column {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.cells.capacity() * size_of::<Cell>()
            + self.answers.capacity() * size_of::<Answer>()
            + self.changes.bytes()
    }
}

/// A copy of a pod without its UID, so that it is not taken for a pod of the cluster.
pub(super) fn neutral(pod: &PodInfo) -> Arc<PodInfo> {
    let mut neutral = Pod::clone(&pod.pod);
    neutral.metadata.uid = Str::default();
    Arc::new(PodInfo::new(Arc::new(neutral)))
}
