//! A full table, and what gateways tell each other.

use super::*;

const NOW: Micros = Micros(20_000 * 86_400_000_000 + 5);

fn id(number: u64) -> BucketId {
    // Spread over the shards, as keyed hashes are.
    let mixed = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    BucketId(mixed << 64 | u128::from(number))
}

fn table(max_users: usize, reports: bool) -> TrustTable {
    TrustTable::new(max_users, reports, &UserScores::new(), Clock::manual(NOW))
}

fn meet(table: &TrustTable, number: u64) {
    table.introduce(id(number), Score::ZERO, || number.to_string().into_bytes());
}

fn send(table: &TrustTable, number: u64, event: UserEvent, count: usize) {
    (0..count).for_each(|_| table.count(id(number), event));
}

fn sums(table: &TrustTable, number: u64) -> Option<(u64, u64, u32)> {
    let TrustSums { successes, failures, violations } =
        table.look_up(id(number), table.now())?.sums;
    Some((successes, failures, violations))
}

#[test]
fn calls_of_known_users_are_counted() {
    let table = table(100, false);
    send(&table, 1, UserEvent::Success, 1);
    assert_eq!(sums(&table, 1), None, "nobody has met it");
    meet(&table, 1);
    assert_eq!(sums(&table, 1), Some((0, 0, 0)));
    send(&table, 1, UserEvent::Success, 3);
    send(&table, 1, UserEvent::Failure, 2);
    send(&table, 1, UserEvent::Violation, 1);
    send(&table, 1, UserEvent::Neither, 5);
    assert_eq!(sums(&table, 1), Some((3, 2, 1)));
    assert!(table.take_reports(10).is_empty(), "there is nobody to tell");
    assert_eq!(sums(&table, 2), None);
}

#[test]
fn answers_say_something_of_users_or_nothing() {
    let of = |status| UserEvent::of_status(http::StatusCode::from_u16(status).expect("a status"));
    for (status, event) in [
        (101, UserEvent::Neither),
        (200, UserEvent::Success),
        (304, UserEvent::Success),
        (400, UserEvent::Failure),
        (404, UserEvent::Failure),
        (429, UserEvent::Neither),
        (499, UserEvent::Failure),
        (500, UserEvent::Neither),
        (503, UserEvent::Neither),
    ] {
        assert_eq!(of(status), event, "{status}");
    }
}

#[test]
fn a_full_table_forgets_those_of_whom_there_is_least_to_remember() {
    let table = table(640, false);
    meet(&table, 1);
    send(&table, 1, UserEvent::Violation, 1);
    meet(&table, 2);
    send(&table, 2, UserEvent::Success, 100);
    for number in 3..20_000 {
        meet(&table, number);
        send(&table, number, UserEvent::Success, 1);
    }
    assert!(table.len() <= 640, "{}", table.len());
    assert_eq!(sums(&table, 1), Some((0, 0, 1)));
    assert_eq!(sums(&table, 2), Some((100, 0, 0)));
}

#[test]
fn what_has_to_be_told_is_bounded_while_nobody_can_be_told() {
    let table = table(640, true);
    for number in 0..20_000 {
        meet(&table, number);
        send(&table, number, UserEvent::Success, 1);
    }
    let told = table.take_reports(usize::MAX);
    assert!(told.len() <= 640, "{}", told.len());
    assert!(table.take_reports(usize::MAX).is_empty());
}

#[test]
fn every_user_is_in_the_histogram_once() {
    let metrics = crate::telemetry::Metrics::new();
    let counted = || -> usize {
        let page = metrics.page();
        let mut lines = page.lines();
        let count = lines.find_map(|it| it.strip_prefix("weir_trust_score_count "));
        count.expect("a count").parse().expect("a number")
    };
    let table = TrustTable::new(640, false, &metrics.user_scores, Clock::manual(NOW));
    for number in 0..5_000 {
        meet(&table, number);
        table.introduce(id(number), Score::FULL, || unreachable!("it is known"));
    }
    assert_eq!(table.len(), counted());
    drop(table);
    assert_eq!(0_usize, counted());
}

#[test]
fn counts_of_two_gateways_add_up() {
    let (here, there) = (table(100, true), table(100, true));
    meet(&here, 1);
    meet(&there, 1);
    send(&here, 1, UserEvent::Success, 4);
    send(&there, 1, UserEvent::Failure, 3);
    let reports = here.take_reports(10);
    assert_eq!((reports.len(), &*reports[0].name), (1, &b"1"[..]));
    assert_eq!((reports[0].days[0].successes, reports[0].days[0].day), (4, 20_000));
    assert!(here.take_reports(10).is_empty(), "told once");
    send(&here, 1, UserEvent::Success, 1);
    // What a store makes of both.
    here.merge_shared(&reports[0], "20000 4 3 0;19990 0 0 2");
    assert_eq!(sums(&here, 1), Some((5, 3, 2)), "with what is yet to be told");
    assert_eq!(here.take_reports(10)[0].days[0].successes, 1);
    assert_eq!(sums(&there, 1), Some((0, 3, 0)));
}

#[test]
fn a_user_that_is_new_here_is_asked_about() {
    let table = table(100, true);
    meet(&table, 7);
    let reports = table.take_reports(10);
    assert!(reports[0].days.is_empty());
    table.merge_shared(&reports[0], "19999 10 0 1");
    assert_eq!(sums(&table, 7), Some((10, 0, 1)));
    send(&table, 7, UserEvent::Neither, 1);
    assert_eq!(table.take_reports(10).len(), 1, "asked again with the next call");
}

#[test]
fn what_could_not_be_reported_is_reported_later() {
    let clock = Clock::manual(NOW);
    let table = TrustTable::new(100, true, &UserScores::new(), clock.clone());
    meet(&table, 1);
    send(&table, 1, UserEvent::Success, 2);
    let reports = table.take_reports(10);
    send(&table, 1, UserEvent::Success, 1);
    table.put_back(&reports);
    clock.set(Micros(NOW.0 + 86_400_000_000));
    send(&table, 1, UserEvent::Violation, 1);
    let days = &table.take_reports(10)[0].days;
    let told: Vec<_> = days.iter().map(|it| (it.day, it.successes, it.violations)).collect();
    assert_eq!(told, [(20_000, 3, 0), (20_001, 0, 1)], "each with its day");
    assert_eq!(sums(&table, 1), Some((3, 0, 1)), "and known here all the while");
}

#[test]
fn users_survive_in_a_snapshot() {
    let (before, after) = (table(100, false), table(100, false));
    for number in 0..10 {
        before.introduce(id(number), Score::of_hundredths(number), Vec::new);
        send(&before, number, UserEvent::Success, number as usize);
    }
    let kept = before.kept();
    assert_eq!(kept.len(), 9, "there is nothing to remember of the first");
    after.restore(&kept);
    for number in 1..10 {
        let known = |table: &TrustTable| table.look_up(id(number), NOW);
        assert_eq!(known(&after), known(&before));
    }
    after.restore(&[KeptUser { id: "junk".to_owned(), days: "junk".to_owned(), score: 200 }]);
    assert_eq!(after.len(), 9);
}
