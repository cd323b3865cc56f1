//! The explanation of a group of pods.

mod remedies;
mod trial;

use crate::answer::{
    ChildGroup, GroupAnswer, GroupMember, GroupState, PodName, PodState, Preemption, QueuePlace,
};
use crate::facts::{GroupFact, GroupFacts, MemberFact};
use crate::snapshot::Snapshot;
use crate::words::{ago, count, seconds};
use berth_api::{Pod, Str, Time};
use berth_framework::PodInfo;
use berth_framework::call::PodRef;
use berth_framework::cluster::{GroupKey, GroupKind};
use berth_scheduler::profile::Profile;
use berth_scheduler::queue::QueuedIn;
use std::sync::Arc;
use trial::{Findings, Trial, WaitingMember};

/// The limits of the explanation of a group.
pub(crate) mod limits {
    /// The total number of node filterings.
    pub(crate) const FILTER_RUNS_MAX: usize = 300_000;
    /// The number of tried values of a topology label.
    pub(crate) const DOMAINS_TRIED_MAX: usize = 64;
    /// The number of listed domains.
    pub(crate) const DOMAINS_LISTED_MAX: usize = 10;
    /// The number of members of a pod group with listed closest nodes.
    pub(crate) const MEMBERS_EXAMINED_MAX: usize = 3;
    /// The number of listed members.
    pub(crate) const MEMBERS_LISTED_MAX: usize = 50;
    /// The number of listed groups below a group.
    pub(crate) const CHILDREN_LISTED_MAX: usize = 50;
}

/// The plugin that requires enough members. The answer states this requirement separately.
const GANG_PLUGIN: &str = "GangScheduling";

