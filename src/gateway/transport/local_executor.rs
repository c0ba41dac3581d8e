//! Tasks of HTTP/2 connections.

use hyper::rt::Executor;
use std::future::Future;

/// Executor that runs the streams of an HTTP/2 connection on the worker's thread.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}
