//! Extenders: webhooks that filter, score, bind or preempt in addition to the plugins.
//!
//! The core reads the configuration of an extender ([`ExtenderSpec`]) and calls it through [`Extender`]. A call returns
//! an [`Answer`] that the edge polls as a job, while the cycle is parked. The edge implements the protocol.

use crate::call::PodRef;
use crate::job::JobError;
use berth_api::{Duration, Pod, Str};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The plugin name under which rejections by extenders are recorded.
pub const EXTENDER: &str = "Extender";

/// The highest score that an extender gives a node.
pub const MAX_EXTENDER_PRIORITY: i64 = 10;

/// The future answer of an extender, or its error.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, JobError>> + Send>>;

/// The reason why an extender has not answered a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtenderCallError {
    /// It took longer than its timeout.
    #[error("no answer from extender {extender} within {millis} ms")]
    Timeout {
        /// The name of the extender.
        extender: Str,
        /// The timeout.
        millis: u128,
    },
    /// The answer does not match the request.
    #[error("{0}")]
    InvalidAnswer(String),
    /// The call failed.
    #[error(transparent)]
    Failed(JobError),
}

/// The configuration of an extender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtenderSpec {
    /// Its name: its address.
    pub name: Str,
    /// Whether it filters nodes.
    pub filters: bool,
    /// Whether it scores nodes.
    pub prioritizes: bool,
    /// The weight of its scores.
    pub weight: i64,
    /// Whether it binds instead of the Bind plugins.
    pub binds: bool,
    /// Whether it supports preemption.
    pub preempts: bool,
    /// Whether scheduling continues without it if it fails.
    pub ignorable: bool,
    /// It is called only for pods that request one of these resources, or for all pods if there are none.
    pub managed_resources: Vec<Str>,
    /// The timeout of a call.
    pub timeout: Duration,
}

impl ExtenderSpec {
    /// Returns whether it is called for the pod: it manages no resources, or one that a container requests or limits.
    pub fn is_interested(&self, pod: &Pod) -> bool {
        self.managed_resources.is_empty()
            || pod.all_containers().any(|container| {
                let resources = &container.resources;
                self.managed_resources.iter().any(|name| {
                    resources.requests.get(name).is_some() || resources.limits.get(name).is_some()
                })
            })
    }

    /// The log line when scheduling continues without its answer.
    pub fn skipped(&self, error: &ExtenderCallError) -> String {
        format!("Going on without extender {}: {error}", self.name)
    }

    /// The result of the wait for its answer, with the extender in the error about the timeout.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn answer<T>(&self, answer: Result<T, JobError>) -> Result<T, ExtenderCallError> {
        answer.map_err(|error| match error {
            JobError::Deadline => ExtenderCallError::Timeout {
                extender: self.name.clone(),
                millis: self.timeout.as_millis(),
            },
            error => ExtenderCallError::Failed(error),
        })
    }
}

/// The answer of an extender for feasible nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filtered {
    /// The nodes that stay feasible, by name.
    pub nodes: Vec<Str>,
    /// The rejected nodes where preemption may help, with the reason.
    pub failed: Vec<(Str, String)>,
    /// The rejected nodes where preemption does not help, with the reason.
    pub failed_and_unresolvable: Vec<(Str, String)>,
}

/// The victims on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVictims {
    /// The node.
    pub node: Str,
    /// The pods, the most important first.
    pub pods: Vec<Arc<Pod>>,
    /// The number of them that violate their disruption budget.
    pub violations: usize,
}

/// The victims on a node, as an extender returns them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenVictims {
    /// The node.
    pub node: Str,
    /// The pods by UID.
    pub pods: Vec<Str>,
    /// The number of them that are evicted against their disruption budget.
    pub violations: usize,
}

/// Calls one extender. Only the calls that [`Extender::spec`] lists are made.
pub trait Extender: Send + Sync {
    /// Its configuration.
    fn spec(&self) -> &ExtenderSpec;

    /// Filters the nodes: returns the nodes on which the pod may run.
    fn filter(&self, _pod: &Arc<Pod>, _nodes: &Arc<[Str]>) -> Answer<Filtered> {
        nothing(self.spec(), "filter")
    }

    /// A score for some of these nodes, from 0 to [`MAX_EXTENDER_PRIORITY`].
    fn prioritize(&self, _pod: &Arc<Pod>, _nodes: &Arc<[Str]>) -> Answer<Vec<(Str, i64)>> {
        nothing(self.spec(), "prioritize")
    }

    /// Binds the pod to the node.
    fn bind(&self, _pod: &PodRef, _node: &Str) -> Answer<()> {
        nothing(self.spec(), "bind")
    }

