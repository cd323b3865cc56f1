//! The check that the device classes of a claim exist.

use berth_api::ResourceClaim;
use berth_framework::{Cluster, ReasonCode, Status};

fn check(cluster: &Cluster, request: &str, class: &str) -> Result<(), Status> {
    if class.is_empty() {
        let why = format!("request {request}: unsupported request type");
        return Err(Status::error(why));
    }
    if !cluster.devices().classes().contains_key(class) {
        let why = format!("request {request}: device class {class} does not exist");
        return Err(Status::unresolvable(ReasonCode::ClaimMissing.reason(why)));
    }
    Ok(())
}

/// Checks the requests of a claim that is to be allocated.
///
/// # Errors
/// The fault of the first invalid one, in upstream's words.
pub(super) fn check_requests(cluster: &Cluster, claim: &ResourceClaim) -> Result<(), Status> {
    for request in &claim.spec.devices.requests {
        let name = &request.name;
        match (&request.exactly, &request.first_available[..]) {
            (Some(exactly), _) => check(cluster, name, &exactly.device_class_name)?,
            (None, []) => {
                let why = format!(
                    "resource claim {}, request {name}: unknown request type",
                    claim.key()
                );
                return Err(Status::unresolvable(ReasonCode::ClaimMissing.reason(why)));
            }
            (None, alternatives) => {
                for alternative in alternatives {
                    let name = format!("{name}/{}", alternative.name);
                    check(cluster, &name, &alternative.device_class_name)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::claim;
    use super::*;
    use crate::testing::World;
    use serde_json::json;

    /// PL-151: a class that does not exist is reported before the search.
    #[test]
    fn requests_name_classes_that_are_there() {
        let class = json!({"metadata": {"name": "gpu"}});
        let class: berth_api::DeviceClass = serde_json::from_value(class).expect("a class");
        let world = World::new().with(class);
        let exactly = |class: &str| json!({"name": "r", "exactly": {"deviceClassName": class}});
        let either = |a: &str, b: &str| {
            json!({"name": "r", "firstAvailable": [
                {"name": "x", "deviceClassName": a}, {"name": "y", "deviceClassName": b},
            ]})
        };
        for (request, expected) in [
            (exactly("gpu"), None),
            (either("gpu", "gpu"), None),
            (
                exactly("tpu"),
                Some(Status::unresolvable(
                    "request r: device class tpu does not exist",
                )),
            ),
            (
                either("gpu", "tpu"),
                Some(Status::unresolvable(
                    "request r/y: device class tpu does not exist",
                )),
            ),
            (
                exactly(""),
                Some(Status::error("request r: unsupported request type")),
            ),
            (
                json!({"name": "r"}),
                Some(Status::unresolvable(
                    "resource claim default/c, request r: unknown request type",
                )),
            ),
        ] {
            let spec = json!({"spec": {"devices": {"requests": [request]}}});
            let found = check_requests(&world.cluster, &claim("c", spec));
            assert_eq!(found.err(), expected, "{request}");
        }
    }
}
