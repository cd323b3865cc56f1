//! Judges the actions of schedulers about deferred quotas.

use super::instance::Instance;
use super::{LEADER, Run};
use crate::checker::{QuotaSight, Violation};
use crate::rules::{Account, QUOTA_TEXT, Quota, Seen, Standing, needs, quotas};
use crate::script::{Step, pod_name};
use crate::shapes::{DEFERRED_QUOTA, NAMESPACES, QUOTAS, quota_name, quota_namespace};
use crate::world::Others;
use berth_api::{Kind, Pod, Str};
use berth_framework::Feature;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The name of the plugin.
const PLUGIN: &str = "DeferredQuota";

/// The number of pods at the head of a line whose conditions follow the quotas.
const REPORTED: usize = 10;

fn has_quotas(others: &Others) -> bool {
    others
        .of_kind(Kind::Custom(DEFERRED_QUOTA))
        .next()
        .is_some()
}

/// The pods of a scheduler as it shows them.
fn sight_of(instance: &Instance) -> QuotaSight {
    let cache = instance.scheduler.cache();
    let quotas = cache.cluster().quotas();
    let profiles = instance.scheduler.profiles();
    let mut sight = QuotaSight {
        deferring: profiles.names_with_pre_enqueue(PLUGIN),
        schedulers: profiles.names(),
        ..QuotaSight::default()
    };
    for pod in instance.checker.all_pods() {
        let uid = pod.uid();
        let effective = cache.effective(uid).unwrap_or(pod);
        let standing = if effective.is_assigned() {
            Standing::Used
        } else if effective.is_terminating() {
            Standing::Terminating
        } else if quotas.passes(effective) {
            Standing::Admitted
        } else {
            Standing::Waiting
        };
        sight.standings.insert(uid.clone(), standing);
        if cache.is_assumed(uid) {
            sight.assumed.insert(uid.clone());
        }
    }
    sight
}

impl Run<'_, '_> {
    /// Judges the admissions by the quotas of a scheduler after an input. With `news`, the input was a single change.
    pub(super) fn note_quotas(&mut self, at: usize, news: bool) -> Result<(), Violation> {
        let (now, instance) = (self.now, &mut self.instances[at]);
        let (others, knows) = (instance.checker.others(), instance.knows_quotas);
        instance.knows_quotas = has_quotas(others);
        if !instance.knows_quotas && !knows {
            return Ok(());
        }
        let sight = sight_of(instance);
        let admissions = instance.checker.judge_quotas(sight, news, now)?;
        if at == LEADER {
            self.tally.quota_admissions += admissions;
        }
        Ok(())
    }

    /// Records the quotas whose usage may exceed their limits without a fault of the scheduler: after this step of a
    /// user, pods count that the scheduler does not know, or a limit is lower.
    pub(super) fn note_disturbed_quotas(&mut self, step: &Step) {
        let world = &self.world;
        match step {
            Step::PlacePod(_, shape, _) => {
                let namespace = shape.build().metadata.namespace;
                let is_default = namespace.is_empty();
                self.disturb(if is_default {
                    NAMESPACES[0]
                } else {
                    &namespace
                });
            }
            Step::Relabel(pod, _) => {
                let named = world.pods().get(pod_name(*pod).as_str());
                if let Some(namespace) = named.map(|pod| pod.namespace().clone()) {
                    self.disturb(&namespace);
                }
            }
            Step::SetQuota(number, shape) => {
                let id = id_of(*number);
                if let Some(known) = world.others().quota(&id.0, &id.1) {
                    let (before, after) = (Quota::of(known), Quota::of(&shape.build(*number)));
                    if !before.is_at_most(&after) {
                        self.disturb_cohort(&before);
                        self.disturbed.insert(id);
                    }
                }
            }
            Step::DeleteQuota(number) => {
                let id = id_of(*number);
                if let Some(known) = world.others().quota(&id.0, &id.1) {
                    self.disturb_cohort(&Quota::of(known));
                }
                self.disturbed.insert(id);
            }
            _ => {}
        }
    }

    /// Records the quotas of the cohort of a quota, because the cohort loses limits.
    fn disturb_cohort(&mut self, quota: &Quota) {
        if quota.cohort().is_some() {
            let of_cohort = quotas(self.world.others()).into_iter();
            let of_cohort = of_cohort.filter(|other| other.cohort() == quota.cohort());
            let ids = of_cohort.map(|other| (other.namespace, other.name));
            self.disturbed.extend(ids);
        }
    }

    fn disturb(&mut self, namespace: &str) {
        let numbers = (0..QUOTAS).filter(|number| quota_namespace(*number) == namespace);
        self.disturbed.extend(numbers.map(id_of));
    }

