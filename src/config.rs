//! From a TOML file to validated settings.
//!
//! Two worlds: [`file`] is the TOML as written, every key and value with its place in the text;
//! [`settings`] is what it means. `compile` leads from one to the other and notes every fault on
//! the way, so that a file is either taken whole or refused with all that is wrong with it.

mod compile;
mod diagnostic;
mod error;
mod file;
mod locate;
mod mask;
mod planned;
pub mod regular_file;
pub mod settings;
mod suggest;
mod summary;
mod units;
pub mod watch;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use compile::ADMIN;
pub use diagnostic::{Diagnostics, Fault, Level};
pub use error::ConfigError;
use file::Notes;
pub use locate::{Source, Unread, locate};
pub use settings::Settings;
pub use summary::{admin as admin_summary, store as store_summary, summary};

/// What Weir runs on when there is no file: the copy of `config/config.toml` it was built with.
pub const DEFAULT: &str = include_str!("../config/config.toml");

/// Ten thousand routes take a tenth of it; what is larger was named by mistake.
pub const LARGEST: u64 = 16 << 20;

/// A configuration that may be served.
#[derive(Clone)]
pub struct Loaded {
    pub settings: Settings,
    /// What is allowed but probably not meant.
    pub warnings: Diagnostics,
    /// What messages call the file: its path, or `built-in`.
    pub name: String,
    pub text: Arc<str>,
}

/// Without the text, which may hold a password.
impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loaded { settings, warnings, name, text: _ } = self;
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
pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
    let bytes = regular_file::read(path, LARGEST)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    match String::from_utf8(bytes) {
        Ok(text) => parse(&name, &text),
        Err(fault) => Err(ConfigError::not_utf8(name, &fault)),
    }
}

/// Checks a text. Messages call it `name`.
///
/// # Errors
/// If it has faults: all of them.
pub fn parse(name: &str, text: &str) -> Result<Loaded, ConfigError> {
    let text: Arc<str> = Arc::from(text);
    let file = file::File::parse(&text);
    let notes = Notes::default();
    let settings = compile::settings(&file, &notes);
    let faults = file.merge(notes.into_faults());
    let diagnostics = Diagnostics::new(name, Arc::clone(&text), faults);
    if diagnostics.has_errors() {
        return Err(ConfigError::Invalid(diagnostics));
    }
    Ok(Loaded { settings, warnings: diagnostics, name: name.to_owned(), text })
}

/// Checks a file of `[[clients]]`, which has nothing else in it. Messages call it `name`.
///
/// # Errors
/// If it has faults: all of them.
pub fn parse_clients(name: &str, text: &str) -> Result<Vec<settings::Client>, ConfigError> {
    let file = file::File::parse(text);
    let notes = Notes::default();
    let clients = compile::clients(&mut file.root(&notes)).unwrap_or_default();
    let faults = file.merge(notes.into_faults());
    let diagnostics = Diagnostics::new(name, Arc::from(text), faults);
    if diagnostics.has_errors() { Err(ConfigError::Invalid(diagnostics)) } else { Ok(clients) }
}

/// The rate that a text is, as in a configuration: `600/minute`.
#[must_use]
pub fn rate(text: &str) -> Option<crate::limit::Rate> {
    units::rate(text).ok()
}

/// The length of time that a text is, as in a configuration: `1h30m`.
#[must_use]
pub fn duration(text: &str) -> Option<std::time::Duration> {
    units::duration(text)
}
