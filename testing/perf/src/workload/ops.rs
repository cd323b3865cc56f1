//! The operations of a workload, with its parameters put in and its templates read.

use super::objects::ObjectTemplate;
use std::sync::Arc;
use std::time::Duration;

/// The labels that a pod must have.
pub type LabelSet = Vec<(String, String)>;

/// An operation.
#[derive(Debug, Clone)]
pub enum Op {
    /// Creates nodes.
    CreateNodes(CreateNodes),
    /// Creates namespaces.
    CreateNamespaces(CreateNamespaces),
    /// Creates pods, and waits for them or not.
    CreatePods(CreatePods),
    /// Deletes pods.
    DeletePods(DeletePods),
    /// Creates objects, or creates and deletes them, until the workload ends.
    Churn(Churn),
    /// Waits for pods.
    Barrier(Barrier),
    /// Waits for a time.
    Sleep(Duration),
    /// Starts to measure.
    StartCollectingMetrics(StartCollectingMetrics),
    /// Ends the measurement.
    StopCollectingMetrics,
    /// Creates objects of any kind.
    CreateAny(CreateAny),
    /// Replaces objects of any kind.
    UpdateAny(UpdateAny),
    /// Creates PodGroups.
    CreatePodGroups(CreateAny),
    /// Creates CompositePodGroups.
    CreateCompositePodGroups(CreateAny),
    /// Waits until a namespace has a number of PodGroups.
    WaitForPodGroups(WaitForPodGroups),
    /// Creates resource claims.
    CreateResourceClaims(CreateAny),
    /// Publishes the devices of a driver.
    CreateResourceDriver(CreateResourceDriver),
    /// Allocates all claims of a namespace, or of all with an empty one.
    AllocResourceClaims(String),
}

impl Op {
    /// The opcode.
    pub fn opcode(&self) -> &'static str {
        match self {
            Self::CreateNodes(_) => "createNodes",
            Self::CreateNamespaces(_) => "createNamespaces",
            Self::CreatePods(_) => "createPods",
            Self::DeletePods(_) => "deletePods",
            Self::Churn(_) => "churn",
            Self::Barrier(_) => "barrier",
            Self::Sleep(_) => "sleep",
            Self::StartCollectingMetrics(_) => "startCollectingMetrics",
            Self::StopCollectingMetrics => "stopCollectingMetrics",
            Self::CreateAny(_) => "createAny",
            Self::UpdateAny(_) => "updateAny",
            Self::CreatePodGroups(_) => "createPodGroups",
            Self::CreateCompositePodGroups(_) => "createCompositePodGroups",
            Self::WaitForPodGroups(_) => "waitForPodGroups",
            Self::CreateResourceClaims(_) => "createResourceClaims",
            Self::CreateResourceDriver(_) => "createResourceDriver",
            Self::AllocResourceClaims(_) => "allocResourceClaims",
        }
    }

    /// Returns whether a measurement ends with it.
    pub fn collects_metrics(&self) -> bool {
        match self {
            Self::CreatePods(pods) => pods.collect_metrics,
            Self::StopCollectingMetrics => true,
            _ => false,
        }
    }
}

/// `createNodes`.
#[derive(Debug, Clone)]
pub struct CreateNodes {
    /// The number.
    pub count: usize,
    /// The node; upstream's default node without one.
    pub template: Option<Arc<ObjectTemplate>>,
    /// The fields that are added to each node.
    pub strategy: NodeStrategy,
}

/// The fields that are added to nodes beyond their template.
#[derive(Debug, Clone, Default)]
pub enum NodeStrategy {
    /// Nothing.
    #[default]
    Trivial,
    /// Resources, and a CSINode.
    Allocatable {
        /// Allocatable resources with their quantities.
        node: LabelSet,
        /// CSI drivers with their attach limit; none means no limit.
        csi: Vec<(String, Option<i64>)>,
        /// In-tree volume plugins that are migrated to CSI.
        migrated: Vec<String>,
    },
    /// A label whose value is taken from the list in turn.
    Label {
        /// The key.
        key: String,
        /// The values.
        values: Vec<String>,
    },
    /// A label with a value of its own for each node.
    UniqueLabel {
        /// The key.
        key: String,
    },
}

