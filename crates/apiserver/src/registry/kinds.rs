//! The table of served resources: names, scope, verbs, subresources, selectable fields.
//!
//! Order matters for clients: groups appear in discovery in the order in which they first appear here.

use crate::access::{GroupResource, KindInfo, gr};
use crate::openapi::{ServedKind, ServedSubresource};
use crate::selectors::field::Selectable;
use std::sync::LazyLock;

/// A verb of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// DELETE of one object.
    Delete,
    /// DELETE of many.
    DeleteCollection,
    /// GET of one object.
    Get,
    /// GET of many.
    List,
    /// PATCH.
    Patch,
    /// PUT.
    Update,
    /// GET of a stream of changes.
    Watch,
}

impl Verb {
    /// The name of the verb in discovery.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

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
const GET_PATCH_UPDATE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
const UPDATE: &[Verb] = &[Verb::Update];

/// A subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sub {
    /// `…/status`.
    Status,
    /// `…/scale`.
    Scale,
    /// `pods/…/binding`.
    Binding,
    /// `namespaces/…/finalize`.
    Finalize,
}

impl Sub {
    /// The last segment of the path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Finalize => "finalize",
        }
    }

    /// What it offers.
    pub fn verbs(self) -> &'static [Verb] {
        match self {
            Self::Status | Self::Scale => GET_PATCH_UPDATE,
            Self::Binding => CREATE,
            Self::Finalize => UPDATE,
        }
    }

    /// The names of these verbs in discovery.
    pub fn verb_names(self) -> &'static [&'static str] {
        match self {
            Self::Status | Self::Scale => &["get", "patch", "update"],
            Self::Binding => &["create"],
            Self::Finalize => &["update"],
        }
    }

    /// Group, version and kind of its body; `None` is that of the resource.
    pub fn kind(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Status | Self::Finalize => None,
            Self::Scale => Some(("autoscaling", "v1", "Scale")),
            Self::Binding => Some(("", "v1", "Binding")),
        }
    }
}

/// How `metadata.generation` moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    Unset,
    /// It stays at 1.
    One,
    /// It counts the changes of `spec`.
    Spec,
    /// It counts the changes of `spec` and of the annotations.
    SpecAndAnnotations,
}

/// A served resource.
#[derive(Debug)]
pub struct Resource {
    /// Group and plural name.
    pub resource: GroupResource,
    /// The version.
    pub version: &'static str,
    /// The kind of one object.
    pub kind: &'static str,
    /// The kind of a list.
    pub list_kind: &'static str,
    /// The name of one, in lower case.
    pub singular: &'static str,
    /// Abbreviations for the command line.
    pub short_names: &'static [&'static str],
    /// Groups of resources for the command line, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// What can be done.
    pub verbs: &'static [Verb],
    /// Parts that can be written on their own.
    pub subresources: &'static [Sub],
    /// How `metadata.generation` moves.
    pub generation: Generation,
    /// Whether a deletion answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Whether an update must name the version that it replaces.
    pub needs_version: bool,
    /// Fields to select by, besides name and namespace.
    pub fields: &'static [Selectable],
    /// What upstream says of any other field, up to the field; `None` is the words for kinds without own fields.
    pub unknown_field: Option<&'static str>,
    /// What follows `metadata` in the JSON of an object of which nothing is set (bookmarks are such objects).
    pub blank: &'static str,
    /// The number under which objects of this resource are stored; `None` when none are.
    pub store: Option<usize>,
}

const fn text(label: &'static str, pointer: &'static str) -> Selectable {
    Selectable {
        label,
        pointer,
        absent: "",
    }
}

const NAME: Selectable = text("metadata.name", "/metadata/name");
const NAMESPACE: Selectable = text("metadata.namespace", "/metadata/namespace");

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