    /// The nodes on which preemption is possible for the pod, with the victims.
    fn preempt(&self, _pod: &Arc<Pod>, _victims: Vec<NodeVictims>) -> Answer<Vec<ChosenVictims>> {
        nothing(self.spec(), "preempt")
    }
}

/// The answer to a call that an extender does not support.
fn nothing<T: 'static>(spec: &ExtenderSpec, verb: &str) -> Answer<T> {
    let text = format!("extender {} does not {verb}", spec.name);
    Box::pin(async move { Err(JobError::Failed(text)) })
}

/// All extenders in the order of calls: ignorable extenders last (F-44).
#[derive(Clone, Default)]
pub struct Extenders(Arc<[Arc<dyn Extender>]>);

impl Extenders {
    /// These extenders, sorted; the sort is stable.
    pub fn new(extenders: impl IntoIterator<Item = Arc<dyn Extender>>) -> Self {
        let mut extenders: Vec<_> = extenders.into_iter().collect();
        extenders.sort_by_key(|extender| extender.spec().ignorable);
        Self(extenders.into())
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The extender at a place.
    pub fn get(&self, at: usize) -> Option<&Arc<dyn Extender>> {
        self.0.get(at)
    }

    /// Returns whether one of them supports a call.
    pub fn any(&self, does: impl Fn(&ExtenderSpec) -> bool) -> bool {
        self.0.iter().any(|extender| does(extender.spec()))
    }

    /// The first at `from` or later that supports a call and is interested in the pod, with its place.
    pub fn next(
        &self,
        from: usize,
        pod: &Pod,
        does: impl Fn(&ExtenderSpec) -> bool,
    ) -> Option<(usize, &Arc<dyn Extender>)> {
        let mut rest = self.0.iter().enumerate().skip(from);
        rest.find(|(_, extender)| {
            let spec = extender.spec();
            does(spec) && spec.is_interested(pod)
        })
    }
}

impl fmt::Debug for Extenders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|extender| &extender.spec().name);
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    struct Named(ExtenderSpec);

    impl Extender for Named {
        fn spec(&self) -> &ExtenderSpec {
            &self.0
        }
    }

    fn named(name: &str, ignorable: bool) -> Arc<dyn Extender> {
        Arc::new(Named(ExtenderSpec {
            name: name.into(),
            ignorable,
            ..ExtenderSpec::default()
        }))
    }

    /// F-40: requests and limits count, also for init containers.
    #[test]
    fn an_extender_is_called_for_pods_that_request_its_resources() {
        let gpu = "example.com/gpu";
        let of = |resources: serde_json::Value, init: bool| {
            let container = serde_json::json!({"name": "c", "resources": resources});
            let plain = serde_json::json!({"name": "d"});
            let spec = if init {
                serde_json::json!({"initContainers": [container], "containers": [plain]})
            } else {
                serde_json::json!({"containers": [plain, container]})
            };
            serde_json::from_value::<Pod>(serde_json::json!({"spec": spec})).unwrap()
        };
        let requesting = |what: &str, name: &str| serde_json::json!({what: {name: "1"}});
        for (situation, managed, pod, interested) in [
            (
                "all resources",
                vec![],
                of(requesting("requests", "cpu"), false),
                true,
            ),
            (
                "requested",
                vec![gpu],
                of(requesting("requests", gpu), false),
                true,
            ),
            (
                "limited",
                vec![gpu],
                of(requesting("limits", gpu), false),
                true,
            ),
            (
                "requested by an init container",
                vec![gpu],
                of(requesting("requests", gpu), true),
                true,
            ),
            (
                "limited for an init container",
                vec!["a.b/c", gpu],
                of(requesting("limits", gpu), true),
                true,
            ),
            (
                "other resources",
                vec![gpu],
                of(requesting("requests", "cpu"), false),
                false,
            ),
            ("no resources", vec![gpu], pod("p").build(), false),
        ] {
            let spec = ExtenderSpec {
                managed_resources: managed.into_iter().map(Str::from).collect(),
                ..ExtenderSpec::default()
            };
            assert_eq!(spec.is_interested(&pod), interested, "{situation}");
        }
    }

    /// F-44.
    #[test]
    fn ignorable_extenders_are_called_last() {
        let extenders = Extenders::new([
            named("a", true),
            named("b", false),
            named("c", true),
            named("d", false),
        ]);
        assert_eq!(format!("{extenders:?}"), r#"["b", "d", "a", "c"]"#);
        let pod = pod("p").build();
        let (at, next) = extenders.next(1, &pod, |_| true).unwrap();
        assert_eq!((at, next.spec().name.as_str()), (1, "d"));
        assert!(extenders.next(0, &pod, |spec| spec.binds).is_none());
    }
}
