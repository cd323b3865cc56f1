//! Tasks and event loops whose futures are boxed, so that the runtime is compiled once and not for each future.

use crate::exit::CommandFailure;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Starts a task of the current runtime.
pub fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let task: BoxFuture<'static, T> = Box::pin(task);
    tokio::spawn(task)
}

/// Runs a future to its end.
pub fn block_on<T>(runtime: &Runtime, main: impl Future<Output = T>) -> T {
    let main: LocalBoxFuture<'_, T> = Box::pin(main);
    runtime.block_on(main)
}

/// Runs a command on its own threads. Remaining tasks are dropped at its end.
///
/// # Errors
/// The errors of the command; no thread can be started.
pub fn run(main: impl Future<Output = Result<(), CommandFailure>>) -> Result<(), CommandFailure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandFailure::Environment(format!("failed to start threads: {e}")))?;
    let result = block_on(&runtime, main);
    runtime.shutdown_background();
    result
}
