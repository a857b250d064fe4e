//! `rate` with `timezone`: so many in each period, or in each day or month of a time zone.

use chrono_tz::{TZ_VARIANTS, Tz};

use super::rate::rate;
use crate::config::file::Value;
use crate::config::suggest::{nearest, quote};
use crate::config::units;
use crate::limit::Rate;
use crate::limit::calendar::{Calendar, Unit};
use crate::limit::fixed_window::FixedWindow;

/// In µs.
const DAY: u64 = 86_400_000_000;

/// What `rate` and `timezone` say together.
pub(super) enum Quota {
    Rate(Rate),
    Calendar(FixedWindow),
}

/// `fixed` is whether the limit is a `fixed_window`: no other has windows of a calendar.
pub(super) fn quota(
    written: Option<&Value<'_>>,
    timezone: Option<&Value<'_>>,
    fixed: bool,
) -> Option<Quota> {
    // What is wrong with one is told whatever is wrong with the other.
    let tz = timezone.map(zone);
    let written = written?;
    let text = written.text("100/minute")?;
    if let Some(count) = units::a_month(text) {
        if fixed {
            return window(written, text, count, Unit::Month, tz.unwrap_or(Some(Tz::UTC))?);
        }
        written.wrong(
            &format!("cannot be {}: a month has no fixed length", quote(text)),
            format!("write `algorithm = \"fixed_window\"`, or `\"{count}/30d\"`"),
        );
        return None;
    }
    let rate = rate(written, text)?;
    let Some((timezone, tz)) = timezone.zip(tz) else { return Some(Quota::Rate(rate)) };
    let tz = tz?;
    if !fixed {
        timezone.doubtful(
            "has no effect: only the windows of a `fixed_window` begin at midnight",
            "remove it, or write `algorithm = \"fixed_window\"`",
        );
        return Some(Quota::Rate(rate));
    }
    let count = rate.count();
    if rate.period_us() != DAY {
        timezone.wrong(
            &format!("goes with a day or a month, not with {}", quote(text)),
            format!("remove it, or write `rate = \"{count}/day\"` or `\"{count}/month\"`"),
        );
        return None;
    }
    window(written, text, count, Unit::Day, tz)
}

fn window(written: &Value<'_>, text: &str, count: u64, unit: Unit, tz: Tz) -> Option<Quota> {
    match FixedWindow::calendar(count, Calendar::new(unit, tz)) {
        Ok(window) => Some(Quota::Calendar(window)),
        Err(range) => {
            written.wrong(&format!("is out of range: {}", quote(text)), range.to_string());
            None
        }
    }
}

fn zone(value: &Value<'_>) -> Option<Tz> {
    let text = value.text("Europe/Berlin")?;
    if let Ok(tz) = text.parse() {
        return Some(tz);
    }
    let help = match nearest(text, TZ_VARIANTS.iter().map(|tz| tz.name())) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "write a name of the IANA database, such as `Europe/Berlin` or `UTC`".to_owned(),
    };
    value.wrong(&format!("is not a time zone: {}", quote(text)), help);
    None
}
