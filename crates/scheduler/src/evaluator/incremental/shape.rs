//! What is kept for all pods of one shape: the answer, the class and the score of every node.

use super::classes::{Answer, ClassId, Classes, FEASIBLE, NO_NODE};
use super::plan::Plan;
use crate::evaluator::{Evaluation, Evaluator, Memos, Tally};
use berth_api::{Pod, Str};
use berth_framework::keep::{Class, Ledger, Movement};
use berth_framework::plugin::{Context, MAX_NODE_SCORE, PreFilterResult};
use berth_framework::table::TableChange;
use berth_framework::{PodInfo, Slot, Status};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// How many different statuses the nodes of a shape may give, and how many classes there may be. Beyond that keeping
/// answers is no gain.
const STATUSES_MAX: usize = 4096;
const CLASSES_MAX: usize = 8192;

/// Why no answers are kept for a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unkeepable;

/// An answer that nodes gave, and which filter gave it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) status: Status,
    /// The filter's place in the profile.
    pub(super) filter: usize,
}

/// A ledger with its plugin's place among the plan's.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) member: usize,
    pub(super) ledger: Box<dyn Ledger>,
    /// Where the ledger's numbers begin in a class.
    pub(super) offset: usize,
}

/// A plugin whose scores are brought to scale; its raw scores are numbers of the class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    /// Its place among the profile's scorers.
    pub(super) scorer: usize,
    /// Its place in a class.
    pub(super) offset: usize,
}

/// What is kept of every node, by slot.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    /// The answer of the plugins that look at the node alone.
    pub(super) answers: Vec<Answer>,
    /// The class.
    pub(super) class_of: Vec<ClassId>,
}

impl Columns {
    fn resize(&mut self, slots: usize) {
        self.answers.resize(slots, NO_NODE);
        self.class_of.resize(slots, ClassId::MAX);
    }

    /// The answer of a node; `None` where there is none.
    pub(super) fn answer(&self, slot: Slot) -> Option<Answer> {
        let answer = self.answers.get(slot.index()).copied();
        answer.filter(|answer| *answer != NO_NODE)
    }
}

/// See the [module](self).
pub(super) struct Shape {
    /// A pod of this shape that is none of them: without a UID, so that it is not taken for one.
    pub(super) pod: Arc<PodInfo>,
    /// What the per-node plugins keep about it.
    pub(super) evaluation: Evaluation,
    pub(super) books: Vec<Book>,
    pub(super) scales: Vec<Scale>,
    /// The scorers whose scores are added up per node.
    local: Vec<usize>,
    /// What has been taken in of the table's changes, and of the nominations'.
    seen: (u64, u64),
    pub(super) columns: Arc<Columns>,
    /// By slot: the sum of the scores that need no scale, weights included.
    pub(super) scores: Vec<i64>,
    pub(super) classes: Classes,
    /// Answers; the first stands for [`FEASIBLE`].
    pub(super) known: Arc<Vec<Known>>,
    /// How many nodes there are.
    pub(super) nodes: usize,
    /// How many of them a filter broke on, or a score.
    pub(super) broken: usize,
    /// By slot: whether it broke.
    broken_at: FxHashSet<Slot>,
    /// Nodes with nominated pods that would change what a ledger says.
    pub(super) entangled: FxHashSet<Slot>,
    /// Nodes to be asked again all the same.
    pub(super) stale: Vec<Slot>,
    /// What PostFilter has found out; lent out with the verdict that a pod fits nowhere.
    pub(super) memos: Memos,
    /// Counts the states that the shape has gone through.
    pub(super) state: u64,
    /// When the shape was used last.
    pub(super) used: u64,
}

/// Room to work in, shared by all shapes.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// By slot: when it was noted last.
    noted: Vec<(u64, Note)>,
    stamp: u64,
    dirty: Vec<Slot>,
    moved: Vec<Slot>,
    left: Vec<Slot>,
    answered: Vec<(Slot, Status)>,
    raw: Vec<i64>,
}

