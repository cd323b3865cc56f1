//! The flags of `berth scheduler`, in one table: type, default, effect and help text of each.
//!
//! The table contains all flags of kube-scheduler 1.36, with its names, types and defaults, and a few of Berth's own.
//! The command line, `/flagz` and `docs/use/reference/flags.md` are derived from it.

use super::value::{
    Bytes, Curves, GateList, LabelValues, Level, LogFormat, NamedCertKey, VModule, VersionFlag,
};
use super::{Flag, FlagEffect, FlagError, Given, Section};
use crate::args::EvaluatorArg;
use crate::flags::value::FlagValue;
use berth_api::GoDuration;
use clap::ArgMatches;
use std::net::IpAddr;
use std::path::PathBuf;

macro_rules! flags {
    ($($group:ident: $section:ident $of:ident { $($field:ident: $type:ty = $default:literal, $effect:expr, $help:literal;)* })*) => {
        $(
            #[doc = concat!("The flags of the section ", stringify!($section), ".")]
            #[derive(Debug, Clone)]
            pub(crate) struct $of {
                $(#[doc = $help] pub(crate) $field: Given<$type>,)*
            }
        )*

        /// The flags as they were given.
        #[derive(Debug, Clone)]
        pub struct Flags {
            $(pub(crate) $group: $of,)*
        }

        /// Every flag, in the order of the help text.
        pub(crate) const FLAGS: &[Flag] = &[
            $($(Flag {
                field: stringify!($field),
                section: Section::$section,
                type_name: <$type as FlagValue>::TYPE,
                default: $default,
                effect: $effect,
                help: $help,
            },)*)*
        ];

        impl Flags {
            /// Reads the flags that clap has found.
            ///
            /// # Errors
            /// The first flag whose value cannot be read.
            pub(crate) fn read(matches: &ArgMatches) -> Result<Self, FlagError> {
                Ok(Self {
                    $($group: $of {
                        $($field: super::read(matches, stringify!($field), $default)?,)*
                    },)*
                })
            }

            /// Every flag with its value in kube-scheduler's notation, and whether it was given.
            pub(crate) fn shown(&self) -> Vec<(&'static Flag, String, bool)> {
                let values = [$($((self.$group.$field.value.show(), self.$group.$field.is_set),)*)*];
                let flags = FLAGS.iter().zip(values);
                flags.map(|(flag, (value, is_set))| (flag, value, is_set)).collect()
            }
        }
    };
}

use FlagEffect::{Deprecated, Ignored, Works};

flags! {
    misc: Misc MiscFlags {
        config: Option<PathBuf> = "", Works,
            "The path of a KubeSchedulerConfiguration file (kubescheduler.config.k8s.io/v1).";
        master: String = "", Works,
            "The address of the Kubernetes API server. Overrides the address in the kubeconfig.";
        unsupported_kube_api_over_localhost: bool = "false",
            Ignored("a flag of OpenShift's kube-scheduler; Berth uses the server of the kubeconfig"),
            "Prefer an API server on localhost to a load balancer.";
        write_config_to: Option<PathBuf> = "", Works,
            "Write the complete configuration to this file and exit.";
    }
    berth: Berth BerthFlags {
        check: bool = "false", Works,
            "Check the flags and the configuration file, print every problem and exit, without a connection to a server.";
        evaluator: EvaluatorArg = "incremental", Works,
            "The evaluator: node by node in kube-scheduler's order (plain), or the same decisions from kept answers (incremental).";
        record: Option<PathBuf> = "", Works,
            "The directory for a recording of the scheduler's inputs, for berth replay. The files contain the names of all pods and nodes.";
        record_kept_names: Vec<String> = "", Works,
            "With --record-pseudonyms, the names that are kept, and the domains whose label keys are kept, for plugins that compare them.";
        record_max_bytes: Bytes = "1073741824", Works,
            "The maximum size of the recordings in the directory of --record, in bytes or as a quantity such as 512Mi. The oldest files are removed.";
        record_pseudonyms: bool = "false", Works,
            "With --record, replace names, labels and texts in the recording by pseudonyms with the same order. The replay makes the same decisions and calls.";
        seed: Option<u64> = "", Works,
            "The seed of all random choices of the scheduler. The default is a new seed at each start.";
        shadow: bool = "false", Works,
            "Decide about each pod after another scheduler has decided, compare the decisions, and write nothing. No leader election; only GET requests. The agreement is served at /shadow.";
        shadow_cases: Option<PathBuf> = "", Works,
            "With --shadow, the directory for disagreements, at most 100, for berth conformance decisions.";
    }
    serving: SecureServing ServingFlags {
        bind_address: IpAddr = "0.0.0.0", Works,
            "The IP address of the HTTPS port. 0.0.0.0 and :: are all interfaces and both IP families.";
        cert_dir: String = "", Works,
            "The directory of the serving certificate kube-scheduler.crt and its key kube-scheduler.key. If they do not exist, a self-signed pair is written. Ignored with --tls-cert-file.";
        disable_http2_serving: bool = "false", Works,
            "Serve HTTP/1.1 only.";
        http2_max_streams_per_connection: u32 = "0", Works,
            "The maximum number of streams of an HTTP/2 connection. 0 is 250.";
        permit_address_sharing: bool = "false", Works,
            "Bind the port with SO_REUSEADDR.";
        permit_port_sharing: bool = "false", Works,
            "Bind the port with SO_REUSEPORT: several processes can serve on it.";
        secure_port: u16 = "10259", Works,
            "The port of HTTPS with authentication and authorization. 0 disables serving.";
        tls_cert_file: Option<PathBuf> = "", Works,
            "A PEM file with the serving certificate, followed by its intermediate certificates. It is read again when it changes. Without it and --cert-dir, a self-signed certificate is kept in memory.";
        tls_cipher_suites: Vec<String> = "", Works,
            "The TLS 1.2 cipher suites to offer, by their IANA names. The default is all secure suites. TLS 1.3 suites are always offered.";
        tls_curve_preferences: Curves = "", Works,
            "The key exchange groups to offer, by their IANA numbers: 23 (P-256), 24 (P-384), 29 (X25519).";
        tls_min_version: String = "", Works,
            "The minimum TLS version: VersionTLS12 (the default) or VersionTLS13.";
        tls_private_key_file: Option<PathBuf> = "", Works,
            "A PEM file with the private key of --tls-cert-file.";
        tls_sni_cert_key: Vec<NamedCertKey> = "", Works,
            "A certificate and its key for some server names, as cert.pem,key.pem:name,*.domain. May be repeated. The default names are those in the certificate.";
    }
    authentication: Authentication AuthenticationFlags {
        authentication_kubeconfig: Option<PathBuf> = "", Works,
            "The kubeconfig for TokenReviews and for the lookup of the cluster's client CA. Without it, and outside of a pod, requests with tokens are rejected.";
        authentication_skip_lookup: bool = "false", Works,
            "Do not look up the cluster's client CA in the ConfigMap kube-system/extension-apiserver-authentication.";
        authentication_token_webhook_cache_ttl: GoDuration = "10s", Works,
            "The duration for which the response of a TokenReview is cached.";
        authentication_tolerate_lookup_failure: bool = "true", Works,
            "Start even if the lookup of the cluster's client CA fails. In this case, client certificates are not accepted.";
        client_ca_file: Option<PathBuf> = "", Works,
            "A PEM file with certificate authorities. A client certificate signed by one of them authenticates its common name.";
        requestheader_allowed_names: Vec<String> = "", Works,
            "The common names of client certificates of proxies that may name the user in headers. The default is any name.";
        requestheader_client_ca_file: Option<PathBuf> = "", Works,
            "A PEM file with the certificate authorities of proxies that may name the user in headers.";
        requestheader_extra_headers_prefix: Vec<String> = "x-remote-extra-", Works,
            "The prefixes of the headers in which a proxy names further attributes of the user.";
        requestheader_group_headers: Vec<String> = "x-remote-group", Works,
            "The headers in which a proxy names the groups of the user.";
        requestheader_uid_headers: Vec<String> = "", Works,
            "The headers in which a proxy names the UID of the user.";
        requestheader_username_headers: Vec<String> = "x-remote-user", Works,
            "The headers in which a proxy names the user.";
    }
    authorization: Authorization AuthorizationFlags {
        authorization_always_allow_paths: Vec<String> = "/healthz,/readyz,/livez", Works,
            "Paths that need no authorization. A path may end with *.";
        authorization_kubeconfig: Option<PathBuf> = "", Works,
            "The kubeconfig for SubjectAccessReviews. Without it, and outside of a pod, only --authorization-always-allow-paths and the group system:masters are allowed.";
        authorization_webhook_cache_authorized_ttl: GoDuration = "10s", Works,
            "The duration for which a response 'authorized' is cached.";
        authorization_webhook_cache_unauthorized_ttl: GoDuration = "10s", Works,
            "The duration for which a response 'unauthorized' is cached.";
    }
    deprecated: Deprecated DeprecatedFlags {
        contention_profiling: bool = "true", Ignored("the scheduling core has no locks to profile"),
            "Profile lock contention. Ignored with --config.";
        kube_api_burst: i32 = "100", Deprecated("clientConnection.burst"),
            "The maximum burst of requests to the API server. Ignored with --config.";
        kube_api_content_type: String = "application/vnd.kubernetes.protobuf", Deprecated("clientConnection.contentType"),
            "The content type of requests to the API server. Ignored with --config.";
        kube_api_qps: f32 = "50", Deprecated("clientConnection.qps"),
            "The maximum number of requests per second to the API server. Ignored with --config.";
        kubeconfig: Option<PathBuf> = "", Deprecated("clientConnection.kubeconfig"),
            "The path of a kubeconfig. Ignored if the file of --config has a kubeconfig.";
        pod_max_in_unschedulable_pods_duration: GoDuration = "5m0s", Deprecated(""),
            "The duration for which an unschedulable pod waits for an event before it is retried.";
        profiling: bool = "true", Deprecated("enableProfiling"),
            "Serve profiles at /debug/pprof/. Ignored with --config.";
    }
    leader_election: LeaderElection LeaderElectionFlags {
        leader_elect: bool = "true", Works,
            "Acquire the leader lease before scheduling. Required for several replicas. Overrides the configuration file.";
        leader_elect_lease_duration: GoDuration = "15s", Works,
            "The duration for which a standby waits after the last observed renewal before it acquires the lease. Overrides the configuration file.";
        leader_elect_renew_deadline: GoDuration = "10s", Works,
            "The duration for which the leader retries to renew the lease before it stops. Less than the lease duration. Overrides the configuration file.";
        leader_elect_resource_lock: String = "leases", Works,
            "The type of object for leader election: leases. Overrides the configuration file.";
        leader_elect_resource_name: String = "kube-scheduler", Works,
            "The name of the object for leader election. Overrides the configuration file.";
        leader_elect_resource_namespace: String = "kube-system", Works,
            "The namespace of the object for leader election. Overrides the configuration file.";
        leader_elect_retry_period: GoDuration = "2s", Works,
            "The pause between two attempts to acquire or renew the lease. Overrides the configuration file.";
    }
    features: FeatureGate FeatureFlags {
        emulated_version: Vec<String> = "", Works,
            "The Kubernetes version whose behaviour is emulated: 1.36, 1.37 or 1.38, also as kube=1.37. The default is the version of the API server, within this range.";
        feature_gates: GateList = "", Works,
            "Feature gates as Name=true,Other=false, each optionally as kube:Name=true. May be repeated.";
        min_compatibility_version: Vec<String> = "", Works,
            "The oldest version of the other control plane components: 1.33 to the emulated version. It determines the default of DRAFractionalCapacityRange. The default is the version before the emulated version.";
    }
    metrics: Metrics MetricsFlags {
        allow_metric_labels: LabelValues = "", Works,
            "The allowed values of labels of metrics, as metric,label='value,value'. Other values are reported as unexpected.";
        allow_metric_labels_manifest: Option<PathBuf> = "", Works,
            "A YAML file with allowListMapping, a map from metric,label to value,value. --allow-metric-labels overrides its entries.";
        disabled_metrics: Vec<String> = "", Works,
            "The names of metrics that are not served.";
        show_hidden_metrics_for_version: String = "", Ignored("Berth hides no metrics"),
            "The version before the emulated version, whose hidden metrics are served.";
    }
    logs: Logs LogFlags {
        log_flush_frequency: GoDuration = "5s", Works,
            "The interval at which buffered log lines are written.";
        log_json_info_buffer_size: Bytes = "0", Works,
            "With --log-json-split-stream, the size of the buffer for informational log lines, in bytes.";
        log_json_split_stream: bool = "false", Works,
            "In JSON format, write errors to standard error and everything else to standard output.";
        log_text_info_buffer_size: Bytes = "0", Works,
            "With --log-text-split-stream, the size of the buffer for informational log lines, in bytes.";
        log_text_split_stream: bool = "false", Works,
            "In text format, write errors to standard error and everything else to standard output.";
        logging_format: LogFormat = "text", Works,
            "The format of the log: text or json.";
        v: Level = "0", Works,
            "The verbosity of the log: 0 errors and warnings, 2 also bindings, 4 details, 6 requests.";
        vmodule: VModule = "", Works,
            "The verbosity of single source files, as pattern=N,... For the text format only.";
    }
    global: Global GlobalFlags {
        version: VersionFlag = "false", Works,
            "Print the version and exit. --version=raw prints all details; --version=vX.Y.Z sets the reported version.";
    }
}
