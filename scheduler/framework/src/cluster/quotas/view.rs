//! Quotas as explanations, statuses and metrics see them.

use super::admission::{Counted, Shortage, need_of_cohort, shortage, shortage_of_amounts};
use super::line::{EntryKey, EntryState, LineKey, Quota};
use super::spec::{QuotaLimit, QuotaSpec};
use super::{OutOfLine, Quotas, Ruled, Standing};
use berth_api::{CustomObject, Pod, Str, Time};
use std::fmt;
use std::sync::Arc;

/// The number of entries before a pod that are counted one by one.
pub const BEFORE_MAX: usize = 100;

/// The thing that a pod lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LackOf {
    /// The limit of the quota, including the amount that it may borrow.
    Limit,
    /// The sum of the limits of this cohort.
    Cohort(Str),
    /// The limit of the quota is exceeded, and this quota, `namespace/name`, claims the remaining amount of the cohort.
    Claimed(Str),
}

/// The amounts of a key that has no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaLack {
    /// The key of `spec.hard`.
    pub key: Str,
    /// The amount requested by the pod or its gang.
    pub requested: String,
    /// The amount that is used or kept for admitted pods.
    pub used: String,
    /// The limit.
    pub limit: String,
    /// By how much the limit would have to be raised.
    pub missing: String,
    /// The thing that is lacking.
    pub of: LackOf,
    /// Whether the request is greater than the limit: it can never be admitted.
    pub never_fits: bool,
}

/// The reason why a pod is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaObstacle {
    /// The name of the quota.
    pub quota: Str,
    /// The amounts that are lacking; `None` if only earlier pods are in the way, or if the pod is not in line.
    pub lack: Option<QuotaLack>,
    /// The number of entries before the pod in line, at most [`BEFORE_MAX`].
    pub before: usize,
    /// The reason why the pod is not in line.
    pub out: Option<OutOfLine>,
}

/// Positions up to this one are shown exactly (DQ-14).
const EXACT_MAX: usize = 10;

impl fmt::Display for QuotaObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deferred quota {:?}: ", self.quota.as_str())?;
        if let Some(out) = self.out {
            return f.write_str(match out {
                OutOfLine::Gated => "the pod has scheduling gates",
                OutOfLine::Terminating => "the pod terminates",
                OutOfLine::ClaimMissing => "a resource claim of the pod does not exist",
                OutOfLine::GroupMissing => "the group of the pod is not complete",
            });
        }
        if let Some(lack) = &self.lack {
            let QuotaLack {
                key,
                requested,
                used,
                limit,
                ..
            } = lack;
            write!(f, "{key}: requested {requested}, used {used} of {limit}")?;
            match &lack.of {
                LackOf::Limit => {}
                LackOf::Cohort(cohort) => write!(f, " in cohort {:?}", cohort.as_str())?,
                LackOf::Claimed(quota) => {
                    write!(f, "; quota {:?} needs what is left", quota.as_str())?
                }
            }
            if self.before > 0 {
                f.write_str(", ")?;
            }
        }
        match self.before {
            0 => Ok(()),
            1 => f.write_str("1 pod is before this one"),
            before if before <= EXACT_MAX => write!(f, "{before} pods are before this one"),
            before if before < BEFORE_MAX => {
                write!(f, "more than {EXACT_MAX} pods are before this one")
            }
            _ => write!(f, "at least {BEFORE_MAX} pods are before this one"),
        }
    }
}

/// The amounts of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaAmount {
    /// The key of `spec.hard`.
    pub key: Str,
    /// The limit.
    pub hard: i64,
    /// The amount used by pods with a node.
    pub used: i64,
    /// The amount kept for admitted pods.
    pub admitted: i64,
}

impl QuotaAmount {
    /// The used amount above the limit, which the cohort lends.
    pub fn borrowed(&self) -> i64 {
        (self
            .used
            .saturating_add(self.admitted)
            .saturating_sub(self.hard))
        .max(0)
    }
}

