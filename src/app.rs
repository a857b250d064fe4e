//! Assembly: from a checked configuration to a running gateway, through its reloads, to its end.
//!
//! Everything is [opened](open) before anything is served, so that a gateway which cannot start
//! says so and takes no request. Then it [serves](serve) until a signal comes, and drains.

mod background;
mod control;
mod external;
mod logs;
mod open;
mod recent;
mod reload;
mod serve;

use std::io;
use std::net::SocketAddr;

use crate::config::{ConfigSource, LoadedConfig};
use external::ExternalError;
use logs::LogError;
use open::OpenedGateway;
use serve::RunningGateway;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    #[error("cannot listen on {address} ({key}): {source}; {}", advice(.source))]
    Bind { address: SocketAddr, key: &'static str, source: io::Error },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    ExternalSnapshot(#[from] ExternalError),
    #[error("the system gives no randomness: {0}")]
    Randomness(getrandom::Error),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "stop the program that has it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege; choose a higher one",
        _ => "choose another address",
    }
}

/// Runs until a signal ends it.
///
/// # Errors
/// If the gateway cannot start.
pub(crate) fn run(source: &ConfigSource, loaded: LoadedConfig) -> Result<(), AppError> {
    let opened = OpenedGateway::open(&loaded)?;
    // Its blocking threads render metrics and answer `/v1`.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(background::lower_priority)
        .build()?;
    let ended = runtime.block_on(async {
        let mut running = RunningGateway::start(opened, source, loaded).await?;
        running.reload_until_stopped().await;
        running.drain().await;
        Ok(())
    });
    // A name look-up may still occupy a blocking thread.
    runtime.shutdown_background();
    ended
}
