//! Why there is no configuration: the file cannot be read, or it has faults.

use std::io;
use std::path::PathBuf;
use std::string::FromUtf8Error;

use super::diagnostic::Diagnostics;
use super::regular_file;

/// One clear line, or every fault of the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file `{}`: {source}", regular_file::looked_up(path).display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{name}:{line}: the configuration is not valid UTF-8; save the file as UTF-8")]
    NotUtf8 { name: String, line: usize },
    #[error("{0}")]
    Invalid(Diagnostics),
}

impl ConfigError {
    pub(super) fn not_utf8(name: String, fault: &FromUtf8Error) -> Self {
        let valid = &fault.as_bytes()[..fault.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::NotUtf8 { name, line }
    }

    /// For a person to read: rustc's manner, in colour if `styled`.
    pub fn render(&self, styled: bool) -> String {
        match self {
            ConfigError::Invalid(faults) => faults.render(styled),
            other => format!("error: {other}\n"),
        }
    }

    /// For a log: one line a fault, with its place. Without warnings, for which no file is refused.
    pub fn lines(&self) -> Vec<String> {
        match self {
            ConfigError::Invalid(faults) => faults.error_lines(),
            other => vec![other.to_string()],
        }
    }
}
