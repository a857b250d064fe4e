//! The programs of Redis that tests start: those on the path, or others that the environment names.
//! `tests/redis/versions` runs the tests of the store on several of them.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// `redis-server` or `valkey-server`, which is a sentinel with `--sentinel`.
pub(crate) fn redis_server() -> Command {
    Command::new(named("WEIR_TEST_REDIS_SERVER", "redis-server"))
}

pub(crate) fn redis_cli() -> Command {
    Command::new(named("WEIR_TEST_REDIS_CLI", "redis-cli"))
}

fn named(variable: &str, program: &str) -> OsString {
    std::env::var_os(variable).filter(|it| !it.is_empty()).unwrap_or_else(|| program.into())
}

/// The server's version before the first dot: tests have to do without what older ones lack.
pub(crate) fn redis_major() -> u32 {
    static MAJOR: OnceLock<u32> = OnceLock::new();
    *MAJOR.get_or_init(|| {
        let output = redis_server().arg("--version").stdin(Stdio::null()).output();
        let text = String::from_utf8_lossy(&output.expect("redis-server is installed").stdout)
            .into_owned();
        // `Redis server v=7.0.15 sha=…`, `Valkey server v=9.1.2 sha=…`
        let version = text.split("v=").nth(1).and_then(|it| it.split('.').next());
        version.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("what version is {text}?"))
    })
}
