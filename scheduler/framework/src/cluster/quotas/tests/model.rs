//! Random changes, compared with a model that knows only the rules: no limit is exceeded, no pod waits that fits, and no
//! pod overtakes another one where the order is strict.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// A random number generator: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap_or(0)
    }
}

#[derive(Debug, Clone)]
struct ModelQuota {
    namespace: usize,
    hard: [i64; 2],
    borrowing: i64,
    cohort: Option<usize>,
    team: Option<usize>,
    is_strict: bool,
}

#[derive(Debug, Clone)]
struct ModelPod {
    namespace: usize,
    priority: i32,
    created: i64,
    cpu: i64,
    team: usize,
    gang: Option<usize>,
    is_gated: bool,
    has_node: bool,
}

/// Its keys are pods and CPU.
type Amount = [i64; 2];

/// The place of an entry in line, and its pods.
type Line = BTreeMap<(i32, i64, String), Vec<String>>;

/// The pods and quotas, and the state derived from them. The derived state is computed again for the namespaces that a
/// step touches; see [`Model::touch`].
#[derive(Default)]
struct Model {
    quotas: BTreeMap<String, ModelQuota>,
    pods: BTreeMap<String, ModelPod>,
    of_namespace: BTreeMap<usize, BTreeSet<String>>,
    quotas_of_namespace: BTreeMap<usize, BTreeSet<String>>,
    quotas_of_cohort: BTreeMap<usize, BTreeSet<String>>,
    /// By namespace.
    lines: BTreeMap<usize, Line>,
    /// By name of the quota: the taken amounts, and whether it claims its own limit.
    taken: BTreeMap<String, Amount>,
    claims: BTreeSet<String>,
}

impl Model {
    fn selects(&self, name: &str, pod: &ModelPod) -> bool {
        let quota = &self.quotas[name];
        quota.namespace == pod.namespace && quota.team.is_none_or(|team| team == pod.team)
    }

    fn quotas_in(&self, namespace: usize) -> impl Iterator<Item = (&String, &ModelQuota)> {
        let names = self.quotas_of_namespace.get(&namespace);
        let names = names.into_iter().flatten();
        names.map(|name| (name, &self.quotas[name]))
    }

    fn pods_in(&self, namespace: usize) -> impl Iterator<Item = (&String, &ModelPod)> {
        let uids = self.of_namespace.get(&namespace).into_iter().flatten();
        uids.map(|uid| (uid, &self.pods[uid]))
    }

