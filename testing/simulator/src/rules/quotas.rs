//! The rules of deferred quotas, computed from the objects alone: sums, order, and the entries that may be admitted.

use super::{GroupName, group_of, quorum, stored};
use crate::shapes::{DEFERRED_QUOTA, GPU};
use crate::world::Others;
use berth_api::{CustomObject, Kind, LabelSelector, Pod, Quantity, Str, Time};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The number of keys that quotas of the simulator limit: pods, CPU, memory, devices.
const KEYS: usize = 4;

/// An amount of each key: a number, thousandths, bytes, a number.
pub(crate) type Amounts = [i64; KEYS];

fn key(at: usize) -> String {
    match at {
        0 => "pods".to_owned(),
        1 => "requests.cpu".to_owned(),
        2 => "requests.memory".to_owned(),
        _ => format!("requests.{GPU}"),
    }
}

/// The amount of a quantity in the counted unit.
fn amount(at: usize, quantity: &Quantity) -> i64 {
    if at == 1 {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}

/// The quota usage of a pod.
pub(crate) fn needs(pod: &Pod) -> Amounts {
    let requests = berth_oracle::requests(pod);
    let of = |at: usize, name: &str| {
        let requested = requests.get(&Str::from(name));
        requested.map_or(0, |requested| amount(at, requested))
    };
    [1, of(1, "cpu"), of(2, "memory"), of(3, GPU)]
}

fn amounts(value: &Value) -> [Option<i64>; KEYS] {
    std::array::from_fn(|at| {
        let quantity = value.get(key(at))?;
        let quantity: Quantity = serde_json::from_value(quantity.clone()).ok()?;
        Some(amount(at, &quantity))
    })
}

/// A quota.
#[derive(Debug, Clone)]
pub(crate) struct Quota {
    pub(crate) namespace: Str,
    pub(crate) name: Str,
    hard: [Option<i64>; KEYS],
    borrowing: [Option<i64>; KEYS],
    cohort: Option<String>,
    selector: Option<LabelSelector>,
    is_strict: bool,
}

impl Quota {
    pub(crate) fn of(object: &CustomObject) -> Self {
        let spec = &object.value["spec"];
        Self {
            namespace: object.metadata.namespace.clone(),
            name: object.metadata.name.clone(),
            hard: amounts(&spec["hard"]),
            borrowing: amounts(&spec["borrowingLimit"]),
            cohort: spec["cohort"].as_str().map(str::to_owned),
            selector: serde_json::from_value(spec["podSelector"].clone()).ok(),
            is_strict: spec["order"] != "BestEffort",
        }
    }

    /// The name of the cohort.
    pub(crate) fn cohort(&self) -> Option<&str> {
        self.cohort.as_deref()
    }

    fn applies_to(&self, pod: &Pod) -> bool {
        let selector = self.selector.as_ref();
        self.namespace == *pod.namespace()
            && selector.is_none_or(|_| berth_oracle::selects(selector, pod.labels()))
    }

    /// The maximum usage of a key.
    fn most(&self, at: usize) -> i64 {
        let hard = self.hard[at].unwrap_or(i64::MAX);
        match (&self.cohort, self.borrowing[at]) {
            (None, _) => hard,
            (Some(_), None) => i64::MAX,
            (Some(_), Some(more)) => hard.saturating_add(more),
        }
    }

    /// Returns whether these limits permit no more than the other limits.
    pub(crate) fn is_at_most(&self, other: &Self) -> bool {
        self.cohort == other.cohort
            && self.selector == other.selector
            && (0..KEYS).all(|at| {
                let limit = |quota: &Self| quota.hard[at].unwrap_or(i64::MAX);
                limit(self) <= limit(other) && self.most(at) <= other.most(at)
            })
    }
}

/// The quotas that exist.
pub(crate) fn quotas(others: &Others) -> Vec<Quota> {
    let objects = others.of_kind(Kind::Custom(DEFERRED_QUOTA));
    let objects = objects.filter_map(|object| object.as_custom());
    objects.map(|object| Quota::of(object)).collect()
}

/// The standing of a pod for quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It has a node.
    Used,
    /// It waits, and quotas admit it.
    Admitted,
    /// It waits, and quotas do not admit it.
    Waiting,
    /// It waits and is being deleted.
    Terminating,
}

/// A pod as the scheduler sees it.
pub(crate) struct Seen<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) standing: Standing,
    pub(crate) needs: Amounts,
}

/// A place in line: the priority, the creation time, the UID.
type Place = (Reverse<i32>, Option<Time>, Str);

/// A pod or a gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum EntryName {
    Pod(Str),
    Gang(GroupName),
}

