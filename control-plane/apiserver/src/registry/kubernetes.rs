//! Objects about the API server itself: the Service `kubernetes` with its EndpointSlice and Endpoints, through which
//! programs in pods reach the server, and the ConfigMap `extension-apiserver-authentication`, with which other servers
//! authenticate the same clients. The mandatory objects of `flow_control` are restored with them.

use super::api::Api;
use super::flow_control;
use super::service_addresses;
use crate::registry::request::{Method, UpdateInputs, WriteOptions};
use berth_objects::catalog;
use berth_objects::status::ApiError;
use berth_objects::view::meta;
use serde_json::{Value, json};
use std::net::SocketAddr;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
const AUTHENTICATION_NAMESPACE: &str = "kube-system";
const AUTHENTICATION: &str = "extension-apiserver-authentication";

/// The published addresses.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// The address of the server.
    pub(crate) address: SocketAddr,
    /// The authorities of client certificates, in PEM.
    pub(crate) client_ca: String,
}

impl Published {
    /// Creates the objects, or corrects them.
    ///
    /// # Errors
    /// When a write is refused.
    pub(crate) fn write(&self, api: &Api) -> Result<(), ApiError> {
        service(api, self.address)?;
        let authentication = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": AUTHENTICATION, "namespace": AUTHENTICATION_NAMESPACE},
            "data": {"client-ca-file": self.client_ca},
        });
        ensure(api, "", "configmaps", authentication, "/data")?;
        flow_control::restore(api)
    }
}

fn service(api: &Api, address: SocketAddr) -> Result<(), ApiError> {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let port = json!({"name": "https", "port": address.port(), "protocol": "TCP"});
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"component": "apiserver", "provider": NAME},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": service_addresses::first_of(&api.service_cidr),
            "ports": [
                {"name": "https", "port": 443, "protocol": "TCP", "targetPort": address.port()},
            ],
            "sessionAffinity": "None",
        },
    });
    ensure(api, "", "services", service, "/spec/ports")?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": NAME},
        },
        "addressType": family,
        "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}],
        "ports": [port],
    });
    ensure(api, "discovery.k8s.io", "endpointslices", slice, "/ports")?;
    let endpoints = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            // The mirroring controller must not create a second slice for the Endpoints.
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": address.ip()}], "ports": [port]}],
    });
    ensure(api, "", "endpoints", endpoints, "/subsets")
}

/// Creates an object, or replaces it when it differs at `path`.
fn ensure(api: &Api, group: &str, plural: &str, object: Value, path: &str) -> Result<(), ApiError> {
    let resource = catalog::find(group, plural).ok_or_else(ApiError::no_such_resource)?;
    let options = WriteOptions {
        manager: "kube-apiserver".to_owned(),
        ..WriteOptions::default()
    };
    let (namespace, name) = (meta(&object, "namespace"), meta(&object, "name"));
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    match api.get(resource, &namespace, &name) {
        Err(_) => {
            api.create(resource, &namespace, object, &options)?;
        }
        // Other fields belong to other clients and are not corrected.
        Ok(current) if current.object().pointer(path) == object.pointer(path) => {}
        Ok(_) => {
            let change = UpdateInputs {
                resource,
                namespace: &namespace,
                name: &name,
                sub: "",
                options: &options,
                by: Method::Put,
                is_decoded: false,
            };
            api.update(&change, |current| {
                let mut new = current.clone();
                if let (Some(to), Some(from)) = (new.pointer_mut(path), object.pointer(path)) {
                    *to = from.clone();
                }
                Ok(new)
            })?;
        }
    }
    Ok(())
}
