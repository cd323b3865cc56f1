//! The operations of a workload in the form of the files. Parameters are substituted before an operation is decoded;
//! its templates are read afterwards.

use super::objects::ObjectTemplate;
use berth_api::GoDuration;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The labels that a pod must have.
pub type LabelSet = BTreeMap<String, String>;

/// The pause of a churn that does not set one.
const CHURN_INTERVAL: Duration = Duration::from_millis(500);

/// An operation.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Op {
    /// Creates nodes.
    CreateNodes(CreateNodes),
    /// Creates namespaces.
    CreateNamespaces(CreateNamespaces),
    /// Creates pods, and waits for them or not.
    CreatePods(CreatePods),
    /// Creates pods in several namespaces; it is expanded into several operations when the file is decoded.
    CreatePodSets(CreatePodSets),
    /// Deletes pods.
    DeletePods(DeletePods),
    /// Creates objects, or creates and deletes them, until the workload ends.
    Churn(Churn),
    /// Waits for pods.
    Barrier(Barrier),
    /// Waits for a time.
    Sleep {
        /// The time.
        #[serde(deserialize_with = "go_duration")]
        duration: Duration,
    },
    /// Starts to measure.
    StartCollectingMetrics(StartCollectingMetrics),
    /// Ends the measurement.
    StopCollectingMetrics {},
    /// Creates objects of any kind.
    CreateAny(CreateAny),
    /// Replaces objects of any kind.
    UpdateAny(UpdateAny),
    /// Creates PodGroups.
    CreatePodGroups(CreateAny),
    /// Creates CompositePodGroups.
    CreateCompositePodGroups(CreateAny),
    /// Waits until a namespace has a number of PodGroups.
    WaitForPodGroups {
        /// The namespace.
        #[serde(deserialize_with = "set")]
        namespace: String,
        /// The number.
        count: usize,
    },
    /// Creates resource claims.
    CreateResourceClaims(CreateResourceClaims),
    /// Publishes the devices of a driver.
    CreateResourceDriver(CreateResourceDriver),
    /// Allocates all claims of a namespace, or of all with an empty one.
    AllocResourceClaims {
        /// The namespace.
        #[serde(default)]
        namespace: String,
    },
}

impl Op {
    /// The opcode.
    pub fn opcode(&self) -> &'static str {
        match self {
            Self::CreateNodes(_) => "createNodes",
            Self::CreateNamespaces(_) => "createNamespaces",
            Self::CreatePods(_) => "createPods",
            Self::CreatePodSets(_) => "createPodSets",
            Self::DeletePods(_) => "deletePods",
            Self::Churn(_) => "churn",
            Self::Barrier(_) => "barrier",
            Self::Sleep { .. } => "sleep",
            Self::StartCollectingMetrics(_) => "startCollectingMetrics",
            Self::StopCollectingMetrics {} => "stopCollectingMetrics",
            Self::CreateAny(_) => "createAny",
            Self::UpdateAny(_) => "updateAny",
            Self::CreatePodGroups(_) => "createPodGroups",
            Self::CreateCompositePodGroups(_) => "createCompositePodGroups",
            Self::WaitForPodGroups { .. } => "waitForPodGroups",
            Self::CreateResourceClaims(_) => "createResourceClaims",
            Self::CreateResourceDriver(_) => "createResourceDriver",
            Self::AllocResourceClaims { .. } => "allocResourceClaims",
        }
    }

    /// Returns whether a measurement ends with it.
    pub fn collects_metrics(&self) -> bool {
        match self {
            Self::CreatePods(pods) => pods.collect_metrics,
            Self::StopCollectingMetrics {} => true,
            _ => false,
        }
    }

    /// Checks the dependencies between fields.
    ///
    /// # Errors
    /// The first problem.
    pub(super) fn check(&self) -> Result<(), String> {
        let wrong = match self {
            Self::CreateNodes(op) if op.strategies() > 1 => {
                "at most one of nodeAllocatableStrategy, labelNodePrepareStrategy and uniqueNodeLabelStrategy may be set"
            }
            Self::CreatePods(op) if op.steady_state && op.duration.is_zero() => {
                "steadyState needs a duration that is greater than 0"
            }
            Self::CreatePods(op) if op.collect_metrics && op.skip_wait_to_completion => {
                "collectMetrics and skipWaitToCompletion must not both be true"
            }
            Self::CreatePods(op) if op.steady_state && op.skip_wait_to_completion => {
                "steadyState and skipWaitToCompletion must not both be true"
            }
            Self::Churn(op) if op.mode == ChurnMode::Recreate && op.number == 0 => {
                "number: must be at least 1 with mode recreate"
            }
            _ => return Ok(()),
        };
        Err(wrong.to_owned())
    }
}

