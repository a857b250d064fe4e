//! Assembly: from a checked configuration to a running gateway, through its reloads, to its end.
//!
//! Everything is [opened](open) before anything is served, so that a gateway which cannot start
//! says so and takes no request. Then it [serves](serve) until a signal comes or another process
//! [takes over](takeover), and [drains](drain).

mod background;
mod control;
mod drain;
mod external;
mod inherited;
mod listeners;
mod logs;
mod open;
mod recent;
mod reload;
mod renewal;
mod serve;
mod service_manager;
mod takeover;
mod watched_files;

use std::io;

use crate::config::settings::ListenAddress;
use crate::config::{ConfigSource, LoadedConfig, regular_file};
use crate::shutdown::Signals;
use external::ExternalError;
use inherited::{InheritedError, InheritedSockets};
use logs::LogError;
use open::OpenedGateway;
use serve::RunningGateway;
use takeover::{Predecessor, TakeoverError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    #[error("cannot listen on {address} ({key}): {source}; {}", advice(.address, .source))]
    Bind { address: ListenAddress, key: &'static str, source: io::Error },
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    ExternalSnapshot(#[from] ExternalError),
    #[error("the system gives no randomness: {0}")]
    Randomness(getrandom::Error),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

fn advice(address: &ListenAddress, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied if matches!(address, ListenAddress::Unix { .. }) => {
            "see that its folder may be written to"
        }
        io::ErrorKind::AddrInUse => "stop the program that has it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        io::ErrorKind::AlreadyExists => "remove it, or choose another path",
        io::ErrorKind::NotFound => "make its folder, or choose another path",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE (AmbientCapabilities= of the service) or a \
             socket unit that passes them; or choose a higher one"
        }
        _ => "choose another address",
    }
}

/// Whether a running gateway is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartMode {
    Fresh,
    Takeover,
}

/// Runs until a signal ends it, or another process takes over.
///
/// # Errors
/// If the gateway cannot start. One that was to be replaced then serves on.
pub(crate) fn run(
    source: &ConfigSource,
    loaded: LoadedConfig,
    mode: StartMode,
) -> Result<(), AppError> {
    // Its blocking threads render metrics and answer `/v1`.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(background::lower_priority)
        .build()?;
    // Before anything is bound: who sees that may send a signal, which would end the process.
    let signals = {
        let _within = runtime.enter();
        Signals::listen()?
    };
    let mut inherited = InheritedSockets::from_service_manager()?;
    let predecessor = match mode {
        StartMode::Fresh => None,
        StartMode::Takeover => ask_predecessor(&loaded, &mut inherited)?,
    };
    let opened = OpenedGateway::open(&loaded, inherited, predecessor)?;
    let ended = runtime.block_on(async {
        let mut running = RunningGateway::start(opened, signals, source, loaded).await?;
        let ending = running.serve_until_ended().await;
        running.drain(ending).await;
        Ok(())
    });
    // A name look-up may still occupy a blocking thread.
    runtime.shutdown_background();
    ended
}

/// The gateway that runs now, which has passed its sockets. `None` if none runs.
fn ask_predecessor(
    loaded: &LoadedConfig,
    inherited: &mut InheritedSockets,
) -> Result<Option<Predecessor>, AppError> {
    let path = loaded.settings.server.takeover.as_deref().ok_or(TakeoverError::NoPath)?;
    let Some((predecessor, sockets)) = Predecessor::ask(path)? else {
        let path = regular_file::looked_up(path);
        tracing::warn!("nobody to take over from at {}: starting as usual", path.display());
        return Ok(None);
    };
    inherited.add_taken_over(sockets)?;
    Ok(Some(predecessor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_listen_is_told_what_it_takes() {
        let said = |address: ListenAddress| {
            let source = io::ErrorKind::PermissionDenied.into();
            AppError::Bind { address, key: "server.listen", source }.to_string()
        };
        let tcp = said(ListenAddress::Tcp("0.0.0.0:443".parse().unwrap()));
        assert!(tcp.contains("CAP_NET_BIND_SERVICE") && tcp.contains("socket unit"), "{tcp}");
        let unix = said(ListenAddress::Unix { path: "/run/weir.sock".into(), mode: 0o660 });
        assert!(unix.ends_with("; see that its folder may be written to"), "{unix}");
    }
}
