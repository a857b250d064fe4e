//! Bounds of the table, and what gateways tell each other.

use super::*;
use crate::violations::ViolationEvent;

const GUARD: GuardNumbers =
    GuardNumbers { window_us: 10_000_000, threshold: 5, penalty_us: 60_000_000 };

fn id(number: u64) -> BucketId {
    // Spread over the shards, as keyed hashes are.
    let mixed = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    BucketId(mixed << 64 | u128::from(number))
}

fn table(max_keys: usize, reports: bool) -> GuardTable {
    let table = GuardTable::new(max_keys, reports);
    table.guards.write().insert("flood".into(), GUARD);
    table
}

fn subject(number: u64) -> GuardSubject {
    let shared_key = format!("weir:@guard:flood:{number}").into_bytes().into();
    GuardSubject { guard: "flood".into(), mode: Mode::Enforce, key: number.to_string(), shared_key }
}

struct TestRequest(u64);

impl CountedRequest for TestRequest {
    fn subject(&self) -> GuardSubject {
        subject(self.0)
    }

    fn violation(&self, counted: &GuardCount) -> Violation {
        Violation::new(ViolationEvent::detected(counted.stage), self.0.to_string(), "guard")
    }
}

fn send(table: &GuardTable, number: u64, at: Micros, count: usize) -> GuardCount {
    let mut last = None;
    for _ in 0..count {
        last = Some(table.count(&GUARD, id(number), at, &TestRequest(number)));
    }
    last.expect("at least one")
}

const NOW: Micros = Micros(1_000_000_003_000_000);

fn later(seconds: u64) -> Micros {
    Micros(NOW.0 + seconds * 1_000_000)
}

#[test]
fn a_block_is_never_forgotten_to_make_room() {
    let table = table(640, false);
    send(&table, 1, NOW, 6);
    assert_eq!(send(&table, 1, later(10), 6).stage, GuardStage::Blocked);
    for number in 2..20_000 {
        send(&table, number, later(11), 1);
    }
    assert!(table.len() <= 640, "{}", table.len());
    assert_eq!(table.look_up(&GUARD, id(1), later(12)).stage, GuardStage::Blocked);
    assert_eq!(table.penalties(later(12)).len(), 1);
}

#[test]
fn one_that_floods_is_noticed_among_any_number_of_new_keys() {
    let table = table(640, false);
    let mut stage = GuardStage::Clean;
    for number in 2..20_000 {
        send(&table, number, NOW, 1);
        if number % 100 == 0 {
            stage = send(&table, 1, NOW, 2).stage;
        }
    }
    assert_eq!(stage, GuardStage::Warned);
}

/// Has as many blocked as there is room for.
fn fill_with_blocks(table: &GuardTable) {
    for number in 0..20 * table.max_keys() as u64 {
        table.apply_notice(id(number), &blocked_notice(number), NOW);
    }
}

fn blocked_notice(number: u64) -> PenaltyNotice {
    let there = table(100, false);
    send(&there, number, NOW, 6);
    send(&there, number, later(10), 6);
    let notice = there.penalties(later(10))[0].notice();
    assert_eq!(notice.stage, GuardStage::Blocked as u64);
    notice
}

#[test]
fn a_table_full_of_blocks_counts_nobody_else_and_keeps_them() {
    let table = table(64, false);
    fill_with_blocks(&table);
    let known = table.penalties(later(1)).len();
    assert_eq!(known, 64);
    assert!(table.overflow.untold() > 0, "it is told of");
    for number in 10_000..12_000 {
        send(&table, number, later(1), 6);
    }
    assert_eq!((table.len(), table.penalties(later(1)).len()), (64, known));
}

#[test]
fn a_table_full_of_warnings_still_notices_offenders_and_hears_of_blocks() {
    let table = table(640, false);
    for number in 0..10_000 {
        send(&table, number, NOW, 6);
    }
    assert!(table.penalties(NOW).len() > 600);
    assert_eq!(send(&table, 20_000, NOW, 6).stage, GuardStage::Warned);
    assert_eq!(send(&table, 20_000, later(10), 6).stage, GuardStage::Blocked);
    for number in 30_000..30_100 {
        table.apply_notice(id(number), &blocked_notice(number), later(10));
    }
    for number in (30_000..30_100).chain([20_000]) {
        let known = table.look_up(&GUARD, id(number), later(11));
        assert_eq!(known.stage, GuardStage::Blocked, "{number}");
    }
    assert_eq!(table.overflow.untold(), 0);
}