/// `createNodes`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateNodes {
    /// The number.
    pub count: usize,
    /// Resources of the nodes, and their CSINodes.
    pub node_allocatable_strategy: Option<NodeAllocatable>,
    /// A label whose value is taken from a list in turn.
    pub label_node_prepare_strategy: Option<LabelNodes>,
    /// A label with a value of its own for each node.
    pub unique_node_label_strategy: Option<UniqueNodeLabel>,
    /// The node; upstream's default node without one.
    #[serde(skip)]
    pub template: Option<Arc<ObjectTemplate>>,
}

impl CreateNodes {
    fn strategies(&self) -> usize {
        usize::from(self.node_allocatable_strategy.is_some())
            + usize::from(self.label_node_prepare_strategy.is_some())
            + usize::from(self.unique_node_label_strategy.is_some())
    }
}

/// `nodeAllocatableStrategy`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAllocatable {
    /// Allocatable resources with their quantities.
    pub node_allocatable: BTreeMap<String, String>,
    /// CSI drivers with their attach limit.
    pub csi_node_allocatable: BTreeMap<String, AttachLimit>,
    /// In-tree volume plugins that are migrated to CSI.
    pub migrated_plugins: Vec<String>,
}

/// The attach limit of a CSI driver.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachLimit {
    /// The number of volumes; none means no limit.
    pub count: Option<u32>,
}

/// `labelNodePrepareStrategy`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelNodes {
    /// The key.
    #[serde(deserialize_with = "set")]
    pub label_key: String,
    /// The values.
    #[serde(deserialize_with = "some")]
    pub label_values: Vec<String>,
}

/// `uniqueNodeLabelStrategy`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UniqueNodeLabel {
    /// The key.
    #[serde(deserialize_with = "set")]
    pub label_key: String,
}

/// `createNamespaces`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateNamespaces {
    /// The names are the prefix, a dash and the index.
    #[serde(deserialize_with = "set")]
    pub prefix: String,
    /// The number.
    pub count: usize,
    /// The namespace.
    #[serde(skip)]
    pub template: Option<Arc<ObjectTemplate>>,
}

/// `createPodSets`: one `createPods` for each of several namespaces.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreatePodSets {
    pub(super) count: usize,
    #[serde(deserialize_with = "set")]
    pub(super) namespace_prefix: String,
    pub(super) create_pods_op: serde_json::Map<String, serde_json::Value>,
}

/// `createPods`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreatePods {
    /// The number; in a steady state, the number at a time.
    pub count: usize,
    /// Multiplies the number.
    #[serde(default = "one")]
    pub count_multiplier: usize,
    /// Whether pods are created and deleted for the whole of `duration`.
    #[serde(default)]
    pub steady_state: bool,
    /// The duration of a steady state.
    #[serde(default, deserialize_with = "go_duration")]
    pub duration: Duration,
    /// Whether the operation is measured.
    #[serde(default)]
    pub collect_metrics: bool,
    /// The namespace; one of the operation's own without it.
    pub namespace: Option<String>,
    /// Whether the next operation starts before the pods are scheduled.
    #[serde(default)]
    pub skip_wait_to_completion: bool,
    /// The pod; upstream's default pod without one.
    #[serde(skip)]
    pub template: Option<Arc<ObjectTemplate>>,
    /// A volume and a claim for each pod.
    #[serde(skip)]
    pub volume: Option<VolumeTemplates>,
}

/// The volume and the claim of each pod.
#[derive(Debug, Clone)]
pub struct VolumeTemplates {
    /// The PersistentVolume.
    pub volume: Arc<ObjectTemplate>,
    /// The PersistentVolumeClaim.
    pub claim: Arc<ObjectTemplate>,
}

/// `deletePods`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeletePods {
    /// The namespace.
    #[serde(deserialize_with = "set")]
    pub namespace: String,
    /// The labels of its pods.
    #[serde(default)]
    pub label_selector: LabelSet,
    /// Whether the next operation starts before the pods are deleted.
    #[serde(default)]
    pub skip_wait_to_completion: bool,
    /// The number per second; zero deletes all concurrently.
    #[serde(default)]
    pub delete_pods_per_second: usize,
}

