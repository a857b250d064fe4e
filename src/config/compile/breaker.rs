//! `breaker` of an upstream: when one that fails is not asked any more.

use super::server::{SOME_TIME, read, secs};
use crate::config::file::Section;
use crate::config::settings::Breaker;

/// `None` if the file does not ask for one.
pub(super) fn breaker(upstream: &mut Section<'_>) -> Option<Breaker> {
    let mut section = upstream.section_like("breaker", "breaker = { failures = 20 }");
    let breaker = Breaker {
        failures: read(&mut section, "failures", Breaker::USUAL_FAILURES, |it| {
            it.integer(1..=1_000_000)
        }) as u32,
        window: read(&mut section, "window", secs(10), |it| it.duration(SOME_TIME)),
        open: read(&mut section, "open", secs(5), |it| it.duration(SOME_TIME)),
    };
    section.is_present().then_some(breaker)
}
