//! `weir_trust_score`: how many users have which score by now.
//!
//! A histogram over users and not over requests: a user that comes back is counted once, and one
//! whose score changes moves from one bucket to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::core::{Collector, Desc};
use prometheus::proto;

use crate::limit::trust::Score;

const NAME: &str = "weir_trust_score";
const HELP: &str = "Users that this gateway knows, by how far they are trusted.";
/// Upper bounds of the buckets, in hundredths.
const BOUNDS: [usize; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// Clones count together.
#[derive(Debug, Clone)]
pub struct UserScores {
    desc: Arc<Desc>,
    /// How many users have each score.
    users: Arc<[AtomicU64; Score::COUNT]>,
}

impl UserScores {
    /// # Panics
    /// Never: the name is valid.
    #[must_use]
    pub fn new() -> Self {
        let desc = Desc::new(NAME.to_owned(), HELP.to_owned(), Vec::new(), Default::default());
        let desc = Arc::new(desc.expect("the name is valid"));
        UserScores { desc, users: Arc::new([const { AtomicU64::new(0) }; Score::COUNT]) }
    }

    /// A user that was not known has a score now.
    pub fn add(&self, score: Score) {
        self.of(score).fetch_add(1, Ordering::Relaxed);
    }

    /// A user that had a score is not known any more.
    pub fn remove(&self, score: Score) {
        self.of(score).fetch_sub(1, Ordering::Relaxed);
    }

    fn of(&self, score: Score) -> &AtomicU64 {
        &self.users[usize::from(score.hundredths())]
    }

    fn histogram(&self) -> proto::Histogram {
        let users = self.users.each_ref().map(|users| users.load(Ordering::Relaxed));
        let buckets = BOUNDS.map(|bound| {
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(bound as f64 / 100.0);
            bucket.set_cumulative_count(users[..=bound].iter().sum());
            bucket
        });
        let hundredths: u64 = (0..).zip(users).map(|(score, users)| score * users).sum();
        let mut histogram = proto::Histogram::default();
        histogram.set_sample_count(users.iter().sum());
        histogram.set_sample_sum(hundredths as f64 / 100.0);
        histogram.set_bucket(buckets.to_vec());
        histogram
    }
}

impl Default for UserScores {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector for UserScores {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut metric = proto::Metric::from_label(Vec::new());
        metric.set_histogram(self.histogram());
        let mut family = proto::MetricFamily::default();
        family.set_name(NAME.to_owned());
        family.set_help(HELP.to_owned());
        family.set_field_type(proto::MetricType::HISTOGRAM);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn a_user_is_in_one_bucket_however_often_its_score_changes() {
        let metrics = Metrics::new();
        let scores = &metrics.user_scores;
        let score = Score::of_hundredths;
        for user in [0, 20, 55] {
            scores.add(score(user));
        }
        scores.remove(score(55));
        scores.add(score(61));
        let page = metrics.page();
        for line in [
            "# TYPE weir_trust_score histogram",
            "weir_trust_score_bucket{le=\"0\"} 1",
            "weir_trust_score_bucket{le=\"0.2\"} 2",
            "weir_trust_score_bucket{le=\"0.6\"} 2",
            "weir_trust_score_bucket{le=\"0.7\"} 3",
            "weir_trust_score_bucket{le=\"+Inf\"} 3",
            "weir_trust_score_sum 0.81",
            "weir_trust_score_count 3",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
    }
}
