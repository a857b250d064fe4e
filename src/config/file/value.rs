//! One value of the file, turned into what the reader asks for.
//!
//! Each method notes a fault and returns `None` if the value is something else.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::Reporter;
use crate::config::diagnostic::Diagnostic;
use crate::config::mask::is_path;
use crate::config::suggest::{nearest, one_of, quote};
use crate::config::units;

/// A value and its place.
#[derive(Clone)]
pub(in crate::config) struct Value<'a> {
    /// As messages call it: `` `rate` `` or ``an entry of `listen` ``.
    subject: String,
    key: Range<usize>,
    item: &'a Spanned<DeValue<'a>>,
    reporter: &'a Reporter,
}

impl<'a> Value<'a> {
    pub(super) fn new(
        subject: String,
        key: Range<usize>,
        item: &'a Spanned<DeValue<'a>>,
        reporter: &'a Reporter,
    ) -> Self {
        Value { subject, key, item, reporter }
    }

    pub(in crate::config) fn span(&self) -> Range<usize> {
        self.item.span()
    }

    pub(in crate::config) fn key(&self) -> Range<usize> {
        self.key.clone()
    }

    pub(in crate::config) fn subject(&self) -> &str {
        &self.subject
    }

    pub(super) fn item(&self) -> &'a DeValue<'a> {
        self.item.get_ref()
    }

    /// Notes that the value is wrong. The message goes on where the subject ends.
    pub(in crate::config) fn error(&self, message: &str, help: impl Into<String>) {
        let message = format!("{} {message}", self.subject);
        let mut help = help.into();
        if matches!(self.item(), DeValue::String(text) if text.contains("${")) {
            help.push_str("; variables such as `${NAME}` are not replaced in this file");
        }
        self.reporter.report(Diagnostic::error(self.span(), message).help(help));
    }

    /// Notes something that is allowed and probably not meant.
    pub(in crate::config) fn warning(&self, message: &str, help: impl Into<String>) {
        let message = format!("{} {message}", self.subject);
        self.reporter.report(Diagnostic::warning(self.span(), message).help(help));
    }

    pub(in crate::config) fn report(&self, fault: Diagnostic) {
        self.reporter.report(fault);
    }