    /// Adds up the pods of a quota.
    fn sum<'a>(&self, name: &str, pods: impl Iterator<Item = &'a String>) -> Amount {
        pods.filter_map(|uid| self.pods.get(uid))
            .filter(|pod| self.selects(name, pod))
            .fold([0, 0], |sum, pod| [sum[0] + 1, sum[1] + pod.cpu])
    }

    fn passes(cluster: &Cluster, uid: &str) -> bool {
        let pod = cluster.pods.get(uid).expect("it is known");
        cluster.quotas().passes(pod)
    }

    /// The waiting entries of a namespace: pods to which quotas apply, and complete gangs of them.
    fn line_of(&self, cluster: &Cluster, namespace: usize) -> Line {
        let mut gangs: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let mut line = Line::new();
        let place = |uid: &String, pod: &ModelPod| (-pod.priority, pod.created, uid.clone());
        for (uid, pod) in self.pods_in(namespace) {
            let mut quotas = self.quotas_in(namespace);
            let is_selected = quotas.any(|(name, _)| self.selects(name, pod));
            if pod.has_node || !is_selected || Self::passes(cluster, uid) {
                continue;
            }
            match pod.gang {
                Some(gang) => gangs.entry(gang).or_default().push(uid.clone()),
                None if pod.is_gated => {}
                None => drop(line.insert(place(uid, pod), vec![uid.clone()])),
            }
        }
        for (gang, members) in gangs {
            let all = self.pods_in(namespace);
            let all = all.filter(|(_, pod)| pod.gang == Some(gang));
            let is_gated = members.iter().any(|uid| self.pods[uid].is_gated);
            if all.count() >= 3 && !is_gated {
                let first = members.iter().map(|uid| place(uid, &self.pods[uid])).min();
                line.insert(first.expect("a member"), members);
            }
        }
        line
    }

    fn applies(&self, name: &str, members: &[String]) -> bool {
        members
            .iter()
            .any(|uid| self.selects(name, &self.pods[uid]))
    }

    /// A quota of a cohort claims its limit while an entry waits that needs no more.
    fn is_claiming(&self, name: &str, quota: &ModelQuota) -> bool {
        let taken = self.taken[name];
        let entries = self.lines[&quota.namespace].values();
        let entries = entries.filter(|members| self.applies(name, members));
        let looked_at = if quota.is_strict { 1 } else { usize::MAX };
        let mut entries = entries.take(looked_at);
        let claims = entries.any(|members| {
            let need = self.sum(name, members.iter());
            (0..2)
                .filter(|at| need[*at] > 0)
                .all(|at| taken[at] + need[at] <= quota.hard[at])
        });
        quota.cohort.is_some() && claims
    }

    /// Computes the derived state of these namespaces again.
    fn touch(&mut self, cluster: &Cluster, namespaces: &BTreeSet<usize>) {
        for namespace in namespaces {
            let line = self.line_of(cluster, *namespace);
            self.lines.insert(*namespace, line);
            let quotas = self.quotas_in(*namespace);
            let quotas: Vec<(String, ModelQuota)> = quotas
                .map(|(name, quota)| (name.clone(), quota.clone()))
                .collect();
            for (name, quota) in quotas {
                let pods = self.pods_in(*namespace);
                let with_room =
                    pods.filter(|(uid, pod)| pod.has_node || Self::passes(cluster, uid));
                let taken = self.sum(&name, with_room.map(|(uid, _)| uid));
                self.taken.insert(name.clone(), taken);
                if self.is_claiming(&name, &quota) {
                    self.claims.insert(name);
                } else {
                    self.claims.remove(&name);
                }
            }
        }
    }

    fn of_cohort(&self, cohort: usize) -> impl Iterator<Item = (&String, &ModelQuota)> {
        let names = self.quotas_of_cohort.get(&cohort);
        let names = names.into_iter().flatten();
        names.map(|name| (name, &self.quotas[name]))
    }

    fn sums_of_cohort(&self, cohort: usize, at: usize) -> (i64, i64) {
        let members = self.of_cohort(cohort);
        members.fold((0, 0), |(taken, hard), (name, quota)| {
            (taken + self.taken[name][at], hard + quota.hard[at])
        })
    }

    fn fits(&self, name: &String, members: &[String], borrows: bool) -> bool {
        let quota = &self.quotas[name];
        let need = self.sum(name, members.iter());
        (0..2).filter(|at| need[*at] > 0).all(|at| {
            let after = self.taken[name][at] + need[at];
            let Some(cohort) = quota.cohort else {
                return after <= quota.hard[at];
            };
            let most = quota.hard[at] + if borrows { quota.borrowing } else { 0 };
            // A pod counts for each quota of the cohort that applies to it.
            let of_cohort = self.quotas_in(quota.namespace);
            let of_cohort = of_cohort.filter(|(_, other)| other.cohort == Some(cohort));
            let more: i64 = of_cohort
                .map(|(name, _)| self.sum(name, members.iter())[at])
                .sum();
            let (taken, hard) = self.sums_of_cohort(cohort, at);
            after <= most && taken + more <= hard
        })
    }

    /// Checks all rules of the quotas of these namespaces and of their cohorts.
    fn check(&self, namespaces: &BTreeSet<usize>, newly: &[Str]) -> Result<(), String> {
        let touched = namespaces.iter().flat_map(|at| self.quotas_in(*at));
        let cohorts: BTreeSet<usize> = touched.filter_map(|(_, quota)| quota.cohort).collect();
        let of_cohorts = cohorts.iter().flat_map(|at| self.of_cohort(*at));
        let mut reached = namespaces.clone();
        reached.extend(of_cohorts.map(|(_, quota)| quota.namespace));
        for cohort in cohorts {
            for at in 0..2 {
                let (taken, hard) = self.sums_of_cohort(cohort, at);
                if taken > hard {
                    return Err(format!("cohort {cohort} is exceeded: {taken} of {hard}"));
                }
            }
        }
        for namespace in reached {
            self.check_namespace(namespace, newly)?;
        }
        Ok(())
    }

    fn check_namespace(&self, namespace: usize, newly: &[Str]) -> Result<(), String> {
        for (name, quota) in self.quotas_in(namespace) {
            let taken = self.taken[name];
            for at in 0..2 {
                let most = quota.hard[at] + quota.cohort.map_or(0, |_| quota.borrowing);
                if taken[at] > most {
                    return Err(format!("{name} is exceeded: {taken:?} of {most}"));
                }
            }
        }
        let Some(line) = self.lines.get(&namespace) else {
            return Ok(());
        };
        for (place, members) in line {
            let mut fits_all = true;
            for (name, quota) in self.quotas_in(namespace) {
                if !self.applies(name, members) {
                    continue;
                }
                let mut earlier = line.range(..place);
                let is_behind = earlier.any(|(_, other)| self.applies(name, other));
                fits_all = fits_all && !(quota.is_strict && is_behind);
                let of_cohort = quota.cohort.map(|cohort| self.of_cohort(cohort));
                let mut of_cohort = of_cohort.into_iter().flatten();
                let is_claimed =
                    of_cohort.any(|(other, _)| other != name && self.claims.contains(other));
                fits_all = fits_all && self.fits(name, members, !is_claimed);
                // Order: nothing behind this entry was admitted just now.
                for uid in newly.iter().map(Str::to_string) {
                    let Some(pod) = self.pods.get(&uid) else {
                        continue;
                    };
                    let is_behind =
                        (-pod.priority, pod.created, uid.clone()) > *place && pod.gang.is_none();
                    let overtakes = quota.is_strict
                        && is_behind
                        && self.applies(name, std::slice::from_ref(&uid));
                    if overtakes {
                        return Err(format!("{uid} overtakes {members:?} in {name}"));
                    }
                }
            }
            if fits_all {
                return Err(format!("{members:?} waits and fits"));
            }
        }
        Ok(())
    }
}

