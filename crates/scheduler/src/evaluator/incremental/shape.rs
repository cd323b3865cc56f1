//! The kept state for all pods of one shape: every node's answer and score, taken from the node answers that the shape
//! shares with others, and its class, with the domain counts.

use super::classes::{ClassId, FEASIBLE, Filling, NO_NODE, NodeAnswer, NodeClasses, Sum};
use super::node_answers::{Cell, Grade, Known, NodeAnswers, neutral};
use super::plan::Plan;
use super::scratch::{Note, Scratch};
use crate::evaluator::{Evaluator, Memos};
use berth_framework::Slot;
use berth_framework::keep::{Class, Ledger, Movement};
use berth_framework::plugin::Context;
use berth_framework::table::TableChange;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// A class begins with the grades of the two groups.
pub(super) const GRADES: usize = 2;

/// The reason why no answers are kept for a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unkeepable;

/// The node answers of a shape: of the plugins that read nodes alone, and of those that read their pods as well.
pub(super) struct GroupAnswers<'a> {
    pub(super) node: &'a mut NodeAnswers,
    pub(super) pods: &'a mut NodeAnswers,
}

impl GroupAnswers<'_> {
    pub(super) fn both(&self) -> [&NodeAnswers; GRADES] {
        [self.node, self.pods]
    }
}

/// A ledger with its plugin's place among the plan's.
#[derive(Debug)]
pub(super) struct DomainCounts {
    pub(super) member: usize,
    pub(super) ledger: Box<dyn Ledger>,
    /// The start of the numbers of the ledger in a class.
    pub(super) offset: usize,
}

/// The kept state of every node, by slot.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    /// The answer of the plugins that judge nodes one by one.
    pub(super) answers: Vec<NodeAnswer>,
    /// The class.
    pub(super) class_of: Vec<ClassId>,
}

impl Columns {
    fn resize(&mut self, slots: usize) {
        self.answers.resize(slots, NO_NODE);
        self.class_of.resize(slots, ClassId::MAX);
    }

    /// The answer of a node; `None` where there is none.
    pub(super) fn answer(&self, slot: Slot) -> Option<NodeAnswer> {
        let answer = self.answers.get(slot.index()).copied();
        answer.filter(|answer| *answer != NO_NODE)
    }
}

/// The position in the changes of the table and of the node answers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    table: u64,
    group_answers: [u64; GRADES],
}

/// See the [module](self).
pub(super) struct Shape {
    pub(super) domain_counts: Vec<DomainCounts>,
    seen: Seen,
    pub(super) columns: Arc<Columns>,
    /// By slot: the sum of the scores that need no scale, weights included.
    pub(super) scores: Vec<Sum>,
    pub(super) classes: NodeClasses,
    /// Answers; the first means [`FEASIBLE`].
    pub(super) known: Arc<Vec<Known>>,
    /// For each group: the shape's numbers of its answers.
    answers_of: [Vec<NodeAnswer>; GRADES],
    /// The number of nodes.
    pub(super) nodes: usize,
    /// Nodes with nominated pods that would change the answer of a ledger, or the order in which filters are asked.
    entangled: FxHashSet<Slot>,
    /// Nodes that answered for one pod alone: to be looked at again.
    stale: Vec<Slot>,
    /// The findings of PostFilter; lent out with the verdict that a pod fits nowhere.
    memos: Memos,
    /// Counts the changes of the shape.
    state: u64,
}

impl Shape {
    /// Puts every node into its class for the evaluator's pod, with domain counts that were just opened. The node answers
    /// are up to date.
    pub(super) fn build(
        evaluator: &Evaluator<'_>,
        domain_counts: Vec<DomainCounts>,
        group_answers: &GroupAnswers<'_>,
    ) -> Result<Self, Unkeepable> {
        let table = &evaluator.cluster.nodes;
        let slots = table.slots();
        let mut columns = Columns::default();
        columns.resize(slots);
        let mut shape = Self {
            domain_counts,
            seen: Seen {
                table: table.log().end(),
                group_answers: group_answers.both().map(NodeAnswers::changes_end),
            },
            columns: Arc::new(columns),
            scores: vec![0; slots],
            classes: NodeClasses::default(),
            known: Arc::new(vec![Known::feasible()]),
            answers_of: [vec![FEASIBLE], vec![FEASIBLE]],
            nodes: 0,
            entangled: FxHashSet::default(),
            stale: Vec::new(),
            memos: Memos::default(),
            state: 0,
        };
        if evaluator.nominated.is_empty() {
            shape.fill(evaluator, group_answers)?;
        } else {
            shape.take_in(evaluator, group_answers, table.occupied())?;
        }
        Ok(shape)
    }

