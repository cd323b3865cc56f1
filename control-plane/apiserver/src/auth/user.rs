//! Users and their groups.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Groups whose members have all permissions.
const MASTERS: &str = "system:masters";

/// The authorizer of requests of users other than the administrators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorization {
    /// Roles and their bindings.
    #[default]
    Rbac,
    /// Every request of an authenticated user is allowed.
    AlwaysAllow,
}

/// The sender of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestUser {
    /// The name.
    pub name: String,
    /// The UID of a service account, otherwise empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes of the user, such as the node of the pod that a token belongs to.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl RequestUser {
    pub(super) fn admin() -> Self {
        Self {
            name: "berth-admin".to_owned(),
            groups: vec![MASTERS.to_owned(), "system:authenticated".to_owned()],
            ..Self::default()
        }
    }

    pub(super) fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// Returns whether this is an administrator or a component of the control plane, a node, or a service account of
    /// kube-system.
    pub(crate) fn is_system(&self) -> bool {
        const GROUPS: [&str; 3] = [
            MASTERS,
            "system:nodes",
            "system:serviceaccounts:kube-system",
        ];
        self.name.starts_with("system:kube-")
            || self
                .groups
                .iter()
                .any(|group| GROUPS.contains(&group.as_str()))
    }

    /// The user as reviews show it.
    pub(crate) fn info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }

    /// Returns whether every request of this user is allowed.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

pub(super) const PREFIX: &str = "system:serviceaccount:";

/// The user that a service account is.
pub(super) fn service_account(namespace: &str, name: &str, uid: &Value) -> RequestUser {
    RequestUser {
        name: format!("{PREFIX}{namespace}:{name}"),
        uid: uid.as_str().unwrap_or_default().to_owned(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
        ..RequestUser::default()
    }
}

/// The groups of a user by its name, if it is a service account.
pub(crate) fn groups_of(name: &str) -> Vec<String> {
    match name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once(':'))
    {
        Some((namespace, name)) => service_account(namespace, name, &Value::Null).groups,
        None => vec!["system:authenticated".to_owned()],
    }
}