const NAMESPACES: usize = 50;

struct Run {
    cluster: Cluster,
    model: Model,
    random: Random,
    serial: i64,
    /// The namespaces of changed pods and quotas since the last check.
    touched: BTreeSet<usize>,
}

impl Run {
    fn show(&mut self, uid: &str) {
        let Some(known) = self.model.pods.get(uid) else {
            self.cluster.unset_pod(uid);
            return;
        };
        self.touched.insert(known.namespace);
        let namespace = format!("ns{}", known.namespace);
        let mut built = pod(uid)
            .uid(uid)
            .namespace(&namespace)
            .created(known.created)
            .priority(known.priority)
            .label("team", &known.team.to_string())
            .request("cpu", &known.cpu.to_string());
        if let Some(gang) = known.gang {
            built = built.member_of(&format!("g{gang}"));
        }
        if known.is_gated {
            built = built.gate("g");
        }
        if known.has_node {
            built = built.on("n");
        }
        set(&mut self.cluster, built);
    }

    fn show_quota(&mut self, name: &str) {
        let Some(quota) = self.model.quotas.get(name) else {
            return;
        };
        self.touched.insert(quota.namespace);
        let amounts =
            |amount: [i64; 2]| json!({"pods": amount[0], "requests.cpu": amount[1].to_string()});
        let mut spec = json!({"hard": amounts(quota.hard), "order": if quota.is_strict { "Strict" } else { "BestEffort" }});
        if let Some(cohort) = quota.cohort {
            spec["cohort"] = json!(format!("c{cohort}"));
            spec["borrowingLimit"] = amounts([quota.borrowing; 2]);
        }
        if let Some(team) = quota.team {
            spec["podSelector"] = json!({"matchLabels": {"team": team.to_string()}});
        }
        let object = super::quota(&format!("ns{}", quota.namespace), name, &spec);
        self.cluster.set(&object);
    }

    fn new_quota(&mut self, name: &str) {
        let random = &mut self.random;
        let pods = i64::try_from(random.below(20)).unwrap_or(0) + 10;
        let quota = ModelQuota {
            namespace: random.below(NAMESPACES),
            hard: [pods, pods * 2],
            borrowing: i64::try_from(random.below(4)).unwrap_or(0),
            cohort: (random.below(3) == 0).then(|| random.below(8)),
            team: (random.below(2) == 0).then(|| random.below(3)),
            is_strict: random.below(2) == 0,
        };
        let model = &mut self.model;
        let of_namespace = model.quotas_of_namespace.entry(quota.namespace);
        of_namespace.or_default().insert(name.to_owned());
        if let Some(cohort) = quota.cohort {
            let of_cohort = model.quotas_of_cohort.entry(cohort).or_default();
            of_cohort.insert(name.to_owned());
        }
        model.quotas.insert(name.to_owned(), quota);
        self.show_quota(name);
    }

    fn any_pod(&mut self) -> Option<String> {
        let at = self.random.below(self.model.pods.len().max(1));
        self.model.pods.keys().nth(at).cloned()
    }