    /// The type of the value, with its article.
    pub(super) fn kind(&self) -> &'static str {
        match self.item() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        }
    }

    fn not_a(&self, what: &str, example: &str) {
        self.error(&format!("must be {what}, not {}", self.kind()), format!("write {example}"));
    }

    pub(in crate::config) fn is_table(&self) -> bool {
        matches!(self.item(), DeValue::Table(_))
    }

    pub(in crate::config) fn table(&self) -> Option<&'a DeTable<'a>> {
        self.table_or("write its keys below a header in brackets, or within `{ }`")
    }

    /// The same, with what to write instead.
    pub(super) fn table_or(&self, help: &str) -> Option<&'a DeTable<'a>> {
        match self.item() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.error(&format!("must be a table, not {}", self.kind()), help);
                None
            }
        }
    }

    /// A string; `example` is one that would do.
    pub(in crate::config) fn text(&self, example: &str) -> Option<&'a str> {
        match self.item() {
            DeValue::String(text) => Some(text),
            DeValue::Integer(_) | DeValue::Float(_) => {
                self.not_a("a string", &format!("it in quotes, such as `\"{example}\"`"));
                None
            }
            _ => {
                self.not_a("a string", &format!("one such as `\"{example}\"`"));
                None
            }
        }
    }

    /// The path of a file. What should stand in that file is not repeated: it may be a secret.
    pub(in crate::config) fn path(&self, example: &str) -> Option<&'a str> {
        let text = self.text(example)?;
        if is_path(text) {
            return Some(text);
        }
        let help = format!("write it into a file, and the path of that file here: `\"{example}\"`");
        self.error("has what should be in a file in place of its path", help);
        None
    }

    /// The string that it is, if it is one; nothing is reported if not.
    pub(in crate::config) fn as_str(&self) -> Option<&'a str> {
        match self.item() {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// The same for a boolean.
    pub(in crate::config) fn as_bool(&self) -> Option<bool> {
        match self.item() {
            DeValue::Boolean(yes) => Some(*yes),
            _ => None,
        }
    }

    pub(in crate::config) fn is_list(&self) -> bool {
        matches!(self.item(), DeValue::Array(_))
    }

    pub(in crate::config) fn is_integer(&self) -> bool {
        matches!(self.item(), DeValue::Integer(_))
    }

    pub(in crate::config) fn boolean(&self) -> Option<bool> {
        match self.item() {
            DeValue::Boolean(yes) => Some(*yes),
            _ => {
                self.not_a("a boolean", "`true` or `false`");
                None
            }
        }
    }

    pub(in crate::config) fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let help = format!("write a number from {} to {}", range.start(), range.end());
        self.integer_or(range, &help)
    }

    /// The same, with more to say to those who write another.
    pub(in crate::config) fn integer_or(
        &self,
        range: RangeInclusive<u64>,
        help: &str,
    ) -> Option<u64> {
        let DeValue::Integer(integer) = self.item() else {
            self.error(&format!("must be an integer, not {}", self.kind()), help);
            return None;
        };
        let fits = whole(integer).filter(|it| range.contains(it));
        if fits.is_none() {
            self.error(&format!("is out of range: {}", quote(&integer.to_string())), help);
        }
        fits
    }

    /// An integer or a float, whatever it is; `example` is one that would do.
    fn number(&self, example: &str) -> Option<f64> {
        match self.item() {
            DeValue::Integer(integer) if integer.radix() == 10 => {
                Some(integer.as_str().parse().unwrap_or(f64::NAN))
            }
            DeValue::Float(float) => Some(float.as_str().parse().unwrap_or(f64::NAN)),
            _ => {
                self.not_a("a number", example);
                None
            }
        }
    }

    /// A number from zero to `most` thousandths, in thousandths.
    pub(in crate::config) fn thousandths(&self, most: u16) -> Option<u16> {
        self.parts(1000.0, 0..=most)
    }

    /// A number in hundredths, which lies in a range of them.
    pub(in crate::config) fn hundredths(&self, range: RangeInclusive<u16>) -> Option<u16> {
        self.parts(100.0, range)
    }

    /// A number in parts of one.
    fn parts(&self, parts: f64, range: RangeInclusive<u16>) -> Option<u16> {
        let [least, most] = [range.start(), range.end()].map(|it| f64::from(*it) / parts);
        let help = format!("a number from {least:?} to {most:?}");
        let number = self.number(&help)?;
        if !(least..=most).contains(&number) {
            let number = quote(&number.to_string());
            self.error(&format!("is out of range: {number}"), format!("write {help}"));
            return None;
        }
        Some((number * parts).round() as u16)
    }

    /// An integer or a float, as a factor: above zero and finite.
    pub(in crate::config) fn factor(&self) -> Option<f64> {
        let number = Some(self.number("a factor such as `1.5`")?);
        let fits = number.filter(|it: &f64| it.is_finite() && *it > 0.0);
        if fits.is_none() {
            self.error("must be a finite number above zero", "write a factor such as `1.5`");
        }
        fits
    }

    pub(in crate::config) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        const FORM: &str =
            "write a number and its unit, such as `\"250ms\"`, `\"10s\"`, `\"5m\"` or `\"1h\"`";
        let text = match self.item() {
            DeValue::String(text) => text,
            DeValue::Integer(integer) => {
                let meant =
                    whole(integer).and_then(|it| units::meant_duration(&it.to_string(), &range));
                let help = match meant {
                    Some(meant) => format!("write it with its unit, such as `\"{meant}\"`"),
                    None => write_between(&range),
                };
                self.error("must be a duration, not a plain number", help);
                return None;
            }
            _ => {
                self.error(&format!("must be a duration, not {}", self.kind()), FORM);
                return None;
            }
        };
        let Some(duration) = units::duration(text) else {
            let meant = units::meant_duration(text, &range);
            let help = meant.map_or(FORM.to_owned(), |meant| format!("write `\"{meant}\"`"));
            self.error(&format!("is not a duration: {}", quote(text)), help);
            return None;
        };
        if !range.contains(&duration) {
            self.error(&format!("is out of range: {}", quote(text)), write_between(&range));
            return None;
        }
        Some(duration)
    }

    /// A number of bytes, or a string such as `64KiB`.
    pub(in crate::config) fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        const FORM: &str =
            "write a number of bytes, or a string such as `\"64KiB\"` or `\"10MiB\"`";
        let (size, shown) = match self.item() {
            DeValue::String(text) => (units::size(text), quote(text)),
            // What does not fit at all is out of every range.
            DeValue::Integer(integer) => {
                (Some(whole(integer).unwrap_or(u64::MAX)), quote(&integer.to_string()))
            }
            _ => {
                self.error(&format!("must be a size, not {}", self.kind()), FORM);
                return None;
            }
        };
        let Some(size) = size else {
            let meant = self.as_str().and_then(|text| units::meant_size(text, &range));
            let help = meant.map_or(FORM.to_owned(), |meant| format!("write `\"{meant}\"`"));
            self.error(&format!("is not a size: {shown}"), help);
            return None;
        };
        if !range.contains(&size) {
            let [least, most] = [range.start(), range.end()].map(|it| units::show_size(*it));
            let help = format!("write a size from {least} to {most}");
            self.error(&format!("is out of range: {shown}"), help);
            return None;
        }
        Some(size)
    }

    /// One of a few words.
    pub(in crate::config) fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let words = || choices.iter().map(|(word, _)| *word);
        let text = match self.item() {
            DeValue::String(text) => text.as_ref(),
            _ => {
                self.not_a("a string", &one_of(words()));
                return None;
            }
        };
        let found = choices.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let help = match nearest(text, words()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("write {}", one_of(words())),
            };
            self.error(&format!("cannot be {}", quote(text)), help);
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// The entries of an array.
    pub(in crate::config) fn list(&self, example: &str) -> Option<Vec<Value<'a>>> {
        match self.item() {
            DeValue::Array(items) => Some(items.iter().map(|item| self.entry(item)).collect()),
            _ => {
                self.not_a("an array", &format!("one such as `{example}`"));
                None
            }
        }
    }

    /// The entries of an array; anything else stands for an array of itself.
    pub(in crate::config) fn one_or_more(&self) -> Vec<Value<'a>> {
        match self.item() {
            DeValue::Array(items) => items.iter().map(|item| self.entry(item)).collect(),
            _ => vec![self.clone()],
        }
    }

    fn entry(&self, item: &'a Spanned<DeValue<'a>>) -> Value<'a> {
        Value::new(format!("an entry of {}", self.subject), item.span(), item, self.reporter)
    }
}

fn write_between(range: &RangeInclusive<Duration>) -> String {
    let [least, most] = [range.start(), range.end()].map(|it| units::show_duration(*it));
    format!("write a duration from `\"{least}\"` to `\"{most}\"`")
}

/// A number that is not negative, whatever base it is written in.
pub(super) fn whole(integer: &DeInteger<'_>) -> Option<u64> {
    let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok()?;
    u64::try_from(number).ok()
}
