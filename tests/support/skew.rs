//! Servers whose clocks differ: a small library is preloaded into them.
//!
//! It is compiled by the `cc` that Rust links with, since libfaketime does not get along with
//! jemalloc.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Scratch;

const SOURCE: &str = include_str!("skewed_clock.c");

/// By how much a server's clock is ahead, and the library that sees to it.
#[derive(Debug)]
pub(crate) struct Skew {
    milliseconds: i64,
    library: PathBuf,
    _scratch: Scratch,
}

impl Skew {
    /// Below zero it is behind.
    #[track_caller]
    pub(crate) fn of(milliseconds: i64) -> Skew {
        let scratch = Scratch::new();
        let source = scratch.file("skewed_clock.c", SOURCE);
        let library = scratch.path().join("skewed_clock.so");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
        let output = cc.stdin(Stdio::null()).output().expect("cc is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Skew { milliseconds, library, _scratch: scratch }
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("WEIR_TEST_SKEW_MS", self.milliseconds.to_string());
    }
}
