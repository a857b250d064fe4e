//! What is wrong with a file, told in the manner of rustc.
//!
//! A [`Fault`] is one thing that is wrong, with its place and a way out. [`Diagnostics`] are all
//! faults of one text, in the order of their places.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level as Heading, Renderer, Snippet};

use super::mask::Mask;

/// More would scroll the first one, which often explains the rest, off the screen.
const MOST_SHOWN: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The file cannot be used.
    Error,
    /// It can, but says something that was probably not meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub level: Level,
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Where, in bytes.
    pub span: Range<usize>,
    /// Another place that has to do with it, and what that is.
    pub also: Option<(Range<usize>, String)>,
    /// Said of something that is not there: a syntax error elsewhere may be why.
    pub(super) absence: bool,
}

impl Fault {
    pub(super) fn error(span: Range<usize>, message: impl Into<String>) -> Self {
        Self::new(Level::Error, span, message.into())
    }

    pub(super) fn warning(span: Range<usize>, message: impl Into<String>) -> Self {
        Self::new(Level::Warning, span, message.into())
    }

    fn new(level: Level, span: Range<usize>, message: String) -> Self {
        Fault { level, message, help: None, span, also: None, absence: false }
    }

    pub(super) fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    pub(super) fn also(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.also = Some((span, text.into()));
        self
    }

    pub(super) fn absence(mut self) -> Self {
        self.absence = true;
        self
    }
}

/// All faults of one text, sorted by place.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    name: String,
    /// Without its passwords, and so are the places of the faults.
    text: Arc<str>,
    faults: Vec<Fault>,
}

impl Diagnostics {
    pub(super) fn new(name: &str, text: Arc<str>, mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| fault.span.start);
        let mask = Mask::of(&text);
        let text = match mask.apply(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(masked) => Arc::from(masked),
        };
        for fault in &mut faults {
            fault.span = mask.shift(&fault.span);
            fault.also = fault.also.take().map(|(span, label)| (mask.shift(&span), label));
        }
        Diagnostics { name: name.to_owned(), text, faults }
    }

    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.faults.iter().any(|fault| fault.level == Level::Error)
    }

    /// For a person to read: each fault with its line; in colour if `styled`.
    #[must_use]
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let lines = Lines::of(&self.text);
        let mut shown = String::new();
        for fault in self.faults.iter().take(MOST_SHOWN) {
            if !shown.is_empty() {
                shown.push('\n');
            }
            shown.push_str(&self.render_one(fault, &lines, &renderer));
            shown.push('\n');
        }
        if self.faults.len() > MOST_SHOWN {
            let more = self.faults.len() - MOST_SHOWN;
            shown.push_str(&format!("\n… and {more} more in {}\n", self.name));
        }
        shown
    }

    fn render_one(&self, fault: &Fault, lines: &Lines<'_>, renderer: &Renderer) -> String {
        let heading = match fault.level {
            Level::Error => Heading::ERROR,
            Level::Warning => Heading::WARNING,
        };
        // Only the lines in question go to the renderer: it reads all that it is given.
        let here = lines.first_line_of(&fault.span);
        let there = fault.also.as_ref().map(|(span, label)| (lines.first_line_of(span), label));
        let first = there.as_ref().map_or(here.line, |(it, _)| it.line.min(here.line));
        let last = there.as_ref().map_or(here.line, |(it, _)| it.line.max(here.line));
        let window = lines.range(first, last);
        let within = |place: &Place| {
            place.span.start - window.start..place.span.end.max(place.span.start) - window.start
        };
        let mut snippet = Snippet::source(&self.text[window.clone()])
            .path(&self.name)
            .line_start(first + 1)
            .annotation(AnnotationKind::Primary.span(within(&here)));
        if let Some((there, label)) = &there {
            snippet = snippet
                .annotation(AnnotationKind::Context.span(within(there)).label(label.as_str()));
        }
        let mut group = heading.primary_title(fault.message.as_str()).element(snippet);
        if let Some(help) = &fault.help {
            group = group.element(Heading::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }

    /// For a log: `file:line:column: message; help`, one line a fault.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let lines = Lines::of(&self.text);
        self.faults
            .iter()
            .map(|fault| {
                let (line, column) = lines.position(fault.span.start);
                let help = fault.help.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
                let warning = if fault.level == Level::Warning { "warning: " } else { "" };
                let message = &fault.message;
                format!("{}:{line}:{column}: {warning}{message}{help}", self.name)
            })
            .collect()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

/// Where the lines of a text begin.
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

/// A span within one line.
struct Place {
    /// From zero.
    line: usize,
    span: Range<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        Lines { text, starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// The line that holds a byte, from zero.
    pub(super) fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// Line and column as people count them: from one, in characters.
    fn position(&self, at: usize) -> (usize, usize) {
        let at = self.boundary(at);
        let line = self.line(at);
        (line + 1, self.text[self.starts[line]..at].chars().count() + 1)
    }

    /// The part of a span that lies in its first line.
    fn first_line_of(&self, span: &Range<usize>) -> Place {
        let start = self.boundary(span.start);
        let line = self.line(start);
        let end = self.range(line, line).end.max(start);
        Place { line, span: start..self.boundary(span.end).clamp(start, end) }
    }

    /// The bytes from the start of one line to the end of another, without its line break.
    fn range(&self, first: usize, last: usize) -> Range<usize> {
        let start = self.starts[first];
        let end = self.starts.get(last + 1).map_or(self.text.len(), |next| next - 1);
        let line = &self.text[start..end];
        start..start + line.strip_suffix('\r').unwrap_or(line).len()
    }

    fn boundary(&self, at: usize) -> usize {
        self.text.floor_char_boundary(at)
    }
}