/// `createNamespaces`.
#[derive(Debug, Clone)]
pub struct CreateNamespaces {
    /// The names are the prefix, a dash and the index.
    pub prefix: String,
    /// The number.
    pub count: usize,
    /// The namespace.
    pub template: Option<Arc<ObjectTemplate>>,
}

/// `createPods`.
#[derive(Debug, Clone)]
pub struct CreatePods {
    /// The number; in a steady state, the number at a time.
    pub count: usize,
    /// For how long pods are created and deleted; none creates each pod once.
    pub steady_state: Option<Duration>,
    /// Whether the operation is measured.
    pub collect_metrics: bool,
    /// The namespace; one of the operation's own without it.
    pub namespace: Option<String>,
    /// The pod; upstream's default pod without one.
    pub template: Option<Arc<ObjectTemplate>>,
    /// Whether to go on before the pods are scheduled.
    pub skip_wait: bool,
    /// A volume and a claim for each pod.
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
#[derive(Debug, Clone)]
pub struct DeletePods {
    /// The namespace.
    pub namespace: String,
    /// The labels of its pods.
    pub labels: LabelSet,
    /// Whether to go on before the pods are deleted.
    pub skip_wait: bool,
    /// The number per second; zero deletes all at once.
    pub per_second: usize,
}

/// `churn`.
#[derive(Debug, Clone)]
pub struct Churn {
    /// Whether objects are deleted again.
    pub recreate: bool,
    /// The greatest number; zero is no limit.
    pub number: usize,
    /// The pause between rounds.
    pub interval: Duration,
    /// The namespace; one of the operation's own without it.
    pub namespace: Option<String>,
    /// The templates of the created objects.
    pub templates: Vec<Arc<ObjectTemplate>>,
}

/// The stage that a barrier waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierStage {
    /// The pods have a node.
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
#[derive(Debug, Clone)]
pub struct Barrier {
    /// The namespaces; all with pods that were not waited for when empty.
    pub namespaces: Vec<String>,
    /// The labels of their pods.
    pub labels: LabelSet,
    /// The stage that is awaited.
    pub stage: BarrierStage,
}

/// `startCollectingMetrics`.
#[derive(Debug, Clone)]
pub struct StartCollectingMetrics {
    /// The name of the result.
    pub name: String,
    /// The namespaces whose pods count.
    pub namespaces: Vec<String>,
    /// The labels of their pods.
    pub labels: LabelSet,
}

/// `waitForPodGroups`.
#[derive(Debug, Clone)]
pub struct WaitForPodGroups {
    /// The namespace.
    pub namespace: String,
    /// The number.
    pub count: usize,
}

/// `createAny`, `createPodGroups`, `createCompositePodGroups` and `createResourceClaims`.
#[derive(Debug, Clone)]
pub struct CreateAny {
    /// The namespace; empty for kinds without.
    pub namespace: String,
    /// The object.
    pub template: Arc<ObjectTemplate>,
    /// The number.
    pub count: usize,
}

/// `updateAny`.
#[derive(Debug, Clone)]
pub struct UpdateAny {
    /// The objects.
    pub objects: CreateAny,
    /// The number per second; zero updates one after the other without a pause.
    pub per_second: usize,
    /// The subresource path; empty for the object itself.
    pub subresources: Vec<String>,
}

/// `createResourceDriver`.
#[derive(Debug, Clone)]
pub struct CreateResourceDriver {
    /// The driver.
    pub driver: String,
    /// Devices of each node.
    pub devices_per_node: usize,
    /// The nodes with devices: a pattern with `*` and `?`.
    pub nodes: String,
}