static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let mut resources = core();
    resources.extend(apps());
    resources.extend(reviews());
    resources.extend(others());
    resources.extend(storage());
    resources.extend(devices());
    let mut next = 0;
    for i in 0..resources.len() {
        if !resources[i].verbs.contains(&Verb::Get) {
            continue;
        }
        // Events of both groups are the same objects.
        resources[i].store = if resources[i].resource == gr("events.k8s.io", "events") {
            let events = gr("", "events");
            resources
                .iter()
                .find(|r| r.resource == events)
                .and_then(|r| r.store)
        } else {
            next += 1;
            Some(next - 1)
        };
    }
    resources
});

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

/// All served resources.
pub fn resources() -> &'static [Resource] {
    &RESOURCES
}

/// The resource of this group and plural name.
pub fn find(group: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|r| r.resource.group == group && r.resource.resource == plural)
}

/// A resource by its group and name.
pub fn indexed(resource: GroupResource) -> Option<&'static Resource> {
    find(resource.group, resource.resource)
}

/// The served groups and their versions, core first.
pub fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for resource in resources() {
        let gv = (resource.resource.group, resource.version);
        if !found.contains(&gv) {
            found.push(gv);
        }
    }
    found
}

// === impl Resource ===

impl Resource {
    /// `v1` or `group/v1`.
    pub fn api_version(&self) -> String {
        if self.resource.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.resource.group, self.version)
        }
    }

    /// What the controllers need to know of it.
    pub fn info(&self) -> KindInfo {
        KindInfo {
            resource: self.resource,
            version: self.version,
            kind: self.kind,
            namespaced: self.namespaced,
        }
    }

    /// What OpenAPI needs to know of it.
    pub fn served(&self) -> ServedKind {
        ServedKind {
            info: self.info(),
            verbs: self.verbs.iter().map(|v| v.name()).collect(),
            subresources: self
                .subresources
                .iter()
                .map(|sub| {
                    let (group, version, kind) =
                        sub.kind()
                            .unwrap_or((self.resource.group, self.version, self.kind));
                    ServedSubresource {
                        name: sub.name(),
                        group,
                        version,
                        kind,
                        verbs: sub.verb_names(),
                    }
                })
                .collect(),
        }
    }

    /// The key under which an object is stored.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// Whether the verb is offered on whole objects.
    pub fn offers(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<Sub> {
        self.subresources.iter().copied().find(|s| s.name() == name)
    }

    /// The field that a selector names.
    ///
    /// # Errors
    /// Upstream's words when the kind cannot be selected by it.
    pub fn selectable(&self, label: &str) -> Result<Selectable, String> {
        [NAME, NAMESPACE]
            .iter()
            .chain(self.fields)
            .find(|f| f.label == label)
            .copied()
            .ok_or_else(|| match self.unknown_field {
                Some(words) => format!("{words}{label}"),
                None => format!(
                    "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_stored_kind_has_a_place_and_only_events_share_one() {
        let stored: Vec<_> = resources().iter().filter_map(|r| r.store).collect();
        let distinct: BTreeSet<_> = stored.iter().copied().collect();
        assert_eq!(distinct.len() + 1, stored.len());
        let core = indexed(gr("", "events")).and_then(|r| r.store);
        assert!(core.is_some());
        assert_eq!(
            core,
            indexed(gr("events.k8s.io", "events")).and_then(|r| r.store)
        );
    }

    #[test]
    fn blank_objects_are_json() {
        for resource in resources() {
            let text = format!(r#"{{"metadata":{{}}{}}}"#, resource.blank);
            assert!(
                serde_json::from_str::<serde_json::Value>(&text).is_ok(),
                "{text}"
            );
        }
    }

    #[test]
    fn subresources_name_the_verbs_that_they_offer() {
        for sub in [Sub::Status, Sub::Scale, Sub::Binding, Sub::Finalize] {
            let names: Vec<_> = sub.verbs().iter().map(|v| v.name()).collect();
            assert_eq!(sub.verb_names(), names, "{}", sub.name());
        }
    }

    #[test]
    fn names_are_unique_within_a_group() {
        let mut seen = BTreeSet::new();
        for resource in resources() {
            assert!(
                seen.insert((resource.resource.group, resource.resource.resource)),
                "{:?}",
                resource.resource
            );
        }
    }
}
