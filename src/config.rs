//! From a TOML file to validated settings.

pub mod settings;

pub use settings::Settings;