/// The explanation of the group. A trial in the snapshot is reverted.
pub fn explain_group(snapshot: &mut Snapshot, facts: &GroupFacts) -> GroupAnswer {
    let key = &facts.key;
    let group = facts.of(key);
    let is_there = snapshot.cluster.groups().get(key).is_some();
    let spec = group.map(|group| &group.spec);
    let mut answer = GroupAnswer {
        at: snapshot.now.rfc3339(),
        kind: key.kind.kind().name().to_owned(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        root: match &facts.root {
            Ok(root) if root != key => Some(root.name.to_string()),
            _ => None,
        },
        priority: spec.map_or(0, |spec| spec.priority()),
        state: state(snapshot, facts, is_there),
        policy: match spec.and_then(|spec| spec.gang_min()) {
            Some(_) => "gang".to_owned(),
            None => "basic".to_owned(),
        },
        need: spec.map_or(0, |spec| spec.min()),
        known: group.map_or(0, |group| facts.known(group)),
        scheduled: group.map_or(0, |group| facts.scheduled(group)),
        queue: queue_place(snapshot, facts),
        condition: facts.condition.clone(),
        topology_key: spec
            .and_then(|spec| spec.topology_key())
            .map(ToString::to_string),
        children: children(facts),
        ..GroupAnswer::default()
    };
    let waiting = waiting(facts);
    let profile = waiting.first().and_then(|first| {
        let name = &first.pod.pod.spec.scheduler_name;
        snapshot.profiles.get(name).cloned()
    });
    let mut findings = Findings::default();
    if let (Some(profile), Ok(root)) = (&profile, &facts.root)
        && is_there
    {
        findings = place(snapshot, facts, profile, root, &waiting, &mut answer);
    }
    members(
        snapshot,
        profile.as_ref(),
        facts,
        &waiting,
        &findings,
        &mut answer,
    );
    answer.summary = summary(facts, &answer);
    answer
}

/// Tries to place the group, and the changes that would let it start.
fn place(
    snapshot: &mut Snapshot,
    facts: &GroupFacts,
    profile: &Arc<Profile>,
    root: &GroupKey,
    waiting: &[WaitingMember],
    answer: &mut GroupAnswer,
) -> Findings {
    let mut budget = limits::FILTER_RUNS_MAX;
    // All members are tried, because the answer lists the lacks of each.
    let mut trial = Trial::begin(snapshot, profile, root, waiting, &mut budget).thorough();
    let result = trial.run();
    let mut findings = trial.end();
    let key = &facts.key;
    let places = |of: &GroupKey| findings.leaves.get(of).map(|leaf| leaf.placed.len());
    answer.places = match key.kind {
        GroupKind::PodGroup => places(key),
        GroupKind::CompositePodGroup => None,
    };
    for (child, key) in answer.children.iter_mut().zip(below(facts)) {
        child.places = places(&key.key);
    }
    if let Some(domains) = findings.domains.remove(key) {
        answer.domain_count = domains.len();
        answer.domains = domains;
        answer.domains.truncate(limits::DOMAINS_LISTED_MAX);
    }
    let failed = result.err();
    // Only a rejected group preempts; an error does not.
    if let Some(status) = &failed
        && status.is_rejected()
    {
        answer.preemption = preemption(snapshot, profile, root, waiting, &mut budget);
    }
    let case = remedies::GroupCase {
        facts,
        profile,
        root,
        waiting,
        findings: &findings,
        fits: failed.is_none(),
    };
    answer.remedies = case.remedies(snapshot, &mut budget, &mut answer.notes);
    notes(snapshot, waiting, answer);
    // A truncated answer must not look complete.
    if findings.is_cut || budget == 0 {
        let text = "the group and the cluster are so large that not all members, nodes and changes were tried";
        answer.notes.push(text.to_owned());
    }
    findings
}

fn notes(snapshot: &Snapshot, waiting: &[WaitingMember], answer: &mut GroupAnswer) {
    if snapshot.has_extenders {
        let text = "extenders are configured; they are not asked here, so they may reject nodes that this answer \
                    shows as feasible";
        answer.notes.push(text.to_owned());
    }
    let reserves = |member: &WaitingMember| {
        let spec = &member.pod.pod.spec;
        !spec.volumes.is_empty() || !spec.resource_claims.is_empty()
    };
    if waiting.iter().any(reserves) {
        let text = "volumes and devices are not reserved between the members here, so that two of them may be \
                    shown with the same one";
        answer.notes.push(text.to_owned());
    }
}

/// The waiting members, in the order of their attempts.
fn waiting(facts: &GroupFacts) -> Vec<WaitingMember> {
    let waiting = facts.members.iter().filter(|m| !m.pod.is_assigned());
    let waiting = waiting.map(|member| WaitingMember {
        leaf: member.leaf.clone(),
        pod: Arc::new(PodInfo::new(member.pod.clone())),
        is_new: false,
    });
    waiting.collect()
}

/// The groups below the requested one.
fn below(facts: &GroupFacts) -> impl Iterator<Item = &GroupFact> {
    let below = facts.tree.iter();
    let below = below.filter(|group| group.key != facts.key && facts.is_below(&group.key));
    below.take(limits::CHILDREN_LISTED_MAX)
}

fn children(facts: &GroupFacts) -> Vec<ChildGroup> {
    let children = below(facts).map(|group| {
        let parent = group.parent.as_ref();
        ChildGroup {
            kind: group.key.kind.kind().name().to_owned(),
            name: group.key.name.to_string(),
            parent: parent.map_or_else(String::new, |parent| parent.name.to_string()),
            need: group.spec.min(),
            known: facts.known(group),
            scheduled: facts.scheduled(group),
            places: None,
        }
    });
    children.collect()
}

fn is_gated(member: &MemberFact) -> bool {
    !member.pod.is_assigned() && !member.pod.spec.scheduling_gates.is_empty()
}

fn state(snapshot: &Snapshot, facts: &GroupFacts, is_there: bool) -> GroupState {
    if !is_there {
        return GroupState::Missing;
    }
    let Ok(root) = &facts.root else {
        return GroupState::Incomplete;
    };
    let mut of_group = facts.members.iter().filter(|m| facts.is_below(&m.leaf));
    let waits = of_group.any(|member| !member.pod.is_assigned());
    if facts.has_started(&facts.key) && !waits {
        return GroupState::Started;
    }
    if !snapshot.cluster.is_ready(root) || !waits {
        return GroupState::WaitingForMembers;
    }
    if facts.members.iter().any(is_gated) {
        return GroupState::Gated;
    }
    match facts.queued.as_ref().map(|(place, _)| *place) {
        None => GroupState::Scheduling,
        Some(QueuedIn::Gated) => GroupState::Gated,
        Some(QueuedIn::Active) => GroupState::Active,
        Some(QueuedIn::Backoff | QueuedIn::ErrorBackoff) => GroupState::Backoff,
        Some(QueuedIn::Unschedulable) => GroupState::Unschedulable,
    }
}

fn queue_place(snapshot: &Snapshot, facts: &GroupFacts) -> Option<QueuePlace> {
    let (_, info) = facts.queued.as_ref()?;
    Some(QueuePlace {
        since: info.waits_since().rfc3339(),
        seconds: seconds(info.waits_since(), snapshot.now),
        ahead: None,
        backoff_until: facts.backoff_expiry.map(Time::rfc3339),
        attempts: info.attempts,
        first_attempt: info.initial_attempt_timestamp.map(Time::rfc3339),
        rejections: info.unschedulable_count,
        errors: info.in_a_row.errors,
        was_flushed: info.was_flushed_from_unschedulable,
        rejected_by: info.rejectors().map(ToString::to_string).collect(),
    })
}

/// The gates of a member, and the PreEnqueue plugins that reject it.
fn gates_of(snapshot: &Snapshot, profile: &Profile, pod: &Pod) -> Vec<String> {
    let gates = pod.spec.scheduling_gates.iter();
    let mut names: Vec<String> = gates.map(|gate| gate.name.to_string()).collect();
    for member in &profile.pre_enqueue {
        let is_stated = member.name == GANG_PLUGIN || member.name == "SchedulingGates";
        let status = if is_stated {
            continue;
        } else {
            member.plugin.pre_enqueue(&snapshot.context(), pod)
        };
        if !status.is_success() {
            names.push(format!("{}: {}", member.name, status.message()));
        }
    }
    names
}

/// Lists the members: first waiting members that fit nowhere, then other waiting members, then members with a node.
fn members(
    snapshot: &Snapshot,
    profile: Option<&Arc<Profile>>,
    facts: &GroupFacts,
    waiting: &[WaitingMember],
    findings: &Findings,
    answer: &mut GroupAnswer,
) {
    let at_of = |pod: &Pod| {
        let mut waiting = waiting.iter();
        waiting.position(|w| w.pod.pod.uid() == pod.uid())
    };
    let mut listed: Vec<((bool, bool), GroupMember)> = Vec::new();
    for member in facts.members.iter().filter(|m| facts.is_below(&m.leaf)) {
        answer.member_count += 1;
        let pod = &member.pod;
        let at = at_of(pod);
        let leaf = findings.leaves.get(&member.leaf);
        let place: Option<&Str> = leaf.zip(at).and_then(|(leaf, at)| {
            let mut placed = leaf.placed.iter();
            Some(&placed.find(|(of, _)| *of == at)?.1)
        });
        let closest = leaf.zip(at).and_then(|(leaf, at)| {
            let mut unfit = leaf.unfit.iter();
            Some(unfit.find(|(of, _)| *of == at)?.1.clone())
        });
        let gates = profile.filter(|_| !pod.is_assigned());
        let state = match (pod.is_assigned(), member.place) {
            (true, _) => PodState::Bound,
            (false, Some(place)) => PodState::from(place),
            (false, None) => PodState::Scheduling,
        };
        let rank = (pod.is_assigned(), place.is_some());
        listed.push((
            rank,
            GroupMember {
                name: pod.name().to_string(),
                group: member.leaf.name.to_string(),
                state,
                node: pod.is_assigned().then(|| pod.spec.node_name.to_string()),
                place: place.map(ToString::to_string),
                gates: gates.map_or_else(Vec::new, |profile| gates_of(snapshot, profile, pod)),
                closest: closest.unwrap_or_default(),
            },
        ));
    }
    listed.sort_by_key(|(rank, _)| *rank);
    let listed = listed.into_iter().map(|(_, member)| member);
    answer.members = listed.take(limits::MEMBERS_LISTED_MAX).collect();
}

fn victims_of(preemption: &berth_framework::stage::Preemption) -> Vec<PodRef> {
    let victims = preemption.victims.iter();
    victims
        .map(|victim| victim.event.regarding.clone())
        .collect()
}

fn pod_names(snapshot: &Snapshot, pods: &[PodRef]) -> Vec<PodName> {
    let names = pods.iter().map(|pod| PodName {
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        priority: snapshot
            .cluster
            .pods
            .get(&pod.uid)
            .map_or(0, |pod| pod.priority()),
        violated_budgets: Vec::new(),
    });
    names.collect()
}

/// The results of the PodGroupPostFilter plugins.
fn preemption(
    snapshot: &mut Snapshot,
    profile: &Arc<Profile>,
    root: &GroupKey,
    waiting: &[WaitingMember],
    budget: &mut usize,
) -> Option<Preemption> {
    let mut trial = Trial::begin(snapshot, profile, root, waiting, budget);
    let results = trial.make_room();
    trial.end();
    if *budget == 0 {
        return None;
    }
    let result = results.into_iter().next()?;
    let victims = result.preemption.as_ref();
    let victims = victims.map(victims_of);
    Some(Preemption {
        is_running: false,
        node: None,
        victims: pod_names(snapshot, &victims.unwrap_or_default()),
        message: result.status.message(),
    })
}

/// The answer in one or two sentences.
fn summary(facts: &GroupFacts, answer: &GroupAnswer) -> String {
    let (need, known, scheduled) = (answer.need, answer.known, answer.scheduled);
    let member = match facts.key.kind {
        GroupKind::PodGroup => "pod",
        GroupKind::CompositePodGroup => "child group",
    };
    let needs = format!("It needs {}; {scheduled} of {known} have started.", {
        count(need as u64, member)
    });
    let needs = match facts.key.kind {
        GroupKind::PodGroup => needs.replace("have started", "have a node"),
        GroupKind::CompositePodGroup => needs,
    };
    let room = match (answer.places, facts.key.kind) {
        (Some(places), _) => {
            let wanted = need.saturating_sub(scheduled);
            let on = match (&answer.topology_key, answer.domains.first()) {
                (Some(key), Some(best)) => format!(" with {key}={}", best.name),
                _ => String::new(),
            };
            if places >= wanted && wanted > 0 {
                format!(
                    " There is room for {}{on}.",
                    count(places as u64, "more pod")
                )
            } else {
                format!(
                    " There is room for {}{on}, and {wanted} more are needed.",
                    count(places as u64, "more pod")
                )
            }
        }
        (None, _) => String::new(),
    };
    if scheduled >= need && known > scheduled && facts.key.kind == GroupKind::PodGroup {
        let room = answer.places.unwrap_or(0);
        return format!(
            "The group has started: {scheduled} of {known} have a node, {need} are needed. There is room for {room} of the \
             others."
        );
    }
    let queue = answer.queue.as_ref();
    let waited = queue.map_or_else(String::new, |queue| {
        format!(
            " for {} after {}",
            ago(queue.seconds),
            count(queue.attempts, "attempt")
        )
    });
    match answer.state {
        GroupState::Missing => format!(
            "The group does not exist, and {} for it.",
            match facts.members.len() {
                1 => "1 pod waits".to_owned(),
                pods => format!("{pods} pods wait"),
            }
        ),
        GroupState::Incomplete => match &facts.root {
            Err(why) => format!("The group cannot be scheduled: {why}."),
            Ok(_) => "The group cannot be scheduled.".to_owned(),
        },
        GroupState::WaitingForMembers if known < need => format!(
            "The group waits for {}: it needs {need}, {known} are known.",
            count((need - known) as u64, &format!("more {member}"))
        ),
        GroupState::WaitingForMembers => {
            format!("The group waits for members of its hierarchy. {needs}")
        }
        GroupState::Gated => format!("Members of the group are gated. {needs}{room}"),
        GroupState::Active => format!("The group waits for its turn. {needs}{room}"),
        GroupState::Backoff => format!("The group waits for its backoff. {needs}{room}"),
        GroupState::Unschedulable => {
            format!("The group has been unschedulable{waited}. {needs}{room}")
        }
        GroupState::Scheduling => format!("An attempt is under way. {needs}{room}"),
        GroupState::Started => format!(
            "The group has started: {scheduled} of {known} have {}, {need} are needed.",
            match facts.key.kind {
                GroupKind::PodGroup => "a node",
                GroupKind::CompositePodGroup => "started",
            }
        ),
    }
}
