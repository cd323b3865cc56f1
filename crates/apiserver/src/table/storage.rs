//! The rows of volumes, their classes and drivers, and of devices.

use super::text::{NONE, UNSET, age, flag, items, text, text_or_none};
use super::{AGE, Columns, NAME, column, typed, wide};
use serde_json::Value;

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub(super) fn columns(group: &str, resource: &str) -> Option<&'static Columns> {
    Some(match (group, resource) {
        ("", "persistentvolumes") => &VOLUMES,
        ("", "persistentvolumeclaims") => &VOLUME_CLAIMS,
        ("storage.k8s.io", "storageclasses") => &STORAGE_CLASSES,
        ("storage.k8s.io", "csinodes") => &CSI_NODES,
        ("storage.k8s.io", "csidrivers") => &CSI_DRIVERS,
        ("storage.k8s.io", "csistoragecapacities") => &CSI_CAPACITIES,
        ("storage.k8s.io", "volumeattachments") => &ATTACHMENTS,
        ("resource.k8s.io", "resourceclaims") => &CLAIMS,
        ("resource.k8s.io", "resourceslices") => &SLICES,
        ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => &NAME_AND_AGE,
        _ => return None,
    })
}

fn access_modes(object: &Value, pointer: &str) -> String {
    let mut short: Vec<&str> = Vec::new();
    for (mode, abbreviation) in [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ] {
        if items(object, pointer).iter().any(|m| m == mode) {
            short.push(abbreviation);
        }
    }
    short.join(",")
}

fn or_unset<'a>(object: &'a Value, pointer: &str) -> &'a str {
    match text(object, pointer) {
        "" => UNSET,
        text => text,
    }
}

/// The phase, or that the object is going away.
fn phase(object: &Value) -> &str {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else {
        text(object, "/status/phase")
    }
}

static VOLUMES: Columns = Columns {
    columns: &[
        NAME,
        column("Capacity", "How much it holds."),
        column("Access Modes", "How it can be mounted."),
        column("Reclaim Policy", "What becomes of it after its claim."),
        column("Status", "Whether it is bound."),
        column("Claim", "The claim that it is bound to."),
        column("StorageClass", "Its class."),
        column("VolumeAttributesClass", "Its class of attributes."),
        column("Reason", "Why it is in its status."),
        AGE,
        wide("VolumeMode", "File system or block device."),
    ],
    cells: |volume, now| {
        let claim = match text(volume, "/spec/claimRef/name") {
            "" => String::new(),
            name => format!("{}/{name}", text(volume, "/spec/claimRef/namespace")),
        };
        vec![
            text(volume, "/metadata/name").into(),
            text(volume, "/spec/capacity/storage").into(),
            access_modes(volume, "/spec/accessModes").into(),
            text(volume, "/spec/persistentVolumeReclaimPolicy").into(),
            phase(volume).into(),
            claim.into(),
            text(volume, "/spec/storageClassName").into(),
            or_unset(volume, "/spec/volumeAttributesClassName").into(),
            text(volume, "/status/reason").into(),
            age(volume, now).into(),
            or_unset(volume, "/spec/volumeMode").into(),
        ]
    },
    conditions: None,
};

static VOLUME_CLAIMS: Columns = Columns {
    columns: &[
        NAME,
        column("Status", "Whether it is bound."),
        column("Volume", "The volume that it is bound to."),
        column("Capacity", "How much the volume holds."),
        column("Access Modes", "How the volume can be mounted."),
        column("StorageClass", "The class that it asks for."),
        column(
            "VolumeAttributesClass",
            "The class of attributes that it asks for.",
        ),
        AGE,
        wide("VolumeMode", "File system or block device."),
    ],
    cells: |claim, now| {
        let is_bound = !text(claim, "/spec/volumeName").is_empty();
        let (capacity, modes) = if is_bound {
            (
                text(claim, "/status/capacity/storage"),
                access_modes(claim, "/status/accessModes"),
            )
        } else {
            ("", String::new())
        };
        vec![
            text(claim, "/metadata/name").into(),
            phase(claim).into(),
            text(claim, "/spec/volumeName").into(),
            capacity.into(),
            modes.into(),
            text(claim, "/spec/storageClassName").into(),
            or_unset(claim, "/spec/volumeAttributesClassName").into(),
            age(claim, now).into(),
            or_unset(claim, "/spec/volumeMode").into(),
        ]
    },
    conditions: None,
};

static STORAGE_CLASSES: Columns = Columns {
    columns: &[
        NAME,
        column("Provisioner", "Who makes volumes of this class."),
        column(
            "ReclaimPolicy",
            "What becomes of its volumes after their claims.",
        ),
        column("VolumeBindingMode", "When volumes are bound."),
        column("AllowVolumeExpansion", "Whether its volumes can grow."),
        AGE,
    ],
    cells: |class, now| {
        let mut name = text(class, "/metadata/name").to_owned();
        let annotations = class.pointer("/metadata/annotations");
        if annotations.and_then(|a| a.get(DEFAULT_CLASS)) == Some(&Value::from("true")) {
            name.push_str(" (default)");
        }
        let or = |pointer, otherwise| match text(class, pointer) {
            "" => otherwise,
            text => text,
        };
        vec![
            name.into(),
            text(class, "/provisioner").into(),
            or("/reclaimPolicy", "Delete").into(),
            or("/volumeBindingMode", "Immediate").into(),
            flag(class, "/allowVolumeExpansion").into(),
            age(class, now).into(),
        ]
    },
    conditions: None,
};

