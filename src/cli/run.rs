//! `weir run`.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;

use super::{BAD_CONFIGURATION, FAILED, report};
use crate::app::StartMode;
use crate::telemetry::log::LogSettings;
use crate::{app, config};

#[derive(Debug, Args)]
pub(super) struct RunCommand {
    /// The configuration; without it $WEIR_CONFIG, config/config.toml, or the built-in copy of it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Replace the gateway that runs now: take its sockets, and have it drain once this one is ready
    #[arg(long)]
    takeover: bool,
}

impl RunCommand {
    pub(super) fn main(self) -> u8 {
        let log = match LogSettings::from_env() {
            Ok(log) => log,
            Err(error) => {
                report(format_args!("weir: {error}"));
                return BAD_CONFIGURATION;
            }
        };
        // What people read block by block, machines read line by line.
        let machine = log.is_json();
        log.start();
        let styled = std::io::stderr().is_terminal();
        let source = config::locate(self.config);
        let loaded = match source.load() {
            Ok(loaded) => loaded,
            Err(error) => {
                if machine {
                    error.lines().iter().for_each(|line| tracing::error!("{line}"));
                } else {
                    report(error.render(styled).trim_end());
                }
                return BAD_CONFIGURATION;
            }
        };
        if machine {
            loaded.warnings.lines().iter().for_each(|line| tracing::warn!("{line}"));
        } else if !loaded.warnings.is_empty() {
            report(loaded.warnings.render(styled).trim_end());
        }
        let mode = if self.takeover { StartMode::Takeover } else { StartMode::Fresh };
        match app::run(&source, loaded, mode) {
            Ok(()) => 0,
            Err(error) => {
                if machine {
                    tracing::error!("{error}");
                } else {
                    report(format_args!("weir: {error}"));
                }
                FAILED
            }
        }
    }
}
