//! The configuration of extenders: webhooks that participate in scheduling.

use super::error::Problems;
use super::profile::ProfileConfig;
use super::value::ConfigObject;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_api::GoDuration;
use berth_api::names::{is_extended_resource_name, label_key};
use berth_framework::registry::{Registration, Registry};
use berth_profile::ProfileSpec;
use serde::{Serialize, Serializer};
use serde_json::json;
use std::fmt;

/// The time that a call to an extender may take when the configuration does not state it.
const HTTP_TIMEOUT: GoDuration = GoDuration::from_secs(5);

/// One extender. Empty fields are not written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Extender {
    /// The address that the verbs are put behind.
    pub url_prefix: String,
    /// The verb for filtering nodes; empty if the extender does not filter.
    #[serde(skip_serializing_if = "is_empty")]
    pub filter_verb: String,
    /// The verb for preemption; empty if the extender does not support it.
    #[serde(skip_serializing_if = "is_empty")]
    pub preempt_verb: String,
    /// The verb for scoring nodes; empty if the extender does not score.
    #[serde(skip_serializing_if = "is_empty")]
    pub prioritize_verb: String,
    /// The weight of its ranks.
    #[serde(skip_serializing_if = "is_empty")]
    pub weight: i64,
    /// The verb for binding instead of the Bind plugins; empty if the extender does not bind.
    #[serde(skip_serializing_if = "is_empty")]
    pub bind_verb: String,
    /// Whether it is called over TLS.
    #[serde(rename = "enableHTTPS", skip_serializing_if = "is_empty")]
    pub enable_https: bool,
    /// The TLS options.
    #[serde(rename = "tlsConfig", skip_serializing_if = "is_empty")]
    pub tls: Option<ExtenderTls>,
    /// The time that a call may take.
    pub http_timeout: GoDuration,
    /// Whether it caches nodes itself and needs only their names.
    #[serde(skip_serializing_if = "is_empty")]
    pub node_cache_capable: bool,
    /// The resources that it manages; without any it is called for every pod.
    #[serde(skip_serializing_if = "is_empty")]
    pub managed_resources: Vec<ManagedResource>,
    /// Whether scheduling continues if it fails.
    #[serde(skip_serializing_if = "is_empty")]
    pub ignorable: bool,
}

/// The TLS options of an extender. The files are named, not read.
#[derive(Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtenderTls {
    /// Whether its certificate is not verified.
    #[serde(skip_serializing_if = "is_empty")]
    pub insecure: bool,
    /// The name that its certificate must have; empty for the host name of the address.
    #[serde(skip_serializing_if = "is_empty")]
    pub server_name: String,
    /// The file of our certificate.
    #[serde(skip_serializing_if = "is_empty")]
    pub cert_file: String,
    /// The file of our key.
    #[serde(skip_serializing_if = "is_empty")]
    pub key_file: String,
    /// The file of the certificate authorities.
    #[serde(skip_serializing_if = "is_empty")]
    pub ca_file: String,
    /// The client certificate, PEM; takes precedence over the file.
    #[serde(serialize_with = "in_base64", skip_serializing_if = "is_empty")]
    pub cert_data: Vec<u8>,
    /// The client key, PEM; takes precedence over the file.
    #[serde(serialize_with = "in_base64", skip_serializing_if = "is_empty")]
    pub key_data: Vec<u8>,
    /// The certificate authorities, PEM; take precedence over the file.
    #[serde(serialize_with = "in_base64", skip_serializing_if = "is_empty")]
    pub ca_data: Vec<u8>,
}

/// A resource that an extender manages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedResource {
    /// The name of an extended resource.
    #[serde(skip_serializing_if = "is_empty")]
    pub name: String,
    /// Whether the Filter plugins of resources ignore it.
    #[serde(skip_serializing_if = "is_empty")]
    pub ignored_by_scheduler: bool,
}

/// Without the key.
impl fmt::Debug for ExtenderTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtenderTls")
            .field("insecure", &self.insecure)
            .field("server_name", &self.server_name)
            .field("cert_file", &self.cert_file)
            .field("key_file", &self.key_file)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

impl Extender {
    /// Reads one.
    pub(super) fn decode(mut at: ConfigObject<'_>) -> Self {
        let extender = Self {
            url_prefix: at.or_default("urlPrefix"),
            filter_verb: at.or_default("filterVerb"),
            preempt_verb: at.or_default("preemptVerb"),
            prioritize_verb: at.or_default("prioritizeVerb"),
            bind_verb: at.or_default("bindVerb"),
            weight: at.or_default("weight"),
            enable_https: at.or_default("enableHTTPS"),
            tls: at.object("tlsConfig").map(ExtenderTls::decode),
            http_timeout: at
                .read("httpTimeout")
                .filter(|timeout: &GoDuration| timeout.as_nanos() > 0)
                .unwrap_or(HTTP_TIMEOUT),
            node_cache_capable: at.or_default("nodeCacheCapable"),
            managed_resources: at
                .objects("managedResources")
                .into_iter()
                .map(ManagedResource::decode)
                .collect(),
            ignorable: at.or_default("ignorable"),
        };
        at.close();
        extender
    }
}