    /// Puts all nodes of a new shape into their classes when no pod is nominated: the same as [`Shape::take_in`], with
    /// as little as possible per node.
    fn fill(
        &mut self,
        evaluator: &Evaluator<'_>,
        group_answers: &GroupAnswers<'_>,
    ) -> Result<(), Unkeepable> {
        self.learn(group_answers)?;
        let mut shared = std::mem::take(&mut self.columns);
        let columns = Arc::make_mut(&mut shared);
        let mut filling = Filling::default();
        let mut class = Class::new();
        let mut domains = self.domain_counts.iter();
        let is_uniform = domains.all(|domain| domain.ledger.is_uniform());
        let mut selected = None;
        let [a, b] = group_answers.both().map(NodeAnswers::cells);
        for (at, (a, b)) in a.iter().zip(b).enumerate() {
            if a.answer == NO_NODE || b.answer == NO_NODE {
                continue;
            }
            let slot = Slot::from_index(at as u32);
            let (answer, score) = self.joined([*a, *b])?;
            let grades = match answer {
                FEASIBLE => [a.grade, b.grade],
                _ => [0; GRADES],
            };
            if !is_uniform || selected != Some(grades) {
                class.clear();
                class.extend(grades.into_iter().map(i64::from));
                for domain in &self.domain_counts {
                    domain.ledger.class(slot, &mut class);
                }
                let classes = &mut self.classes;
                filling.select(classes, &class).ok_or(Unkeepable)?;
                selected = Some(grades);
            }
            let id = filling.add(&mut self.classes, slot, answer, score);
            let id = id.ok_or(Unkeepable)?;
            self.scores[at] = score;
            columns.answers[at] = answer;
            columns.class_of[at] = id;
        }
        filling.finish(&mut self.classes);
        self.columns = shared;
        self.nodes = evaluator.cluster.nodes.len();
        Ok(())
    }

