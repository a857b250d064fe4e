//! The program's own log: to standard error, for people on a terminal and for machines elsewhere.

use std::env::VarError;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

const FILTER: &str = "WEIR_LOG";
const FORMAT: &str = "WEIR_LOG_FORMAT";

/// Why a variable does not say how to log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogSettingsError {
    #[error(
        "{FILTER} cannot be {0:?}: write error, warn, info, debug, trace or off, or a list such as \
         weir=debug,warn, or unset it"
    )]
    Filter(String),
    #[error("{FORMAT} cannot be {0:?}: write json or text, or unset it")]
    Format(String),
}

/// How to log, as the environment says.
#[derive(Debug)]
pub struct LogSettings {
    filter: EnvFilter,
    json: bool,
}

impl LogSettings {
    /// `WEIR_LOG` takes the usual filter syntax (`debug`, `weir=debug,warn`), and
    /// `WEIR_LOG_FORMAT=json` makes every line a JSON object.
    ///
    /// # Errors
    /// If a variable is set to something else: a log that is silent by mistake is missed when it
    /// is needed.
    pub fn from_env() -> Result<Self, LogSettingsError> {
        Self::of(variable(FILTER).as_deref(), variable(FORMAT).as_deref())
    }

    fn of(filter: Option<&str>, format: Option<&str>) -> Result<Self, LogSettingsError> {
        let filter = filter.unwrap_or("info");
        let wrong = || LogSettingsError::Filter(filter.to_owned());
        // One that speaks of no module of this program would silence all of them.
        let speaks = |it: &str| !it.contains('=') || it.trim_start().starts_with("weir");
        if !filter.split(',').all(is_directive) || !filter.split(',').any(speaks) {
            return Err(wrong());
        }
        let filter = EnvFilter::try_new(filter).map_err(|_| wrong())?;
        let json = match format {
            // Empty is what `${WEIR_LOG_FORMAT:-}` hands on.
            None | Some("" | "text") => false,
            Some("json") => true,
            Some(other) => return Err(LogSettingsError::Format(other.to_owned())),
        };
        Ok(LogSettings { filter, json })
    }

    /// Whether every line is to be an object.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Starts logging.
    pub fn start(self) {
        let log = tracing_subscriber::fmt()
            .with_env_filter(self.filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            // The library would tell standard error of it, and panic if that cannot be written either.
            .log_internal_errors(false);
        // A second call, as tests make, leaves the first one's log in place.
        let _ = if self.json { log.json().flatten_event(true).try_init() } else { log.try_init() };
    }
}

fn variable(name: &str) -> Option<String> {
    match std::env::var(name) {
        Ok(text) => Some(text),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(text)) => Some(text.to_string_lossy().into_owned()),
    }
}

/// Whether a part of a filter says a level. Without one the library takes a misspelled level for
/// the name of a module, and logs nothing of all others.
fn is_directive(text: &str) -> bool {
    let level = text.rsplit_once('=').map_or(text, |(_, level)| level).trim();
    ["error", "warn", "info", "debug", "trace", "off"]
        .iter()
        .any(|known| level.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_no_level_is_a_fault_and_not_silence() {
        let wrong = |text: &str| LogSettings::of(Some(text), None).err();
        for text in [
            "warning",
            "verbose",
            "",
            "weir",
            "weir=loud",
            "info,verbose",
            "=",
            "info,",
            "wier=debug",
        ] {
            assert_eq!(wrong(text), Some(LogSettingsError::Filter(text.to_owned())), "{text}");
        }
        for text in ["warn", "INFO", "weir=debug,warn", "off", "weir::store=trace, info"] {
            assert_eq!(wrong(text), None, "{text}");
        }
        assert!(LogSettings::of(None, None).is_ok());
    }

    #[test]
    fn a_format_is_json_or_text() {
        let of = |text: &str| LogSettings::of(None, Some(text)).map(|it| it.json);
        assert_eq!((of("json"), of("text")), (Ok(true), Ok(false)));
        assert_eq!(of(""), Ok(false), "as if it were not set");
        for text in ["josn", "JSON"] {
            assert_eq!(of(text), Err(LogSettingsError::Format(text.to_owned())));
        }
    }
}