/// `churn`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Churn {
    /// Whether created objects are deleted again.
    pub mode: ChurnMode,
    /// The greatest number; zero is no limit.
    #[serde(default)]
    pub number: usize,
    #[serde(default)]
    interval_milliseconds: u64,
    /// The namespace; one of the operation's own without it.
    pub namespace: Option<String>,
    #[serde(deserialize_with = "some")]
    pub(super) template_paths: Vec<String>,
    /// The templates of the created objects.
    #[serde(skip)]
    pub templates: Vec<Arc<ObjectTemplate>>,
}

impl Churn {
    /// The pause between rounds.
    pub(super) fn interval(&self) -> Duration {
        match self.interval_milliseconds {
            0 => CHURN_INTERVAL,
            millis => Duration::from_millis(millis),
        }
    }
}

/// The mode of a churn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChurnMode {
    /// Objects are created.
    Create,
    /// Objects are created and deleted in turn.
    Recreate,
}

/// The stage that a barrier waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum BarrierStage {
    /// The pods have a node.
    #[default]
    Scheduled,
    /// The pods have a node or a PodScheduled condition.
    Attempted,
}

impl BarrierStage {
    /// For messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Attempted => "attempted",
        }
    }
}

/// `barrier`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Barrier {
    /// The namespaces; if empty, all with pods that were not waited for.
    pub namespaces: Vec<String>,
    /// The labels of their pods.
    pub label_selector: LabelSet,
    /// The stage that is awaited.
    pub stage_requirement: BarrierStage,
}

/// `startCollectingMetrics`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartCollectingMetrics {
    /// The name of the result.
    #[serde(default)]
    pub name: String,
    /// The namespaces whose pods count.
    #[serde(deserialize_with = "some")]
    pub namespaces: Vec<String>,
    /// The labels of their pods.
    #[serde(default)]
    pub label_selector: LabelSet,
}

/// `createAny`, `createPodGroups` and `createCompositePodGroups`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateAny {
    /// The namespace; empty for kinds without.
    #[serde(default)]
    pub namespace: String,
    /// The number.
    #[serde(default = "one")]
    pub count: usize,
    /// The object.
    #[serde(skip)]
    pub template: Arc<ObjectTemplate>,
}

/// `updateAny`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateAny {
    /// The namespace; empty for kinds without.
    #[serde(default)]
    pub namespace: String,
    /// The number.
    #[serde(default = "one")]
    pub count: usize,
    /// The object.
    #[serde(skip)]
    pub template: Arc<ObjectTemplate>,
    /// The number per second; zero updates one after the other without a pause.
    #[serde(default)]
    pub update_per_second: usize,
    /// The subresource path; empty for the object itself.
    #[serde(default)]
    pub subresources: Vec<String>,
}

/// `createResourceClaims`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateResourceClaims {
    /// The namespace.
    #[serde(deserialize_with = "set")]
    pub namespace: String,
    /// The number.
    pub count: usize,
    /// The claim.
    #[serde(skip)]
    pub template: Arc<ObjectTemplate>,
}

/// `createResourceDriver`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateResourceDriver {
    /// The driver.
    #[serde(deserialize_with = "set")]
    pub driver_name: String,
    /// Devices of each node.
    #[serde(default)]
    pub max_claims_per_node: usize,
    /// The nodes with devices: a pattern with `*` and `?`.
    #[serde(deserialize_with = "set")]
    pub nodes: String,
}

fn one() -> usize {
    1
}

/// A duration such as `10s`, `1m30s` or `500ms`.
fn go_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let parsed: Result<GoDuration, _> = text.parse();
    let parsed = parsed.map_err(|_| {
        D::Error::custom(format!(
            "invalid duration {text:?}; write it as in 10s, 1m30s or 500ms"
        ))
    });
    Ok(parsed?.as_duration())
}

/// A text that must not be empty.
pub(super) fn set<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() {
        return Err(D::Error::custom("must be set"));
    }
    Ok(text)
}

/// A list that must not be empty.
pub(super) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(from)?;
    if list.is_empty() {
        return Err(D::Error::custom("must not be empty"));
    }
    Ok(list)
}