    /// The leading scheduler is about to receive quotas. If pods have nodes before it knows a quota, its usage may
    /// exceed the limits.
    pub(super) fn note_late_quotas(&mut self, at: usize, kind: Kind) {
        let instance = &self.instances[at];
        if at != LEADER || kind != Kind::Custom(DEFERRED_QUOTA) {
            return;
        }
        for number in 0..QUOTAS {
            let (namespace, name) = id_of(number);
            let has_node = |pod: &Arc<Pod>| {
                let cache = instance.scheduler.cache();
                *pod.namespace() == namespace && (pod.is_assigned() || cache.is_assumed(pod.uid()))
            };
            if instance.checker.others().quota(&namespace, &name).is_none()
                && self.world.pods().values().any(has_node)
            {
                self.disturbed.insert((namespace, name));
            }
        }
    }

    /// At any time, the usage of a quota in the API is within its limits, as long as only one scheduler has bound pods.
    pub(super) fn check_moment(&self) -> Result<(), Violation> {
        let leader = &self.instances[LEADER];
        if !leader.knows_quotas || self.tally.restarts + self.tally.failovers > 0 {
            return Ok(());
        }
        let mut without = self.disturbed.clone();
        for number in 0..QUOTAS {
            let (namespace, name) = id_of(number);
            if leader.checker.others().quota(&namespace, &name).is_none() {
                without.insert((namespace, name));
            }
        }
        let excess = self.account_of_world(None).excess(&without);
        excess.map_or(Ok(()), |broken| Err(broken.into()))
    }

    /// The quotas and the pods of the API. The waiting pods have the standing that the leader shows.
    fn account_of_world(&self, sight: Option<&QuotaSight>) -> Account {
        let living = self.world.pods().values().filter(|pod| !pod.is_terminal());
        let seen = living.filter_map(|pod| {
            let standing = match sight {
                _ if pod.is_assigned() => Standing::Used,
                Some(sight) => *sight.standings.get(pod.uid())?,
                None => return None,
            };
            Some(Seen {
                pod,
                standing,
                needs: needs(pod),
            })
        });
        let seen: Vec<Seen<'_>> = seen.collect();
        let (deferring, schedulers) = match sight {
            Some(sight) => (&sight.deferring[..], &sight.schedulers[..]),
            None => (&[][..], &[][..]),
        };
        Account::of(self.world.others(), &seen, deferring, schedulers)
    }

    /// Checks the statuses of quotas after everything is at rest. From then on, the world knows the pods that
    /// wait for quotas.
    pub(super) fn check_quotas_at_rest(&mut self) -> Result<(), Violation> {
        let sight = sight_of(&self.instances[LEADER]);
        let account = self.account_of_world(Some(&sight));
        account.judge_waits()?;
        for (at, quota) in account.quotas.iter().enumerate() {
            let object = self.world.others().quota(&quota.namespace, &quota.name);
            let status = object.map(|object| &object.value["status"]);
            if let Some(what) = status.and_then(|status| account.incorrect_status(at, status)) {
                return Err(Violation::QuotaStatusWrong {
                    quota: quota.name.clone(),
                    what,
                });
            }
        }
        for at in 0..account.quotas.len() {
            for (uid, quotas) in account.first_in_line(at, REPORTED) {
                self.check_message(&uid, &quotas)?;
            }
        }
        self.world.set_quota_waits(account.waits());
        Ok(())
    }

    /// The quota in a condition must apply to the pod.
    fn check_message(&self, uid: &Str, quotas: &[Str]) -> Result<(), Violation> {
        let mut pods = self.world.pods().values();
        let pod = pods.find(|pod| pod.uid() == uid);
        let condition = pod.and_then(|pod| pod.condition("PodScheduled"));
        let Some((pod, condition)) = pod.zip(condition) else {
            return Ok(());
        };
        let statement = condition.message.strip_prefix(QUOTA_TEXT);
        let is_true = statement.is_none_or(|statement| {
            let mut named = quotas.iter().map(|quota| format!("{:?}: ", quota.as_str()));
            named.any(|name| statement.starts_with(&name))
        });
        let is_reported = self
            .setup
            .features
            .enabled(Feature::SchedulerPreEnqueuePodStatus);
        if is_true || !is_reported || self.foreign.has_condition_of(uid) {
            return Ok(());
        }
        Err(Violation::StatusWrong {
            pod: pod.name().clone(),
            condition: format!("{:?}", condition.message.as_str()),
            expected: format!("one of the quotas {quotas:?}"),
        })
    }
}

/// Namespace and name of a quota.
pub(super) type QuotaId = (Str, Str);

/// The quotas whose usage may exceed their limits.
pub(super) type Disturbed = BTreeSet<QuotaId>;

fn id_of(number: usize) -> QuotaId {
    (quota_namespace(number).into(), quota_name(number).into())
}
