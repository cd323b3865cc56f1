//! Extenders: webhooks that take part in scheduling, as they are configured.

use super::error::Problems;
use super::profile::ProfileConfig;
use super::value::Object;
use crate::profile::ProfileSpec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_api::GoDuration;
use berth_api::names::{is_extended_resource_name, label_key};
use berth_framework::registry::{Registration, Registry};
use serde_json::{Map, Value, json};
use std::fmt;

/// How long a call to an extender may take when the configuration does not say.
const HTTP_TIMEOUT: GoDuration = GoDuration::from_secs(5);

/// One extender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extender {
    /// The address that the verbs are put behind.
    pub url_prefix: String,
    /// Filters nodes; empty: it does not.
    pub filter_verb: String,
    /// Looks at the victims of preemption; empty: it does not.
    pub preempt_verb: String,
    /// Ranks nodes; empty: it does not.
    pub prioritize_verb: String,
    /// How many times its ranks count.
    pub weight: i64,
    /// Binds in place of the plugins; empty: it does not.
    pub bind_verb: String,
    /// Whether it is called over TLS.
    pub enable_https: bool,
    /// How TLS is spoken.
    pub tls: Option<ExtenderTls>,
    /// How long a call may take.
    pub http_timeout: GoDuration,
    /// Whether it keeps nodes itself and wants their names alone.
    pub node_cache_capable: bool,
    /// The resources that it looks after; without any it is asked about every pod.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether scheduling goes on without it when it fails.
    pub ignorable: bool,
}

/// How an extender is spoken to over TLS. The files are named, not read.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ExtenderTls {
    /// Whether its certificate goes unchecked.
    pub insecure: bool,
    /// The name that its certificate must have; empty: that of the address.
    pub server_name: String,
    /// The file of our certificate.
    pub cert_file: String,
    /// The file of our key.
    pub key_file: String,
    /// The file of the certificate authorities.
    pub ca_file: String,
    /// Our certificate, PEM; before the file.
    pub cert_data: Vec<u8>,
    /// Our key, PEM; before the file.
    pub key_data: Vec<u8>,
    /// The certificate authorities, PEM; before the file.
    pub ca_data: Vec<u8>,
}

/// A resource that an extender looks after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedResource {
    /// The name of an extended resource.
    pub name: String,
    /// Whether the Filter plugins of resources ignore it.
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
    pub(super) fn decode(mut at: Object<'_>, problems: &mut Problems) -> Self {
        let mut text = |at: &mut Object<'_>, field| at.string(field, problems).unwrap_or_default();
        let url_prefix = text(&mut at, "urlPrefix");
        let filter_verb = text(&mut at, "filterVerb");
        let preempt_verb = text(&mut at, "preemptVerb");
        let prioritize_verb = text(&mut at, "prioritizeVerb");
        let bind_verb = text(&mut at, "bindVerb");
        let weight = at.i64("weight", problems).unwrap_or(0);
        let enable_https = at.bool("enableHTTPS", problems).unwrap_or(false);
        let tls = at
            .object("tlsConfig", problems)
            .map(|at| ExtenderTls::decode(at, problems));
        let http_timeout = at
            .duration("httpTimeout", problems)
            .filter(|timeout| timeout.as_nanos() > 0)
            .unwrap_or(HTTP_TIMEOUT);
        let node_cache_capable = at.bool("nodeCacheCapable", problems).unwrap_or(false);
        let managed_resources = at
            .objects("managedResources", problems)
            .into_iter()
            .map(|mut at| {
                let resource = ManagedResource {
                    name: at.string("name", problems).unwrap_or_default(),
                    ignored_by_scheduler: at.bool("ignoredByScheduler", problems).unwrap_or(false),
                };
                at.close(problems);
                resource
            })
            .collect();
        let ignorable = at.bool("ignorable", problems).unwrap_or(false);
        at.close(problems);
        Self {
            url_prefix,
            filter_verb,
            preempt_verb,
            prioritize_verb,
            weight,
            bind_verb,
            enable_https,
            tls,
            http_timeout,
            node_cache_capable,
            managed_resources,
            ignorable,
        }
    }

    /// As it is written out; what is empty is left out.
    pub(super) fn to_value(&self) -> Value {
        let managed: Vec<Value> = self
            .managed_resources
            .iter()
            .map(|resource| {
                object([
                    ("name", resource.name.as_str().into()),
                    ("ignoredByScheduler", resource.ignored_by_scheduler.into()),
                ])
            })
            .collect();
        let mut value = object([
            ("filterVerb", self.filter_verb.as_str().into()),
            ("preemptVerb", self.preempt_verb.as_str().into()),
            ("prioritizeVerb", self.prioritize_verb.as_str().into()),
            ("weight", self.weight.into()),
            ("bindVerb", self.bind_verb.as_str().into()),
            ("enableHTTPS", self.enable_https.into()),
            ("nodeCacheCapable", self.node_cache_capable.into()),
            ("managedResources", managed.into()),
            ("ignorable", self.ignorable.into()),
        ]);
        value["urlPrefix"] = json!(self.url_prefix);
        value["httpTimeout"] = json!(self.http_timeout.to_string());
        if let Some(tls) = &self.tls {
            value["tlsConfig"] = tls.to_value();
        }
        value
    }
}

impl ExtenderTls {
    fn decode(mut at: Object<'_>, problems: &mut Problems) -> Self {
        let tls = Self {
            insecure: at.bool("insecure", problems).unwrap_or(false),
            server_name: at.string("serverName", problems).unwrap_or_default(),
            cert_file: at.string("certFile", problems).unwrap_or_default(),
            key_file: at.string("keyFile", problems).unwrap_or_default(),
            ca_file: at.string("caFile", problems).unwrap_or_default(),
            cert_data: bytes(&mut at, "certData", problems),
            key_data: bytes(&mut at, "keyData", problems),
            ca_data: bytes(&mut at, "caData", problems),
        };
        at.close(problems);
        tls
    }

    fn to_value(&self) -> Value {
        object([
            ("insecure", self.insecure.into()),
            ("serverName", self.server_name.as_str().into()),
            ("certFile", self.cert_file.as_str().into()),
            ("keyFile", self.key_file.as_str().into()),
            ("caFile", self.ca_file.as_str().into()),
            ("certData", STANDARD.encode(&self.cert_data).into()),
            ("keyData", STANDARD.encode(&self.key_data).into()),
            ("caData", STANDARD.encode(&self.ca_data).into()),
        ])
    }
}

/// An object of what is not empty.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(_) => false,
    };
    let fields: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, value)| !empty(value))
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Value::Object(fields)
}

fn bytes(at: &mut Object<'_>, field: &'static str, problems: &mut Problems) -> Vec<u8> {
    let Some(text) = at.string(field, problems) else {
        return Vec::new();
    };
    let text: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(text).unwrap_or_else(|error| {
        // The value is not shown: it may be a key.
        problems.add(at.path(field), format!("must be base64: {error}"));
        Vec::new()
    })
}

/// The resources that extenders look after alone.
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

/// Checks that every profile has the plugins that are to ignore what extenders manage alone.
pub(super) fn validate_profiles(
    extenders: &[Extender],
    registry: &Registry,
    profiles: &[ProfileConfig],
    problems: &mut Problems,
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
pub(super) fn validate(extenders: &[Extender], problems: &mut Problems) {
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
    let binders = extenders.iter().filter(|e| !e.bind_verb.is_empty()).count();
    if binders > 1 {
        problems.invalid(
            "extenders",
            format!("found {binders} extenders implementing bind"),
            "only one extender can implement bind",
        );
    }
}
