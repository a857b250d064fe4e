use super::*;

#[test]
fn clones_of_a_manual_clock_share_their_time() {
    let clock = Clock::manual(Micros(5));
    let other = clock.clone();
    clock.advance(Duration::from_micros(3));
    assert_eq!(other.now(), Micros(8));
    other.set(Micros(2));
    assert_eq!(clock.now(), Micros(2));
}

#[test]
fn the_system_clock_starts_at_the_wall_clock_and_never_runs_back() {
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Clock::system();
    let first = clock.now();
    assert!(u128::from(first.0) >= before.as_micros());
    assert!(clock.now() >= first);
}

#[test]
fn a_steered_clock_shows_the_other_machines_time() {
    let clock = Clock::steered();
    let (other, earlier) = (clock.clone(), Micros(5_000_000));
    let now = Instant::now();
    clock.steer(earlier, now, now);
    let shown = other.now();
    assert!(shown >= earlier && shown.since(earlier) < Duration::from_secs(60), "{shown:?}");
    assert!(clock.wall_step() > 0);
}

#[test]
fn an_older_reply_does_not_set_a_steered_clock_back() {
    const HOUR: u64 = 3_600_000_000;
    let (clock, start) = (Clock::steered(), Instant::now());
    let at = |ms: u64| start + Duration::from_millis(ms);
    let shift = || match &clock.0 {
        ClockSource::Steered(anchor, shift) => {
            anchor.at(start).saturating_add_signed(shift.load(Ordering::Relaxed))
        }
        _ => 0,
    };
    // The other clock shows two hours at `start`, whatever the replies take.
    let time = |ms: u64| Micros(2 * HOUR + ms * 1_000);
    clock.steer(time(10), at(9), at(11));
    let known = shift();
    assert_eq!(known, 2 * HOUR - 1_000, "as far as a reply of two milliseconds can tell");
    for (ran, sent, received) in [(10, 0, 500), (5, 5, 900), (300, 20, 310), (2, 1, 4)] {
        clock.steer(time(ran), at(sent), at(received));
        assert_eq!(shift(), known, "a slow reply, or one that was overtaken");
    }
    clock.steer(time(20), at(20), at(20));
    assert_eq!(shift(), 2 * HOUR, "a faster reply knows better");
    clock.steer(Micros(HOUR), at(30), at(31));
    assert_eq!(shift(), HOUR - 31_000, "the other clock was set back");
}

#[test]
fn nothing_lies_a_negative_time_after_another() {
    assert_eq!(Micros(3).since(Micros(5)), Duration::ZERO);
    assert_eq!(Micros(5).since(Micros(3)), Duration::from_micros(2));
}
