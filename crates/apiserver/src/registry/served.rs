//! The table: every resource that is served.
//!
//! Order matters for clients: groups appear in discovery in the order in which they first appear here.

use super::kinds::{Generation, Resource, Sub, Verb, text};
use crate::access::{GroupResource, gr};
use crate::selectors::field::Selectable;

/// What a stored kind offers.
const STORED: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];
/// As [`STORED`], for namespaces, which are not deleted in bulk.
const STORED_ONE_BY_ONE: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];
const CREATE: &[Verb] = &[Verb::Create];

const POD_FIELDS: &[Selectable] = &[
    text("spec.nodeName", "/spec/nodeName"),
    text("spec.host", "/spec/nodeName"),
    text("spec.restartPolicy", "/spec/restartPolicy"),
    text("spec.schedulerName", "/spec/schedulerName"),
    text("spec.serviceAccountName", "/spec/serviceAccountName"),
    Selectable {
        label: "spec.hostNetwork",
        pointer: "/spec/hostNetwork",
        absent: "false",
    },
    text("status.phase", "/status/phase"),
    text("status.podIP", "/status/podIP"),
    text("status.podIPs", "/status/podIP"),
    text("status.nominatedNodeName", "/status/nominatedNodeName"),
];
const NODE_FIELDS: &[Selectable] = &[Selectable {
    label: "spec.unschedulable",
    pointer: "/spec/unschedulable",
    absent: "false",
}];
const NAMESPACE_FIELDS: &[Selectable] = &[
    text("status.phase", "/status/phase"),
    text("name", "/metadata/name"),
];
const SECRET_FIELDS: &[Selectable] = &[text("type", "/type")];
const EVENT_FIELDS: &[Selectable] = &[
    text("involvedObject.kind", "/involvedObject/kind"),
    text("involvedObject.namespace", "/involvedObject/namespace"),
    text("involvedObject.name", "/involvedObject/name"),
    text("involvedObject.uid", "/involvedObject/uid"),
    text("involvedObject.apiVersion", "/involvedObject/apiVersion"),
    text(
        "involvedObject.resourceVersion",
        "/involvedObject/resourceVersion",
    ),
    text("involvedObject.fieldPath", "/involvedObject/fieldPath"),
    text("reason", "/reason"),
    text("reportingComponent", "/reportingComponent"),
    text("source", "/source/component"),
    text("type", "/type"),
];
/// The same fields as events.k8s.io names them; the stored objects have the core shape.
const EVENT_V1_FIELDS: &[Selectable] = &[
    text("regarding.kind", "/involvedObject/kind"),
    text("regarding.namespace", "/involvedObject/namespace"),
    text("regarding.name", "/involvedObject/name"),
    text("regarding.uid", "/involvedObject/uid"),
    text("regarding.apiVersion", "/involvedObject/apiVersion"),
    text(
        "regarding.resourceVersion",
        "/involvedObject/resourceVersion",
    ),
    text("regarding.fieldPath", "/involvedObject/fieldPath"),
    text("reason", "/reason"),
    text("reportingController", "/reportingComponent"),
    text("type", "/type"),
];
const SLICE_FIELDS: &[Selectable] = &[
    text("spec.nodeName", "/spec/nodeName"),
    text("spec.driver", "/spec/driver"),
];
const SERVICE_FIELDS: &[Selectable] = &[
    text("spec.clusterIP", "/spec/clusterIP"),
    text("spec.type", "/spec/type"),
];
const REPLICA_FIELDS: &[Selectable] = &[Selectable {
    label: "status.replicas",
    pointer: "/status/replicas",
    absent: "0",
}];
const JOB_FIELDS: &[Selectable] = &[Selectable {
    label: "status.successful",
    pointer: "/status/succeeded",
    absent: "0",
}];

const NOT_SUPPORTED: Option<&str> = Some("field label not supported: ");

const BLANK_SPEC: &str = r#","spec":{}"#;
const BLANK_SPEC_STATUS: &str = r#","spec":{},"status":{}"#;

