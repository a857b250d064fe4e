//! `weir check`.

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;

use super::{BAD_CONFIGURATION, report};
use crate::config;
use crate::telemetry::log::LogSettings;

pub(super) fn main(file: Option<PathBuf>) -> u8 {
    if let Err(error) = LogSettings::from_env() {
        report(format_args!("weir: {error}"));
        return BAD_CONFIGURATION;
    }
    let styled = std::io::stderr().is_terminal();
    match config::locate(file).load() {
        Ok(loaded) => {
            if !loaded.warnings.is_empty() {
                report(loaded.warnings.render(styled).trim_end());
            }
            // A closed pipe is not an error: the reader has read enough.
            let _ = writeln!(std::io::stdout(), "{}", config::summary(&loaded).trim_end());
            0
        }
        Err(error) => {
            report(error.render(styled).trim_end());
            BAD_CONFIGURATION
        }
    }
}
