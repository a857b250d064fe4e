//! What is wrong with a file, shown as rustc shows it.
//!
//! A [`Diagnostic`] is one thing that is wrong, with its place and a way out. [`Diagnostics`] are all
//! faults of one text, in the order of their places.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level as Heading, Renderer, Snippet};

use super::mask::SecretMask;

/// With more, the first one, which often explains the rest, would scroll off the screen.
pub(super) const MAX_SHOWN: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// It can, but says something that was probably not meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Where, in bytes.
    pub span: Range<usize>,
    /// Another place that has to do with it, and what that is.
    pub also: Option<(Range<usize>, String)>,
    /// About something that is missing: a syntax error elsewhere may be the cause.
    pub(super) absence: bool,
}

impl Diagnostic {
    pub(super) fn error(span: Range<usize>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, span, message.into())
    }

    pub(super) fn warning(span: Range<usize>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, span, message.into())
    }

    fn new(severity: Severity, span: Range<usize>, message: String) -> Self {
        Diagnostic { severity, message, help: None, span, also: None, absence: false }
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
    faults: Vec<Diagnostic>,
}

impl Diagnostics {
    pub(super) fn new(name: &str, text: Arc<str>, mut faults: Vec<Diagnostic>) -> Self {
        faults.sort_by_key(|fault| fault.span.start);
        let mask = SecretMask::of(&text);
        for fault in &mut faults {
            let message = std::mem::take(&mut fault.message);
            fault.message = mask.clear(message, &text, &fault.span);
            fault.help = fault.help.take().map(|it| mask.clear(it, &text, &fault.span));
        }
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

    pub fn all(&self) -> &[Diagnostic] {
        &self.faults
    }

    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    pub fn has_errors(&self) -> bool {
        self.faults.iter().any(|fault| fault.severity == Severity::Error)
    }

    /// For a person to read: each fault with its line; in colour if `styled`.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let lines = LineIndex::of(&self.text);
        let mut shown = String::new();
        for fault in self.faults.iter().take(MAX_SHOWN) {
            if !shown.is_empty() {
                shown.push('\n');
            }
            shown.push_str(&self.render_one(fault, &lines, &renderer));
            shown.push('\n');
        }
        if self.faults.len() > MAX_SHOWN {
            let more = self.faults.len() - MAX_SHOWN;
            shown.push_str(&format!("\n… and {more} more in {}\n", self.name));
        }
        shown
    }

    fn render_one(&self, fault: &Diagnostic, lines: &LineIndex<'_>, renderer: &Renderer) -> String {
        let heading = match fault.severity {
            Severity::Error => Heading::ERROR,
            Severity::Warning => Heading::WARNING,
        };
        // Only the lines in question go to the renderer: it reads all that it is given.
        let here = lines.first_line_of(&fault.span);
        let there = fault.also.as_ref().map(|(span, label)| (lines.first_line_of(span), label));
        let first = there.as_ref().map_or(here.line, |(it, _)| it.line.min(here.line));
        let last = there.as_ref().map_or(here.line, |(it, _)| it.line.max(here.line));
        let window = lines.range(first, last);
        let within = |place: &LineSpan| {
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
    pub fn lines(&self) -> Vec<String> {
        self.lines_of(|_| true)
    }

    /// The same for errors alone.
    pub(super) fn error_lines(&self) -> Vec<String> {
        self.lines_of(|fault| fault.severity == Severity::Error)
    }

    fn lines_of(&self, is_wanted: impl Fn(&Diagnostic) -> bool) -> Vec<String> {
        let lines = LineIndex::of(&self.text);
        self.faults
            .iter()
            .filter(|fault| is_wanted(fault))
            .map(|fault| {
                let (line, column) = lines.position(fault.span.start);
                let help = fault.help.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
                let warning = if fault.severity == Severity::Warning { "warning: " } else { "" };
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
pub(super) struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

/// A span within one line.
struct LineSpan {
    /// From zero.
    line: usize,
    span: Range<usize>,
}

impl<'a> LineIndex<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        LineIndex { text, starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// The line that holds a byte, from zero.
    pub(super) fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// Line and column as people count them: from one, in characters.
    pub(super) fn position(&self, at: usize) -> (usize, usize) {
        let at = self.boundary(at);
        let line = self.line(at);
        (line + 1, self.text[self.starts[line]..at].chars().count() + 1)
    }

    /// The part of a span that lies in its first line.
    fn first_line_of(&self, span: &Range<usize>) -> LineSpan {
        let start = self.boundary(span.start);
        let line = self.line(start);
        let end = self.range(line, line).end.max(start);
        LineSpan { line, span: start..self.boundary(span.end).clamp(start, end) }
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
