//! Claims: finding them a volume, and keeping the two together.

use super::super::runtime::Index;
use super::matching::{class, is_meant_for, smallest};
use super::provision::provision;
use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, Cx, SELECTED_NODE, SIMULATED, reference, set_status, text,
};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    CLAIM, ControllerKey, STORAGE_CLASS, VOLUME, annotation, is_deleting, name, set,
    set_annotation, uid,
};
use serde_json::Value;

/// The component that provisions a volume, under its present and its former name.
const STORAGE_PROVISIONER: [&str; 2] = [
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];
/// The provisioner of classes whose volumes are not provisioned.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Brings a claim closer to its volume.
pub(super) fn sync(cx: &mut Cx, key: &ControllerKey) -> Result<(), AccessError> {
    let Some(claim) = cx.cache(CLAIM).get(key).cloned() else {
        return Ok(());
    };
    if annotation(&claim, BIND_COMPLETED).is_some() {
        return keep(cx, &claim);
    }
    if is_deleting(&claim) {
        return Ok(());
    }
    let named = text(&claim, "/spec/volumeName");
    if named.is_empty() {
        find(cx, &claim)
    } else {
        take_named(cx, &claim, named)
    }
}

/// The owner of the claim has named the volume.
fn take_named(cx: &mut Cx, claim: &StoredObject, named: &str) -> Result<(), AccessError> {
    let volume = cx
        .cache(VOLUME)
        .get(&ControllerKey::new("", named))
        .cloned();
    match volume {
        Some(volume) if volume["spec"]["claimRef"].is_null() || is_meant_for(&volume, claim) => {
            bind(cx, claim, &volume)
        }
        // The volume may be created, or become free.
        Some(_) | None => Ok(()),
    }
}

/// Finds a volume, requests a new one, or reports the reason of the wait.
fn find(cx: &mut Cx, claim: &StoredObject) -> Result<(), AccessError> {
    let given = cx
        .cache(VOLUME)
        .by(Index::ClaimName, name(claim))
        .find(|volume| is_meant_for(volume, claim));
    // A volume that names the claim takes precedence over other volumes.
    if let Some(volume) = given.cloned() {
        return bind(cx, claim, &volume);
    }
    let class_name = class(claim).to_owned();
    let class = find_class(cx, &class_name)?;
    let waits = class
        .as_ref()
        .is_some_and(|class| text(class, "/volumeBindingMode") == "WaitForFirstConsumer");
    if waits && annotation(claim, SELECTED_NODE).is_none() {
        let message = "waiting for first consumer to be created before binding".to_owned();
        cx.normal(claim, "WaitForFirstConsumer", message);
        return Ok(());
    }
    // With WaitForFirstConsumer the scheduler selects the volume with the node.
    if !waits {
        let volumes = cx.cache(VOLUME).iter().map(|(_, volume)| volume);
        if let Some(volume) = smallest(volumes, claim).cloned() {
            return bind(cx, claim, &volume);
        }
    }
    let Some(class) = class else {
        let (reason, message) = if class_name.is_empty() {
            let message =
                "no persistent volumes available for this claim and no storage class is set";
            ("FailedBinding", message.to_owned())
        } else {
            let message = format!("storageclass.storage.k8s.io {class_name:?} not found");
            ("ProvisioningFailed", message)
        };
        cx.warn(claim, reason, message);
        return Ok(());
    };
    match text(&class, "/provisioner") {
        SIMULATED => provision(cx, claim, &class),
        NO_PROVISIONER | "" => Ok(()),
        provisioner => ask(cx, claim, provisioner),
    }
}

/// The class of this name; `None` if it does not exist. A claim whose class does not exist is bound immediately to a
/// volume of the same class name. The watch of claims can be ahead of the watch of classes, so the API server is asked
/// as well.
fn find_class(cx: &Cx, name: &str) -> Result<Option<StoredObject>, AccessError> {
    let known = cx
        .cache(STORAGE_CLASS)
        .get(&ControllerKey::new("", name))
        .cloned();
    if known.is_some() || name.is_empty() {
        return Ok(known);
    }
    match cx.api().get(STORAGE_CLASS.resource, "", name) {
        Ok(class) => Ok(Some(class)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asks an external provisioner to create a volume.
fn ask(cx: &mut Cx, claim: &StoredObject, provisioner: &str) -> Result<(), AccessError> {
    let mut asked = (**claim).clone();
    let mut is_new = false;
    for key in STORAGE_PROVISIONER {
        is_new |= set_annotation(&mut asked, key, provisioner);
    }
    if is_new {
        cx.update(CLAIM, asked)?;
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    );
    cx.normal(claim, "ExternalProvisioning", message);
    Ok(())
}

/// Brings a claim and a volume together: the volume is bound to the claim first, so that no other claim takes it.
fn bind(cx: &mut Cx, claim: &StoredObject, volume: &StoredObject) -> Result<(), AccessError> {
    if text(volume, "/spec/claimRef/uid") != uid(claim) {
        let mut given = (**volume).clone();
        if given["spec"]["claimRef"].is_null() {
            set_annotation(&mut given, BOUND_BY_CONTROLLER, "yes");
        }
        set(&mut given, &["spec", "claimRef"], reference(claim));
        cx.update(VOLUME, given)?;
    }
    let mut bound = (**claim).clone();
    if text(&bound, "/spec/volumeName").is_empty() {
        set(&mut bound, &["spec", "volumeName"], name(volume).into());
        set_annotation(&mut bound, BOUND_BY_CONTROLLER, "yes");
    }
    set_annotation(&mut bound, BIND_COMPLETED, "yes");
    let bound = cx.update(CLAIM, bound)?;
    keep(cx, &bound)
}

/// A claim that is bound: it stays so, or has lost its volume.
fn keep(cx: &mut Cx, claim: &StoredObject) -> Result<(), AccessError> {
    let key = ControllerKey::new("", text(claim, "/spec/volumeName"));
    let Some(volume) = cx.cache(VOLUME).get(&key).cloned() else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lose(cx, claim, "ClaimLost", message);
    };
    let given = text(&volume, "/spec/claimRef/uid");
    if given.is_empty() && (volume["spec"]["claimRef"].is_null() || is_meant_for(&volume, claim)) {
        return bind(cx, claim, &volume);
    }
    if given != uid(claim) {
        let message =
            "Two claims are bound to the same volume, this one is bound incorrectly".to_owned();
        return lose(cx, claim, "ClaimMisbound", &message);
    }
    let fields = [
        ("phase", Value::from("Bound")),
        ("accessModes", volume["spec"]["accessModes"].clone()),
        ("capacity", volume["spec"]["capacity"].clone()),
    ];
    set_status(cx, CLAIM, claim, &fields)?;
    set_status(cx, VOLUME, &volume, &[("phase", "Bound".into())])?;
    Ok(())
}

fn lose(
    cx: &mut Cx,
    claim: &StoredObject,
    reason: &'static str,
    message: &str,
) -> Result<(), AccessError> {
    if text(claim, "/status/phase") == "Lost" {
        return Ok(());
    }
    set_status(cx, CLAIM, claim, &[("phase", "Lost".into())])?;
    cx.warn(claim, reason, message.to_owned());
    Ok(())
}
