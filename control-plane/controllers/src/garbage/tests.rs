//! The garbage collector: chains of owners, each way of deleting, shared owners, circles.

use super::*;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually, pass};
use berth_objects::object::{CONFIG_MAP, ControllerKind, DEPLOYMENT, NODE, POD, REPLICA_SET, name};
use serde_json::json;
use std::sync::Arc;

fn start(api: &Arc<Fake>) -> Handle {
    let mut handle = Handle::new();
    handle.start(Garbage::new(&**api), api.clone(), api.clock());
    handle
}

fn make(
    api: &Fake,
    kind: ControllerKind,
    name: &str,
    owners: &[(ControllerKind, &Value)],
) -> StoredObject {
    let references: Vec<Value> = owners
        .iter()
        .map(|(kind, owner)| {
            json!({"apiVersion": kind.api_version, "kind": kind.kind, "name": object::name(owner),
                   "uid": uid(owner), "blockOwnerDeletion": true})
        })
        .collect();
    let namespace = if kind == NODE {
        json!(null)
    } else {
        json!("n")
    };
    let object =
        json!({"metadata": {"name": name, "namespace": namespace, "ownerReferences": references}});
    api.create(kind.resource, object).unwrap()
}

/// A deployment that owns a replica set that owns two pods.
fn workload(api: &Fake) -> StoredObject {
    let deployment = make(api, DEPLOYMENT, "d", &[]);
    let set = make(api, REPLICA_SET, "s", &[(DEPLOYMENT, &deployment)]);
    for pod in ["p1", "p2"] {
        make(api, POD, pod, &[(REPLICA_SET, &set)]);
    }
    deployment
}

fn left(api: &Fake) -> Vec<String> {
    [DEPLOYMENT, REPLICA_SET, POD, CONFIG_MAP]
        .iter()
        .flat_map(|k| api.list(k.resource, Some("n")))
        .map(|o| name(&o).to_owned())
        .collect()
}

fn delete(api: &Fake, kind: ControllerKind, name: &str, propagation: Propagation) {
    let options = DeleteOptions {
        propagation,
        ..DeleteOptions::default()
    };
    api.delete(kind.resource, "n", name, &options).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_dependants_goes_with_its_owner() {
    let api = Fake::new();
    let handle = start(&api);
    workload(&api);
    make(&api, CONFIG_MAP, "bystander", &[]);
    pass(1.0).await;
    assert_eq!(left(&api).len(), 5);
    delete(&api, DEPLOYMENT, "d", Propagation::Background);
    assert_eq!(left(&api).len(), 4, "the owner goes at once");
    eventually("all dependants are gone", || left(&api) == ["bystander"]).await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_goes_from_the_leaves_up() {
    let api = Fake::new();
    let handle = start(&api);
    workload(&api);
    api.edit(POD.resource, ("n", "p2"), |p| {
        p["metadata"]["finalizers"] = json!(["test/hold"])
    });
    delete(&api, DEPLOYMENT, "d", Propagation::Foreground);
    pass(1.0).await;
    assert_eq!(
        left(&api),
        ["d", "s", "p2"],
        "owners wait for the pod that is held"
    );
    api.edit(POD.resource, ("n", "p2"), |p| {
        p["metadata"]["finalizers"] = json!([])
    });
    eventually("nothing is left", || left(&api).is_empty()).await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_dependants_stay_without_an_owner() {
    let api = Fake::new();
    let handle = start(&api);
    workload(&api);
    delete(&api, DEPLOYMENT, "d", Propagation::Orphan);
    eventually("the owner is gone", || left(&api) == ["s", "p1", "p2"]).await;
    pass(5.0).await;
    assert_eq!(left(&api), ["s", "p1", "p2"]);
    assert!(owner_references(&api.get(REPLICA_SET.resource, "n", "s").unwrap()).is_empty());
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_goes_with_its_last_owner_and_owners_are_known_by_uid() {
    let api = Fake::new();
    let (a, b) = (
        make(&api, CONFIG_MAP, "a", &[]),
        make(&api, CONFIG_MAP, "b", &[]),
    );
    make(&api, POD, "shared", &[(CONFIG_MAP, &a), (CONFIG_MAP, &b)]);
    // An object with the name of the owner exists, but it has another UID.
    let stranger = json!({"metadata": {"name": "b", "uid": "another"}});
    make(&api, POD, "mistaken", &[(CONFIG_MAP, &stranger)]);
    // The existence of objects of a kind that is not served is unknown.
    let unknown = ControllerKind {
        resource: CONFIG_MAP.resource,
        api_version: "example.com/v1",
        kind: "Thing",
    };
    make(&api, POD, "foreign", &[(unknown, &stranger)]);
    let node = make(&api, NODE, "node", &[]);
    make(&api, POD, "of-node", &[(NODE, &node)]);
    let handle = start(&api);
    eventually("the mistaken one is gone", || {
        !left(&api).contains(&"mistaken".to_owned())
    })
    .await;
    delete(&api, CONFIG_MAP, "a", Propagation::Background);
    pass(1.0).await;
    let shared = api.get(POD.resource, "n", "shared").unwrap();
    assert_eq!(
        owner_references(&shared).len(),
        1,
        "only the reference to the other one is left"
    );
    delete(&api, CONFIG_MAP, "b", Propagation::Background);
    eventually("the last owner is gone", || {
        left(&api) == ["foreign", "of-node"]
    })
    .await;
    api.delete(NODE.resource, "", "node", &DeleteOptions::default())
        .unwrap();
    eventually("the node is gone", || left(&api) == ["foreign"]).await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_own_each_other_do_not_wait_for_ever() {
    let api = Fake::new();
    let handle = start(&api);
    let a = make(&api, CONFIG_MAP, "a", &[]);
    let b = make(&api, CONFIG_MAP, "b", &[(CONFIG_MAP, &a)]);
    api.edit(CONFIG_MAP.resource, ("n", "a"), |o| {
        o["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
            "name": "b", "uid": uid(&b), "blockOwnerDeletion": true}]);
    });
    pass(1.0).await;
    delete(&api, CONFIG_MAP, "a", Propagation::Foreground);
    eventually("both are gone", || left(&api).is_empty()).await;
    handle.stop().await;
}
