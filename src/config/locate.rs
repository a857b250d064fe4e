//! Which configuration to use: `--config`, else `$WEIR_CONFIG`, else `config/config.toml`, else
//! the built-in copy of it.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::compile::admin_listen;
use super::file::{File, Notes};
use super::{ConfigError, DEFAULT, LARGEST, Loaded, load, parse, regular_file};

const VARIABLE: &str = "WEIR_CONFIG";
const USUAL: &str = "config/config.toml";

/// Where a configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    BuiltIn,
}

/// What could not be read of a configuration of which one line was wanted.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    #[error("the file cannot be read, {0}")]
    File(#[source] io::Error),
    #[error("`admin.listen` cannot be read")]
    AdminListen,
}

/// Finds the configuration; `cli` is what `--config` said. A file that was asked for by name is
/// not looked for here: that it is missing is [`Source::load`]'s to tell.
#[must_use]
pub fn locate(cli: Option<PathBuf>) -> Source {
    choose(cli, std::env::var_os(VARIABLE), Path::new(USUAL))
}

fn choose(cli: Option<PathBuf>, variable: Option<OsString>, usual: &Path) -> Source {
    let named = cli.or_else(|| variable.filter(|it| !it.is_empty()).map(PathBuf::from));
    match named {
        Some(path) => Source::File(path),
        None if usual.exists() => Source::File(usual.to_owned()),
        None => Source::BuiltIn,
    }
}

impl Source {
    /// # Errors
    /// As [`load`] and [`parse`].
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        match self {
            Source::File(path) => load(path),
            Source::BuiltIn => parse(&self.to_string(), DEFAULT),
        }
    }

    /// Where its admin listener is, if it says so, whatever else is wrong with it: whoever asks a
    /// gateway how it is must not depend on a file that is being edited, nor on variables that are
    /// set elsewhere.
    ///
    /// # Errors
    /// If the file, or this in it, cannot be read.
    pub fn admin_listen(&self) -> Result<Option<SocketAddr>, Unread> {
        let bytes = match self {
            Source::File(path) => regular_file::read(path, LARGEST).map_err(Unread::File)?,
            Source::BuiltIn => DEFAULT.into(),
        };
        let text = String::from_utf8_lossy(&bytes);
        let (file, notes) = (File::parse(&text), Notes::default());
        match admin_listen(&mut file.root(&notes)) {
            Some(Some(address)) => Ok(Some(address)),
            None if file.is_whole() => Ok(None),
            _ => Err(Unread::AdminListen),
        }
    }

    /// The file to watch, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Source::File(path) => Some(path),
            Source::BuiltIn => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => path.display().fmt(f),
            Source::BuiltIn => f.write_str("built-in"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Source {
        Source::File(PathBuf::from(path))
    }

    #[test]
    fn command_line_wins_over_variable_over_usual_place_over_built_in() {
        let here = Path::new(file!());
        let nowhere = Path::new("no/such/file.toml");
        let variable = || Some(OsString::from("b.toml"));
        assert_eq!(choose(Some("a.toml".into()), variable(), here), file("a.toml"));
        assert_eq!(choose(None, variable(), here), file("b.toml"));
        assert_eq!(choose(None, Some(OsString::new()), here), Source::File(here.to_owned()));
        assert_eq!(choose(None, None, here), Source::File(here.to_owned()));
        assert_eq!(choose(None, None, nowhere), Source::BuiltIn);
    }

    #[test]
    fn built_in_configuration_is_valid_and_without_warnings() {
        let loaded = Source::BuiltIn.load().expect("the default is valid");
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        assert_eq!(loaded.name, "built-in");
    }
}