/// A stored, namespaced kind of which nothing else is special.
const fn stored(
    resource: GroupResource,
    kind: &'static str,
    list_kind: &'static str,
    singular: &'static str,
) -> Resource {
    Resource {
        resource,
        version: "v1",
        kind,
        list_kind,
        singular,
        short_names: &[],
        categories: &[],
        namespaced: true,
        verbs: STORED,
        subresources: &[],
        generation: Generation::Unset,
        returns_deleted: false,
        needs_version: false,
        fields: &[],
        unknown_field: None,
        blank: "",
        store: None,
    }
}

/// A kind that is answered, not stored.
const fn answered(
    resource: GroupResource,
    kind: &'static str,
    singular: &'static str,
    namespaced: bool,
) -> Resource {
    Resource {
        namespaced,
        verbs: CREATE,
        ..stored(resource, kind, kind, singular)
    }
}

const ALL: &[&str] = &["all"];

/// All resources, not yet numbered.
pub(super) fn all() -> Vec<Resource> {
    [core(), apps(), reviews(), others(), storage(), devices()]
        .into_iter()
        .flatten()
        .collect()
}

fn core() -> Vec<Resource> {
    vec![
        answered(gr("", "bindings"), "Binding", "binding", true),
        Resource {
            short_names: &["cm"],
            ..stored(
                gr("", "configmaps"),
                "ConfigMap",
                "ConfigMapList",
                "configmap",
            )
        },
        Resource {
            short_names: &["ep"],
            ..stored(
                gr("", "endpoints"),
                "Endpoints",
                "EndpointsList",
                "endpoints",
            )
        },
        Resource {
            short_names: &["ev"],
            fields: EVENT_FIELDS,
            unknown_field: NOT_SUPPORTED,
            blank: r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":"""#,
            ..stored(gr("", "events"), "Event", "EventList", "event")
        },
        Resource {
            short_names: &["ns"],
            namespaced: false,
            verbs: STORED_ONE_BY_ONE,
            subresources: &[Sub::Finalize, Sub::Status],
            fields: NAMESPACE_FIELDS,
            unknown_field: NOT_SUPPORTED,
            blank: BLANK_SPEC_STATUS,
            ..stored(
                gr("", "namespaces"),
                "Namespace",
                "NamespaceList",
                "namespace",
            )
        },
        Resource {
            short_names: &["no"],
            namespaced: false,
            subresources: &[Sub::Status],
            fields: NODE_FIELDS,
            unknown_field: NOT_SUPPORTED,
            blank: r#","spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#,
            ..stored(gr("", "nodes"), "Node", "NodeList", "node")
        },
        Resource {
            short_names: &["pvc"],
            subresources: &[Sub::Status],
            returns_deleted: true,
            blank: r#","spec":{"resources":{}},"status":{}"#,
            ..stored(
                gr("", "persistentvolumeclaims"),
                "PersistentVolumeClaim",
                "PersistentVolumeClaimList",
                "persistentvolumeclaim",
            )
        },
        Resource {
            short_names: &["pv"],
            namespaced: false,
            subresources: &[Sub::Status],
            returns_deleted: true,
            blank: BLANK_SPEC_STATUS,
            ..stored(
                gr("", "persistentvolumes"),
                "PersistentVolume",
                "PersistentVolumeList",
                "persistentvolume",
            )
        },
        Resource {
            short_names: &["po"],
            categories: ALL,
            subresources: &[Sub::Binding, Sub::Status],
            generation: Generation::Spec,
            returns_deleted: true,
            fields: POD_FIELDS,
            unknown_field: NOT_SUPPORTED,
            blank: r#","spec":{"containers":null},"status":{}"#,
            ..stored(gr("", "pods"), "Pod", "PodList", "pod")
        },
        Resource {
            short_names: &["rc"],
            categories: ALL,
            subresources: &[Sub::Scale, Sub::Status],
            generation: Generation::Spec,
            fields: REPLICA_FIELDS,
            unknown_field: NOT_SUPPORTED,
            blank: r#","spec":{},"status":{"replicas":0}"#,
            ..stored(
                gr("", "replicationcontrollers"),
                "ReplicationController",
                "ReplicationControllerList",
                "replicationcontroller",
            )
        },
        Resource {
            fields: SECRET_FIELDS,
            unknown_field: NOT_SUPPORTED,
            ..stored(gr("", "secrets"), "Secret", "SecretList", "secret")
        },
        Resource {
            short_names: &["sa"],
            returns_deleted: true,
            ..stored(
                gr("", "serviceaccounts"),
                "ServiceAccount",
                "ServiceAccountList",
                "serviceaccount",
            )
        },
        Resource {
            short_names: &["svc"],
            categories: ALL,
            subresources: &[Sub::Status],
            returns_deleted: true,
            fields: SERVICE_FIELDS,
            unknown_field: NOT_SUPPORTED,
            blank: r#","spec":{},"status":{"loadBalancer":{}}"#,
            ..stored(gr("", "services"), "Service", "ServiceList", "service")
        },
    ]
}