/// Why a node has to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Note {
    #[default]
    None,
    /// Its class may be another.
    Class,
    /// Something about it has changed.
    Row,
    /// The node itself has changed.
    Node,
}

impl Scratch {
    fn begin(&mut self, slots: usize) {
        self.stamp += 1;
        self.dirty.clear();
        if self.noted.len() < slots {
            self.noted.resize(slots, (0, Note::None));
        }
    }

    fn note_of(&self, slot: Slot) -> Note {
        match self.noted.get(slot.index()) {
            Some((stamp, note)) if *stamp == self.stamp => *note,
            _ => Note::None,
        }
    }

    fn note(&mut self, slot: Slot, note: Note) {
        let before = self.note_of(slot);
        let Some(entry) = self.noted.get_mut(slot.index()) else {
            return;
        };
        let rank = |note: Note| note as u8;
        if before == Note::None {
            self.dirty.push(slot);
        }
        if rank(note) > rank(before) {
            *entry = (self.stamp, note);
        }
    }
}

impl Shape {
    /// Asks every plugin about every node. `evaluator` is for a pod of the shape; its evaluation is not touched.
    pub(super) fn build(
        evaluator: &mut Evaluator<'_>,
        plan: &Plan,
        scratch: &mut Scratch,
    ) -> Result<Self, Unkeepable> {
        let mut neutral = Pod::clone(&evaluator.pod.pod);
        neutral.metadata.uid = Str::default();
        let pod = Arc::new(PodInfo::new(Arc::new(neutral)));
        let mut shape = Self {
            pod,
            evaluation: Evaluation::default(),
            books: Vec::new(),
            scales: Vec::new(),
            local: Vec::new(),
            seen: (0, 0),
            columns: Arc::default(),
            scores: Vec::new(),
            classes: Classes::default(),
            known: Arc::default(),
            nodes: 0,
            broken: 0,
            broken_at: FxHashSet::default(),
            entangled: FxHashSet::default(),
            stale: Vec::new(),
            memos: Memos::default(),
            state: 0,
            used: 0,
        };
        shape.prepare(evaluator, plan)?;
        shape.ask_all(evaluator, plan, scratch)?;
        Ok(shape)
    }

