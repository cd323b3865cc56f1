//! Asks an HTTP service whether a pod may be bound to its node.
//!
//! ```text
//! args: {url: http://admission.example/v1, timeoutSeconds: 5}
//!
//! PUT    http://admission.example/v1/<namespace>/<pod>/<node>   2xx: bind; any other code: try again later
//! DELETE http://admission.example/v1/<namespace>/<pod>/<node>   the pod is not bound to the node
//! ```
//!
//! The plugin applies to pods with the label `example.com/admission=required`.

mod service;

use berth_api::{Duration, Str};
use berth_framework::plugin::{PreBind, Reserve};
use berth_framework::registry::{ArgsError, Extensions, FactoryContext};
use berth_framework::stage::{StageContext, Step, Wake};
use berth_framework::{CycleState, PodInfo, Status};
use serde::Deserialize;
use service::AdmissionService;

/// The plugin's name.
pub const NAME: &str = "NodeAdmission";

/// The label of pods that need an admission.
pub const ADMISSION: &str = "example.com/admission";
/// The value of [`ADMISSION`].
pub const REQUIRED: &str = "required";

/// The greatest `timeoutSeconds`.
const TIMEOUT_SECONDS_MAX: u32 = 600;
/// Requests have a time limit of their own. The plugin waits this much longer than that.
const GRACE: Duration = Duration::from_secs(1);

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAdmissionArgs {
    /// The address of the service: `http://`, without a query.
    pub url: String,
    /// The time limit of a request, in seconds.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u32,
}

fn default_timeout_seconds() -> u32 {
    10
}

/// Creates the plugin from its arguments.
///
/// # Errors
/// All invalid arguments, each with its path.
pub fn make(cx: &FactoryContext<'_>) -> Result<Extensions, ArgsError> {
    let args: NodeAdmissionArgs = cx.decode_args("NodeAdmissionArgs")?;
    let mut problems = Vec::new();
    let timeout = Duration::from_secs(u64::from(args.timeout_seconds));
    let service = AdmissionService::new(&args.url, timeout);
    if let Err(problem) = &service {
        problems.push((
            "url".to_owned(),
            format!("Invalid value: {:?}: {problem}", args.url),
        ));
    }
    if !(1..=TIMEOUT_SECONDS_MAX).contains(&args.timeout_seconds) {
        let (given, max) = (args.timeout_seconds, TIMEOUT_SECONDS_MAX);
        let problem = format!("Invalid value: {given}: must be from 1 to {max}");
        problems.push(("timeoutSeconds".to_owned(), problem));
    }
    match service {
        Ok(service) if problems.is_empty() => {
            let plugin = NodeAdmission { service };
            Ok(Extensions::of(plugin).reserve().pre_bind().build())
        }
        _ => Err(ArgsError { problems }),
    }
}

/// Calls the service before a pod is bound.
#[derive(Debug)]
pub struct NodeAdmission {
    service: AdmissionService,
}

/// Stored in the state of the cycle when the service has been called: the admission may have to be revoked.
struct AskedService;

impl NodeAdmission {
    fn is_required(pod: &PodInfo) -> bool {
        pod.pod.labels().get(ADMISSION) == Some(REQUIRED)
    }
}

impl PreBind for NodeAdmission {
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
    ) -> Status {
        if Self::is_required(pod) {
            Status::success()
        } else {
            Status::skip()
        }
    }

    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        // With the gate NominatedNodeNameForExpectation off, `pre_flight` was not called.
        if !Self::is_required(pod) {
            return Step::success();
        }
        let Some(wake) = wake else {
            state.write(AskedService);
            let limit = self.service.timeout() + GRACE;
            return cx.wait_for_job(limit, self.service.admit(&pod.pod, node));
        };
        Step::Done(match wake.into_value::<()>() {
            Ok(()) => Status::success(),
            // After an error, the pod is tried again after a backoff, on the node that is best then.
            Err(error) => Status::error(format!("node {node} is not admitted: {error}")),
        })
    }
}

