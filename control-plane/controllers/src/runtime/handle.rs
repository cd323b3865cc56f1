//! The running controllers, and their end.

use super::activity::{Activity, Counter};
use super::clock::WallClock;
use super::{Controller, run};
use berth_objects::access::Access;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::error;

/// The maximum wait of [`Handle::stop`] for the tasks.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// A controller that runs. It is boxed, so that the runtime of tasks is compiled once and not for each controller.
type ControllerTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Running tasks that can be stopped. Dropping it stops them too, without waiting.
#[derive(Debug)]
pub struct Handle {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    counters: Vec<Arc<Counter>>,
}

impl Handle {
    pub(crate) fn new() -> Self {
        Self {
            stop: watch::Sender::new(false),
            tasks: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// The numbers of runs and wake-ups of each controller since it started.
    pub fn activity(&self) -> Vec<Activity> {
        self.counters.iter().map(|c| c.read()).collect()
    }

    /// Starts a controller's task. Must be called within an async runtime.
    pub(crate) fn start<C: Controller>(
        &mut self,
        controller: C,
        api: Arc<dyn Access>,
        clock: WallClock,
    ) {
        let stop = self.stop.subscribe();
        let counter = Arc::new(Counter::new(controller.name()));
        self.counters.push(counter.clone());
        let task: ControllerTask = Box::pin(run(controller, api, clock, counter, stop));
        self.tasks.push(tokio::spawn(task));
    }

    /// Starts a controller on a separate thread, so that it is on time under any load of the other tasks. With a
    /// virtual clock it is a normal task, because it has to follow the timer of the runtime. Must be called within an
    /// async runtime.
    pub(crate) fn start_apart<C: Controller>(
        &mut self,
        controller: C,
        api: Arc<dyn Access>,
        clock: WallClock,
    ) {
        let runtime = if clock.is_virtual() {
            None
        } else {
            Builder::new_current_thread().enable_time().build().ok()
        };
        let Some(runtime) = runtime else {
            return self.start(controller, api, clock);
        };
        let stop = self.stop.subscribe();
        let name = controller.name();
        let counter = Arc::new(Counter::new(name));
        self.counters.push(counter.clone());
        let (running, ended) = oneshot::channel::<()>();
        let serve = move || {
            let task: ControllerTask = Box::pin(run(controller, api, clock, counter, stop));
            runtime.block_on(task);
            drop(running);
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        if let Err(error) = thread.spawn(serve) {
            error!(controller = name, %error, "failed to start the thread of a controller");
        }
        self.tasks.push(tokio::spawn(async move {
            // The thread never sends: the channel closes when it ends.
            _ = ended.await;
        }));
    }

    /// Stops the tasks and waits for them, a second at most; then they are cut off.
    pub async fn stop(mut self) {
        _ = self.stop.send(true);
        let deadline = Instant::now() + STOP_WITHIN;
        for mut task in std::mem::take(&mut self.tasks) {
            if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}