impl ManagedResource {
    fn decode(mut at: ConfigObject<'_>) -> Self {
        let resource = Self {
            name: at.or_default("name"),
            ignored_by_scheduler: at.or_default("ignoredByScheduler"),
        };
        at.close();
        resource
    }
}

impl ExtenderTls {
    fn decode(mut at: ConfigObject<'_>) -> Self {
        let tls = Self {
            insecure: at.or_default("insecure"),
            server_name: at.or_default("serverName"),
            cert_file: at.or_default("certFile"),
            key_file: at.or_default("keyFile"),
            ca_file: at.or_default("caFile"),
            cert_data: bytes(&mut at, "certData"),
            key_data: bytes(&mut at, "keyData"),
            ca_data: bytes(&mut at, "caData"),
        };
        at.close();
        tls
    }
}

fn bytes(at: &mut ConfigObject<'_>, field: &'static str) -> Vec<u8> {
    let text: String = at.or_default(field);
    let text: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(text).unwrap_or_else(|error| {
        // The value is not shown: it may be a key.
        let message = format!("must be base64: {error}");
        at.problems.add(at.path(field), message);
        Vec::new()
    })
}

fn in_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

/// Returns whether a field is left out when the configuration is written.
fn is_empty<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The resources that extenders manage alone.
fn ignored(extenders: &[Extender]) -> impl Iterator<Item = &str> {
    let managed = extenders.iter().flat_map(|e| &e.managed_resources);
    managed
        .filter(|resource| resource.ignored_by_scheduler)
        .map(|resource| resource.name.as_str())
}

/// Adds the resources that extenders manage alone to the arguments of the plugins that can ignore resources, in every
/// profile (F-44).
pub(super) fn leave_to_extenders(
    extenders: &[Extender],
    registry: &Registry,
    profiles: &mut [ProfileSpec],
) {
    for name in ignored(extenders) {
        for config in profiles.iter_mut().flat_map(|p| &mut p.plugin_config) {
            let plugin = registry.get(&config.name);
            let Some(field) = plugin.and_then(Registration::ignored_resources) else {
                continue;
            };
            let Some(args) = config.args.as_object_mut() else {
                continue;
            };
            let resources = args.entry(field).or_insert(json!([]));
            if let Some(resources) = resources.as_array_mut()
                && !resources.iter().any(|known| known == name)
            {
                resources.push(name.into());
            }
        }
    }
}

/// Checks that every profile has the plugins that must ignore the resources managed by extenders alone.
pub(super) fn validate_profiles(
    extenders: &[Extender],
    registry: &Registry,
    profiles: &[ProfileConfig],
    problems: &Problems,
) {
    let Some(name) = ignored(extenders).next() else {
        return;
    };
    let ignoring = registry.names().filter(|name| {
        registry
            .get(name)
            .is_some_and(|p| p.ignored_resources().is_some())
    });
    for plugin in ignoring {
        for (i, profile) in profiles.iter().enumerate() {
            if !profile.plugin_config.iter().any(|c| c.name == plugin) {
                problems.add_with_hint(
                    format!("profiles[{i}].pluginConfig"),
                    format!("couldn't build extenders: can't find {plugin}Args in plugin config"),
                    format!("enable {plugin}, or leave out ignoredByScheduler of {name}"),
                );
            }
        }
    }
}

/// Checks the extenders together (F-34).
pub(super) fn validate(extenders: &[Extender], problems: &Problems) {
    let mut names: Vec<&str> = Vec::new();
    for (i, extender) in extenders.iter().enumerate() {
        let path = format!("extenders[{i}]");
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            problems.invalid(
                format!("{path}.weight"),
                extender.weight,
                "must have a positive weight applied to it",
            );
        }
        for (j, resource) in extender.managed_resources.iter().enumerate() {
            let path = format!("{path}.managedResources[{j}].name");
            let name = resource.name.as_str();
            let unqualified = label_key(name);
            for problem in &unqualified {
                problems.invalid(&path, name, problem);
            }
            // A name with a fault would be reported twice.
            if unqualified.is_empty() && !is_extended_resource_name(name) {
                problems.invalid(&path, name, "is an invalid extended resource name");
            }
            if names.contains(&name) {
                problems.invalid(&path, name, "duplicate extender managed resource name");
            } else {
                names.push(name);
            }
        }
    }
    // Only one component may bind a pod.
    let binders = extenders.iter().filter(|e| !e.bind_verb.is_empty()).count();
    if binders > 1 {
        problems.invalid(
            "extenders",
            format!("found {binders} extenders implementing bind"),
            "only one extender can implement bind",
        );
    }
}
