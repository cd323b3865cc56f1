//! Berth under the name `kube-apiserver`.

use super::flags::Given;
use crate::args::{AdmissionPlugin, Switch};
use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use berth_api::{GoDuration, Release};
use berth_apiserver::auth::{Authorization, StaticToken, TokenOptions};
use berth_apiserver::registry::check_service_range;
use berth_apiserver::{Server, ServerOptions, ServingCertificate, StartError};
use berth_controllers::Selection;
use berth_controllers::kubelet;
use berth_edge::args::CoreArgs;
use berth_edge::discovery::scheduler_user_agent;
use berth_edge::exit::CommandFailure;
use berth_edge::flags::{FlagValue, Level, LogFormat};
use berth_edge::logs::{self, LogOptions};
use berth_edge::print::print_line;
use berth_edge::scheduler::{self, Scheduling};
use berth_edge::serving::pair_in;
use berth_edge::signal::{self, StopSignals};
use berth_edge::tasks;
use berth_framework::registry::Registry;
use clap::ValueEnum;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

/// kube-apiserver's default port, and the numbers of requests that it handles at once by default.
const PORT_DEFAULT: u16 = 6443;
const IN_FLIGHT_DEFAULT: usize = 400;
const MUTATING_IN_FLIGHT_DEFAULT: usize = 200;
/// The name under which kube-apiserver keeps its certificate in `--cert-dir`.
const PAIR_NAME: &str = "apiserver";
/// The version that `--version` prints.
const VERSION: &str = "v1.36.2";

/// The admission plugins of kube-apiserver 1.36 that Berth does not have: they are off.
const ABSENT_ADMISSION_PLUGINS: &str = "AlwaysAdmit AlwaysDeny AlwaysPullImages ClusterTrustBundleAttest \
    DefaultIngressClass DenyServiceExternalIPs EventRateLimit ExtendedResourceToleration ImagePolicyWebhook \
    LimitPodHardAntiAffinityTopology NamespaceAutoProvision NodeDeclaredFeatureValidator \
    OwnerReferencesPermissionEnforcement PersistentVolumeClaimResize PodNodeSelector PodSecurity \
    PodTolerationRestriction";
/// Plugins whose checks Berth always makes.
const FIXED_ADMISSION_PLUGINS: &str = "CertificateApproval CertificateSigning CertificateSubjectRestriction \
    NamespaceExists NodeRestriction";

/// The components other than the API server, from the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Beside {
    controllers: Selection,
    nodes: usize,
    scheduler: bool,
}

impl Beside {
    /// Reads the variables BERTH_CONTROLLERS, BERTH_NODES and BERTH_SCHEDULER. Without them only the API server runs,
    /// as in envtest.
    ///
    /// # Errors
    /// Names the variable that cannot be read.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, CommandFailure> {
        fn parsed<T: FromStr>(
            name: &str,
            value: Option<String>,
            default: &str,
            takes: &str,
        ) -> Result<T, CommandFailure> {
            // envtest passes empty variables on, which count as absent.
            let value = value.filter(|value| !value.is_empty());
            let text = value.as_deref().unwrap_or(default);
            text.parse()
                .map_err(|_| CommandFailure::Usage(format!("{name}={text}: must be {takes}")))
        }
        let value = variable("BERTH_CONTROLLERS");
        let names = "on, off, or names of controllers separated by commas";
        let controllers = parsed("BERTH_CONTROLLERS", value, "off", names)?;
        let nodes = parsed(
            "BERTH_NODES",
            variable("BERTH_NODES"),
            "0",
            "a number of nodes",
        )?;
        let value = variable("BERTH_SCHEDULER").filter(|value| !value.is_empty());
        let text = value.as_deref().unwrap_or("off");
        let switch = Switch::from_str(text, false).map_err(|_| {
            CommandFailure::Usage(format!("BERTH_SCHEDULER={text}: must be on or off"))
        })?;
        Ok(Self {
            controllers,
            nodes,
            scheduler: switch == Switch::On,
        })
    }
}

