//! What a duration or a size in another spelling probably means: `1 minute`, `10M`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{duration, leading_count, size};

/// The duration that a text means, as Weir writes it. A number without a unit is in seconds, or in the
/// next unit with which it lies in the range.
pub(in crate::config) fn meant_duration(
    text: &str,
    range: &RangeInclusive<Duration>,
) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (count, word) = leading_count(&text)?;
    let units: &[&str] = match word.trim_start() {
        "" => &["s", "ms", "m", "h", "d"],
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => &["ms"],
        "s" | "sec" | "secs" | "second" | "seconds" => &["s"],
        "m" | "min" | "mins" | "minute" | "minutes" => &["m"],
        "h" | "hr" | "hrs" | "hour" | "hours" => &["h"],
        "d" | "day" | "days" => &["d"],
        _ => &[],
    };
    let fits = |text: &String| duration(text).is_some_and(|it| range.contains(&it));
    units.iter().map(|unit| format!("{count}{unit}")).find(fits)
}

/// The same for a size.
pub(in crate::config) fn meant_size(text: &str, range: &RangeInclusive<u64>) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (count, word) = leading_count(&text)?;
    let unit = match word.trim_start() {
        "" | "b" | "byte" | "bytes" => "B",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        "t" | "tb" | "tib" => "TiB",
        _ => return None,
    };
    let meant = format!("{count}{unit}");
    size(&meant).filter(|it| range.contains(it)).map(|_| meant)
}
