//! `rate` with `timezone`: so many in each period, or in each day or month of a time zone.

use chrono_tz::{TZ_VARIANTS, Tz};

use super::parsed_key::{ParsedKey, ReportTarget};
use super::rate::rate;
use crate::config::file::Value;
use crate::config::suggest::{nearest, quote};
use crate::config::units::{self, show_rate};
use crate::limit::Rate;
use crate::limit::calendar::{Calendar, Unit};
use crate::limit::fixed_window::FixedWindow;

/// In µs.
const DAY: u64 = 86_400_000_000;

/// What `rate` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateSpec {
    Rate(Rate),
    /// So many a month, which has no fixed length.
    Month(u64),
}

pub(super) fn rate_spec(value: &Value<'_>) -> Option<RateSpec> {
    let text = value.text("100/minute")?;
    match units::monthly_count(text) {
        Some(count) => Some(RateSpec::Month(count)),
        None => rate(value, text).map(RateSpec::Rate),
    }
}

impl RateSpec {
    /// The same as a rate, for whatever is no `fixed_window`.
    pub(super) fn rate(self, target: &ReportTarget<'_, '_>) -> Option<Rate> {
        match self {
            RateSpec::Rate(rate) => Some(rate),
            RateSpec::Month(count) => {
                target.error(
                    &format!("cannot be `{count}/month`: a month has no fixed length"),
                    format!("write `algorithm = \"fixed_window\"`, or `\"{count}/30d\"`"),
                );
                None
            }
        }
    }

    /// The windows of a `fixed_window`.
    pub(super) fn windows(
        self,
        timezone: &ParsedKey<'_, Tz>,
        target: &ReportTarget<'_, '_>,
    ) -> Option<FixedWindow> {
        let (count, unit) = match self {
            RateSpec::Month(count) => (count, Unit::Month),
            RateSpec::Rate(rate) if timezone.is_absent() => return Some(FixedWindow::new(rate)),
            RateSpec::Rate(rate) if rate.period_us() == DAY => (rate.count(), Unit::Day),
            RateSpec::Rate(rate) => {
                let (count, shown) = (rate.count(), show_rate(rate));
                let message = format!("goes with a day or a month, not with `{shown}`");
                let help =
                    format!("remove it, or write `rate = \"{count}/day\"` or `\"{count}/month\"`");
                match &timezone.value {
                    Some(value) => value.error(&message, help),
                    None => target.error("goes with another period than its `timezone`", help),
                }
                return None;
            }
        };
        let calendar = Calendar::new(unit, timezone.or(Tz::UTC)?);
        FixedWindow::calendar(count, calendar)
            .inspect_err(|range| {
                target.error(&format!("is out of range: `{count}/month`"), range.to_string());
            })
            .ok()
    }
}

pub(super) fn timezone_name(value: &Value<'_>) -> Option<Tz> {
    let text = value.text("Europe/Berlin")?;
    if let Ok(tz) = text.parse() {
        return Some(tz);
    }
    let help = match nearest(text, TZ_VARIANTS.iter().map(|tz| tz.name())) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "write a name of the IANA database, such as `Europe/Berlin` or `UTC`".to_owned(),
    };
    value.error(&format!("is not a time zone: {}", quote(text)), help);
    None
}