/// Runs the command line: serves until it is stopped, or prints a text.
///
/// # Errors
/// When a flag or a file is wrong, or something cannot be had at the start.
pub(super) fn main(arguments: &[OsString], registry: &Registry) -> Result<(), CommandFailure> {
    let name = OsString::from(super::KUBE_APISERVER);
    let arguments = std::iter::once(name).chain(arguments.iter().cloned());
    let given = Given::read(arguments).unwrap_or_else(|error| error.exit());
    if given.last("version").is_some_and(|value| value != "false") {
        return print_line!("Kubernetes {VERSION}\nBerth {}", env!("CARGO_PKG_VERSION"));
    }
    logs::init(log_options(&given)?);
    let beside = Beside::read(|name| std::env::var(name).ok())?;
    let (options, notes) = server_options(&given)?;
    for line in notes.iter().chain(&given.ignored()) {
        tracing::info!("{line}");
    }
    tasks::run(serve(options, beside, registry.clone()))
}

fn log_options(given: &Given) -> Result<LogOptions, CommandFailure> {
    let read = |name: &str| given.last(name).map(|text| vec![text]);
    let mut options = LogOptions::console(Some(Level(0)));
    if let Some(texts) = read("v") {
        options.verbosity = Some(Level::read(&texts).map_err(|e| wrong("v", &e))?);
    }
    if let Some(texts) = read("logging-format") {
        options.format = LogFormat::read(&texts).map_err(|e| wrong("logging-format", &e))?;
    }
    Ok(options)
}

fn wrong(flag: &str, why: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::Usage(format!("--{flag}: {why}"))
}

/// The options of the server, and the values without effect.
///
/// # Errors
/// Names the first flag that is wrong, or whose file cannot be read.
fn server_options(given: &Given) -> Result<(ServerOptions, Vec<String>), CommandFailure> {
    let mut notes = Vec::new();
    // kube-apiserver listens on all addresses by default.
    let ip = parsed(given, "bind-address")?.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let port = parsed(given, "secure-port")?.unwrap_or(PORT_DEFAULT);
    let file = |flag: &str| {
        given
            .last(flag)
            .map(|path| read_file(flag, path))
            .transpose()
    };
    let keys = given.all("service-account-key-file").into_iter();
    let keys = keys.map(|path| read_file("service-account-key-file", path));
    let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let static_tokens = match file("token-auth-file")? {
        Some(text) => StaticToken::read(&text).map_err(|e| wrong("token-auth-file", e))?,
        None => Vec::new(),
    };
    let event_ttl: Option<GoDuration> = parsed(given, "event-ttl")?;
    let mut options = ServerOptions {
        listen: SocketAddr::new(ip, port),
        advertise: parsed(given, "advertise-address")?,
        client_ca: file("client-ca-file")?,
        serving: serving_certificate(given)?,
        static_tokens,
        tokens: TokenOptions {
            issuers: owned(given.all("service-account-issuer")),
            audiences: owned(given.list("api-audiences")),
            signing_key: file("service-account-signing-key-file")?,
            keys: keys.collect::<Result<_, _>>()?,
        },
        authorization: authorization(given)?,
        max_in_flight: max_in_flight(given)?,
        ..ServerOptions::default()
    };
    options.admission = crate::apiserver::admission_without(&admission(given)?);
    if let Some(range) = service_range(given, &mut notes)? {
        options.service_cidr = range;
    }
    if let Some(ttl) = event_ttl {
        options.event_ttl = ttl.as_duration();
    }
    Ok((options, notes))
}