    /// Runs what runs once: PreFilter and PreScore; opens the books.
    fn prepare(&mut self, evaluator: &Evaluator<'_>, plan: &Plan) -> Result<(), Unkeepable> {
        let profile = evaluator.profile;
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
        };
        let evaluation = &mut self.evaluation;
        for member in &plan.domains {
            evaluation.skip_filter.insert(member.id);
            evaluation.skip_score.insert(member.id);
        }
        for at in &plan.strangers {
            evaluation.skip_filter.insert(profile.pre_filter[*at].id);
        }
        for member in &profile.pre_filter {
            if evaluation.skip_filter.contains(member.id) {
                continue;
            }
            let state = &mut evaluation.state;
            match member.plugin.pre_filter(&cx, state, &self.pod) {
                PreFilterResult::AllNodes => {}
                PreFilterResult::Skip => evaluation.skip_filter.insert(member.id),
                PreFilterResult::Nodes(_) | PreFilterResult::Reject(_) => return Err(Unkeepable),
            }
        }
        for member in &profile.pre_score {
            if evaluation.skip_score.contains(member.id) {
                continue;
            }
            let state = &mut evaluation.state;
            let status = member.plugin.pre_score(&cx, state, &self.pod, &[]);
            if status.is_skip() {
                evaluation.skip_score.insert(member.id);
            } else if !status.is_success() {
                return Err(Unkeepable);
            }
        }
        let mut offset = 0;
        for (at, scorer) in profile.score.iter().enumerate() {
            if evaluation.skip_score.contains(scorer.member.id) {
                continue;
            }
            if plan.normalizes(scorer.member.id) {
                self.scales.push(Scale { scorer: at, offset });
                offset += 1;
            } else {
                self.local.push(at);
            }
        }
        for (at, member) in plan.domains.iter().enumerate() {
            if let Some(ledger) = member.plugin.open(&cx, &self.pod) {
                let width = ledger.width();
                self.books.push(Book {
                    member: at,
                    ledger,
                    offset,
                });
                offset += width;
            }
        }
        Ok(())
    }

    /// Asks about every node; the books are as the cluster is.
    fn ask_all(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        plan: &Plan,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let table = &evaluator.cluster.nodes;
        let slots = table.slots();
        self.seen = (table.changes_end(), evaluator.nominated.changes_end());
        self.known = Arc::new(vec![Known {
            status: Status::success(),
            filter: usize::MAX,
        }]);
        Arc::make_mut(&mut self.columns).resize(slots);
        self.scores = vec![0; slots];
        scratch.begin(slots);
        scratch.dirty.extend(table.iter().map(|view| view.slot()));
        for slot in &scratch.dirty {
            scratch.noted[slot.index()] = (scratch.stamp, Note::Node);
        }
        self.take_in(evaluator, plan, scratch)
    }

    /// Takes in what has changed since the shape was used last. After an error the shape is of no use.
    pub(super) fn catch_up(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        plan: &Plan,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
        };
        let table = &cx.cluster.nodes;
        let nominated = evaluator.nominated;
        let seen = (table.changes_end(), nominated.changes_end());
        if seen == self.seen && self.stale.is_empty() {
            return Ok(());
        }
        let slots = table.slots();
        let Some(changes) = table.changes_since(self.seen.0) else {
            return Err(Unkeepable);
        };
        scratch.begin(slots);
        if self.scores.len() < slots {
            Arc::make_mut(&mut self.columns).resize(slots);
            self.scores.resize(slots, 0);
        }
        for change in changes {
            let note = match change {
                TableChange::Node(_) => Note::Node,
                TableChange::Came(..) | TableChange::Went(..) => Note::Row,
            };
            scratch.note(change.slot(), note);
        }
        let known = nominated.changed_since(self.seen.1, &mut |node| {
            if let Some(slot) = table.slot(node) {
                scratch.note(slot, Note::Row);
            }
        });
        if !known {
            return Err(Unkeepable);
        }
        for slot in std::mem::take(&mut self.stale) {
            scratch.note(slot, Note::Row);
        }
        for book in &mut self.books {
            scratch.moved.clear();
            let moved = &mut scratch.moved;
            for change in table.changes_since(self.seen.0).into_iter().flatten() {
                let (slot, pod, movement) = match change {
                    TableChange::Node(_) => continue,
                    TableChange::Came(slot, pod) => (*slot, pod, Movement::Came),
                    TableChange::Went(slot, pod) => (*slot, pod, Movement::Went),
                };
                // A node that has changed is counted anew, as it is by now.
                let is_recounted = matches!(
                    scratch.noted.get(slot.index()),
                    Some((stamp, Note::Node)) if *stamp == scratch.stamp
                );
                if !is_recounted {
                    book.ledger.pod_moved(&cx, slot, pod, movement, moved);
                }
            }
            for at in 0..scratch.dirty.len() {
                let slot = scratch.dirty[at];
                if scratch.note_of(slot) == Note::Node {
                    book.ledger.node_changed(&cx, slot, &mut scratch.moved);
                }
            }
            for slot in std::mem::take(&mut scratch.moved) {
                scratch.note(slot, Note::Class);
            }
            if book.ledger.is_stale() {
                return Err(Unkeepable);
            }
        }
        self.seen = seen;
        self.take_in(evaluator, plan, scratch)
    }

    /// Looks anew at everything that was noted.
    fn take_in(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        plan: &Plan,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        self.state += 1;
        let mut shared = std::mem::take(&mut self.columns);
        let columns = Arc::make_mut(&mut shared);
        let dirty = std::mem::take(&mut scratch.dirty);
        scratch.left.clear();
        scratch.answered.clear();
        let mut promised: Vec<Slot> = Vec::new();
        for slot in &dirty {
            if !matches!(scratch.note_of(*slot), Note::Row | Note::Node) {
                continue;
            }
            self.memos.forget(*slot);
            self.broken_at.remove(slot);
            self.entangled.remove(slot);
            let Some(view) = evaluator.cluster.nodes.get(*slot) else {
                self.take_out(columns, *slot);
                continue;
            };
            if self.is_promised(evaluator, plan, *slot, view.name()) {
                promised.push(*slot);
            } else {
                scratch.left.push(*slot);
            }
        }
        self.ask_filters(evaluator, scratch);
        for slot in promised {
            let status = self.ask_promised(evaluator, slot);
            if status.is_success() {
                scratch.left.push(slot);
            } else {
                scratch.answered.push((slot, status));
            }
        }
        let kept = self.put_rejected(columns, evaluator, scratch)
            && self.put_feasible(columns, evaluator, scratch);
        for slot in &dirty {
            if scratch.note_of(*slot) == Note::Class {
                self.put_into_class(columns, *slot);
            }
        }
        scratch.dirty = dirty;
        self.columns = shared;
        self.nodes = evaluator.cluster.nodes.len();
        self.broken = self.broken_at.len();
        if kept && self.classes.len() <= CLASSES_MAX {
            Ok(())
        } else {
            Err(Unkeepable)
        }
    }

    /// Whether pods that count for this shape are nominated to a node. Notes whether they concern a ledger.
    fn is_promised(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        slot: Slot,
        name: &Str,
    ) -> bool {
        if evaluator.nominated.is_empty() {
            return false;
        }
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
        };
        let _ = plan;
        let (mut is_promised, mut is_entangled) = (false, false);
        let priority = self.pod.pod.priority();
        evaluator.nominated.on_node(name, &mut |pod| {
            if pod.pod.priority() >= priority {
                is_promised = true;
                is_entangled |= self.books.iter().any(|b| b.ledger.concerns(&cx, pod));
            }
        });
        if is_entangled {
            self.entangled.insert(slot);
        }
        is_promised
    }

    /// An evaluator for the per-node plugins and the shape's own pod.
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
            stopwatch: evaluator.stopwatch,
        }
    }

    /// Asks about a node that is promised to others, with them and without.
    fn ask_promised(&mut self, evaluator: &mut Evaluator<'_>, slot: Slot) -> Status {
        Self::own_evaluator(&self.pod, &mut self.evaluation, evaluator).filter_node(slot)
    }

    /// What the per-node filters say about a node to one pod of the shape, whose own nomination does not count.
    pub(super) fn ask_for(&mut self, evaluator: &mut Evaluator<'_>, slot: Slot) -> Status {
        let pod = evaluator.pod.clone();
        Self::own_evaluator(&pod, &mut self.evaluation, evaluator).filter_node(slot)
    }

    /// Asks the filters about the nodes that are left; those that are turned down go among the answered.
    fn ask_filters(&mut self, evaluator: &mut Evaluator<'_>, scratch: &mut Scratch) {
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
        };
        for (at, member) in evaluator.profile.filter.iter().enumerate() {
            if self.evaluation.skip_filter.contains(member.id) {
                continue;
            }
            if scratch.left.is_empty() {
                break;
            }
            let asked = u32::try_from(scratch.left.len()).unwrap_or(u32::MAX);
            Tally::add(&mut evaluator.evaluation.tally.filter, at, asked);
            let answered = &mut scratch.answered;
            member.plugin.filter_many(
                &cx,
                &self.evaluation.state,
                &self.pod,
                &mut scratch.left,
                &mut |slot, status| answered.push((slot, status.from_plugin(&member.name))),
            );
        }
    }

    /// Puts the nodes that were turned down where they belong; false when there are too many answers to keep.
    fn put_rejected(
        &mut self,
        columns: &mut Columns,
        evaluator: &Evaluator<'_>,
        scratch: &mut Scratch,
    ) -> bool {
        let answered = std::mem::take(&mut scratch.answered);
        let mut kept = true;
        let mut class = Class::new();
        for (slot, status) in &answered {
            if !status.is_rejected() {
                self.break_off(columns, *slot);
                continue;
            }
            match self.known(evaluator, status) {
                Some(answer) => {
                    class.clear();
                    class.resize(self.scales.len(), 0);
                    self.put(columns, *slot, answer, 0, &mut class);
                }
                None => kept = false,
            }
        }
        scratch.answered = answered;
        kept
    }

    /// Scores the nodes that are left, and puts them where they belong.
    fn put_feasible(
        &mut self,
        columns: &mut Columns,
        evaluator: &mut Evaluator<'_>,
        scratch: &mut Scratch,
    ) -> bool {
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
        };
        let nodes = &scratch.left;
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        if count == 0 {
            return true;
        }
        let raw = &mut scratch.raw;
        raw.clear();
        // First the sums, then the raw scores of each plugin that are brought to scale.
        raw.resize(nodes.len(), 0);
        let scorers = self.scales.iter().map(|scale| (scale.scorer, true));
        let local = self.local.iter().map(|scorer| (*scorer, false));
        for (at, is_raw) in local.chain(scorers) {
            let scorer = &evaluator.profile.score[at];
            let began = raw.len();
            Tally::add(&mut evaluator.evaluation.tally.score, at, count);
            let plugin = &scorer.member.plugin;
            let asked = plugin.score_many(&cx, &self.evaluation.state, &self.pod, nodes, raw);
            if asked.is_err() || raw.len() != began + nodes.len() {
                return false;
            }
            if is_raw {
                continue;
            }
            let (sums, scores) = raw.split_at_mut(began);
            for (sum, score) in sums.iter_mut().zip(scores.iter()) {
                if !(0..=MAX_NODE_SCORE).contains(score) {
                    return false;
                }
                *sum += score * scorer.weight;
            }
            raw.truncate(began);
        }
        let mut class = Class::new();
        for (at, slot) in scratch.left.iter().enumerate() {
            class.clear();
            let scaled = scratch.raw[at..].iter().step_by(count as usize).skip(1);
            class.extend(scaled.copied());
            self.put(columns, *slot, FEASIBLE, scratch.raw[at], &mut class);
        }
        true
    }

    /// Puts a node into the class that begins with `class`.
    fn put(
        &mut self,
        columns: &mut Columns,
        slot: Slot,
        answer: Answer,
        score: i64,
        class: &mut Class,
    ) {
        for book in &self.books {
            book.ledger.class(slot, class);
        }
        let at = slot.index();
        if let Some(before) = columns.answer(slot) {
            let id = columns.class_of[at];
            let same_class = self.classes.get(id).key == *class;
            if same_class && before == answer && self.scores[at] == score {
                return;
            }
            self.classes.remove(id, slot, before, &self.scores);
        }
        let id = self.classes.id(class);
        self.scores[at] = score;
        self.classes.add(id, slot, answer, score);
        columns.answers[at] = answer;
        columns.class_of[at] = id;
    }

    /// Puts a node into another class when a ledger sees it differently now.
    fn put_into_class(&mut self, columns: &mut Columns, slot: Slot) {
        let Some(answer) = columns.answer(slot) else {
            return;
        };
        let at = slot.index();
        let key = &self.classes.get(columns.class_of[at]).key;
        let mut class: Class = key[..self.scales.len()].into();
        self.put(columns, slot, answer, self.scores[at], &mut class);
    }

    /// Takes a node out of its class.
    fn take_out(&mut self, columns: &mut Columns, slot: Slot) {
        if let Some(answer) = columns.answer(slot) {
            let id = columns.class_of[slot.index()];
            self.classes.remove(id, slot, answer, &self.scores);
            columns.answers[slot.index()] = NO_NODE;
        }
    }

    /// A filter broke on a node: the plain evaluator has to say what comes of it.
    fn break_off(&mut self, columns: &mut Columns, slot: Slot) {
        self.take_out(columns, slot);
        self.broken_at.insert(slot);
    }

    /// Puts in what a node answers to one pod alone; the node is asked again for the next.
    pub(super) fn answer_for_now(
        &mut self,
        evaluator: &Evaluator<'_>,
        slot: Slot,
        status: &Status,
    ) -> Result<(), Unkeepable> {
        let was = self.columns.answer(slot);
        self.stale.push(slot);
        self.memos.forget(slot);
        let answer = if status.is_success() {
            FEASIBLE
        } else if status.is_rejected() {
            self.known(evaluator, status).ok_or(Unkeepable)?
        } else {
            return Err(Unkeepable);
        };
        if was == Some(answer) {
            return Ok(());
        }
        let mut class = Class::new();
        let mut sum = 0;
        if answer == FEASIBLE {
            let cx = Context {
                now: evaluator.now,
                cluster: evaluator.cluster,
                features: evaluator.features,
            };
            let score = |at: usize| {
                let scorer = &evaluator.profile.score[at];
                let state = &self.evaluation.state;
                let mut scores = Vec::new();
                let plugin = &scorer.member.plugin;
                plugin
                    .score_many(&cx, state, &self.pod, &[slot], &mut scores)
                    .map_err(|_| Unkeepable)?;
                scores.first().copied().ok_or(Unkeepable)
            };
            for at in &self.local {
                sum += score(*at)? * evaluator.profile.score[*at].weight;
            }
            for scale in &self.scales {
                class.push(score(scale.scorer)?);
            }
        } else {
            class.resize(self.scales.len(), 0);
        }
        let mut shared = std::mem::take(&mut self.columns);
        self.put(Arc::make_mut(&mut shared), slot, answer, sum, &mut class);
        self.columns = shared;
        Ok(())
    }

    /// The answer for a status; `None` when there are too many.
    fn known(&mut self, evaluator: &Evaluator<'_>, status: &Status) -> Option<Answer> {
        if let Some(at) = self.known.iter().position(|k| k.status == *status) {
            return Answer::try_from(at).ok();
        }
        if self.known.len() >= STATUSES_MAX {
            return None;
        }
        let plugin = status.plugin()?;
        let mut filters = evaluator.profile.filter.iter();
        let filter = filters.position(|member| member.name == *plugin)?;
        let known = Known {
            status: status.clone(),
            filter,
        };
        Arc::make_mut(&mut self.known).push(known);
        Answer::try_from(self.known.len() - 1).ok()
    }

    /// Lends out what PostFilter has found out, if it holds; see [`Shape::take_back`].
    pub(super) fn lend_memos(&mut self, shape: &[u8], budgets: u64) -> Option<Memos> {
        if !self.books.iter().all(|book| book.ledger.is_indifferent()) {
            self.memos.clear();
            return None;
        }
        let mut memos = std::mem::take(&mut self.memos);
        if memos.budgets != budgets {
            memos.clear();
        }
        if memos.shape.is_empty() {
            memos.shape = shape.into();
        }
        memos.budgets = budgets;
        memos.state = self.state;
        Some(memos)
    }

    /// Takes back what was lent out, unless too much has happened meanwhile.
    pub(super) fn take_back(&mut self, memos: Memos) {
        if memos.state == self.state {
            self.memos = memos;
        }
    }

    /// Whether the plain evaluator has to decide.
    pub(super) fn needs_plain(&self) -> bool {
        self.broken > 0 || !self.entangled.is_empty()
    }

    /// About how much memory the shape takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let per_slot = size_of::<Answer>() + size_of::<ClassId>() + size_of::<i64>();
        let books: usize = self.books.iter().map(|b| b.ledger.bytes()).sum();
        size_of::<Self>() + self.scores.capacity() * per_slot + self.classes.bytes() + books
    }
}
