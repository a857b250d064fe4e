//! `ejection` of an upstream: when servers that fail are left out, and for how long.

use super::server::{SOME_TIME, read};
use crate::config::file::Section;
use crate::config::settings::Ejection;

pub(super) fn ejection(mut section: Section<'_>) -> Ejection {
    let usual = Ejection::default();
    let failures = read(&mut section, "failures", u64::from(usual.failures), |it| {
        it.integer(Ejection::FAILURES)
    });
    let (time, max_time) = (section.get("time"), section.get("max_time"));
    let least = time.as_ref().and_then(|it| it.duration(SOME_TIME)).unwrap_or(usual.time);
    let most = max_time.as_ref().and_then(|it| it.duration(SOME_TIME));
    if let (Some(value), Some(most)) = (&max_time, most)
        && most < least
    {
        value.error("is less than `time`", "write a duration that is at least as long");
    }
    let share =
        read(&mut section, "max_percent", u64::from(usual.max_percent), |it| it.integer(0..=100));
    Ejection {
        failures: failures as u32,
        time: least,
        max_time: most.unwrap_or(usual.max_time).max(least),
        max_percent: share as u32,
    }
}