/// The pending pods of an entry to which quotas apply.
#[derive(Debug)]
struct Entry {
    place: Place,
    members: Vec<(Str, Standing)>,
    /// By number of the quota.
    needs: BTreeMap<usize, Amounts>,
    /// Whether a member may be outside of the line.
    is_out: bool,
}

impl Entry {
    fn is(&self, standing: Standing) -> bool {
        self.members.iter().any(|(_, known)| *known == standing)
    }
}

/// A rule that is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The usage exceeds the limits of the quota or its cohort.
    Exceeded { quota: Str, pod: Str, what: String },
    /// A pod is admitted before another one of a strict line.
    Overtaken { quota: Str, pod: Str, first: Str },
    /// Some members of a gang are admitted, and others are not.
    Split { pod: Str },
    /// A pod waits although it fits.
    Needless { pod: Str },
}

/// The quotas with the pods to which they apply.
pub(crate) struct Account {
    pub(crate) quotas: Vec<Quota>,
    used: Vec<Amounts>,
    admitted: Vec<Amounts>,
    entries: BTreeMap<EntryName, Entry>,
    /// The usage of each pod with a node, by number of the quota.
    placed: BTreeMap<Str, BTreeMap<usize, Amounts>>,
}

impl Account {
    /// Sums up the pods. Pending pods of other schedulers are not counted.
    pub(crate) fn of<'a>(
        others: &Others,
        pods: &[Seen<'a>],
        deferring: &[Str],
        schedulers: &[Str],
    ) -> Self {
        let quotas = quotas(others);
        let mut account = Self {
            used: vec![[0; KEYS]; quotas.len()],
            admitted: vec![[0; KEYS]; quotas.len()],
            quotas,
            entries: BTreeMap::new(),
            placed: BTreeMap::new(),
        };
        for seen in pods {
            account.add(others, seen, deferring);
        }
        let members = |group: &GroupName| {
            let of_group = pods.iter().filter(|seen| {
                group_of(seen.pod).as_ref() == Some(group)
                    && match seen.standing {
                        Standing::Used => true,
                        Standing::Terminating => false,
                        _ => schedulers.contains(&seen.pod.spec.scheduler_name),
                    }
            });
            of_group.count()
        };
        for (name, entry) in &mut account.entries {
            if let EntryName::Gang(group) = name {
                let wanted = stored(others, group).map_or(usize::MAX, |group| quorum(group));
                entry.is_out |= members(group) < wanted;
            }
        }
        account
    }

    fn add(&mut self, others: &Others, seen: &Seen<'_>, deferring: &[Str]) {
        let Seen {
            pod,
            standing,
            needs,
        } = seen;
        if *standing != Standing::Used && !deferring.contains(&pod.spec.scheduler_name) {
            return;
        }
        let applying = (0..self.quotas.len()).filter(|at| self.quotas[*at].applies_to(pod));
        let applying: Vec<usize> = applying.collect();
        if applying.is_empty() {
            return;
        }
        let sums = match standing {
            Standing::Used => Some(&mut self.used),
            Standing::Admitted => Some(&mut self.admitted),
            _ => None,
        };
        if let Some(sums) = sums {
            for at in &applying {
                sums[*at] = std::array::from_fn(|key| sums[*at][key] + needs[key]);
            }
        }
        let uid = pod.uid().clone();
        if *standing == Standing::Used {
            let needs = applying.into_iter().map(|at| (at, *needs));
            self.placed.insert(uid, needs.collect());
            return;
        }
        let alone = EntryName::Pod(uid.clone());
        // A terminating pod is no longer a member of its gang.
        let group = group_of(pod).filter(|_| *standing != Standing::Terminating);
        let (name, has_group) = match group {
            None => (alone, true),
            Some(group) => match stored(others, &group) {
                None => (alone, false),
                Some(known) if known.spec.scheduling_policy.gang.is_none() => (alone, true),
                Some(_) => (EntryName::Gang(group), true),
            },
        };
        let created = pod.metadata.creation_timestamp;
        let place = (Reverse(pod.priority()), created, uid.clone());
        let entry = self.entries.entry(name).or_insert_with(|| Entry {
            place: place.clone(),
            members: Vec::new(),
            needs: BTreeMap::new(),
            is_out: false,
        });
        entry.place = place.min(entry.place.clone());
        entry.members.push((uid, *standing));
        entry.is_out |= !has_group
            || !pod.spec.scheduling_gates.is_empty()
            || *standing == Standing::Terminating;
        for at in applying {
            let sum = entry.needs.entry(at).or_insert([0; KEYS]);
            *sum = std::array::from_fn(|key| sum[key] + needs[key]);
        }
    }

    fn taken(&self, at: usize, key: usize) -> i64 {
        self.used[at][key] + self.admitted[at][key]
    }