    /// Takes in what has changed since the shape was used last; the node answers have done so. After an error the shape
    /// is of no use.
    pub(super) fn catch_up(
        &mut self,
        evaluator: &Evaluator<'_>,
        group_answers: &GroupAnswers<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            work: evaluator.work,
        };
        let table = &cx.cluster.nodes;
        let seen = Seen {
            table: table.log().end(),
            group_answers: group_answers.both().map(NodeAnswers::changes_end),
        };
        if seen == self.seen && self.stale.is_empty() {
            return Ok(());
        }
        let slots = table.slots();
        scratch.begin(slots);
        if self.scores.len() < slots {
            Arc::make_mut(&mut self.columns).resize(slots);
            self.scores.resize(slots, 0);
        }
        DomainCounts::follow_all(&mut self.domain_counts, &cx, self.seen.table, scratch)?;
        for (node_answers, seen) in group_answers
            .both()
            .into_iter()
            .zip(self.seen.group_answers)
        {
            for slot in node_answers.changes_since(seen).ok_or(Unkeepable)? {
                scratch.note(slot, Note::Row);
            }
        }
        for slot in std::mem::take(&mut self.stale) {
            scratch.note(slot, Note::Row);
        }
        self.seen = seen;
        self.take_in(evaluator, group_answers, scratch.noted().iter().copied())
    }

    /// Looks anew at nodes.
    fn take_in(
        &mut self,
        evaluator: &Evaluator<'_>,
        group_answers: &GroupAnswers<'_>,
        nodes: impl Iterator<Item = Slot>,
    ) -> Result<(), Unkeepable> {
        self.state += 1;
        self.learn(group_answers)?;
        let may_have_nominations =
            !evaluator.nominated.is_empty() && !self.domain_counts.is_empty();
        let mut shared = std::mem::take(&mut self.columns);
        let columns = Arc::make_mut(&mut shared);
        let mut class = Class::new();
        for slot in nodes {
            self.memos.forget(slot);
            if !self.entangled.is_empty() {
                self.entangled.remove(&slot);
            }
            let mut cells = group_answers
                .both()
                .map(|node_answers| node_answers.cell(slot));
            if cells.iter().any(|cell| cell.answer == NO_NODE) {
                self.take_out(columns, slot);
                continue;
            }
            if may_have_nominations {
                self.note_entangled(evaluator, group_answers, slot);
            }
            // With the nominated pods, which are counted first, only the first group rejects it.
            if cells[0].answer != FEASIBLE && group_answers.pods.needs_nominated(slot) {
                cells[1].answer = FEASIBLE;
            }
            let (answer, score) = self.joined(cells)?;
            class.clear();
            class.extend(cells.iter().map(|cell| i64::from(cell.grade)));
            self.put(columns, slot, answer, score, &mut class)?;
        }
        self.columns = shared;
        self.nodes = evaluator.cluster.nodes.len();
        Ok(())
    }

    /// Numbers the answers that are new in the node answers.
    fn learn(&mut self, group_answers: &GroupAnswers<'_>) -> Result<(), Unkeepable> {
        for (node_answers, answers) in group_answers.both().into_iter().zip(&mut self.answers_of) {
            for known in &node_answers.known[answers.len()..] {
                let answer = NodeAnswer::try_from(self.known.len()).map_err(|_| Unkeepable)?;
                if answer == NO_NODE {
                    return Err(Unkeepable);
                }
                Arc::make_mut(&mut self.known).push(known.clone());
                answers.push(answer);
            }
        }
        Ok(())
    }

    /// The answer of both groups together: that of the first filter that rejected the node.
    #[inline]
    fn joined(&self, cells: [Cell; GRADES]) -> Result<(NodeAnswer, Sum), Unkeepable> {
        let [first, second] = cells;
        let score = first.score.checked_add(second.score);
        if first.answer == FEASIBLE && second.answer == FEASIBLE {
            return Ok((FEASIBLE, score.ok_or(Unkeepable)?));
        }
        let a = self.answers_of[0][usize::from(first.answer)];
        let b = self.answers_of[1][usize::from(second.answer)];
        let answer = match (a, b) {
            (FEASIBLE, b) => b,
            (a, FEASIBLE) => a,
            (a, b) => {
                let place = |answer: NodeAnswer| self.known[usize::from(answer)].filter;
                if place(a) < place(b) { a } else { b }
            }
        };
        Ok((answer, 0))
    }

    /// Notes whether pods are nominated to a node that concern a ledger, or without which a filter rejects the node: a
    /// ledger that rejects it anyway is asked before.
    fn note_entangled(
        &mut self,
        evaluator: &Evaluator<'_>,
        group_answers: &GroupAnswers<'_>,
        slot: Slot,
    ) {
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            work: evaluator.work,
        };
        let Some(view) = cx.cluster.nodes.get(slot) else {
            return;
        };
        let mut is_entangled = group_answers.pods.needs_nominated(slot);
        let priority = group_answers.pods.pod.pod.priority();
        evaluator.nominated.on_node(view.name(), &mut |pod| {
            let concerns = || {
                self.domain_counts
                    .iter()
                    .any(|b| b.ledger.concerns(&cx, pod))
            };
            is_entangled |= pod.pod.priority() >= priority && concerns();
        });
        if is_entangled {
            self.entangled.insert(slot);
        }
    }

    /// Puts a node into the class that begins with `class`. A node that was rejected has no grade.
    fn put(
        &mut self,
        columns: &mut Columns,
        slot: Slot,
        answer: NodeAnswer,
        score: Sum,
        class: &mut Class,
    ) -> Result<(), Unkeepable> {
        if answer != FEASIBLE {
            class.iter_mut().for_each(|grade| *grade = 0);
        }
        for domain in &self.domain_counts {
            domain.ledger.class(slot, class);
        }
        let at = slot.index();
        if let Some(before) = columns.answer(slot) {
            let id = columns.class_of[at];
            let same_class = self.classes.get(id).key == *class;
            if same_class {
                let score_before = std::mem::replace(&mut self.scores[at], score);
                if before != answer || score_before != score {
                    let answers = (before, answer);
                    self.classes.change(id, slot, answers, &self.scores);
                    columns.answers[at] = answer;
                }
                return Ok(());
            }
            self.classes.remove(id, slot, before, &self.scores);
        }
        let id = self.classes.id(class).ok_or(Unkeepable)?;
        self.scores[at] = score;
        self.classes.add(id, slot, answer, score);
        columns.answers[at] = answer;
        columns.class_of[at] = id;
        Ok(())
    }

    /// Takes a node out of its class.
    fn take_out(&mut self, columns: &mut Columns, slot: Slot) {
        if let Some(answer) = columns.answer(slot) {
            let id = columns.class_of[slot.index()];
            self.classes.remove(id, slot, answer, &self.scores);
            columns.answers[slot.index()] = NO_NODE;
        }
    }

    /// Lets a node answer to one pod alone, whose own nomination does not count; it is looked at again for the next.
    pub(super) fn answer_for_now(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        group_answers: &mut GroupAnswers<'_>,
        slot: Slot,
    ) -> Result<(), Unkeepable> {
        self.stale.push(slot);
        self.memos.forget(slot);
        let (status, needs_nominated) = group_answers.pods.ask_for(evaluator, slot);
        if needs_nominated {
            self.entangled.insert(slot);
        }
        let kept = group_answers.pods.cell(slot);
        let was = group_answers.pods.known.get(usize::from(kept.answer));
        if was.is_some_and(|known| known.status == status) {
            return Ok(());
        }
        let own = group_answers.pods.cell_for(evaluator, slot, &status)?;
        self.learn(group_answers)?;
        let cells = [group_answers.node.cell(slot), own];
        if cells.iter().any(|cell| cell.answer == NO_NODE) {
            return Err(Unkeepable);
        }
        let (answer, score) = self.joined(cells)?;
        let class = cells.iter().map(|cell| i64::from(cell.grade)).collect();
        self.put_for_now(slot, answer, score, class)
    }

    /// Puts one node into the class that begins with `class`. After an error the shape is of no use.
    fn put_for_now(
        &mut self,
        slot: Slot,
        answer: NodeAnswer,
        score: Sum,
        mut class: Class,
    ) -> Result<(), Unkeepable> {
        let mut shared = std::mem::take(&mut self.columns);
        let columns = Arc::make_mut(&mut shared);
        let put = self.put(columns, slot, answer, score, &mut class);
        self.columns = shared;
        if put.is_err() {
            self.seen.table = u64::MAX;
        }
        put
    }

    /// Rejects the nodes that a ledger rejects with the pods that are nominated to them (C-18). That holds for the
    /// evaluator's pod alone: these nodes are looked at again for the next.
    pub(super) fn count_nominated(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
    ) -> Result<(), Unkeepable> {
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            work: evaluator.work,
        };
        let entangled: Vec<Slot> = self.entangled.iter().copied().collect();
        for slot in entangled {
            let nominated = evaluator.nominated_to(slot);
            let mut rejection = None;
            for counts in &mut self.domain_counts {
                let Some(filter) = plan.domains[counts.member].filter else {
                    continue;
                };
                let result = counts.ledger.filter_with(&cx, slot, &nominated);
                if let Err(status) = result.ok_or(Unkeepable)? {
                    rejection = Some(Known { status, filter });
                    break;
                }
            }
            let Some(known) = rejection else {
                continue;
            };
            if !known.status.is_rejected() {
                return Err(Unkeepable);
            }
            let answer = self.answer_of(known)?;
            self.stale.push(slot);
            self.put_for_now(slot, answer, 0, [0; GRADES].into_iter().collect())?;
        }
        Ok(())
    }

    /// The number of an answer.
    fn answer_of(&mut self, known: Known) -> Result<NodeAnswer, Unkeepable> {
        let place = self.known.iter().position(|other| *other == known);
        let answer =
            NodeAnswer::try_from(place.unwrap_or(self.known.len())).map_err(|_| Unkeepable)?;
        if answer == NO_NODE {
            return Err(Unkeepable);
        }
        if place.is_none() {
            Arc::make_mut(&mut self.known).push(known);
        }
        Ok(answer)
    }

    /// Lends out what PostFilter found, if it holds; see [`Shape::revert`].
    pub(super) fn lend_memos(&mut self, shape: &[u8], version: u64) -> Option<Memos> {
        if !self
            .domain_counts
            .iter()
            .all(|domain| domain.ledger.is_indifferent())
        {
            self.memos.clear();
            return None;
        }
        let mut memos = std::mem::take(&mut self.memos);
        if memos.version != version {
            memos.clear();
        }
        if memos.shape.is_empty() {
            memos.shape = shape.into();
        }
        memos.version = version;
        memos.state = self.state;
        Some(memos)
    }

    /// Stores what was lent out, unless too much has happened meanwhile.
    pub(super) fn revert(&mut self, memos: Memos) {
        if memos.state == self.state {
            self.memos = memos;
        }
    }

    /// Returns whether pods are nominated that would change the answer of a ledger about their node.
    pub(super) fn is_entangled(&self) -> bool {
        !self.entangled.is_empty()
    }

    /// The raw score that a class got from a plugin whose scores are brought to scale.
    pub(super) fn raw(
        &self,
        group_answers: &GroupAnswers<'_>,
        id: ClassId,
        node_answers: usize,
        scale: usize,
    ) -> i64 {
        let grade = self.classes.get(id).key[node_answers];
        let raw = group_answers.both()[node_answers].grade(Grade::try_from(grade).unwrap_or(0));
        raw.get(scale).copied().unwrap_or(0)
    }

    /// About how much memory the shape takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let per_slot = size_of::<NodeAnswer>() + size_of::<ClassId>() + size_of::<Sum>();
        let domain_counts: usize = self.domain_counts.iter().map(|b| b.ledger.bytes()).sum();
        size_of::<Self>() + self.scores.capacity() * per_slot + self.classes.bytes() + domain_counts
    }
}