static CSI_NODES: Columns = Columns {
    columns: &[
        NAME,
        typed("Drivers", "integer", "How many drivers run on the node."),
        AGE,
    ],
    cells: |object, now| {
        vec![
            text(object, "/metadata/name").into(),
            items(object, "/spec/drivers").len().into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};

static CSI_DRIVERS: Columns = Columns {
    columns: &[
        NAME,
        typed(
            "AttachRequired",
            "boolean",
            "Whether volumes must be attached before they are mounted.",
        ),
        typed(
            "PodInfoOnMount",
            "boolean",
            "Whether the driver is told about the pod.",
        ),
        typed(
            "StorageCapacity",
            "boolean",
            "Whether scheduling considers the capacity that it reports.",
        ),
        column(
            "TokenRequests",
            "The audiences of the tokens that it wants.",
        ),
        typed(
            "RequiresRepublish",
            "boolean",
            "Whether it is called again and again.",
        ),
        column("Modes", "How its volumes live."),
        AGE,
    ],
    cells: |driver, now| {
        let attach = driver
            .pointer("/spec/attachRequired")
            .and_then(Value::as_bool)
            .unwrap_or(true);
        let modes: Vec<&str> = items(driver, "/spec/volumeLifecycleModes")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let tokens: Vec<&str> = items(driver, "/spec/tokenRequests")
            .iter()
            .map(|t| text(t, "/audience"))
            .collect();
        vec![
            text(driver, "/metadata/name").into(),
            attach.into(),
            flag(driver, "/spec/podInfoOnMount").into(),
            flag(driver, "/spec/storageCapacity").into(),
            if tokens.is_empty() {
                UNSET.into()
            } else {
                tokens.join(",").into()
            },
            flag(driver, "/spec/requiresRepublish").into(),
            if modes.is_empty() {
                NONE.into()
            } else {
                modes.join(",").into()
            },
            age(driver, now).into(),
        ]
    },
    conditions: None,
};

static CSI_CAPACITIES: Columns = Columns {
    columns: &[
        NAME,
        column("StorageClassName", "The class of the volumes."),
        column("Capacity", "How much can be had."),
        AGE,
    ],
    cells: |object, now| {
        vec![
            text(object, "/metadata/name").into(),
            text(object, "/storageClassName").into(),
            text_or_none(object, "/capacity").into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};

static ATTACHMENTS: Columns = Columns {
    columns: &[
        NAME,
        typed("Attacher", "string", "Who attaches the volume."),
        column("PV", "The volume."),
        column("Node", "The node."),
        typed("Attached", "boolean", "Whether it is attached."),
        AGE,
    ],
    cells: |object, now| {
        vec![
            text(object, "/metadata/name").into(),
            text(object, "/spec/attacher").into(),
            text(object, "/spec/source/persistentVolumeName").into(),
            text(object, "/spec/nodeName").into(),
            flag(object, "/status/attached").into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};

static CLAIMS: Columns = Columns {
    columns: &[
        NAME,
        column(
            "State",
            "Whether devices are allocated, and reserved for pods.",
        ),
        AGE,
    ],
    cells: |claim, now| {
        let mut states: Vec<&str> = Vec::new();
        if claim.pointer("/metadata/deletionTimestamp").is_some() {
            states.push("deleted");
        }
        if claim.pointer("/status/allocation").is_none() {
            if states.is_empty() {
                states.push("pending");
            }
        } else {
            states.push("allocated");
            if !items(claim, "/status/reservedFor").is_empty() {
                states.push("reserved");
            }
        }
        vec![
            text(claim, "/metadata/name").into(),
            states.join(",").into(),
            age(claim, now).into(),
        ]
    },
    conditions: None,
};

static SLICES: Columns = Columns {
    columns: &[
        NAME,
        column("Node", "The node whose devices these are."),
        column("Driver", "The driver that publishes them."),
        column("Pool", "The pool that they belong to."),
        AGE,
    ],
    cells: |slice, now| {
        let node = match text(slice, "/spec/nodeName") {
            "" => UNSET,
            node => node,
        };
        vec![
            text(slice, "/metadata/name").into(),
            node.into(),
            text(slice, "/spec/driver").into(),
            text(slice, "/spec/pool/name").into(),
            age(slice, now).into(),
        ]
    },
    conditions: None,
};

static NAME_AND_AGE: Columns = Columns {
    columns: &[NAME, AGE],
    cells: |object, now| {
        vec![
            text(object, "/metadata/name").into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};
