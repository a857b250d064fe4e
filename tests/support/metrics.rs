//! The Prometheus text format, as far as a test asks about it.

use std::collections::BTreeMap;

/// Each series by its name and labels as written.
#[derive(Debug)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Metrics {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let series = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a series and its value");
            (series.to_owned(), value.parse().expect("a number"))
        });
        Metrics(series.collect())
    }

    pub(crate) fn series(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// The sum over all series of that name that carry these labels; `None` if there is none.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Vec<_> =
            labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let of_name = |series: &str| series.split('{').next() == Some(name);
        let found = self.0.iter().filter(|(series, _)| of_name(series));
        let found: Vec<f64> = found
            .filter(|(series, _)| wanted.iter().all(|label| series.contains(label)))
            .map(|(_, value)| *value)
            .collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    /// How many checks of a limit have come out so.
    pub(crate) fn decisions(&self, limit: &str, outcome: &str) -> Option<f64> {
        self.value("weir_decisions_total", &[("limit", limit), ("outcome", outcome)])
    }
}
