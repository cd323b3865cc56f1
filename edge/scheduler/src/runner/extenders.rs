//! Extenders for the core: translates its requests to the wire format.

use crate::exit::CommandFailure;
use berth_api::{Duration, Pod, Str};
use berth_client::extender::raw::{ObjectJson, RawObjects, WantedJson};
use berth_client::extender::wire::ExtenderBindingArgs;
use berth_client::extender::{
    ExtenderClient, ExtenderError, ExtenderOptions, ExtenderTlsOptions, Nodes, VictimsOf,
};
use berth_framework::call::PodRef;
use berth_framework::extender::{
    Answer, ChosenVictims, Extender, ExtenderSpec, Extenders, Filtered, NodeVictims,
};
use std::fmt;
use std::sync::Arc;

/// The extenders of a configuration.
#[derive(Clone, Default)]
pub(crate) struct Webhooks {
    /// As the core asks them.
    pub(crate) extenders: Extenders,
    /// The objects as the API has them that questions may hold.
    pub(crate) raw: Arc<RawObjects>,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.extenders.fmt(f)
    }
}

impl Webhooks {
    /// Creates every extender. No request is sent yet.
    ///
    /// # Errors
    /// When one of them cannot be used as it is configured.
    pub(crate) async fn new(
        configured: &[berth_config::Extender],
        user_agent: &str,
    ) -> Result<Self, CommandFailure> {
        let raw = Arc::new(RawObjects::new(wanted_by(configured)));
        Self::with(configured, user_agent, raw).await
    }

    /// Creates the extenders of another configuration. They use the objects that are kept for the present ones; if they
    /// need more objects, these have to be listed first.
    ///
    /// # Errors
    /// When one of them cannot be used as it is configured.
    pub(crate) async fn succeeded_by(
        &self,
        configured: &[berth_config::Extender],
        user_agent: &str,
    ) -> Result<Self, CommandFailure> {
        let wanted = self.raw.wanted().and(wanted_by(configured));
        let raw = if wanted == self.raw.wanted() {
            Arc::clone(&self.raw)
        } else {
            Arc::new(RawObjects::new(wanted))
        };
        Self::with(configured, user_agent, raw).await
    }

    async fn with(
        configured: &[berth_config::Extender],
        user_agent: &str,
        raw: Arc<RawObjects>,
    ) -> Result<Self, CommandFailure> {
        let mut extenders: Vec<Arc<dyn Extender>> = Vec::with_capacity(configured.len());
        for (at, extender) in configured.iter().enumerate() {
            let client = ExtenderClient::new(options(extender, user_agent)).await;
            let client =
                client.map_err(|e| CommandFailure::Usage(format!("extenders[{at}]: {e}")))?;
            extenders.push(Arc::new(Webhook(Arc::new(Inner {
                spec: spec(extender),
                config: extender.clone(),
                client,
                raw: raw.clone(),
            }))));
        }
        Ok(Self {
            extenders: Extenders::new(extenders),
            raw,
        })
    }
}

/// Extenders of a configuration for a replay: the core knows them, and no request is ever sent.
pub(crate) fn described_extenders(configured: &[berth_config::Extender]) -> Extenders {
    struct Described(ExtenderSpec);
    impl Extender for Described {
        fn spec(&self) -> &ExtenderSpec {
            &self.0
        }
    }
    let extenders = configured.iter().map(|extender| {
        let described: Arc<dyn Extender> = Arc::new(Described(spec(extender)));
        described
    });
    Extenders::new(extenders)
}

/// The objects that the questions of any of them contain as a whole.
fn wanted_by(configured: &[berth_config::Extender]) -> WantedJson {
    let wanted = configured.iter().map(wanted);
    wanted.fold(WantedJson::default(), WantedJson::and)
}

/// The objects that its questions contain as a whole.
fn wanted(extender: &berth_config::Extender) -> WantedJson {
    let asks = |verb: &str| !verb.is_empty();
    let about_nodes = asks(&extender.filter_verb) || asks(&extender.prioritize_verb);
    WantedJson {
        pending_pods: about_nodes || asks(&extender.preempt_verb),
        all_pods: asks(&extender.preempt_verb) && !extender.node_cache_capable,
        nodes: about_nodes && !extender.node_cache_capable,
    }
}

fn spec(extender: &berth_config::Extender) -> ExtenderSpec {
    let does = |verb: &str| !verb.is_empty();
    let managed = extender.managed_resources.iter();
    ExtenderSpec {
        name: extender.url_prefix.as_str().into(),
        filters: does(&extender.filter_verb),
        prioritizes: does(&extender.prioritize_verb),
        weight: extender.weight,
        binds: does(&extender.bind_verb),
        preempts: does(&extender.preempt_verb),
        ignorable: extender.ignorable,
        managed_resources: managed
            .map(|resource| resource.name.as_str().into())
            .collect(),
        timeout: timeout(extender),
    }
}

fn timeout(extender: &berth_config::Extender) -> Duration {
    extender.http_timeout.as_duration()
}