    /// The sum of the limits and the sum of the usage of a key, over all quotas of a cohort.
    fn of_cohort(&self, cohort: &str, key: usize) -> (i64, i64) {
        let members = (0..self.quotas.len())
            .filter(|at| self.quotas[*at].cohort.as_deref() == Some(cohort))
            .filter_map(|at| Some((self.quotas[at].hard[key]?, self.taken(at, key))));
        members.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The reason why a quota has no capacity for the requests of an entry. `counted` states whether the usage includes
    /// the entry already.
    fn lack(
        &self,
        at: usize,
        needs: &BTreeMap<usize, Amounts>,
        counted: bool,
        may_borrow: bool,
    ) -> Option<String> {
        let quota = &self.quotas[at];
        (0..KEYS).find_map(|k| {
            let hard = quota.hard[k].filter(|_| needs[&at][k] > 0)?;
            let after = self.taken(at, k) + if counted { 0 } else { needs[&at][k] };
            let most = if may_borrow { quota.most(k) } else { hard };
            if after > most {
                return Some(format!("{} {after} of {most}", key(k)));
            }
            let cohort = quota.cohort.as_deref()?;
            let (hard, taken) = self.of_cohort(cohort, k);
            // A pod counts for each quota of the cohort that applies to it.
            let of_cohort = needs.iter().filter(|(other, _)| {
                let other = &self.quotas[**other];
                other.cohort.as_deref() == Some(cohort) && other.hard[k].is_some()
            });
            let more: i64 = if counted {
                0
            } else {
                of_cohort.map(|(_, needs)| needs[k]).sum()
            };
            (taken + more > hard)
                .then(|| format!("{} {} of {hard} in the cohort", key(k), taken + more))
        })
    }

    /// Judges the newly admitted entries and the newly placed pods (`placed`): no quota that applies to them is
    /// exceeded, and no earlier entry of a strict line waits while a later one is admitted.
    pub(crate) fn judge_new(
        &self,
        before: &BTreeSet<Str>,
        placed: &BTreeSet<Str>,
    ) -> Result<u64, Broken> {
        let mut admissions = 0;
        let exceeded = |at: usize, needs: &BTreeMap<usize, Amounts>, pod: &Str| {
            let what = self.lack(at, needs, true, true)?;
            Some(Broken::Exceeded {
                quota: self.quotas[at].name.clone(),
                pod: pod.clone(),
                what,
            })
        };
        for uid in placed {
            if let Some(needs) = self.placed.get(uid) {
                let mut broken = needs.keys().filter_map(|at| exceeded(*at, needs, uid));
                broken.next().map_or(Ok(()), Err)?;
            }
        }
        for entry in self.entries.values() {
            let had_room = entry.members.iter().any(|(uid, _)| before.contains(uid));
            if !entry.is(Standing::Admitted) || had_room {
                continue;
            }
            admissions += 1;
            let pod = &entry.place.2;
            for at in entry.needs.keys() {
                exceeded(*at, &entry.needs, pod).map_or(Ok(()), Err)?;
                let waits_before = |other: &&Entry| {
                    other.is(Standing::Waiting)
                        && !other.is_out
                        && other.needs.contains_key(at)
                        && other.place < entry.place
                };
                let first = self.entries.values().find(waits_before);
                if let Some(first) = first.filter(|_| self.quotas[*at].is_strict) {
                    return Err(Broken::Overtaken {
                        quota: self.quotas[*at].name.clone(),
                        pod: pod.clone(),
                        first: first.place.2.clone(),
                    });
                }
            }
        }
        Ok(admissions)
    }

    /// Returns whether a quota must admit an entry within its own limits, so that other quotas of its cohort may not
    /// borrow.
    fn claims(&self, at: usize) -> bool {
        let mut line = self.line().filter(|entry| entry.needs.contains_key(&at));
        let is_within = |entry: &Entry| {
            let hard = &self.quotas[at].hard;
            (0..KEYS).all(|k| {
                let requested = entry.needs[&at][k];
                let after = self.taken(at, k) + requested;
                requested == 0 || hard[k].is_none_or(|hard| after <= hard)
            })
        };
        if self.quotas[at].is_strict {
            line.min_by_key(|entry| entry.place.clone())
                .is_some_and(is_within)
        } else {
            line.any(is_within)
        }
    }

    /// The entries that wait in line.
    fn line(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.values();
        entries.filter(|entry| entry.is(Standing::Waiting) && !entry.is_out)
    }

    /// Judges the waiting entries: none fits, and no gang is admitted in part.
    pub(crate) fn judge_waits(&self) -> Result<(), Broken> {
        for entry in self.entries.values() {
            if entry.is(Standing::Waiting) && entry.is(Standing::Admitted) {
                let waits = |member: &&(Str, Standing)| member.1 == Standing::Waiting;
                let pod = entry.members.iter().find(waits);
                let pod = pod.map_or_else(Str::default, |(uid, _)| uid.clone());
                return Err(Broken::Split { pod });
            }
        }
        for entry in self.line() {
            let fits = entry.needs.keys().all(|at| {
                let quota = &self.quotas[*at];
                let is_behind =
                    |other: &Entry| other.needs.contains_key(at) && other.place < entry.place;
                let is_claimed = (0..self.quotas.len()).any(|other| {
                    other != *at
                        && quota.cohort.is_some()
                        && self.quotas[other].cohort == quota.cohort
                        && self.claims(other)
                });
                self.lack(*at, &entry.needs, false, !is_claimed).is_none()
                    && !(quota.is_strict && self.line().any(is_behind))
            });
            if fits {
                return Err(Broken::Needless {
                    pod: entry.place.2.clone(),
                });
            }
        }
        Ok(())
    }

    /// The placed and the admitted pods to which quotas apply.
    pub(crate) fn with_room(&self) -> BTreeSet<Str> {
        let entries = self.entries.values().flat_map(|entry| &entry.members);
        let admitted = entries.filter(|(_, standing)| *standing == Standing::Admitted);
        let placed = self.placed.keys().cloned();
        placed.chain(admitted.map(|(uid, _)| uid.clone())).collect()
    }

    /// The pending pods that are not admitted.
    pub(crate) fn waits(&self) -> BTreeSet<Str> {
        let members = self.entries.values().flat_map(|entry| &entry.members);
        let waiting = members.filter(|(_, standing)| *standing != Standing::Admitted);
        waiting.map(|(uid, _)| uid.clone()).collect()
    }

    /// The pods of the entries that lie completely within the first `count` pods of the line of a quota, with the names
    /// of the quotas that apply.
    pub(crate) fn first_in_line(&self, at: usize, count: usize) -> Vec<(Str, Vec<Str>)> {
        let mut line: Vec<&Entry> = self
            .line()
            .filter(|entry| entry.needs.contains_key(&at))
            .collect();
        line.sort_by_key(|entry| entry.place.clone());
        let mut first = Vec::new();
        for entry in line {
            if first.len() + entry.members.len() > count {
                break;
            }
            let names = entry.needs.keys().map(|at| self.quotas[*at].name.clone());
            let names: Vec<Str> = names.collect();
            let members = entry.members.iter();
            first.extend(members.map(|(uid, _)| (uid.clone(), names.clone())));
        }
        first
    }

    /// The first quota whose usage exceeds its limits or the limits of its cohort; the quotas `without` are not judged.
    pub(crate) fn excess(&self, without: &BTreeSet<GroupName>) -> Option<Broken> {
        let is_left_out =
            |quota: &Quota| without.contains(&(quota.namespace.clone(), quota.name.clone()));
        let cohorts = self.quotas.iter().filter(|quota| is_left_out(quota));
        let cohorts: BTreeSet<&str> = cohorts.filter_map(|q| q.cohort.as_deref()).collect();
        let judged = (0..self.quotas.len()).filter(|at| {
            let quota = &self.quotas[*at];
            let cohort = quota.cohort.as_deref();
            !is_left_out(quota) && cohort.is_none_or(|cohort| !cohorts.contains(cohort))
        });
        let mut broken = judged.filter_map(|at| {
            let all = BTreeMap::from([(at, [1; KEYS])]);
            let what = self.lack(at, &all, true, true)?;
            Some(Broken::Exceeded {
                quota: self.quotas[at].name.clone(),
                pod: Str::default(),
                what,
            })
        });
        broken.next()
    }

    /// The difference between the status of a quota and its actual usage and waiting pods.
    pub(crate) fn incorrect_status(&self, at: usize, status: &Value) -> Option<String> {
        let quota = &self.quotas[at];
        let used = amounts(&status["used"]);
        let expected: [Option<i64>; KEYS] =
            std::array::from_fn(|k| quota.hard[k].map(|_| self.used[at][k]));
        if used != expected {
            return Some(format!("used {used:?}, expected {expected:?}"));
        }
        if amounts(&status["hard"]) != quota.hard {
            return Some(format!("hard {}", status["hard"]));
        }
        let line = self.line().filter(|entry| entry.needs.contains_key(&at));
        let waiting = line.flat_map(|entry| &entry.members).count();
        let stated = status["waiting"]["pods"].as_u64().unwrap_or_default();
        // Members of a gang to which this quota does not apply do not wait for it.
        (stated > waiting as u64 || (stated == 0) != (waiting == 0))
            .then(|| format!("{stated} pods wait, expected {waiting}"))
    }
}
