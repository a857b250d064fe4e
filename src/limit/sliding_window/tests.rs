//! The sliding window at chosen instants; random ones are in `tests/model`.

use std::time::Duration;

use super::*;

const SECOND: u64 = 1_000_000;
/// The start of a window of ten seconds, and of one minute.
const START: u64 = 1_699_999_980 * SECOND;

fn window(count: u64, seconds: u64) -> SlidingWindow {
    SlidingWindow::new(Rate::new(count, Duration::from_secs(seconds)).expect("a rate"))
}

fn at(seconds: u64) -> Micros {
    Micros(START + seconds * SECOND)
}

fn spend(window: &SlidingWindow, state: State, now: Micros, cost: u64) -> State {
    window.evaluate(state, now, cost).admitted()
}

#[test]
fn the_previous_window_fades_as_this_one_goes_on() {
    let ten = window(10, 10);
    let spent = spend(&ten, State::default(), at(5), 10);
    // 10·(10 − 2)/10 = 8 still show after two seconds of the next window.
    assert_eq!(ten.report(spent, at(12)).remaining, 2);
    let more = spend(&ten, spent, at(12), 2);
    assert_eq!(ten.evaluate(more, at(12), 1), Verdict::Refuse(Retry::At(at(13))));
    assert!(matches!(ten.evaluate(more, Micros(at(13).0 - 1), 1), Verdict::Refuse(_)));
    assert!(matches!(ten.evaluate(more, at(13), 1), Verdict::Admit(_)));
}

#[test]
fn the_promised_instant_may_lie_in_the_next_window_or_at_its_end() {
    let ten = window(10, 10);
    let spent = spend(&ten, State::default(), at(5), 10);
    assert_eq!(ten.evaluate(spent, at(5), 1), Verdict::Refuse(Retry::At(at(11))));
    assert_eq!(ten.evaluate(spent, at(5), 10), Verdict::Refuse(Retry::At(at(20))));
    assert_eq!(ten.evaluate(spent, at(5), 11), Verdict::Refuse(Retry::Never));
}

#[test]
fn a_state_ends_when_nothing_of_it_shows() {
    let ten = window(10, 10);
    let spent = spend(&ten, State::default(), at(5), 10);
    assert_eq!(spent.ends_at, at(20));
    let report = ten.report(spent, at(5));
    assert_eq!(report, Report { remaining: 0, grows_at: at(11), full_at: at(20) });
    let full = Report { remaining: 10, grows_at: at(20), full_at: at(20) };
    assert_eq!(ten.report(spent, at(20)), full);
}

#[test]
fn a_changed_period_is_no_way_to_a_fresh_window() {
    let spent = spend(&window(10, 10), State::default(), at(45), 10);
    // Read as this minute's own, an end at the minute's end would mean "spent a minute ago".
    assert_eq!(spent.ends_at, at(60));
    let minute = window(10, 60);
    let clamped = minute.clamp(spent, at(46));
    assert_eq!(minute.report(spent, at(46)).remaining, 0);
    assert_eq!(minute.report(clamped, at(46)), minute.report(spent, at(46)));
    let retry = Verdict::Refuse(Retry::At(at(66)));
    assert_eq!(minute.evaluate(spent, at(46), 1), retry);
    assert_eq!(minute.evaluate(clamped, at(59), 1), retry);
}

/// Where the ends of both periods' windows coincide, one period's state has an end that the other
/// would take for its own: only the mark tells them apart.
#[test]
fn no_everyday_change_of_the_period_gives_back_what_was_used() {
    const EVERYDAY: [u64; 17] =
        [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400];
    let pairs = EVERYDAY.iter().flat_map(|old| EVERYDAY.iter().map(move |new| (*old, *new)));
    for (old, new) in pairs.filter(|(old, new)| old != new && old.max(new) / old.min(new) <= 60) {
        let (before, after) = (window(10, old), window(10, new));
        // All these periods divide a day, so windows of both end here.
        let coincide = START.next_multiple_of(86_400 * SECOND);
        let (short, long) = (old.min(new) * SECOND, old.max(new) * SECOND);
        // Every short window of the two long ones before it: its start, middle and last moment.
        for back in (short..=2 * long).step_by(short as usize) {
            for into in [0, short / 2, short - 1] {
                let now = Micros(coincide - back + into);
                let spent = spend(&before, State::default(), now, 10);
                let last = Micros(before.window_end(now) - 1);
                for look in [now, last] {
                    let left = after.report(spent, look).remaining;
                    let clamped = after.report(after.clamp(spent, look), look).remaining;
                    assert_eq!((left, clamped), (0, 0), "{old} s to {new} s, {back} µs before");
                }
            }
        }
    }
}

#[test]
fn a_lowered_count_is_empty_and_not_in_debt() {
    let spent = spend(&window(100, 10), State::default(), at(5), 90);
    let lowered = window(10, 10);
    assert_eq!(lowered.report(spent, at(5)).remaining, 0);
    assert_eq!(lowered.evaluate(spent, at(5), 1), Verdict::Refuse(Retry::At(at(11))));
    assert!(matches!(lowered.evaluate(spent, at(11), 1), Verdict::Admit(_)));
}

#[test]
fn a_clock_that_steps_back_gives_nothing_away() {
    let ten = window(10, 10);
    let spent = spend(&ten, State::default(), at(5), 10);
    let hour_back = Micros(at(5).0 - 3_600 * SECOND);
    assert_eq!(ten.report(spent, hour_back).remaining, 0);
    let clamped = ten.clamp(spent, hour_back);
    assert_eq!(clamped.ends_at, Micros(at(20).0 - 3_600 * SECOND));
}

#[test]
fn the_largest_counts_fit() {
    let year = window(1_000_000_000, 366 * 86_400);
    let spent = spend(&year, State::default(), at(0), 1_000_000_000);
    let Verdict::Refuse(Retry::At(retry)) = year.evaluate(spent, at(0), 1) else {
        panic!("admitted by an empty window");
    };
    assert!(matches!(year.evaluate(spent, Micros(retry.0 - 1), 1), Verdict::Refuse(_)));
    assert!(matches!(year.evaluate(spent, retry, 1), Verdict::Admit(_)));
}

#[test]
fn what_is_given_back_comes_from_the_window_it_was_charged_in() {
    let ten = window(10, 10);
    let first = spend(&ten, State::default(), at(5), 4);
    let both = spend(&ten, first, at(15), 3);
    let given = ten.refund(both, at(16), 2, at(15));
    assert_eq!(given, ten.state(at(30), 4, 1));
    assert_eq!(ten.refund(both, at(16), 2, at(5)), ten.state(at(30), 2, 3));
    // Nobody has charged since: the state still speaks of the earlier window.
    assert_eq!(ten.refund(first, at(16), 1, at(5)), ten.state(at(20), 0, 3));
    assert_eq!(ten.refund(first, at(16), 9, at(5)), State::default());
}

#[test]
fn what_shows_no_more_is_not_given_back() {
    let ten = window(10, 10);
    let first = spend(&ten, State::default(), at(5), 4);
    let both = spend(&ten, first, at(15), 3);
    assert_eq!(ten.refund(both, at(25), 4, at(5)), both);
    let alone = spend(&ten, State::default(), at(15), 3);
    assert_eq!(ten.refund(alone, at(15), 3, at(1)), ten.state(at(30), 0, 3));
}

#[test]
fn a_window_owes_at_most_its_count() {
    let ten = window(10, 10);
    let first = spend(&ten, State::default(), at(5), 4);
    assert_eq!(ten.charge_after(first, at(15), 12), ten.state(at(30), 4, 10));
}
