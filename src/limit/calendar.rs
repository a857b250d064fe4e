//! Calendar windows: days and months as they begin in a time zone.
//!
//! A window begins at local midnight. Where clocks jump over midnight it begins at the instant of
//! the jump; where they go back over it, at the first of the two midnights, and the second begins
//! nothing. So windows follow one another without a gap, and each has an end.
//!
//! The rules of time zones are those that were known when Weir was built.

use std::cell::RefCell;
use std::fmt;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveTime, TimeZone};
use chrono_tz::{GapInfo, Tz};

use crate::clock::Micros;

/// How many calendars a thread keeps in mind. Few configurations have more.
const REMEMBERED: usize = 8;

/// Instants beyond this one, in the year 148108, are taken for it: dates do not go on for ever.
const LATEST: u64 = 1 << 62;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    Day,
    Month,
}

/// Days, or months, in a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: Unit,
    tz: Tz,
}

/// The bounds of a calendar's windows.
type Found = (Calendar, [Micros; 4]);

thread_local! {
    /// What was last found for some calendars. Nearly every question is about the window that the
    /// one before was about, and dates take far longer than a decision.
    static RECENT: RefCell<[Option<Found>; REMEMBERED]> =
        const { RefCell::new([None; REMEMBERED]) };
}

impl Calendar {
    pub fn new(unit: Unit, tz: Tz) -> Self {
        Self { unit, tz }
    }

    pub fn unit(&self) -> Unit {
        self.unit
    }

    pub fn tz(&self) -> Tz {
        self.tz
    }

    /// The first instant after `now` at which a local day or month begins.
    pub fn end(&self, now: Micros) -> Micros {
        self.bounds(now)[1]
    }

    /// The start of the window that an instant lies in, and the ends of that one and the next two.
    pub fn bounds(&self, around: Micros) -> [Micros; 4] {
        RECENT.with_borrow_mut(|recent| {
            let known = recent.iter().position(|it| it.is_some_and(|(of, _)| of == *self));
            if let Some((_, bounds)) = known.and_then(|place| recent[place])
                && (bounds[0]..bounds[1]).contains(&around)
            {
                return bounds;
            }
            let bounds = self.find(around);
            // It takes the place of its own last entry, or else of the oldest.
            recent[..=known.unwrap_or(REMEMBERED - 1)].rotate_right(1);
            recent[0] = Some((*self, bounds));
            bounds
        })
    }

    /// How long a window lasts, as answers tell it: the longest month, and a day without a change
    /// of clocks.
    pub fn seconds(&self) -> u64 {
        match self.unit {
            Unit::Day => 86_400,
            Unit::Month => 31 * 86_400,
        }
    }

    fn find(&self, around: Micros) -> [Micros; 4] {
        let around = around.min(Micros(LATEST));
        let seconds = around.0.cast_signed() / 1_000_000;
        let instant = DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        let today = self.tz.from_utc_datetime(&instant.naive_utc()).date_naive();
        let mut bounds = [Micros(0); 4];
        let mut found = 0;
        for begin in self.begins(today) {
            if begin <= around {
                bounds[0] = begin;
            } else if begin > bounds[found] {
                // A day that a time zone left out begins and ends with the next one.
                found += 1;
                bounds[found] = begin;
            }
            if found == 3 {
                break;
            }
        }
        bounds
    }

    /// When the window that a local date lies in begins, and each one after it.
    fn begins(&self, date: NaiveDate) -> impl Iterator<Item = Micros> {
        let (unit, tz) = (self.unit, self.tz);
        let first = match unit {
            Unit::Day => date,
            Unit::Month => date.with_day(1).unwrap_or(date),
        };
        let nth = move |n: u32| match unit {
            Unit::Day => first.checked_add_days(Days::new(n.into())),
            Unit::Month => first.checked_add_months(Months::new(n)),
        };
        (0..).map_while(nth).map(move |date| begin(date, tz))
    }
}

/// `month Europe/Berlin`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Day => "day",
            Unit::Month => "month",
        };
        write!(f, "{unit} {}", self.tz.name())
    }
}

/// The first instant of a local date. There is no time before the epoch: what began then began
/// with it.
fn begin(date: NaiveDate, tz: Tz) -> Micros {
    let midnight = date.and_time(NaiveTime::MIN);
    let begin = tz
        .from_local_datetime(&midnight)
        .earliest()
        .or_else(|| GapInfo::new(&midnight, &tz).and_then(|gap| gap.end));
    let seconds = begin.map_or(midnight.and_utc().timestamp(), |begin| begin.timestamp());
    Micros(u64::try_from(seconds).unwrap_or(0) * 1_000_000)
}

#[cfg(test)]
mod tests;