#[test]
fn those_who_are_only_counted_make_room_before_those_who_are_warned() {
    let table = table(640, false);
    for number in 0..50 {
        send(&table, number, NOW, 6);
    }
    for number in 50..20_000 {
        send(&table, number, NOW, 1);
    }
    assert_eq!(table.penalties(NOW).len(), 50);
}

#[test]
fn counts_of_two_gateways_add_up() {
    let (here, there) = (table(100, true), table(100, true));
    send(&here, 1, NOW, 4);
    send(&there, 1, NOW, 3);
    let reports = here.take_reports(10);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].requests, 4);
    assert!(here.take_reports(10).is_empty(), "told once");
    let theirs = there.take_reports(10);
    // What a store makes of both.
    let sum = GUARD.count(GUARD.count(GuardState::default(), NOW, 4), NOW, theirs[0].requests);
    assert_eq!(sum.stage, GuardStage::Warned);
    there.merge_shared(&theirs[0], sum, NOW);
    let known = there.look_up(&GUARD, id(1), NOW);
    assert_eq!((known.stage, known.count), (GuardStage::Warned, 7));
    let notice = there.penalties(NOW)[0].notice();
    here.apply_notice(id(1), &notice, NOW);
    assert_eq!(here.look_up(&GUARD, id(1), NOW).stage, GuardStage::Warned);
}

#[test]
fn what_could_not_be_reported_is_reported_later() {
    let table = table(100, true);
    send(&table, 1, NOW, 2);
    let reports = table.take_reports(10);
    send(&table, 1, NOW, 1);
    table.put_back(&reports);
    assert_eq!(table.take_reports(10)[0].requests, 3);
    table.put_back(&reports);
    send(&table, 1, later(10), 1);
    let reports = table.take_reports(10);
    let told = |reports: &[GuardReport]| -> Vec<_> {
        reports.iter().map(|it| (it.state.window_end, it.requests)).collect()
    };
    let (before, now) = (GUARD.window_end(NOW), GUARD.window_end(later(10)));
    assert_eq!(told(&reports), [(before, 2), (now, 1)], "each with its window");
    table.put_back(&reports);
    assert_eq!(told(&table.take_reports(10)), [(before, 2), (now, 1)]);
}

#[test]
fn report_of_a_window_that_ended_meanwhile_is_put_back_to_that_window() {
    let table = table(100, true);
    send(&table, 1, NOW, 4);
    let reports = table.take_reports(10);
    send(&table, 1, later(10), 1);
    table.put_back(&reports);
    let told: Vec<_> = table.take_reports(10).iter().map(|it| it.requests).collect();
    assert_eq!(told, [4, 1]);
}

#[test]
fn requests_stay_with_their_window_if_it_ends_before_they_are_reported() {
    let table = table(100, true);
    send(&table, 1, NOW, 2);
    let reports = table.take_reports(10);
    send(&table, 1, NOW, 3);
    table.merge_shared(&reports[0], reports[0].state, later(10));
    let told: Vec<_> = table.take_reports(10).iter().map(|it| it.requests).collect();
    assert_eq!(told, [3, 0]);
    send(&table, 1, later(10), 4);
    send(&table, 1, later(40), 1);
    let told: Vec<_> = table.take_reports(10).iter().map(|it| it.requests).collect();
    assert_eq!(told, [1], "what is older than the window before counts no more");
}

#[test]
fn a_lifted_penalty_leaves_the_key_clean() {
    let table = table(100, false);
    send(&table, 1, NOW, 6);
    assert!(table.lift(id(1), NOW));
    assert!(!table.lift(id(1), NOW));
    assert_eq!(send(&table, 1, NOW, 5).stage, GuardStage::Clean);
    assert_eq!(send(&table, 1, NOW, 1).stage, GuardStage::Warned);
}

#[test]
fn penalties_survive_in_a_snapshot() {
    let (before, after) = (table(100, false), table(100, false));
    send(&before, 7, NOW, 6);
    for penalty in before.penalties(NOW) {
        let kept = penalty.kept();
        after.apply_notice(kept.kept_id().expect("an id"), &kept, later(1));
    }
    let told = |table: &GuardTable| -> Vec<_> {
        let penalties = table.penalties(later(1));
        penalties.into_iter().map(|it| Penalty { shared_key: Box::default(), ..it }).collect()
    };
    assert_eq!(told(&after), told(&before));
    assert_eq!(told(&after).len(), 1);
}