    fn step(&mut self) {
        self.serial += 1;
        match self.random.below(20) {
            0..9 => {
                let namespace = self.random.below(NAMESPACES);
                let known = ModelPod {
                    namespace,
                    priority: i32::try_from(self.random.below(3)).unwrap_or(0),
                    created: i64::try_from(self.random.below(1000)).unwrap_or(0),
                    cpu: i64::try_from(self.random.below(4)).unwrap_or(0) + 1,
                    team: self.random.below(3),
                    gang: (self.random.below(5) == 0).then(|| self.random.below(3)),
                    is_gated: self.random.below(8) == 0,
                    has_node: false,
                };
                let uid = format!("p{}", self.serial);
                self.model.pods.insert(uid.clone(), known);
                let of_namespace = self.model.of_namespace.entry(namespace).or_default();
                of_namespace.insert(uid.clone());
                self.show(&uid);
            }
            9..13 => {
                if let Some(uid) = self.any_pod() {
                    if let Some(known) = self.model.pods.remove(&uid) {
                        self.touched.insert(known.namespace);
                        let of_namespace = self.model.of_namespace.get_mut(&known.namespace);
                        of_namespace.map(|uids| uids.remove(&uid));
                    }
                    self.show(&uid);
                }
            }
            13..18 => {
                // Bound, unbound, or without gates.
                let Some(uid) = self.any_pod() else { return };
                let pod = self.cluster.pods.get(uid.as_str()).cloned();
                let passes = pod.is_some_and(|pod| self.cluster.quotas().passes(&pod));
                let Some(known) = self.model.pods.get_mut(&uid) else {
                    return;
                };
                if known.is_gated {
                    known.is_gated = false;
                } else if passes {
                    known.has_node = !known.has_node;
                }
                self.show(&uid);
            }
            18 => {
                let Some(uid) = self.any_pod() else { return };
                let team = self.random.below(3);
                if let Some(known) = self.model.pods.get_mut(&uid).filter(|pod| !pod.has_node) {
                    known.team = team;
                }
                self.show(&uid);
            }
            _ => {
                // A greater limit, because running pods may exceed a smaller one.
                let at = self.random.below(self.model.quotas.len());
                let Some(name) = self.model.quotas.keys().nth(at).cloned() else {
                    return;
                };
                if let Some(quota) = self.model.quotas.get_mut(&name) {
                    quota.hard[0] += 1;
                    quota.hard[1] += 2;
                }
                self.show_quota(&name);
            }
        }
    }

    /// Checks the rules after a step. `all` checks every namespace.
    fn check(&mut self, all: bool) -> Result<(), String> {
        let changes = self.cluster.quotas_mut().take_changes();
        let mut touched = std::mem::take(&mut self.touched);
        let moved = changes.admitted.iter().chain(&changes.withdrawn);
        let moved = moved.filter_map(|uid| self.model.pods.get(uid.as_str()));
        touched.extend(moved.map(|pod| pod.namespace));
        if all {
            touched.extend(0..NAMESPACES);
        }
        self.model.touch(&self.cluster, &touched);
        self.model.check(&touched, &changes.admitted)
    }
}

/// DQ-2, DQ-4, DQ-7, DQ-8, DQ-10, DQ-11: 200 random quotas and 5,000 pods in 50 namespaces, checked after each step.
#[test]
fn random_changes_keep_the_rules() {
    for (seed, steps) in [(1_u64, 12_000_u32), (2, 2_000), (3, 2_000), (4, 2_000)] {
        let mut run = Run {
            cluster: cluster(),
            model: Model::default(),
            random: Random(0x9e37_79b9_7f4a_7c15 ^ (seed << 32)),
            serial: 0,
            touched: BTreeSet::new(),
        };
        for namespace in 0..NAMESPACES {
            for gang in 0..3 {
                let spec = json!({"schedulingPolicy": {"gang": {"minCount": 3}}});
                let namespace = format!("ns{namespace}");
                let name = format!("g{gang}");
                run.cluster
                    .set(&object(Kind::PodGroup, &namespace, &name, &spec));
            }
        }
        for number in 0..200 {
            run.new_quota(&format!("q{number:03}"));
        }
        let mut created = 0;
        for step in 0..steps {
            let before = run.model.pods.len();
            run.step();
            created += usize::from(run.model.pods.len() > before);
            // A step changes one namespace, and others through cohorts. All are computed again now and then.
            let is_last = step == steps - 1;
            let checked = run.check(step % 500 == 0 || is_last);
            checked.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
        }
        assert!(
            created * 12 > usize::try_from(steps).unwrap_or(0) * 5,
            "seed {seed}: {created}"
        );
    }
}