/// A quota.
#[derive(Debug, Clone)]
pub struct QuotaView<'a> {
    /// The object.
    pub object: &'a Arc<CustomObject>,
    /// The spec; `None` if it cannot be read.
    pub spec: Option<&'a QuotaSpec>,
    /// The reason why the spec cannot be read.
    pub error: Option<&'a str>,
    /// The amounts, by key.
    pub amounts: Vec<QuotaAmount>,
    /// The number of waiting pods.
    pub waiting: usize,
    /// The creation time of the oldest waiting pod.
    pub oldest: Option<Time>,
    /// The first entry in line if it can never be admitted, with the missing amount.
    pub stuck: Option<QuotaObstacle>,
}

fn lack(limit: &QuotaLimit, of: LackOf, requested: i64, used: i64, most: i64) -> QuotaLack {
    let missing = requested.saturating_add(used).saturating_sub(most).max(0);
    QuotaLack {
        key: limit.key.clone(),
        requested: limit.text(requested),
        used: limit.text(used),
        limit: limit.text(most),
        missing: limit.text(missing),
        never_fits: requested > most && of == LackOf::Limit,
        of,
    }
}

impl Quotas {
    fn lack_of(&self, quota: &Quota, shortage: &Shortage, requested: i64) -> Option<QuotaLack> {
        let limit = |at: &usize| quota.spec.limits.get(*at);
        Some(match shortage {
            // No amount is lacking: an earlier entry waits.
            Shortage::Order => return None,
            Shortage::Limit(at) => {
                let (used, most) = (quota.taken(*at), quota.spec.most(*at));
                lack(limit(at)?, LackOf::Limit, requested, used, most)
            }
            Shortage::Cohort(at) => {
                let limit = limit(at)?;
                let name = quota.spec.cohort.as_ref()?;
                let cohort = self.cohorts.get(name)?;
                let (taken, hard) = (cohort.taken(&limit.key), cohort.hard(&limit.key));
                let lack = lack(limit, LackOf::Cohort(name.clone()), requested, taken, hard);
                QuotaLack {
                    never_fits: requested > hard,
                    ..lack
                }
            }
            Shortage::Claimed(at, (namespace, name)) => {
                let limit = limit(at)?;
                let of = LackOf::Claimed(Str::from(format!("{namespace}/{name}")));
                lack(limit, of, requested, quota.taken(*at), limit.hard)
            }
        })
    }

    fn obstacle_of(&self, namespace: &Str, ruled: &Ruled, key: &EntryKey) -> Option<QuotaObstacle> {
        let entry = ruled.entries.get(key)?;
        let EntryState::Waiting(place) = &entry.state else {
            return None;
        };
        // A missing amount explains more than the position in line, so it is looked for first.
        let (name, found) = shortage(ruled, &self.cohorts, namespace, entry, None)
            .or_else(|| shortage(ruled, &self.cohorts, namespace, entry, Some(place)))?;
        let quota = ruled.quotas.get(name)?;
        let at = match &found {
            Shortage::Order => None,
            Shortage::Limit(at) | Shortage::Cohort(at) | Shortage::Claimed(at, _) => Some(*at),
        };
        let need = entry.needs.iter().find(|need| need.quota == *name);
        let requested = need
            .zip(at)
            .and_then(|(need, at)| Some((at, *need.amounts.get(at)?)));
        let requested = requested.map(|(at, own)| match (&found, &quota.spec.cohort) {
            (Shortage::Cohort(_), Some(cohort)) => quota.spec.limits.get(at).map_or(own, |limit| {
                need_of_cohort(ruled, &entry.needs, cohort, &limit.key)
            }),
            _ => own,
        });
        Some(QuotaObstacle {
            quota: name.clone(),
            lack: requested.and_then(|requested| self.lack_of(quota, &found, requested)),
            before: quota.before(place, BEFORE_MAX),
            out: None,
        })
    }

    /// The reason why a pending pod is not admitted; `None` if it is, or if no quota applies to it.
    pub fn obstacle(&self, pod: &Pod) -> Option<QuotaObstacle> {
        let (ruled, tracked) = self.tracked(pod.namespace(), pod.uid())?;
        let Standing::Pending { entry: key, out } = &tracked.standing else {
            return None;
        };
        let entry = ruled.entries.get(key)?;
        match &entry.state {
            EntryState::Admitted => None,
            EntryState::Waiting(_) => self.obstacle_of(pod.namespace(), ruled, key),
            EntryState::Out => Some(QuotaObstacle {
                quota: tracked.needs.first()?.quota.clone(),
                lack: None,
                before: 0,
                out: Some(out.unwrap_or(OutOfLine::GroupMissing)),
            }),
        }
    }

