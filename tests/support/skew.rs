//! Servers whose clocks differ, and can be set: a small library is preloaded into them.
//!
//! It is compiled by the `cc` that Rust links with, since libfaketime does not get along with
//! jemalloc.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Scratch;

const SOURCE: &str = include_str!("skewed_clock.c");

/// By how much a server's clock is ahead, in a file, and the library that reads it.
#[derive(Debug)]
pub(crate) struct Skew {
    file: PathBuf,
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
        let file = scratch.file("skew", "");
        let skew = Skew { file, library, _scratch: scratch };
        skew.set(milliseconds);
        skew
    }

    /// Sets the clock of a server that runs. It is written in place: the server has it mapped.
    pub(crate) fn set(&self, milliseconds: i64) {
        let file = File::options().write(true).open(&self.file).unwrap();
        file.write_all_at(&(milliseconds * 1000).to_ne_bytes(), 0).unwrap();
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("WEIR_TEST_SKEW_FILE", &self.file);
    }
}
