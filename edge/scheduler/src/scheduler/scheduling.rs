//! A scheduler on a connection: it watches, leads or stands by, and stops.

use crate::config_file::{self, ConfigFile, ConfigStatus};
use crate::discovery::scheduler_user_agent;
use crate::exit::CommandFailure;
use crate::runner::{Clients, CoreProbe, Explainer, RunOptions, Runner, hostname};
use crate::settings;
use crate::tasks;
use berth_client::clock::now;
use berth_client::content::ContentTypes;
use berth_client::election::{self, Election, ElectionOptions, Leadership, LeaseLock};
use berth_client::events::{Event, Regarding};
use berth_client::limit::RateLimit;
use berth_client::observe::Observer;
use berth_client::{ConnectOptions, Transport, connect};
use berth_config::LeaderElection;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// A scheduler that leads or stands by.
pub struct Scheduling {
    pub(super) runner: Runner,
    /// The API server's address.
    pub(crate) server: String,
    election: Option<Election>,
    /// The lease of the election: its namespace and name, and its source.
    lease: LeaseName,
}

/// The lease of an election.
struct LeaseName {
    namespace: String,
    name: String,
    /// The scheduler name of the first profile.
    reported_by: String,
}

impl Scheduling {
    /// Connects and starts. `master` replaces the server of the kubeconfig unless it is empty.
    ///
    /// # Errors
    /// There is no usable kubeconfig.
    pub async fn start(
        options: &RunOptions,
        master: &str,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, CommandFailure> {
        let config = &options.config;
        let connection = &config.client_connection;
        let path = &connection.kubeconfig;
        let transport = connect(&ConnectOptions {
            kubeconfig: (!path.is_empty()).then(|| PathBuf::from(path)),
            context: None,
            server: (!master.is_empty()).then(|| master.to_owned()),
            user_agent: scheduler_user_agent(),
        })
        .await
        .map_err(CommandFailure::environment)?
        .observed(observer);
        Self::over(transport, options).await
    }

    /// Starts on a connection.
    ///
    /// # Errors
    /// When the profiles are wrong or no thread can be had.
    pub async fn over(transport: Transport, options: &RunOptions) -> Result<Self, CommandFailure> {
        let is_shadow = options.shadow.is_some();
        let transport = if is_shadow {
            transport.read_only()
        } else {
            transport
        };
        let config = &options.config;
        let connection = &config.client_connection;
        let (content_type, accept) = (&connection.content_type, &connection.accept_content_types);
        let content = ContentTypes::new(content_type, accept).map_err(|e| {
            CommandFailure::Usage(format!("clientConnection.acceptContentTypes: {e}"))
        })?;
        let transport = transport.speaking(content);
        let limit = || RateLimit::new(connection.qps, connection.burst);
        let election = config.leader_election.leader_elect.then(|| {
            let election = &config.leader_election;
            let (namespace, name) = (&election.resource_namespace, &election.resource_name);
            let lock = LeaseLock::new(transport.clone(), namespace.clone(), name.clone());
            Election::start(lock, candidate(election, options.candidate.clone()))
        });
        let mut api = transport.clone().limited(limit());
        if let Some(election) = &election {
            api = api.fenced(election.fence.clone());
        }
        let clients = Clients {
            api,
            events: transport.clone().limited(limit()),
        };
        let mut runner = Runner::start(clients, options)?;
        match &election {
            None if is_shadow => runner.watch(),
            None => {
                runner.watch();
                runner.lead().await;
            }
            Some(_) if config.delay_cache_until_active => {}
            Some(_) => runner.watch(),
        }
        Ok(Self {
            runner,
            server: transport.server().to_owned(),
            election,
            lease: LeaseName {
                namespace: config.leader_election.resource_namespace.clone(),
                name: config.leader_election.resource_name.clone(),
                reported_by: config.profiles[0].scheduler_name.clone(),
            },
        })
    }

    /// Follows the file of `--config` of `berth up` until the scheduler has ended. The election and the kubeconfig of
    /// the cluster override the file. Does nothing without a file.
    pub fn follow_config(&self, options: &RunOptions) {
        let Some((path, text)) = options.file.clone() else {
            return;
        };
        let (running, registry) = (options.config.clone(), options.registry.clone());
        let named = path.clone();
        let load = move |text: &str| {
            settings::config_of_text(&named, text, running.features(), &registry, |config| {
                config.leader_election = running.leader_election.clone();
                let kubeconfig = &running.client_connection.kubeconfig;
                kubeconfig.clone_into(&mut config.client_connection.kubeconfig);
            })
        };
        let file = ConfigFile {
            path,
            text,
            load: Box::new(load),
        };
        let status = ConfigStatus::unserved(&options.config);
        let reconfigurer = self.runner.reconfigurer(options);
        // SIGHUP ends the command, as the end of its terminal does.
        tasks::spawn(config_file::follow(file, None, reconfigurer, status));
    }

    /// Explains the decisions of this scheduler.
    pub fn explainer(&self) -> Explainer {
        self.runner.explainer()
    }

    /// The handle for questions from outside while the scheduler runs.
    pub fn probe(&self) -> CoreProbe {
        self.runner.probe()
    }

    /// The status of the election, if there is one.
    pub(super) fn election_status(&self) -> Option<watch::Receiver<election::ElectionStatus>> {
        self.election
            .as_ref()
            .map(|election| election.status.clone())
    }

    /// Schedules when this process becomes the leader. Resolves when it cannot continue.
    pub async fn failed(&mut self) -> CommandFailure {
        if let Some(election) = &mut self.election {
            let status = &mut election.status;
            tokio::select! {
                decided = election::decided(status) => {
                    if decided != Leadership::Leading {
                        return CommandFailure::LeaseLost;
                    }
                }
                () = self.runner.ended() => return ended(),
            }
            self.runner.watch();
            self.runner.lead().await;
            self.runner
                .publisher()
                .publish(became_leader(&self.lease, &status.borrow().leader), now());
            tokio::select! {
                _ = status.wait_for(|status| status.leadership != Leadership::Leading) => {
                    return CommandFailure::LeaseLost;
                }
                () = self.runner.ended() => return ended(),
            }
        }
        self.runner.ended().await;
        ended()
    }

    /// Stops scheduling, releases the lease, and then publishes the events that wait: the next leader does not wait for
    /// them.
    pub async fn stop(mut self) {
        if let Some(election) = &self.election {
            election.fence.close();
        }
        self.runner.halt().await;
        if let Some(election) = self.election {
            election.release().await;
        }
        self.runner.finish().await;
    }
}

fn candidate(election: &LeaderElection, identity: Option<String>) -> ElectionOptions {
    ElectionOptions {
        identity: identity.unwrap_or_else(|| election::identity(&hostname())),
        lease_duration: election.lease_duration.as_duration(),
        renew_deadline: election.renew_deadline.as_duration(),
        retry_period: election.retry_period.as_duration(),
    }
}

/// The event that this process leads now.
fn became_leader(lease: &LeaseName, identity: &str) -> Event {
    Event {
        regarding: Regarding {
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease",
            namespace: lease.namespace.as_str().into(),
            name: lease.name.as_str().into(),
            uid: "".into(),
        },
        related: None,
        kind: "Normal",
        reason: "LeaderElection".into(),
        action: "LeaderElection".into(),
        note: format!("{identity} became leader"),
        reporting_controller: lease.reported_by.as_str().into(),
    }
}

/// The core has ended unexpectedly.
fn ended() -> CommandFailure {
    CommandFailure::Environment(
        "the scheduler has ended unexpectedly, which is a bug; see the log above and report it"
            .to_owned(),
    )
}