fn apps() -> Vec<Resource> {
    vec![
        Resource {
            short_names: &["ds"],
            categories: ALL,
            subresources: &[Sub::Status],
            generation: Generation::Spec,
            blank: r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}},"status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}"#,
            ..stored(
                gr("apps", "daemonsets"),
                "DaemonSet",
                "DaemonSetList",
                "daemonset",
            )
        },
        Resource {
            short_names: &["deploy"],
            categories: ALL,
            subresources: &[Sub::Scale, Sub::Status],
            generation: Generation::SpecAndAnnotations,
            blank: r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}"#,
            ..stored(
                gr("apps", "deployments"),
                "Deployment",
                "DeploymentList",
                "deployment",
            )
        },
        Resource {
            short_names: &["rs"],
            categories: ALL,
            subresources: &[Sub::Scale, Sub::Status],
            generation: Generation::Spec,
            fields: REPLICA_FIELDS,
            unknown_field: Some("field label not supported for appsv1.ReplicaSet: "),
            blank: r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"status":{"replicas":0}"#,
            ..stored(
                gr("apps", "replicasets"),
                "ReplicaSet",
                "ReplicaSetList",
                "replicaset",
            )
        },
        Resource {
            short_names: &["sts"],
            categories: ALL,
            subresources: &[Sub::Scale, Sub::Status],
            generation: Generation::Spec,
            blank: r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"serviceName":"","updateStrategy":{}},"status":{"replicas":0,"availableReplicas":0}"#,
            ..stored(
                gr("apps", "statefulsets"),
                "StatefulSet",
                "StatefulSetList",
                "statefulset",
            )
        },
        Resource {
            short_names: &["ev"],
            fields: EVENT_V1_FIELDS,
            unknown_field: NOT_SUPPORTED,
            blank: r#","eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null"#,
            ..stored(gr("events.k8s.io", "events"), "Event", "EventList", "event")
        },
    ]
}

fn reviews() -> Vec<Resource> {
    const AUTHENTICATION: &str = "authentication.k8s.io";
    const AUTHORIZATION: &str = "authorization.k8s.io";
    vec![
        answered(
            gr(AUTHENTICATION, "selfsubjectreviews"),
            "SelfSubjectReview",
            "selfsubjectreview",
            false,
        ),
        answered(
            gr(AUTHENTICATION, "tokenreviews"),
            "TokenReview",
            "tokenreview",
            false,
        ),
        answered(
            gr(AUTHORIZATION, "localsubjectaccessreviews"),
            "LocalSubjectAccessReview",
            "localsubjectaccessreview",
            true,
        ),
        answered(
            gr(AUTHORIZATION, "selfsubjectaccessreviews"),
            "SelfSubjectAccessReview",
            "selfsubjectaccessreview",
            false,
        ),
        answered(
            gr(AUTHORIZATION, "selfsubjectrulesreviews"),
            "SelfSubjectRulesReview",
            "selfsubjectrulesreview",
            false,
        ),
        answered(
            gr(AUTHORIZATION, "subjectaccessreviews"),
            "SubjectAccessReview",
            "subjectaccessreview",
            false,
        ),
    ]
}

