//! Where hyper runs what it splits off a connection: on the worker's own thread.

use hyper::rt::Executor;

#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalExecutor;

impl<F: Future + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}