/// The range of Service addresses: an IPv4 range, before or after an IPv6 range, which is not used.
fn service_range(given: &Given, notes: &mut Vec<String>) -> Result<Option<String>, CommandFailure> {
    let flag = "service-cluster-ip-range";
    let (v6, v4): (Vec<&str>, Vec<&str>) = given
        .list(flag)
        .into_iter()
        .partition(|range| range.contains(':'));
    if v4.len() > 1 || v6.len() > 1 {
        return Err(wrong(flag, "at most one range of each IP family"));
    }
    if let Some(range) = v6.first() {
        notes.push(format!(
            "values without effect: --{flag}: {range}: Services get no IPv6 addresses"
        ));
    }
    let checked = v4.first().map(|range| match check_service_range(range) {
        Ok(()) => Ok((*range).to_owned()),
        Err(error) => Err(wrong(flag, error)),
    });
    checked.transpose()
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(
    given: &Given,
    flag: &str,
) -> Result<Option<T>, CommandFailure> {
    let text = given.last(flag);
    text.map(|text| {
        text.parse()
            .map_err(|e| wrong(flag, format!("{text:?}: {e}")))
    })
    .transpose()
}

fn read_file(flag: &str, path: impl AsRef<Path>) -> Result<String, CommandFailure> {
    let path = path.as_ref();
    std::fs::read_to_string(path)
        .map_err(|e| wrong(flag, format!("failed to read {}: {e}", path.display())))
}

/// The certificate of `--tls-cert-file`, or the certificate in `--cert-dir`, generated if it does not exist; `None`
/// without these flags.
fn serving_certificate(given: &Given) -> Result<Option<ServingCertificate>, CommandFailure> {
    let pair = (
        given.last("tls-cert-file"),
        given.last("tls-private-key-file"),
    );
    let (certificate, key) = match pair {
        (Some(certificate), Some(key)) => (
            read_file("tls-cert-file", certificate)?,
            read_file("tls-private-key-file", key)?,
        ),
        (None, None) => {
            // As in kube-apiserver, a directory without the pair gets one, which clients read from there.
            let Some((certificate, key)) =
                pair_in(given.last("cert-dir").unwrap_or(""), PAIR_NAME)?
            else {
                return Ok(None);
            };
            (
                read_file("cert-dir", certificate)?,
                read_file("cert-dir", key)?,
            )
        }
        // One file without the other is a mistake, not a request for a generated certificate.
        _ => {
            return Err(CommandFailure::usage(
                "--tls-cert-file and --tls-private-key-file must be given together",
            ));
        }
    };
    Ok(Some(ServingCertificate { certificate, key }))
}

/// Requests that another authorizer would reject must not be allowed, so other modes are refused.
fn authorization(given: &Given) -> Result<Authorization, CommandFailure> {
    if given.last("authorization-config").is_some() {
        return Err(wrong(
            "authorization-config",
            "Berth authorizes by roles; use --authorization-mode=RBAC",
        ));
    }
    let modes = given.list("authorization-mode");
    for mode in &modes {
        if !matches!(*mode, "RBAC" | "Node" | "AlwaysAllow") {
            return Err(wrong(
                "authorization-mode",
                format!("Berth has RBAC, Node and AlwaysAllow, and not {mode}"),
            ));
        }
    }
    Ok(if modes.is_empty() || modes.contains(&"AlwaysAllow") {
        Authorization::AlwaysAllow
    } else {
        Authorization::Rbac
    })
}

/// The number of requests that are handled at once: the sum of both kinds, as in kube-apiserver with priority and
/// fairness.
fn max_in_flight(given: &Given) -> Result<usize, CommandFailure> {
    let flags = ["max-requests-inflight", "max-mutating-requests-inflight"];
    if flags.iter().all(|flag| given.last(flag).is_none()) {
        return Ok(ServerOptions::default().max_in_flight);
    }
    let all: usize = parsed(given, flags[0])?.unwrap_or(IN_FLIGHT_DEFAULT);
    let mutating: usize = parsed(given, flags[1])?.unwrap_or(MUTATING_IN_FLIGHT_DEFAULT);
    Ok(match (all, mutating) {
        (0, _) | (_, 0) => usize::MAX,
        (all, mutating) => all.saturating_add(mutating),
    })
}

/// The admission plugins that are off.
///
/// # Errors
/// For a plugin that Berth cannot switch off or on, and for names of plugins that kube-apiserver does not have.
fn admission(given: &Given) -> Result<Vec<AdmissionPlugin>, CommandFailure> {
    let is_in = |names: &str, name: &str| names.split_whitespace().any(|known| known == name);
    let mut disabled = Vec::new();
    for flag in ["disable-admission-plugins", "enable-admission-plugins"] {
        let disables = flag.starts_with("disable");
        for name in given.list(flag) {
            let fault = match AdmissionPlugin::from_str(name, false) {
                Ok(plugin) => {
                    disabled.extend(disables.then_some(plugin));
                    continue;
                }
                Err(_) if is_in(ABSENT_ADMISSION_PLUGINS, name) => {
                    if disables {
                        continue;
                    }
                    format!(
                        "Berth does not have the admission plugin {name}; remove it from the flag"
                    )
                }
                Err(_) if is_in(FIXED_ADMISSION_PLUGINS, name) => {
                    if !disables {
                        continue;
                    }
                    format!(
                        "Berth cannot switch the admission plugin {name} off; remove it from the flag"
                    )
                }
                Err(_) => format!("kube-apiserver has no admission plugin {name:?}"),
            };
            return Err(wrong(flag, fault));
        }
    }
    Ok(disabled)
}

/// Serves until asked to stop.
///
/// # Errors
/// When something cannot be had at the start, or the scheduler ends.
async fn serve(
    options: ServerOptions,
    beside: Beside,
    registry: Registry,
) -> Result<(), CommandFailure> {
    // envtest may stop the process as soon as it is healthy.
    let signals = StopSignals::listen()?;
    let server = Server::start(options).await.map_err(failed_start)?;
    let url = server.url();
    let plane = ControlPlane::start(
        server,
        ControlPlaneOptions {
            controllers: beside.controllers,
            nodes: kubelet::KubeletOptions {
                nodes: beside.nodes,
                ..kubelet::KubeletOptions::default()
            },
            kubelets: beside.nodes > 0,
        },
    )
    .await?;
    let mut scheduling = if beside.scheduler {
        let options =
            scheduler::options_of_up(&CoreArgs::default(), Release::OLDEST, registry).await?;
        Some(Scheduling::over(plane.transport(scheduler_user_agent()), &options).await?)
    } else {
        None
    };
    tracing::info!(
        url,
        nodes = beside.nodes,
        scheduler = beside.scheduler,
        "serving in the place of kube-apiserver"
    );
    let failed = async {
        match &mut scheduling {
            Some(scheduling) => scheduling.failed().await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        why = signals.stop_requested(signal::STOP_PATIENCE) => Ok(why),
        failure = failed => Err(failure),
    };
    let stop = async {
        if let Some(scheduling) = scheduling {
            scheduling.stop().await;
        }
        plane.stop().await;
    };
    let _ = tokio::time::timeout(signal::STOP_PATIENCE, stop).await;
    outcome.map(|why| tracing::info!(why, "stopped"))
}

fn failed_start(error: StartError) -> CommandFailure {
    match error {
        StartError::Listen { .. } => {
            CommandFailure::Environment(format!("{error}, with --bind-address and --secure-port"))
        }
        StartError::ClientAuthorities(_) => wrong("client-ca-file", error),
        StartError::Certificate(_) => wrong("tls-cert-file or --cert-dir", error),
        StartError::TokenKeys(_) => wrong(
            "service-account-key-file or --service-account-signing-key-file",
            error,
        ),
        other => CommandFailure::environment(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(arguments: &[&str]) -> Given {
        let words = std::iter::once("kube-apiserver").chain(arguments.iter().copied());
        Given::read(words.map(OsString::from)).expect("valid flags")
    }

    fn refused(arguments: &[&str]) -> String {
        match server_options(&given(arguments)) {
            Err(CommandFailure::Usage(text)) => text,
            other => panic!("{arguments:?}: {other:?}"),
        }
    }

    #[test]
    fn flags_of_envtest_become_options() {
        let (options, notes) = server_options(&given(&[
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            "--secure-port=45678",
            "--disable-admission-plugins=ServiceAccount,PodSecurity",
            "--service-account-issuer=https://127.0.0.1:45678/",
            "--event-ttl=5m",
            "--service-cluster-ip-range=10.0.0.0/24,fd00::/108",
        ]))
        .expect("valid");
        assert_eq!(options.listen.to_string(), "127.0.0.1:45678");
        assert!(!options.admission.service_account && options.admission.priority);
        assert_eq!(options.authorization, Authorization::Rbac);
        assert_eq!(options.tokens.issuers, ["https://127.0.0.1:45678/"]);
        assert_eq!(options.event_ttl.as_secs(), 300);
        assert_eq!(options.service_cidr, "10.0.0.0/24");
        assert_eq!(
            notes,
            [
                "values without effect: --service-cluster-ip-range: fd00::/108: Services get no IPv6 addresses",
            ]
        );
    }

    #[test]
    fn a_directory_for_certificates_gets_a_pair() {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().join("pki");
        let flag = format!("--cert-dir={}", dir.display());
        let pair = || serving_certificate(&given(&[&flag]));
        let made = pair().expect("it can be made").expect("a pair");
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("a file");
        assert_eq!(
            (&made.certificate, &made.key),
            (&read("apiserver.crt"), &read("apiserver.key"))
        );
        assert_eq!(pair().expect("it can be read"), Some(made));
        std::fs::remove_file(dir.join("apiserver.key")).expect("it is there");
        let error = pair().expect_err("one file is no pair");
        assert!(format!("{error:?}").contains("must be a pair"), "{error:?}");
    }

    #[test]
    fn admission_plugins_are_switched_off_by_their_names() {
        let off = |plugins: &str| {
            let flag = format!("--disable-admission-plugins={plugins}");
            server_options(&given(&[&flag])).expect("valid").0.admission
        };
        let webhooks = off("MutatingAdmissionWebhook,ValidatingAdmissionWebhook");
        let switches = [
            webhooks.mutating_admission_webhook,
            webhooks.validating_admission_webhook,
            webhooks.mutating_admission_policy,
            webhooks.validating_admission_policy,
        ];
        assert_eq!(switches, [false, false, true, true]);
        let policies = off("MutatingAdmissionPolicy,ValidatingAdmissionPolicy");
        assert!(!policies.mutating_admission_policy && !policies.validating_admission_policy);
        // Plugins that are always off, and plugins that are always on.
        assert_eq!(off("PodSecurity,DefaultIngressClass"), off(""));
        let enabled = given(&["--enable-admission-plugins=NodeRestriction,ResourceQuota"]);
        let (options, notes) = server_options(&enabled).expect("valid");
        assert_eq!((options.admission, notes), (off(""), Vec::new()));
    }

    #[test]
    fn everything_is_allowed_unless_a_mode_states_otherwise() {
        for (modes, expect) in [
            ("", Authorization::AlwaysAllow),
            ("AlwaysAllow", Authorization::AlwaysAllow),
            ("Node,RBAC", Authorization::Rbac),
            ("RBAC,AlwaysAllow", Authorization::AlwaysAllow),
        ] {
            let flag = format!("--authorization-mode={modes}");
            let (options, _) = server_options(&given(&[&flag])).expect("valid");
            assert_eq!(options.authorization, expect, "{modes}");
        }
    }

    #[test]
    fn limits_on_requests_are_added_up() {
        let default = ServerOptions::default().max_in_flight;
        for (arguments, expect) in [
            (vec![], default),
            (vec!["--max-requests-inflight=10"], 210),
            (
                vec![
                    "--max-requests-inflight=10",
                    "--max-mutating-requests-inflight=5",
                ],
                15,
            ),
            (vec!["--max-requests-inflight=0"], usize::MAX),
        ] {
            let (options, _) = server_options(&given(&arguments)).expect("valid");
            assert_eq!(options.max_in_flight, expect, "{arguments:?}");
        }
    }

    #[test]
    fn wrong_values_are_refused_with_their_flag() {
        for (argument, expect) in [
            ("--bind-address=here", "--bind-address: \"here\""),
            ("--secure-port=123456", "--secure-port: \"123456\""),
            (
                "--client-ca-file=/no/such",
                "--client-ca-file: failed to read /no/such",
            ),
            ("--authorization-mode=Webhook", "and not Webhook"),
            (
                "--service-cluster-ip-range=10.0.0.0",
                "\"10.0.0.0\" is not a range of addresses",
            ),
            (
                "--service-cluster-ip-range=10.0.0.0/32",
                "has no address for a Service",
            ),
            (
                "--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24",
                "at most one range of each IP family",
            ),
            ("--authorization-config=/x", "use --authorization-mode=RBAC"),
            (
                "--enable-admission-plugins=PodSecurty",
                "no admission plugin \"PodSecurty\"",
            ),
            (
                "--enable-admission-plugins=PodSecurity",
                "--enable-admission-plugins: Berth does not have the admission plugin PodSecurity",
            ),
            (
                "--disable-admission-plugins=NodeRestriction",
                "--disable-admission-plugins: Berth cannot switch the admission plugin NodeRestriction off",
            ),
            ("--tls-cert-file=/x", "must be given together"),
        ] {
            let error = refused(&[argument]);
            assert!(error.contains(expect), "{argument}: {error}");
        }
    }

    #[test]
    fn the_environment_adds_what_envtest_lacks() {
        let read = |variables: &[(&str, &str)]| {
            Beside::read(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let bare = read(&[]).expect("valid");
        assert!(bare.controllers.is_empty() && bare.nodes == 0 && !bare.scheduler);
        assert_eq!(read(&[("BERTH_NODES", "")]).expect("valid"), bare);
        let full = read(&[
            ("BERTH_CONTROLLERS", "on"),
            ("BERTH_NODES", "10"),
            ("BERTH_SCHEDULER", "on"),
        ])
        .expect("valid");
        assert!(!full.controllers.is_empty() && full.nodes == 10 && full.scheduler);
        for (name, value) in [
            ("BERTH_CONTROLLERS", "no-such-controller"),
            ("BERTH_NODES", "many"),
            ("BERTH_SCHEDULER", "yes"),
        ] {
            match read(&[(name, value)]) {
                Err(CommandFailure::Usage(text)) => assert!(text.contains(name), "{text}"),
                other => panic!("{name}={value}: {other:?}"),
            }
        }
    }
}