impl DomainCounts {
    /// Counts domains for the evaluator's pod.
    pub(super) fn open(evaluator: &Evaluator<'_>, plan: &Plan) -> Vec<Self> {
        let cx = Context {
            now: evaluator.now,
            cluster: evaluator.cluster,
            features: evaluator.features,
            work: evaluator.work,
        };
        let pod = neutral(evaluator.pod);
        let mut offset = GRADES;
        let opened = plan.domains.iter().enumerate().filter_map(|(member, of)| {
            let ledger = of.plugin.open(&cx, &pod)?;
            let width = ledger.width();
            offset += width;
            Some(Self {
                member,
                ledger,
                offset: offset - width,
            })
        });
        opened.collect()
    }

    /// Passes the changes of the table since `seen` to ledgers, and notes the nodes that have changed, or whose class may
    /// have.
    pub(super) fn follow_all(
        all: &mut [Self],
        cx: &Context<'_>,
        seen: u64,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let log = cx.cluster.nodes.log();
        let changes = log.since(seen).ok_or(Unkeepable)?;
        if log.has_node_change(seen) {
            for change in changes {
                if let TableChange::Node(slot) = change {
                    scratch.note(*slot, Note::Node);
                }
            }
        }
        all.iter_mut()
            .try_for_each(|domain| domain.follow(cx, seen, scratch))
    }

