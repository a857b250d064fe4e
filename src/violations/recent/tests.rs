//! Every violation is in a line, in a sum, or counted as dropped, and lines are few.

use super::*;
use crate::telemetry::Metrics;
use crate::violations::KeptLine;

struct Recorded {
    audit: AuditLog,
    recent: Option<RecentViolations>,
    metrics: Metrics,
    began: Instant,
}

impl Recorded {
    fn new() -> Self {
        let metrics = Metrics::new();
        let audit = AuditLog::nowhere(&metrics);
        let recent = Some(RecentViolations::new(audit.clone()));
        Recorded { audit, recent, metrics, began: Instant::now() }
    }

    fn recent(&self) -> &RecentViolations {
        self.recent.as_ref().unwrap()
    }

    fn note(&self, bucket: u128, millis: u64) {
        let event = ViolationEvent::RateLimitExceeded;
        let key = ViolationKey { event, bucket: BucketId(bucket) };
        let describe = || Violation::new(event, format!("key-{bucket}"), "token_bucket");
        self.recent().note(key, self.at(millis), describe);
    }

    fn at(&self, millis: u64) -> Instant {
        self.began + Duration::from_millis(millis)
    }

    /// Whole lines, sums, events in sums.
    fn recorded(&self) -> (usize, usize, u64) {
        let lines = self.audit.violations();
        let all: Vec<_> = lines.iter().filter_map(KeptLine::parse).collect();
        let sums = all.iter().filter_map(|it| it.violation.repeated);
        (all.len() - sums.clone().count(), sums.clone().count(), sums.sum())
    }
}

#[test]
fn the_first_few_are_whole_and_the_rest_is_one_sum() {
    let it = Recorded::new();
    (0..1_000).for_each(|millis| it.note(1, millis));
    assert_eq!(it.recorded(), (3, 0, 0));
    it.recent().flush(it.at(9_999));
    assert_eq!(it.recorded(), (3, 0, 0), "the window has not ended");
    it.recent().flush(it.at(10_000));
    assert_eq!(it.recorded(), (3, 1, 997));
    it.recent().flush(it.at(30_000));
    assert_eq!(it.recorded(), (3, 1, 997), "and is summed up once");
    it.note(1, 31_000);
    assert_eq!(it.recorded(), (4, 1, 997), "a new window begins");
}

#[test]
fn a_window_ends_with_the_next_event_though_nobody_flushes() {
    let it = Recorded::new();
    (0..5).for_each(|_| it.note(1, 0));
    it.note(1, 10_000);
    assert_eq!(it.recorded(), (4, 1, 2));
}

#[test]
fn events_and_keys_are_told_apart() {
    let it = Recorded::new();
    (0..4).for_each(|_| it.note(1, 0));
    (0..4).for_each(|_| it.note(2, 0));
    let event = ViolationEvent::BurstDetectedWarning;
    let key = ViolationKey { event, bucket: BucketId(1) };
    let describe = || Violation::new(event, "key-1".to_owned(), "guard");
    it.recent().note(key, it.at(0), describe);
    assert_eq!(it.recorded(), (7, 0, 0));
}

#[test]
fn an_attack_of_new_keys_is_bounded_and_nothing_goes_uncounted() {
    let mut it = Recorded::new();
    // Ten seconds, every key twice.
    for number in 0..100_000_u64 {
        it.note(u128::from(number / 2) * 0x9e37_79b9_7f4a_7c15, number / 10);
    }
    drop(it.recent.take());
    let lines = it.audit.violations();
    let violations = lines.iter().filter_map(KeptLine::parse).map(|it| it.violation);
    let bytes: usize = violations.map(|it| serde_json::to_string(&it).unwrap().len() + 1).sum();
    assert!((400_000..1_000_000).contains(&bytes), "{bytes}");
    let (whole, _, summed) = it.recorded();
    let dropped = it.metrics.audit_dropped.get();
    assert_eq!(whole as u64 + summed + dropped, 100_000, "{whole}, {summed}, {dropped}");
}

#[test]
fn what_is_left_is_summed_up_at_the_end() {
    let mut it = Recorded::new();
    (0..10).for_each(|_| it.note(1, 0));
    drop(it.recent.take());
    assert_eq!(it.recorded(), (3, 1, 7));
    assert_eq!(it.metrics.audit_dropped.get(), 0);
}
