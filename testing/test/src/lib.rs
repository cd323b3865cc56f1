//! A Kubernetes cluster for tests: a real API, controllers, simulated nodes and a scheduler, within the process of the
//! test. It starts in a fraction of a second, has a port of its own, and ends when it is dropped, so each test can
//! have one.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), berth_test::TestError> {
//! let cluster = berth_test::Cluster::start().await?;
//! cluster
//!     .apply_and_wait(
//!         "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}",
//!         std::time::Duration::from_secs(60),
//!     )
//!     .await?;
//! let pod = cluster.get("/api/v1/namespaces/default/pods/p").await?;
//! assert_eq!(pod["status"]["phase"], "Running");
//! # Ok(())
//! # }
//! ```
//!
//! Any client works. With `kube`:
//!
//! ```text
//! let kubeconfig = kube::config::Kubeconfig::from_yaml(&cluster.kubeconfig())?;
//! let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
//! let client = kube::Client::try_from(config)?;
//! ```
//!
//! Without further options a cluster has one node, all controllers and the scheduler. [`Cluster::builder`]
//! changes that:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), berth_test::TestError> {
//! // As bare as envtest: an API server and nothing else.
//! let bare = berth_test::Cluster::builder()
//!     .nodes(0)
//!     .controllers(false)
//!     .scheduler(false)
//!     .start()
//!     .await?;
//! // Eight nodes with four GPUs each.
//! let gpus = berth_test::Cluster::builder().nodes(8).gpus_per_node(4).start().await?;
//! assert_ne!(bare.url(), gpus.url());
//! # Ok(())
//! # }
//! ```
//!
//! [`Cluster::write_kubeconfig`] writes the kubeconfig for external programs.
//!
//! Containers are simulated: pods run, become ready and end according to their annotations, and no image is started.

use berth::embedded;
use serde_json::Value;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The reason why a cluster cannot start, or an object cannot be applied.
pub type TestError = embedded::ClusterError;

/// A cluster that runs until it is dropped.
#[derive(Debug)]
pub struct Cluster(embedded::EmbeddedCluster);

/// The options of a cluster.
#[derive(Debug, Clone, Default)]
#[must_use = "a cluster starts with `start`"]
pub struct Builder(embedded::ClusterOptions);

impl Builder {
    /// The number of simulated nodes; 1 by default.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.0.nodes = nodes;
        self
    }

    /// The number of GPUs per node, published by the driver `gpu.example.com` for resource claims; 0 by default.
    pub fn gpus_per_node(mut self, gpus: u32) -> Self {
        self.0.gpus_per_node = gpus;
        self
    }

    /// Sets whether controllers run; `true` by default.
    pub fn controllers(mut self, run: bool) -> Self {
        self.0.controllers = run;
        self
    }

    /// Sets whether the scheduler runs; `true` by default. Set it to `false` if the scheduler under test replaces it.
    pub fn scheduler(mut self, run: bool) -> Self {
        self.0.scheduler = run;
        self
    }

    /// Starts the cluster, and returns when it is ready.
    ///
    /// # Errors
    /// When no port is free, or no thread can be started.
    pub async fn start(self) -> Result<Cluster, TestError> {
        embedded::EmbeddedCluster::start(self.0).await.map(Cluster)
    }
}

impl Cluster {
    /// Starts a cluster with one node, all controllers and the scheduler, and returns when it is ready.
    ///
    /// # Errors
    /// When no port is free, or no thread can be started.
    pub async fn start() -> Result<Self, TestError> {
        Self::builder().start().await
    }

    /// A cluster with other parts.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The URL of the API server: `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// The certificate authority of the API server, in PEM.
    pub fn ca_pem(&self) -> &str {
        self.0.ca_pem()
    }

    /// The token of the administrator.
    pub fn token(&self) -> &str {
        self.0.token()
    }

    /// A kubeconfig of the administrator, as YAML.
    pub fn kubeconfig(&self) -> String {
        self.0.kubeconfig()
    }

    /// Writes the kubeconfig of the administrator, readable by this user alone.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        self.0.write_kubeconfig(path.as_ref())
    }

    /// Creates or replaces the objects of a manifest in YAML or JSON, possibly with several documents. Definitions of
    /// custom resources take effect before their objects are created.
    ///
    /// # Errors
    /// Names the object and the problem.
    pub async fn apply(&self, manifest: impl fmt::Display) -> Result<(), TestError> {
        self.0.apply(&manifest.to_string()).await
    }

    /// Like [`Cluster::apply`], and waits until the objects are available: Deployments and StatefulSets have their
    /// pods, pods are ready, Jobs are complete, claims are bound.
    ///
    /// # Errors
    /// Names the objects that are not available after the timeout.
    pub async fn apply_and_wait(
        &self,
        manifest: impl fmt::Display,
        limit: Duration,
    ) -> Result<(), TestError> {
        let manifest = manifest.to_string();
        self.0.apply_and_wait(&manifest, limit).await
    }

    /// The answer of the API to a GET request of the administrator, such as `/api/v1/nodes`.
    ///
    /// # Errors
    /// The message of the API, if the request failed.
    pub async fn get(&self, path: &str) -> Result<Value, TestError> {
        self.0.get(path).await
    }
}