#[test]
fn penalty_that_is_heard_counts_no_requests() {
    let (here, there) = (table(100, true), table(100, true));
    send(&there, 1, NOW, 6);
    let notice = there.penalties(NOW)[0].notice();
    // Of the same window, of a later one, and with requests of its own.
    for heard_at in [NOW, later(10)] {
        here.apply_notice(id(1), &notice, heard_at);
        let known = here.look_up(&GUARD, id(1), heard_at);
        assert_eq!((known.stage, known.count), (GuardStage::Warned, 0));
    }
    assert_eq!(send(&here, 1, later(10), 5).stage, GuardStage::Warned);
    here.apply_notice(id(1), &notice, later(11));
    assert_eq!(here.look_up(&GUARD, id(1), later(11)).count, 5);
    assert_eq!(send(&here, 1, later(20), 5).stage, GuardStage::Warned);
    assert_eq!(send(&here, 1, later(20), 1).stage, GuardStage::Blocked);
}

#[test]
fn penalty_that_is_heard_or_restored_lasts_no_longer_than_one_that_begins() {
    let (here, now) = (table(100, false), later(0));
    let day = 86_400_000_000;
    // Of a clock that was a day ahead, or of a guard whose penalty was longer.
    for (number, stage, seconds) in [(1, GuardStage::Warned, 60), (2, GuardStage::Blocked, 120)] {
        let notice = PenaltyNotice {
            stage: stage as u64,
            until: now.0 + day,
            offence: now.0 + day,
            ..blocked_notice(number)
        };
        here.apply_notice(id(number), &notice, now);
        for (after, until) in [(0, seconds), (30, seconds)] {
            let known = here.look_up(&GUARD, id(number), later(after));
            assert_eq!((known.stage, known.until), (stage, later(until)));
        }
    }
}

#[test]
fn penalties_are_listed_as_they_hold_after_the_clock_was_set_back() {
    let table = table(100, false);
    send(&table, 1, later(10_000), 6);
    send(&table, 1, later(10_010), 6);
    let until = |listed: &[Penalty]| listed.iter().map(|it| it.until).collect::<Vec<_>>();
    assert_eq!(until(&table.penalties(NOW)), [later(120)]);
    assert_eq!(until(&table.penalty_page(later(30), None, 10).penalties), [later(120)]);
}

#[test]
fn offence_is_recorded_once_the_store_has_been_told_of_it() {
    let here = table(100, true);
    assert_eq!(send(&here, 1, NOW, 6).detection, Detection::Pending);
    let reports = here.take_reports(10);
    assert!(reports[0].pending.is_some());
    here.put_back(&reports);
    assert!(here.take_reports(10)[0].pending.is_some(), "until it has been told");
    assert!(here.take_pending().is_empty(), "it is told now");
    let alone = table(100, true);
    send(&alone, 1, NOW, 6);
    assert!(alone.set_alone(true) && !alone.set_alone(true));
    let noticed = alone.take_pending();
    assert_eq!((noticed.len(), noticed[0].0.count), (1, 6));
    assert_eq!(send(&alone, 1, later(10), 6).detection, Detection::Noticed, "nobody to ask");
    assert_eq!(send(&table(100, false), 1, NOW, 6).detection, Detection::Noticed);
}

#[test]
fn two_offences_before_a_report_are_a_warning_and_a_block() {
    let here = table(100, true);
    assert_eq!(send(&here, 1, NOW, 6).detection, Detection::Pending);
    let blocked = send(&here, 1, later(10), 6);
    assert_eq!((blocked.stage, blocked.detection), (GuardStage::Blocked, Detection::Noticed));
    let [report, _] = &here.take_reports(10)[..] else { panic!("one for each window") };
    let noticed = report.pending.as_deref().expect("the warning has not been recorded");
    assert!(is_overtaken(noticed, report.state.stage), "it is no second block");
    let other = send(&here, 2, NOW, 6);
    let first = &here.take_reports(10)[0];
    assert!(!is_overtaken(first.pending.as_deref().expect("it is pending"), other.stage));
}
