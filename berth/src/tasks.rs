//! Tasks and event loops whose futures are boxed, so that the runtime is compiled once and not for each future.

use futures_util::future::{BoxFuture, LocalBoxFuture};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Starts a task of the current runtime.
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let task: BoxFuture<'static, T> = Box::pin(task);
    tokio::spawn(task)
}

/// Runs a future to its end.
pub(crate) fn block_on<T>(runtime: &Runtime, main: impl Future<Output = T>) -> T {
    let main: LocalBoxFuture<'_, T> = Box::pin(main);
    runtime.block_on(main)
}
