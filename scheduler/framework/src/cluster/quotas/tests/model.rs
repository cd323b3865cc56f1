//! Random changes, compared with a model that knows only the rules: no limit is exceeded, no pod waits that fits, and no
//! pod overtakes another one where the order is strict.

use super::*;
use std::collections::BTreeMap;

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

#[derive(Default)]
struct Model {
    quotas: BTreeMap<String, ModelQuota>,
    pods: BTreeMap<String, ModelPod>,
}

/// The place of an entry in line, and its pods.
type Line = BTreeMap<(i32, i64, String), Vec<String>>;

impl Model {
    fn selected<'a>(
        &'a self,
        pod: &'a ModelPod,
    ) -> impl Iterator<Item = (&'a String, &'a ModelQuota)> {
        self.quotas.iter().filter(|(_, quota)| {
            quota.namespace == pod.namespace && quota.team.is_none_or(|team| team == pod.team)
        })
    }

    fn selects(&self, name: &str, pod: &ModelPod) -> bool {
        let quota = &self.quotas[name];
        quota.namespace == pod.namespace && quota.team.is_none_or(|team| team == pod.team)
    }

    /// Adds up the pods of a quota.
    fn sum<'a>(&self, name: &str, pods: impl Iterator<Item = &'a String>) -> Amount {
        pods.filter_map(|uid| self.pods.get(uid))
            .filter(|pod| self.selects(name, pod))
            .fold([0, 0], |sum, pod| [sum[0] + 1, sum[1] + pod.cpu])
    }

    /// The waiting entries: pods to which quotas apply, and complete gangs of them.
    fn waiting(&self, cluster: &Cluster) -> Line {
        let mut gangs: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
        let mut line = Line::new();
        let place = |uid: &String, pod: &ModelPod| (-pod.priority, pod.created, uid.clone());
        for (uid, pod) in &self.pods {
            let waits = !pod.has_node && self.selected(pod).next().is_some();
            if !waits
                || cluster
                    .quotas()
                    .passes(cluster.pods.get(uid.as_str()).expect("it is known"))
            {
                continue;
            }
            match pod.gang {
                Some(gang) => gangs
                    .entry((pod.namespace, gang))
                    .or_default()
                    .push(uid.clone()),
                None if pod.is_gated => {}
                None => drop(line.insert(place(uid, pod), vec![uid.clone()])),
            }
        }
        for ((namespace, gang), members) in gangs {
            let all = self
                .pods
                .values()
                .filter(|pod| pod.namespace == namespace && pod.gang == Some(gang));
            let is_gated = members.iter().any(|uid| self.pods[uid].is_gated);
            if all.count() >= 3 && !is_gated {
                let first = members.iter().map(|uid| place(uid, &self.pods[uid])).min();
                line.insert(first.expect("a member"), members);
            }
        }
        line
    }

    /// Checks all rules.
    fn check(&self, cluster: &Cluster, newly: &[Str]) -> Result<(), String> {
        let has_room = |uid: &&String| {
            let pod = &self.pods[*uid];
            pod.has_node
                || cluster
                    .quotas()
                    .passes(cluster.pods.get(uid.as_str()).expect("it is known"))
        };
        let taken: BTreeMap<&String, Amount> = self
            .quotas
            .keys()
            .map(|name| (name, self.sum(name, self.pods.keys().filter(has_room))))
            .collect();
        let in_cohort =
            |cohort: usize, at: usize, of: &dyn Fn(&String, &ModelQuota) -> Amount| -> i64 {
                let members = self
                    .quotas
                    .iter()
                    .filter(|(_, quota)| quota.cohort == Some(cohort));
                members.map(|(name, quota)| of(name, quota)[at]).sum()
            };
        let fits = |name: &String, need: Amount, borrows: bool| -> bool {
            let quota = &self.quotas[name];
            (0..2).filter(|at| need[*at] > 0).all(|at| {
                let after = taken[name][at] + need[at];
                let Some(cohort) = quota.cohort else {
                    return after <= quota.hard[at];
                };
                let most = quota.hard[at] + if borrows { quota.borrowing } else { 0 };
                let sum = in_cohort(cohort, at, &|name, _| taken[name]) + need[at];
                after <= most && sum <= in_cohort(cohort, at, &|_, quota| quota.hard)
            })
        };
        for (name, quota) in &self.quotas {
            for at in 0..2 {
                let most = quota.hard[at] + quota.cohort.map_or(0, |_| quota.borrowing);
                if taken[name][at] > most {
                    return Err(format!("{name} is exceeded: {:?} of {most}", taken[name]));
                }
                if let Some(cohort) = quota.cohort {
                    let sum = in_cohort(cohort, at, &|name, _| taken[name]);
                    let hard = in_cohort(cohort, at, &|_, quota| quota.hard);
                    if sum > hard {
                        return Err(format!("cohort {cohort} is exceeded: {sum} of {hard}"));
                    }
                }
            }
        }
        let line = self.waiting(cluster);
        let applies = |name: &String, members: &[String]| {
            members
                .iter()
                .any(|uid| self.selects(name, &self.pods[uid]))
        };
        // A quota of a cohort claims its limit while an entry waits that needs no more.
        let claims = |name: &String| {
            let entries = line.values().filter(|members| applies(name, members));
            let looked_at = if self.quotas[name].is_strict {
                1
            } else {
                usize::MAX
            };
            entries.take(looked_at).any(|members| {
                let need = self.sum(name, members.iter());
                (0..2)
                    .filter(|at| need[*at] > 0)
                    .all(|at| taken[name][at] + need[at] <= self.quotas[name].hard[at])
            })
        };
        let claimants: Vec<(&String, Option<usize>)> = self
            .quotas
            .iter()
            .filter(|(name, quota)| quota.cohort.is_some() && claims(name))
            .map(|(name, quota)| (name, quota.cohort))
            .collect();
        for (place, members) in &line {
            let mut fits_all = true;
            for (name, quota) in &self.quotas {
                if !applies(name, members) {
                    continue;
                }
                let need = self.sum(name, members.iter());
                let earlier = line.range(..place).any(|(_, other)| applies(name, other));
                fits_all &= !(quota.is_strict && earlier);
                let mut others = claimants.iter().filter(|(other, _)| *other != name);
                let is_claimed = others.any(|(_, cohort)| *cohort == quota.cohort);
                fits_all &= fits(name, need, !is_claimed);
                // Order: nothing behind this entry was admitted just now.
                for uid in newly.iter().map(Str::to_string) {
                    let Some(pod) = self.pods.get(&uid) else {
                        continue;
                    };
                    let is_behind =
                        (-pod.priority, pod.created, uid.clone()) > *place && pod.gang.is_none();
                    let overtakes =
                        quota.is_strict && is_behind && applies(name, std::slice::from_ref(&uid));
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
}

impl Run {
    fn show(&mut self, uid: &str) {
        let Some(known) = self.model.pods.get(uid) else {
            self.cluster.unset_pod(uid);
            return;
        };
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
        self.model.quotas.insert(name.to_owned(), quota);
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
                self.show(&uid);
            }
            9..13 => {
                if let Some(uid) = self.any_pod() {
                    self.model.pods.remove(&uid);
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
                // A greater limit: a smaller one may be exceeded by what runs.
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
}

/// DQ-2, DQ-4, DQ-7, DQ-8, DQ-10, DQ-11: 200 random quotas and up to 5,000 pods in 50 namespaces.
#[test]
fn random_changes_keep_the_rules() {
    for (seed, steps) in [(1_u64, 12_000_u32), (2, 2_000), (3, 2_000), (4, 2_000)] {
        let mut run = Run {
            cluster: cluster(),
            model: Model::default(),
            random: Random(0x9e37_79b9_7f4a_7c15 ^ (seed << 32)),
            serial: 0,
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
        run.cluster.quotas_mut().take_changes();
        for step in 0..steps {
            run.step();
            let changes = run.cluster.quotas_mut().take_changes();
            // Each early step is checked; later, with thousands of pods, some.
            if step < 300 || step % 500 == 0 || step == steps - 1 {
                let checked = run.model.check(&run.cluster, &changes.admitted);
                checked.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            }
        }
        assert!(run.model.pods.len() > 100, "seed {seed}");
    }
}
