//! Programs of others that some tests run, and that a machine may lack.

use std::io;

/// What came of running a program, or `None`, and a word about it, where there is no such program.
pub(crate) fn tool<T>(program: &str, ran: io::Result<T>) -> Option<T> {
    ran.map_err(|error| skip(&format!("cannot run {program}: {error}"))).ok()
}

/// Says that a test is skipped. Where CI is set that is a failure: a test that is skipped there would
/// never be missed.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI skips no test: {why}");
    eprintln!("skipped: {why}");
}