impl Reserve for NodeAdmission {
    /// Reserves nothing: the service is called in PreBind, where waiting delays no other pod.
    fn reserve(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
        _wake: Option<Wake<'_>>,
    ) -> Step {
        Step::success()
    }

    /// The pod is not bound to the node. The service may have admitted it.
    fn unreserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
    ) {
        if state.read::<AskedService>().is_some() {
            cx.start_job(self.service.withdraw(&pod.pod, node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::FeatureGates;
    use berth_framework::stage::{Wait, WaitOn, WakeReason};
    use berth_framework::testing::{PodBuilder, Recorder, World, pod};
    use serde_json::{Value, json};

    fn plugin() -> NodeAdmission {
        let service = AdmissionService::new("http://127.0.0.1:9/v1", Duration::from_secs(5));
        NodeAdmission {
            service: service.expect("the address is right"),
        }
    }

    fn careful() -> PodBuilder {
        pod("p").label(ADMISSION, REQUIRED)
    }

    #[test]
    fn only_pods_that_ask_for_it_wait() {
        for (pod, asks) in [(careful(), true), (pod("p"), false)] {
            let (world, mut recorder) = (World::default(), Recorder::default());
            let (mut state, pod, node) = (CycleState::default(), pod.info(), "n1".into());
            let mut cx = world.stage(&mut recorder);
            let before = plugin().pre_flight(&mut cx, &mut state, &pod, &node);
            assert_eq!(before.is_skip(), !asks);
            let step = plugin().pre_bind(&mut cx, &mut state, &pod, &node, None);
            match step {
                Step::Wait(Wait { on, deadline }) => {
                    assert!(asks);
                    assert!(matches!(on, WaitOn::Job(_)), "{on:?}");
                    assert_eq!(deadline, world.now + Duration::from_secs(6));
                }
                Step::Done(status) => assert!(!asks && status.is_success()),
            }
            // The request is reverted, and nothing else.
            let mut cx = world.stage(&mut recorder);
            plugin().unreserve(&mut cx, &mut state, &pod, &node);
            assert_eq!(recorder.jobs.len(), if asks { 2 } else { 0 });
        }
    }

    #[test]
    fn the_answer_decides() {
        let nothing: Box<dyn std::any::Any + Send> = Box::new(());
        for (reason, notified) in [
            (WakeReason::Job(Ok(nothing)), ""),
            (
                WakeReason::Job(Err("503 Service Unavailable".into())),
                "node n1 is not admitted: 503 Service Unavailable",
            ),
            (
                WakeReason::Deadline,
                "node n1 is not admitted: the job took too long",
            ),
        ] {
            let (world, mut recorder) = (World::default(), Recorder::default());
            let mut cx = world.stage(&mut recorder);
            let mut state = CycleState::default();
            let pod = careful().info();
            let wake = Some(reason.into());
            match plugin().pre_bind(&mut cx, &mut state, &pod, &"n1".into(), wake) {
                Step::Done(status) => assert_eq!(status.message(), notified),
                Step::Wait(wait) => panic!("waits again: {wait:?}"),
            }
        }
    }

    #[test]
    fn arguments_are_checked() {
        let features = FeatureGates::default();
        for (args, notified) in [
            (json!({"url": "http://admission.example/v1"}), None),
            (
                json!({"url": "http://127.0.0.1:80", "timeoutSeconds": 600}),
                None,
            ),
            (
                json!({"url": "https://admission.example", "timeoutSeconds": 0}),
                Some(
                    "url: Invalid value: \"https://admission.example\": must begin with http://, \
                     timeoutSeconds: Invalid value: 0: must be from 1 to 600",
                ),
            ),
            (
                json!({"url": "http://a/?q=1"}),
                Some("url: Invalid value: \"http://a/?q=1\": must not have a query"),
            ),
            (
                Value::Null,
                Some(": cannot read NodeAdmissionArgs: missing field `url`"),
            ),
        ] {
            let cx = FactoryContext {
                args: &args,
                features: &features,
            };
            let got = make(&cx).err().map(|error| error.to_string());
            assert_eq!(got.as_deref(), notified, "{args}");
        }
    }
}