    /// Passes the changes since `seen` to the ledger, and notes the nodes whose class may have changed. The nodes
    /// that have changed themselves are noted already: each is counted anew, as it is by now.
    fn follow(
        &mut self,
        cx: &Context<'_>,
        seen: u64,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let mut moved = std::mem::take(&mut scratch.moved);
        moved.clear();
        let changes = cx.cluster.nodes.log().with_marks_since(seen);
        for (marks, change) in changes.ok_or(Unkeepable)? {
            if !self.ledger.may_count(marks) {
                continue;
            }
            let (slot, pod, movement) = match change {
                TableChange::Node(_) | TableChange::Storage(_) | TableChange::Claim { .. } => {
                    continue;
                }
                TableChange::PodAdded(slot, pod) => (*slot, pod, Movement::PodAdded),
                TableChange::PodRemoved(slot, pod) => (*slot, pod, Movement::PodRemoved),
            };
            if scratch.note_of(slot) != Note::Node {
                let ledger = &mut self.ledger;
                ledger.pod_moved(cx, slot, pod, movement, &mut moved);
            }
        }
        for slot in scratch.noted() {
            if scratch.note_of(*slot) == Note::Node {
                self.ledger.node_changed(cx, *slot, &mut moved);
            }
        }
        for slot in &moved {
            scratch.note(*slot, Note::Row);
        }
        scratch.moved = moved;
        if self.ledger.is_stale() {
            return Err(Unkeepable);
        }
        Ok(())
    }
}