fn others() -> Vec<Resource> {
    vec![
        Resource {
            categories: ALL,
            subresources: &[Sub::Status],
            generation: Generation::Spec,
            fields: JOB_FIELDS,
            unknown_field: Some("field label not supported for batchv1.Job: "),
            blank: r#","spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}"#,
            ..stored(gr("batch", "jobs"), "Job", "JobList", "job")
        },
        Resource {
            short_names: &["pdb"],
            subresources: &[Sub::Status],
            generation: Generation::Spec,
            needs_version: true,
            blank: r#","spec":{},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}"#,
            ..stored(
                gr("policy", "poddisruptionbudgets"),
                "PodDisruptionBudget",
                "PodDisruptionBudgetList",
                "poddisruptionbudget",
            )
        },
    ]
}

fn storage() -> Vec<Resource> {
    const STORAGE: &str = "storage.k8s.io";
    vec![
        Resource {
            namespaced: false,
            blank: BLANK_SPEC,
            ..stored(
                gr(STORAGE, "csidrivers"),
                "CSIDriver",
                "CSIDriverList",
                "csidriver",
            )
        },
        Resource {
            namespaced: false,
            blank: r#","spec":{"drivers":null}"#,
            ..stored(gr(STORAGE, "csinodes"), "CSINode", "CSINodeList", "csinode")
        },
        Resource {
            blank: r#","storageClassName":"""#,
            ..stored(
                gr(STORAGE, "csistoragecapacities"),
                "CSIStorageCapacity",
                "CSIStorageCapacityList",
                "csistoragecapacity",
            )
        },
        Resource {
            short_names: &["sc"],
            namespaced: false,
            returns_deleted: true,
            blank: r#","provisioner":"""#,
            ..stored(
                gr(STORAGE, "storageclasses"),
                "StorageClass",
                "StorageClassList",
                "storageclass",
            )
        },
        Resource {
            namespaced: false,
            subresources: &[Sub::Status],
            returns_deleted: true,
            blank: r#","spec":{"attacher":"","source":{},"nodeName":""},"status":{"attached":false}"#,
            ..stored(
                gr(STORAGE, "volumeattachments"),
                "VolumeAttachment",
                "VolumeAttachmentList",
                "volumeattachment",
            )
        },
    ]
}

fn devices() -> Vec<Resource> {
    const RESOURCE: &str = "resource.k8s.io";
    vec![
        Resource {
            short_names: &["pc"],
            namespaced: false,
            generation: Generation::One,
            blank: r#","value":0"#,
            ..stored(
                gr("scheduling.k8s.io", "priorityclasses"),
                "PriorityClass",
                "PriorityClassList",
                "priorityclass",
            )
        },
        Resource {
            needs_version: true,
            blank: BLANK_SPEC,
            ..stored(
                gr("coordination.k8s.io", "leases"),
                "Lease",
                "LeaseList",
                "lease",
            )
        },
        Resource {
            namespaced: false,
            generation: Generation::Spec,
            blank: BLANK_SPEC,
            ..stored(
                gr(RESOURCE, "deviceclasses"),
                "DeviceClass",
                "DeviceClassList",
                "deviceclass",
            )
        },
        Resource {
            subresources: &[Sub::Status],
            blank: r#","spec":{"devices":{}},"status":{}"#,
            returns_deleted: true,
            ..stored(
                gr(RESOURCE, "resourceclaims"),
                "ResourceClaim",
                "ResourceClaimList",
                "resourceclaim",
            )
        },
        Resource {
            blank: r#","spec":{"spec":{"devices":{}}}"#,
            returns_deleted: true,
            ..stored(
                gr(RESOURCE, "resourceclaimtemplates"),
                "ResourceClaimTemplate",
                "ResourceClaimTemplateList",
                "resourceclaimtemplate",
            )
        },
        Resource {
            namespaced: false,
            generation: Generation::Spec,
            returns_deleted: true,
            fields: SLICE_FIELDS,
            unknown_field: Some("field label not supported for ResourceSlice: "),
            blank: r#","spec":{"driver":"","pool":{"name":"","generation":0,"resourceSliceCount":0}}"#,
            ..stored(
                gr(RESOURCE, "resourceslices"),
                "ResourceSlice",
                "ResourceSliceList",
                "resourceslice",
            )
        },
    ]
}
