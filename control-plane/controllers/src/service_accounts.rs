//! Creates the objects that pods expect in every namespace: the service account `default` and the config map
//! `kube-root-ca.crt`.

use super::runtime::{CacheDifference, Controller, ControllerContext, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::object::{
    CONFIG_MAP, ControllerKey, NAMESPACE, SERVICE_ACCOUNT, is_deleting, name, namespace,
};
use serde_json::json;

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";

/// See the module. Its keys are namespaces.
#[derive(Debug)]
pub(super) struct ServiceAccounts {
    /// The certificates that clients of this API trust, as PEM.
    root_ca: Option<String>,
}

impl ServiceAccounts {
    pub(super) fn new(root_ca: Option<String>) -> Self {
        Self { root_ca }
    }
}

fn already_there(result: Result<StoredObject, AccessError>) -> Result<(), AccessError> {
    match result {
        Err(e) if e.reason != "AlreadyExists" && !e.is_namespace_terminating() => Err(e),
        _ => Ok(()),
    }
}

impl Controller for ServiceAccounts {
    type Key = ControllerKey;
    const NAME: &'static str = "serviceaccount-controller";
    const WATCHES: &'static [Watch] = &[
        watching(NAMESPACE, &[]),
        watching(SERVICE_ACCOUNT, &[]),
        watching(CONFIG_MAP, &[]),
    ];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == NAMESPACE.resource {
            if let Some(new) = &diff.new {
                cx.enqueue(ControllerKey::of(new));
            }
            return;
        }
        // A service account or root CA ConfigMap that was deleted or changed is restored.
        if let Some(old) = &diff.old
            && matches!(name(old), ACCOUNT | ROOT_CA)
        {
            cx.enqueue(ControllerKey::new("", namespace(old)));
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let found = cx.cache(NAMESPACE).get(key);
        if found.is_none_or(|n| is_deleting(n)) {
            return Ok(());
        }
        if cx
            .cache(SERVICE_ACCOUNT)
            .get(&ControllerKey::new(&key.name, ACCOUNT))
            .is_none()
        {
            let account = SERVICE_ACCOUNT.object(
                json!({"metadata": {"name": ACCOUNT, "namespace": &*key.name},
                }),
            );
            already_there(cx.create(SERVICE_ACCOUNT, account))?;
        }
        let Some(root_ca) = &self.root_ca else {
            return Ok(());
        };
        let data = json!({"ca.crt": root_ca});
        match cx
            .cache(CONFIG_MAP)
            .get(&ControllerKey::new(&key.name, ROOT_CA))
        {
            None => {
                let map = CONFIG_MAP.object(
                    json!({"metadata": {"name": ROOT_CA, "namespace": &*key.name},
                        "data": data,
                    }),
                );
                already_there(cx.create(CONFIG_MAP, map))
            }
            // Clients of the namespace trust this authority; a change by another client would break them.
            Some(map) if map["data"] != data => {
                let mut right = (**map).clone();
                right["data"] = data;
                cx.update(CONFIG_MAP, right).map(|_| ())
            }
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Handle;
    use crate::testing::{Fake, eventually, pass};
    use berth_objects::access::{Access, DeleteOptions};

    #[tokio::test(start_paused = true)]
    async fn every_namespace_has_its_account_and_certificates_whatever_happens() {
        let api = Fake::new();
        api.create(NAMESPACE.resource, json!({"metadata": {"name": "early"}}))
            .unwrap();
        let mut handle = Handle::new();
        let controller = ServiceAccounts::new(Some("PEM".to_owned()));
        handle.start(controller, api.clone(), api.clock());
        api.create(NAMESPACE.resource, json!({"metadata": {"name": "late"}}))
            .unwrap();
        let complete = |namespace: &str| {
            api.get(SERVICE_ACCOUNT.resource, namespace, ACCOUNT)
                .is_ok()
                && api
                    .get(CONFIG_MAP.resource, namespace, ROOT_CA)
                    .is_ok_and(|m| m["data"]["ca.crt"] == "PEM")
        };
        eventually("both have both", || complete("early") && complete("late")).await;
        let options = DeleteOptions::default();
        api.delete(SERVICE_ACCOUNT.resource, "late", ACCOUNT, &options)
            .unwrap();
        api.edit(CONFIG_MAP.resource, ("late", ROOT_CA), |m| {
            m["data"] = json!({})
        });
        eventually("it is corrected", || complete("late")).await;
        // A namespace that is being deleted gets no account.
        api.delete(NAMESPACE.resource, "", "late", &options)
            .unwrap();
        api.delete(SERVICE_ACCOUNT.resource, "late", ACCOUNT, &options)
            .unwrap();
        pass(10.0).await;
        assert!(!complete("late"));
        handle.stop().await;
    }
}
