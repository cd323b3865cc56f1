//! `berth scheduler`: only the scheduler, on any cluster. Also the half of `berth up` that schedules.

use crate::cli::{CoreArgs, SchedulerArgs};
use crate::exit::Failure;
use crate::print::{self, say};
use crate::runner::{RunOptions, Runner, Webhooks};
use crate::{serve, signal};
use berth_client::{ConnectOptions, connect};
use berth_framework::FeatureGates;
use berth_framework::registry::Registry;
use berth_scheduler::config::{self, Config};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;

/// What the API server's logs call us.
fn user_agent() -> String {
    format!("berth-scheduler/{}", env!("CARGO_PKG_VERSION"))
}

/// Runs until asked to stop.
///
/// # Errors
/// When something cannot be had at the start, or the core has ended by itself.
pub(crate) async fn run(args: SchedulerArgs, registry: Registry) -> Result<(), Failure> {
    let options = options(&args.core, registry).await?;
    let listener = serve::bind(args.metrics).await?;
    // The command line goes before the configuration.
    let named = &options.config.client_connection.kubeconfig;
    let kubeconfig = args
        .kubeconfig
        .or_else(|| (!named.is_empty()).then(|| PathBuf::from(named)));
    let mut scheduling = Scheduling::start(kubeconfig, args.master, &options, listener).await?;
    say!("scheduling  {}", scheduling.server)?;
    say!("metrics     http://{}/metrics", scheduling.metrics)?;
    say!()?;
    say!("Ctrl-C stops it.")?;
    let why = tokio::select! {
        why = signal::stop_requested() => why?,
        () = scheduling.runner.ended() => return Err(ended()),
    };
    print::complain(format_args!("{why}, stopping"));
    let _ = tokio::time::timeout(signal::STOP_PATIENCE, scheduling.runner.stop()).await;
    Ok(())
}

/// Reads the options of the core.
///
/// # Errors
/// Lists everything that cannot be as wanted: gates, the configuration, the certificates of extenders.
pub(crate) async fn options(args: &CoreArgs, registry: Registry) -> Result<RunOptions, Failure> {
    let features = FeatureGates::parse(&args.feature_gates).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::Usage(format!("--feature-gates: {}", errors.join("; ")))
    })?;
    let seed = args.seed.unwrap_or_else(|| {
        u64::try_from(berth_client::events::now().as_nanos()).unwrap_or_default()
    });
    let config = match &args.config {
        Some(path) => read_config(path, features, &registry)?,
        None => {
            let config = Config::new(features);
            config
                .check("the default configuration", &registry)
                .map_err(Failure::usage)?;
            config
        }
    };
    let webhooks = Webhooks::new(&config.extenders, &user_agent()).await?;
    Ok(RunOptions {
        config,
        seed,
        evaluator: args.evaluator.into(),
        registry,
        webhooks,
    })
}

/// Reads a configuration file and checks all of it, the plugins' arguments too.
fn read_config(
    path: &Path,
    features: FeatureGates,
    registry: &Registry,
) -> Result<Config, Failure> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        Failure::Usage(format!(
            "failed to read configuration {shown}: {e}; give another file with --config FILE"
        ))
    })?;
    config::load(&text, &shown, features, registry, |_| {}).map_err(Failure::usage)
}

/// A scheduler that runs, with its metrics served.
pub(crate) struct Scheduling {
    /// The scheduler.
    pub(crate) runner: Runner,
    /// The API server's address.
    pub(crate) server: String,
    /// Where the metrics are.
    pub(crate) metrics: SocketAddr,
}

impl Scheduling {
    /// Connects and starts.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub(crate) async fn start(
        kubeconfig: Option<PathBuf>,
        server: Option<String>,
        options: &RunOptions,
        listener: TcpListener,
    ) -> Result<Self, Failure> {
        let transport = connect(&ConnectOptions {
            kubeconfig,
            server,
            user_agent: user_agent(),
        })
        .await
        .map_err(Failure::environment)?;
        let metrics = serve::address(&listener)?;
        let runner = Runner::start(&transport, options)?;
        tokio::spawn(serve::serve(listener, Arc::new(runner.probe())));
        Ok(Self {
            runner,
            server: transport.server().to_owned(),
            metrics,
        })
    }
}

/// The core has ended without being asked to.
pub(crate) fn ended() -> Failure {
    Failure::Environment(
        "the scheduler has ended unexpectedly, which is a bug; what it said is above, please report it".to_owned(),
    )
}
