//! Which configuration to use: `--config`, else `$WEIR_CONFIG`, else `config/config.toml`, else
//! the built-in copy of it.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::compile::admin_listen;
use super::file::{Reporter, TomlFile};
use super::{
    ConfigError, DEFAULT_CONFIG, LoadedConfig, MAX_CONFIG_BYTES, load, parse, parse_in,
    regular_file,
};

const VARIABLE: &str = "WEIR_CONFIG";
const USUAL: &str = "config/config.toml";

/// Where a configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    File(PathBuf),
    BuiltIn,
}

/// Why `admin.listen` of a configuration is not known.
#[derive(Debug, thiserror::Error)]
pub enum AdminListenError {
    #[error("the file cannot be read, {0}")]
    File(#[source] io::Error),
    #[error("`admin.listen` cannot be read")]
    AdminListen,
}

/// Finds the configuration; `cli` is what `--config` said. A file that was asked for by name is
/// not looked for here: that it is missing is [`ConfigSource::load`]'s to tell.
pub fn locate(cli: Option<PathBuf>) -> ConfigSource {
    choose(cli, std::env::var_os(VARIABLE), Path::new(USUAL))
}

fn choose(cli: Option<PathBuf>, variable: Option<OsString>, usual: &Path) -> ConfigSource {
    let named = cli.or_else(|| variable.filter(|it| !it.is_empty()).map(PathBuf::from));
    match named {
        Some(path) => ConfigSource::File(path),
        None if usual.exists() => ConfigSource::File(usual.to_owned()),
        None => ConfigSource::BuiltIn,
    }
}

impl ConfigSource {
    /// # Errors
    /// As [`load`] and [`parse`].
    pub fn load(&self) -> Result<LoadedConfig, ConfigError> {
        match self {
            ConfigSource::File(path) => load(path),
            ConfigSource::BuiltIn => parse(&self.to_string(), DEFAULT_CONFIG),
        }
    }

    /// Checks another text as if it was there.
    ///
    /// # Errors
    /// As [`parse`].
    pub(crate) fn parse(&self, text: &str) -> Result<LoadedConfig, ConfigError> {
        let folder = self.path().and_then(Path::parent).unwrap_or(Path::new(""));
        parse_in(folder, &self.to_string(), text)
    }

    /// The address of its admin listener, if it has one, whatever else is wrong with the file: a
    /// health check must not fail because the file is being edited, or because variables are set in
    /// another environment only.
    ///
    /// # Errors
    /// If the file, or this in it, cannot be read.
    pub fn admin_listen(&self) -> Result<Option<SocketAddr>, AdminListenError> {
        let bytes = match self {
            ConfigSource::File(path) => {
                regular_file::read(path, MAX_CONFIG_BYTES).map_err(AdminListenError::File)?
            }
            ConfigSource::BuiltIn => DEFAULT_CONFIG.into(),
        };
        let text = String::from_utf8_lossy(&bytes);
        let (file, reporter) = (TomlFile::parse(&text), Reporter::default());
        match admin_listen(&mut file.root(&reporter)) {
            Some(Some(address)) => Ok(Some(address)),
            None if file.is_whole() => Ok(None),
            _ => Err(AdminListenError::AdminListen),
        }
    }

    /// The file to watch, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            ConfigSource::File(path) => Some(path),
            ConfigSource::BuiltIn => None,
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigSource::File(path) => path.display().fmt(f),
            ConfigSource::BuiltIn => f.write_str("built-in"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ConfigSource {
        ConfigSource::File(PathBuf::from(path))
    }

    #[test]
    fn command_line_wins_over_variable_over_usual_place_over_built_in() {
        let here = Path::new(file!());
        let nowhere = Path::new("no/such/file.toml");
        let variable = || Some(OsString::from("b.toml"));
        assert_eq!(choose(Some("a.toml".into()), variable(), here), file("a.toml"));
        assert_eq!(choose(None, variable(), here), file("b.toml"));
        assert_eq!(choose(None, Some(OsString::new()), here), ConfigSource::File(here.to_owned()));
        assert_eq!(choose(None, None, here), ConfigSource::File(here.to_owned()));
        assert_eq!(choose(None, None, nowhere), ConfigSource::BuiltIn);
    }

    #[test]
    fn built_in_configuration_is_valid_and_without_warnings() {
        let loaded = ConfigSource::BuiltIn.load().expect("the default is valid");
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        assert_eq!(loaded.name, "built-in");
    }
}
