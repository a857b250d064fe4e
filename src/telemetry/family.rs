//! A metric with labels: its series, and how a scrape writes them down.
//!
//! A configuration may have a hundred thousand series, and a worker adds some when it serves a route
//! for the first time. So a family is gone through in pieces and is locked for one of them at a time:
//! no worker waits for a scrape.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use parking_lot::RwLock;

use super::page::{LabelPairs, MetricsPage, Series};

/// How many series are gone through at a time where none is written.
const SCANNED_AT_ONCE: usize = 1000;

/// The values of a series' labels, in the order of their names.
type LabelValues = Box<[Box<str>]>;

/// The series of one metric. Clones share them.
#[derive(Debug, Clone)]
pub struct Family<S> {
    core: Arc<FamilyCore<S>>,
}

struct FamilyCore<S> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    /// The labels as they are written, by their names.
    order: Box<[usize]>,
    new_series: Box<dyn Fn() -> S + Send + Sync>,
    series: RwLock<BTreeMap<LabelValues, S>>,
}

impl<S: Series> Family<S> {
    /// A metric that has no series yet.
    pub(super) fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        new_series: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        let mut order: Box<[usize]> = (0..labels.len()).collect();
        order.sort_by_key(|label| labels[*label]);
        let (new_series, series) = (Box::new(new_series), RwLock::default());
        Family { core: Arc::new(FamilyCore { name, help, labels, order, new_series, series }) }
    }

    /// The series with these values of its labels, which is added if it is not there.
    pub fn with_label_values<V: AsRef<str>>(&self, values: &[V]) -> S {
        debug_assert_eq!(values.len(), self.core.labels.len(), "labels of {}", self.core.name);
        let values: LabelValues = values.iter().map(|it| it.as_ref().into()).collect();
        if let Some(series) = self.core.series.read().get(&values) {
            return series.clone();
        }
        let mut all = self.core.series.write();
        all.entry(values).or_insert_with(&self.core.new_series).clone()
    }

    /// Removes the series with these values of its labels.
    pub fn remove(&self, values: &[&str]) {
        let values: LabelValues = values.iter().map(|it| (*it).into()).collect();
        self.core.series.write().remove(&values);
    }

    /// Removes the series whose first label has none of these values.
    pub(super) fn prune(&self, kept: &HashSet<&str>) {
        let (mut gone, mut last) = (Vec::new(), None);
        loop {
            let mut scanned = 0;
            last = self.scan(last, |values, _| {
                if !kept.contains(&*values[0]) {
                    gone.push(values.clone());
                }
                scanned += 1;
                stop_if(scanned == SCANNED_AT_ONCE)
            });
            if last.is_none() {
                break;
            }
        }
        for values in gone {
            self.core.series.write().remove(&values);
        }
    }

    /// Goes through the series behind one, in the order of their labels, until told to stop: at the
    /// one that is returned. They are locked for so long.
    fn scan(
        &self,
        behind: Option<LabelValues>,
        mut visit: impl FnMut(&LabelValues, &S) -> ControlFlow<()>,
    ) -> Option<LabelValues> {
        let start = behind.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.core.series.read();
        let mut series = all.range::<LabelValues, _>((start, Bound::Unbounded));
        let stopped_at = series.find(|(values, series)| visit(values, series).is_break());
        stopped_at.map(|(values, _)| values.clone())
    }
}

fn stop_if(condition: bool) -> ControlFlow<()> {
    if condition { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// A family, whatever its series are.
pub(super) trait WriteFamily: fmt::Debug + Send + Sync {
    fn write(&self, page: &mut MetricsPage<'_>);
}

impl<S: Series> WriteFamily for Family<S> {
    /// The family is not locked while a piece of the page is handed on.
    fn write(&self, page: &mut MetricsPage<'_>) {
        let FamilyCore { name, help, labels, order, .. } = &*self.core;
        let mut pairs = LabelPairs::default();
        let (mut begun, mut last) = (false, None);
        loop {
            last = self.scan(last, |values, series| {
                if !begun {
                    begun = true;
                    page.write_head(name, help, S::TYPE);
                }
                pairs.set(order.iter().map(|label| (labels[*label], &*values[*label])));
                series.write(name, &pairs, page);
                stop_if(page.is_piece())
            });
            if last.is_none() {
                return;
            }
            page.hand_on();
        }
    }
}

impl<S> fmt::Debug for FamilyCore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FamilyCore").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