fn options(extender: &berth_config::Extender, user_agent: &str) -> ExtenderOptions {
    let tls = extender.tls.clone().unwrap_or_default();
    ExtenderOptions {
        url_prefix: extender.url_prefix.clone(),
        enable_https: extender.enable_https,
        tls: ExtenderTlsOptions {
            insecure: tls.insecure,
            server_name: tls.server_name,
            cert_file: tls.cert_file,
            key_file: tls.key_file,
            ca_file: tls.ca_file,
            cert_data: tls.cert_data,
            key_data: tls.key_data,
            ca_data: tls.ca_data,
        },
        timeout: timeout(extender),
        user_agent: user_agent.to_owned(),
    }
}

/// One extender.
struct Webhook(Arc<Inner>);

struct Inner {
    spec: ExtenderSpec,
    config: berth_config::Extender,
    client: ExtenderClient,
    raw: Arc<RawObjects>,
}

/// The answer to a question, in the core's words.
fn answer<T, F>(inner: &Arc<Inner>, ask: impl FnOnce(Arc<Inner>) -> F + Send + 'static) -> Answer<T>
where
    F: Future<Output = Result<T, ExtenderError>> + Send,
    T: Send + 'static,
{
    let inner = Arc::clone(inner);
    Box::pin(async move { ask(inner).await.map_err(|error| error.to_string().into()) })
}

fn named<T>(named: Vec<(String, T)>) -> Vec<(Str, T)> {
    named
        .into_iter()
        .map(|(name, value)| (Str::from(name), value))
        .collect()
}

impl Inner {
    /// The nodes as JSON, when the extender does not keep them itself.
    fn whole(&self, nodes: &[Str]) -> Option<Vec<ObjectJson>> {
        (!self.config.node_cache_capable).then(|| self.raw.nodes(nodes))
    }
}

/// The nodes as a question holds them.
fn nodes<'a>(names: &'a [Str], whole: Option<&'a Vec<ObjectJson>>) -> Nodes<'a> {
    whole.map_or(Nodes::Names(names), |nodes| Nodes::Whole(nodes))
}

impl Extender for Webhook {
    fn spec(&self) -> &ExtenderSpec {
        &self.0.spec
    }

    fn filter(&self, pod: &Arc<Pod>, names: &Arc<[Str]>) -> Answer<Filtered> {
        let (uid, names) = (pod.uid().clone(), Arc::clone(names));
        answer(&self.0, |inner| async move {
            let pod = inner.raw.pod(&uid)?;
            let whole = inner.whole(&names);
            let nodes = nodes(&names, whole.as_ref());
            let verb = &inner.config.filter_verb;
            let stated = inner.client.filter(verb, &pod, nodes).await?;
            Ok(Filtered {
                nodes: stated.nodes.into_iter().map(Str::from).collect(),
                failed: named(stated.failed),
                failed_and_unresolvable: named(stated.failed_and_unresolvable),
            })
        })
    }

    fn prioritize(&self, pod: &Arc<Pod>, names: &Arc<[Str]>) -> Answer<Vec<(Str, i64)>> {
        let (uid, names) = (pod.uid().clone(), Arc::clone(names));
        answer(&self.0, |inner| async move {
            let pod = inner.raw.pod(&uid)?;
            let whole = inner.whole(&names);
            let nodes = nodes(&names, whole.as_ref());
            let verb = &inner.config.prioritize_verb;
            Ok(named(inner.client.prioritize(verb, &pod, nodes).await?))
        })
    }

    fn bind(&self, pod: &PodRef, node: &Str) -> Answer<()> {
        let (pod, node) = (pod.clone(), node.clone());
        answer(&self.0, |inner| async move {
            let binding = ExtenderBindingArgs {
                pod_name: &pod.name,
                pod_namespace: &pod.namespace,
                pod_uid: &pod.uid,
                node: &node,
            };
            let verb = &inner.config.bind_verb;
            inner.client.bind(verb, &binding).await
        })
    }

    fn preempt(&self, pod: &Arc<Pod>, victims: Vec<NodeVictims>) -> Answer<Vec<ChosenVictims>> {
        let uid = pod.uid().clone();
        answer(&self.0, |inner| async move {
            let pod = inner.raw.pod(&uid)?;
            let mut asked = Vec::with_capacity(victims.len());
            for of in &victims {
                let pods: Vec<&str> = of.pods.iter().map(|pod| pod.uid().as_str()).collect();
                // A victim that was deleted already needs no eviction, and cannot be shown.
                let whole = || pods.iter().filter_map(|uid| inner.raw.pod(uid).ok());
                asked.push(VictimsOf {
                    node: &of.node,
                    whole: (!inner.config.node_cache_capable).then(|| whole().collect()),
                    pods,
                    violations: of.violations,
                });
            }
            let verb = &inner.config.preempt_verb;
            let stated = inner.client.preempt(verb, &pod, &asked).await?;
            let chosen = stated.into_iter().map(|of| ChosenVictims {
                node: of.node.into(),
                pods: of.pods.into_iter().map(Str::from).collect(),
                violations: of.violations,
            });
            Ok(chosen.collect())
        })
    }
}
