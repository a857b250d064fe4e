//! The text of a scrape, in Prometheus's format, which comes in pieces.
//!
//! Whoever makes the whole of it at once occupies a processor for long, and whoever sends the whole
//! of it at once the thread that does.

use std::fmt::{self, Write};

use prometheus::core::Metric as _;
use prometheus::{Gauge, Histogram, IntCounter, IntGauge};

/// A piece is handed on when it has this many bytes, and the series that is being written.
const PIECE_BYTES: usize = 64 * 1024;

/// A page, as far as it is written and not handed on.
pub struct MetricsPage<'a> {
    piece: String,
    /// Takes the pieces, one after another.
    take: &'a mut dyn FnMut(String),
}

impl<'a> MetricsPage<'a> {
    pub(super) fn new(take: &'a mut dyn FnMut(String)) -> Self {
        MetricsPage { piece: String::new(), take }
    }

    /// Whether it is time to hand on what is written.
    pub(super) fn is_piece(&self) -> bool {
        self.piece.len() >= PIECE_BYTES
    }

    pub(super) fn hand_on(&mut self) {
        if !self.piece.is_empty() {
            // The next piece will be as large, so that it need not grow.
            let next = String::with_capacity(self.piece.capacity());
            (self.take)(std::mem::replace(&mut self.piece, next));
        }
    }

    /// What another encoder has written.
    pub(super) fn write_encoded(&mut self, text: &str) {
        self.piece.push_str(text);
    }

    pub(super) fn write_head(&mut self, name: &str, help: &str, kind: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn write_sample(&mut self, name: &str, labels: &LabelPairs, value: impl fmt::Display) {
        self.write(format_args!("{name}{{{labels}}} {value}\n"));
    }

    fn write_bucket(
        &mut self,
        name: &str,
        labels: &LabelPairs,
        bound: impl fmt::Display,
        count: u64,
    ) {
        self.write(format_args!("{name}_bucket{{{labels},le=\"{bound}\"}} {count}\n"));
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = self.piece.write_fmt(text);
    }
}

/// The labels of a series as they are written between braces.
#[derive(Debug, Default)]
pub struct LabelPairs(String);

impl LabelPairs {
    pub(super) fn set<'a>(&mut self, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
        self.0.clear();
        for (name, value) in pairs {
            if !self.0.is_empty() {
                self.0.push(',');
            }
            self.0.push_str(name);
            self.0.push_str("=\"");
            self.push_escaped(value);
            self.0.push('"');
        }
    }

    fn push_escaped(&mut self, value: &str) {
        let mut rest = value;
        while let Some(at) = rest.find(['\\', '"', '\n']) {
            let (plain, special) = rest.split_at(at);
            self.0.push_str(plain);
            self.0.push_str(match special.as_bytes()[0] {
                b'\\' => "\\\\",
                b'"' => "\\\"",
                _ => "\\n",
            });
            rest = &special[1..];
        }
        self.0.push_str(rest);
    }
}

impl fmt::Debug for MetricsPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsPage").field("piece", &self.piece).finish_non_exhaustive()
    }
}

impl fmt::Display for LabelPairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one series of a family counts.
pub trait Series: fmt::Debug + Clone + Send + Sync + 'static {
    /// What Prometheus calls it.
    const TYPE: &'static str;

    fn write(&self, name: &str, labels: &LabelPairs, page: &mut MetricsPage<'_>);
}

impl Series for IntCounter {
    const TYPE: &'static str = "counter";

    fn write(&self, name: &str, labels: &LabelPairs, page: &mut MetricsPage<'_>) {
        page.write_sample(name, labels, self.get());
    }
}

impl Series for IntGauge {
    const TYPE: &'static str = "gauge";

    fn write(&self, name: &str, labels: &LabelPairs, page: &mut MetricsPage<'_>) {
        page.write_sample(name, labels, self.get());
    }
}

impl Series for Gauge {
    const TYPE: &'static str = "gauge";

    fn write(&self, name: &str, labels: &LabelPairs, page: &mut MetricsPage<'_>) {
        match self.get() {
            f64::INFINITY => page.write_sample(name, labels, "+Inf"),
            value => page.write_sample(name, labels, value),
        }
    }
}

impl Series for Histogram {
    const TYPE: &'static str = "histogram";

    fn write(&self, name: &str, labels: &LabelPairs, page: &mut MetricsPage<'_>) {
        let metric = self.metric();
        let counted = metric.get_histogram();
        let count = counted.get_sample_count();
        for bucket in counted.get_bucket() {
            page.write_bucket(name, labels, bucket.upper_bound(), bucket.cumulative_count());
        }
        page.write_bucket(name, labels, "+Inf", count);
        page.write(format_args!("{name}_sum{{{labels}}} {}\n", counted.get_sample_sum()));
        page.write(format_args!("{name}_count{{{labels}}} {count}\n"));
    }
}
