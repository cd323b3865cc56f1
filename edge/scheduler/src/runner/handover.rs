//! The messages between the core's thread and the edge, in batches: a thread that is woken for each message spends more
//! time on waking up than on the messages.

use super::{CoreInput, calls};
use crate::tasks;
use berth_client::{Transport, clock};
use berth_framework::call::{ApiCall, CallId};
use berth_framework::job::{Job, JobId};
use std::collections::VecDeque;
use std::convert::Infallible;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

/// The number of inputs that may wait for the core. Senders wait while the channel is full.
const INPUTS_MAX: usize = 8 * 1024;
/// The number of them that reach the core together.
const BATCH_MAX: usize = 1024;
/// The amount of work that is taken from the core at once.
const WORK_MAX: usize = 128;

/// The work that the core requests.
pub(super) enum EdgeWork {
    /// A call to the API server.
    Call(CallId, ApiCall),
    /// A job of a plugin.
    Job(JobId, Job),
}

/// The inputs, as the core receives them.
pub(super) struct Inputs {
    batches: mpsc::Receiver<Vec<CoreInput>>,
    current: VecDeque<CoreInput>,
}

/// All senders of inputs have been dropped.
pub(super) struct InputsEnded;

impl Inputs {
    /// A channel into the core, within the current runtime. Inputs that are sent while other tasks are ready to run
    /// reach the core together with the inputs of these tasks.
    pub(super) fn channel() -> (mpsc::Sender<CoreInput>, Self) {
        let (inputs, waiting) = mpsc::channel(INPUTS_MAX);
        let (sender, batches) = mpsc::channel(1);
        tasks::spawn(gather(waiting, sender));
        let current = VecDeque::new();
        (inputs, Self { batches, current })
    }

    /// The next input; `None` when all senders have been dropped.
    pub(super) async fn next(&mut self) -> Option<CoreInput> {
        while self.current.is_empty() {
            self.current = self.batches.recv().await?.into();
        }
        self.current.pop_front()
    }

    /// The next input, if one waits.
    pub(super) fn waiting(&mut self) -> Result<Option<CoreInput>, InputsEnded> {
        if self.current.is_empty() {
            match self.batches.try_recv() {
                Ok(batch) => self.current = batch.into(),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(InputsEnded),
            }
        }
        Ok(self.current.pop_front())
    }
}

/// Passes on all waiting inputs together.
async fn gather(mut waiting: mpsc::Receiver<CoreInput>, batches: mpsc::Sender<Vec<CoreInput>>) {
    loop {
        let mut batch = Vec::new();
        let count = tokio::select! {
            count = waiting.recv_many(&mut batch, BATCH_MAX) => count,
            () = batches.closed() => return,
        };
        if count == 0 || batches.send(batch).await.is_err() {
            return;
        }
    }
}

/// Performs the work of the core, until the core has ended. Each call in flight holds a copy of `alive`.
pub(super) async fn carry_out(
    mut work: mpsc::UnboundedReceiver<EdgeWork>,
    transport: Transport,
    inputs: mpsc::Sender<CoreInput>,
    alive: mpsc::Sender<Infallible>,
) {
    let mut taken = Vec::new();
    while work.recv_many(&mut taken, WORK_MAX).await > 0 {
        let now = clock::now();
        for work in taken.drain(..) {
            let inputs = inputs.clone();
            match work {
                EdgeWork::Call(id, call) => {
                    let (transport, alive) = (transport.clone(), alive.clone());
                    tasks::spawn(async move {
                        let answer = calls::execute(&transport, &call, now).await;
                        drop(alive);
                        // When the core has stopped, the answer is dropped.
                        let _ = inputs.send(CoreInput::Call(id, answer)).await;
                    });
                }
                EdgeWork::Job(id, job) => {
                    tasks::spawn(async move {
                        let _ = inputs.send(CoreInput::Job(id, job.await)).await;
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs that are sent before the gathering task runs are one batch. The sender is notified when the core has
    /// ended.
    #[tokio::test]
    async fn inputs_that_come_together_reach_the_core_together() {
        let (sender, mut inputs) = Inputs::channel();
        for _ in 0..3 {
            assert!(sender.send(CoreInput::Lead).await.is_ok());
        }
        assert!(matches!(inputs.next().await, Some(CoreInput::Lead)));
        assert_eq!(inputs.current.len(), 2);
        for _ in 0..2 {
            assert!(matches!(inputs.waiting(), Ok(Some(CoreInput::Lead))));
        }
        assert!(matches!(inputs.waiting(), Ok(None)));
        drop(inputs);
        sender.closed().await;
        assert!(sender.send(CoreInput::Stop).await.is_err());
    }

    /// The core ends when all senders of inputs have been dropped.
    #[tokio::test]
    async fn inputs_end_with_their_senders() {
        let (sender, mut inputs) = Inputs::channel();
        drop(sender);
        assert!(inputs.next().await.is_none());
        assert!(inputs.waiting().is_err());
    }
}
