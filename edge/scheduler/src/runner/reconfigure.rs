//! Applies another configuration to a running scheduler.
//!
//! All steps that can fail are first: the profiles are built, the extenders created. Kinds that only the new plugins
//! read, and objects that only the new extenders need, are listed before the core decides with them.

use super::feed::{Feed, WatchedKinds};
use super::record;
use super::{CoreInput, RunOptions, core_options, locked};
use crate::discovery::scheduler_user_agent;
use crate::exit::CommandFailure;
use berth_client::clock;
use berth_config::Config;
use berth_framework::registry::Registry;
use berth_scheduler::{NotReconfigured, Reconfiguration, Reconfigured, Scheduler};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};

/// A configuration for the core.
pub(super) struct TakeOver {
    pub(super) new: Reconfiguration,
    pub(super) registry: Registry,
    pub(super) answer: oneshot::Sender<Result<Reconfigured, NotReconfigured>>,
}

/// Gives a scheduler other configurations.
pub(crate) struct Reconfigurer {
    inputs: mpsc::Sender<CoreInput>,
    feed: Arc<Mutex<Feed>>,
    /// The options in effect.
    options: RunOptions,
}

impl Reconfigurer {
    pub(super) fn new(
        inputs: mpsc::Sender<CoreInput>,
        feed: Arc<Mutex<Feed>>,
        options: RunOptions,
    ) -> Self {
        Self {
            inputs,
            feed,
            options,
        }
    }

    /// The configuration in effect.
    pub(crate) fn config(&self) -> &Config {
        &self.options.config
    }

    /// Applies the part of a configuration that needs no restart, between two cycles. Waits for a cycle in progress. A
    /// configuration equal to the one in effect, for example after the change of a comment, has no effect: no pod is
    /// evaluated again.
    ///
    /// # Errors
    /// It cannot be used. The scheduler continues with its present configuration.
    pub(crate) async fn take_over(
        &mut self,
        config: &Config,
    ) -> Result<Reconfigured, CommandFailure> {
        let running = &self.options;
        let config = config.in_effect_after(&running.config);
        if config == running.config {
            return Ok(Reconfigured::default());
        }
        let webhooks = if config.extenders == running.config.extenders {
            running.webhooks.clone()
        } else {
            let configured = &config.extenders;
            running
                .webhooks
                .succeeded_by(configured, &scheduler_user_agent())
                .await?
        };
        let trial = core_options(
            &config,
            running.seed,
            running.evaluator,
            running.pod_max_in_unschedulable_pods_duration,
            webhooks.extenders.clone(),
        );
        let trial = Scheduler::new(trial, &running.registry, clock::now());
        let kinds = WatchedKinds::of(&trial.map_err(CommandFailure::usage)?);
        let unlisted = locked(&self.feed).follow(&kinds, &webhooks.raw);
        if let Some(mut unlisted) = unlisted {
            tokio::select! {
                _ = unlisted.wait_for(|left| *left == 0) => {}
                () = self.inputs.closed() => return Err(ended()),
            }
        }
        let (answer, answered) = oneshot::channel();
        let take_over = TakeOver {
            new: config.reconfiguration(webhooks.extenders.clone(), record::source(&config)),
            registry: running.registry.clone(),
            answer,
        };
        let sent = self.inputs.send(CoreInput::TakeOver(Box::new(take_over)));
        sent.await.map_err(|_| ended())?;
        let result = answered.await.map_err(|_| ended())?;
        let result = result.map_err(CommandFailure::usage)?;
        self.options.config = config;
        self.options.webhooks = webhooks;
        Ok(result)
    }
}

fn ended() -> CommandFailure {
    CommandFailure::Environment("the scheduler has ended".to_owned())
}