    /// The reason why a pod that counts on a node must give it back: a limit is exceeded, the pod and all admitted pods
    /// included. `None` if no limit is.
    pub fn excess(&self, pod: &Pod) -> Option<QuotaObstacle> {
        let (ruled, tracked) = self.tracked(pod.namespace(), pod.uid())?;
        tracked.needs.iter().find_map(|need| {
            let quota = ruled.quotas.get(&need.quota)?;
            let id = (pod.namespace().clone(), need.quota.clone());
            let found = shortage_of_amounts(&self.cohorts, &id, quota, need, Counted::With)?;
            let (Shortage::Limit(at) | Shortage::Cohort(at) | Shortage::Claimed(at, _)) = &found
            else {
                return None;
            };
            let requested = need.amounts.get(*at).copied().unwrap_or(0);
            let mut lack = self.lack_of(quota, &found, requested)?;
            lack.missing.clear();
            Some(QuotaObstacle {
                quota: need.quota.clone(),
                lack: Some(lack),
                before: 0,
                out: None,
            })
        })
    }

    /// The quotas with a spec or without, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Str, &Str)> {
        self.spaces.iter().flat_map(|(namespace, space)| {
            let ruled = space.ruled.iter().flat_map(|ruled| ruled.quotas.keys());
            let names = ruled.chain(space.invalid.keys());
            names.map(move |name| (namespace, name))
        })
    }

    /// The quotas for which pods wait, by namespace and name, with the number of pods. In no order.
    pub fn waiting(&self) -> impl Iterator<Item = (usize, (&Str, &Str))> {
        self.spaces.iter().flat_map(|(namespace, space)| {
            let quotas = space.ruled.iter().flat_map(|ruled| &ruled.quotas);
            let waiting = quotas.filter(|(_, quota)| quota.waiting_pods > 0);
            waiting.map(move |(name, quota)| (quota.waiting_pods, (namespace, name)))
        })
    }

    /// A quota.
    pub fn get(&self, namespace: &Str, name: &Str) -> Option<QuotaView<'_>> {
        let space = self.spaces.get(namespace)?;
        if let Some((object, error)) = space.invalid.get(name) {
            return Some(QuotaView {
                object,
                spec: None,
                error: Some(error),
                amounts: Vec::new(),
                waiting: 0,
                oldest: None,
                stuck: None,
            });
        }
        let ruled = space.ruled.as_deref()?;
        let quota = ruled.quotas.get(name)?;
        let amounts = quota
            .spec
            .limits
            .iter()
            .zip(quota.used.iter().zip(&quota.admitted));
        let amounts = amounts.map(|(limit, (used, admitted))| QuotaAmount {
            key: limit.key.clone(),
            hard: limit.hard,
            used: *used,
            admitted: *admitted,
        });
        let first = quota.line().next();
        let first = first.and_then(|(_, key)| self.obstacle_of(namespace, ruled, key));
        Some(QuotaView {
            object: &quota.object,
            spec: Some(&quota.spec),
            error: None,
            amounts: amounts.collect(),
            waiting: quota.waiting_pods,
            oldest: quota.oldest(),
            stuck: first.filter(|first| first.lack.as_ref().is_some_and(|lack| lack.never_fits)),
        })
    }

    /// The entries that wait for a quota, the first one first.
    pub fn line<'a>(
        &'a self,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = (&'a LineKey, &'a EntryKey)> + use<'a> {
        let quota = self
            .ruled(namespace)
            .and_then(|ruled| ruled.quotas.get(name));
        quota.into_iter().flat_map(Quota::line)
    }

    /// The UIDs of the pods of an entry in line.
    pub fn members<'a>(
        &'a self,
        namespace: &str,
        key: &EntryKey,
    ) -> impl Iterator<Item = &'a Str> + use<'a> {
        let entry = self
            .ruled(namespace)
            .and_then(|ruled| ruled.entries.get(key));
        entry
            .into_iter()
            .flat_map(|entry| &entry.members)
            .map(|member| &member.uid)
    }
}
