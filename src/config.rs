//! From a TOML file to validated settings.
//!
//! [`file`](mod@file) is the TOML as written, every key and value with its place in the text;
//! [`settings`] is what it means. [`compile`] turns one into the other and reports every fault, so
//! that a file is either accepted whole or refused with everything that is wrong with it.

mod compile;
mod diagnostic;
mod error;
mod file;
mod locate;
mod mask;
pub(crate) mod regular_file;
pub mod settings;
mod suggest;
mod summary;
mod units;
pub(crate) mod watch;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use compile::DEFAULT_ADMIN_LISTEN;
pub(crate) use compile::certificate_dates;
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use error::ConfigError;
use file::Reporter;
pub use locate::{AdminListenError, ConfigSource, locate};
pub use settings::Settings;
pub use summary::{admin as admin_summary, store as store_summary, summary};

/// What Weir runs on when there is no file: the copy of `config/config.toml` it was built with.
pub const DEFAULT_CONFIG: &str = include_str!("../config/config.toml");

/// Ten thousand routes take a tenth of it; a larger file was named by mistake.
pub const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// A configuration that may be served.
#[derive(Clone)]
pub struct LoadedConfig {
    pub settings: Settings,
    /// What is allowed but probably not meant.
    pub warnings: Diagnostics,
    /// What messages call the file: its path, or `built-in`.
    pub name: String,
    pub text: Arc<str>,
}

/// Without the text, which may hold a password.
impl fmt::Debug for LoadedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadedConfig { settings, warnings, name, text: _ } = self;
        f.debug_struct("Loaded")
            .field("settings", settings)
            .field("warnings", warnings)
            .field("name", name)
            .finish_non_exhaustive()
    }
}

/// Reads and checks a file.
///
/// # Errors
/// If it cannot be read, is not UTF-8, or has faults: all of them.
pub fn load(path: &Path) -> Result<LoadedConfig, ConfigError> {
    let bytes = regular_file::read(path, MAX_CONFIG_BYTES)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    match String::from_utf8(bytes) {
        Ok(text) => parse_in(path.parent().unwrap_or(path), &name, &text),
        Err(fault) => Err(ConfigError::not_utf8(name, &fault)),
    }
}

/// Checks a text. Messages call it `name`.
///
/// # Errors
/// If it has faults: all of them.
pub fn parse(name: &str, text: &str) -> Result<LoadedConfig, ConfigError> {
    parse_in(Path::new(""), name, text)
}

/// The same for a text that is in a folder.
fn parse_in(folder: &Path, name: &str, text: &str) -> Result<LoadedConfig, ConfigError> {
    let text: Arc<str> = Arc::from(text);
    let file = file::TomlFile::parse(&text);
    let reporter = Reporter::default();
    let settings = compile::settings(&file, &reporter, folder);
    let faults = file.merge(reporter.into_diagnostics());
    let diagnostics = Diagnostics::new(name, Arc::clone(&text), faults);
    if diagnostics.has_errors() {
        return Err(ConfigError::Invalid(diagnostics));
    }
    Ok(LoadedConfig { settings, warnings: diagnostics, name: name.to_owned(), text })
}

/// Checks a file of `[[clients]]`, which has nothing else in it. Messages call it `name`.
///
/// # Errors
/// If it has faults: all of them.
pub fn parse_clients(name: &str, text: &str) -> Result<Vec<settings::Client>, ConfigError> {
    let file = file::TomlFile::parse(text);
    let reporter = Reporter::default();
    let clients = compile::clients(&mut file.root(&reporter));
    let clients = clients.map(|it| it.clients).unwrap_or_default();
    let faults = file.merge(reporter.into_diagnostics());
    let diagnostics = Diagnostics::new(name, Arc::from(text), faults);
    if diagnostics.has_errors() { Err(ConfigError::Invalid(diagnostics)) } else { Ok(clients) }
}

/// The rate that a text is, as in a configuration: `600/minute`.
pub fn parse_rate(text: &str) -> Option<crate::limit::Rate> {
    units::rate(text).ok()
}

/// A rate as it would be written.
pub fn show_rate(rate: crate::limit::Rate) -> String {
    units::show_rate(rate)
}

/// The length of time that a text is, as in a configuration: `1h30m`.
pub fn parse_duration(text: &str) -> Option<std::time::Duration> {
    units::duration(text)
}
