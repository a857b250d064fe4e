//! The promise of the sliding log: in no window of its length, wherever it begins, passes more
//! than its count.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::sliding_log::SlidingLog;
use weir::limit::{Policy, Rate, Retry};

use crate::decider::{Decider, Engine, on_every_engine};
use crate::strategies::{cases, log, share, start, steps};

/// Every window that begins with a charge: any other holds no more than one of these.
pub(crate) fn holds_in_every_window(
    history: &[(Micros, u64)],
    count: u64,
    period: u64,
) -> Result<(), TestCaseError> {
    for (first, _) in history {
        let inside = history.iter().filter(|(at, _)| first <= at && at.0 - first.0 < period);
        prop_assert!(inside.map(|(_, cost)| cost).sum::<u64>() <= count);
    }
    Ok(())
}

fn no_window_holds_more_than_the_count<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in log(), start in start(), steps in steps(),
    )| {
        let Policy::SlidingLog(log) = &policy else { panic!("no log") };
        let mut decider = engine.fresh();
        let (mut now, mut promised, mut history) = (start, None, Vec::new());
        for step in steps {
            let cost;
            (now, cost) = step.place(&policy, now, promised);
            promised = match decider.ask(now, &policy, cost).refused {
                Some(Retry::At(at)) => Some(at),
                Some(Retry::Never) => None,
                None => {
                    history.push((now, cost));
                    None
                }
            };
        }
        holds_in_every_window(&history, log.rate().count(), log.rate().period_us())?;
    });
}

/// Many in the same microsecond, in bursts around the length of the window.
fn no_window_holds_more_than_the_count_in_a_storm<E: Engine>(engine: &E) {
    let gap = prop_oneof![
        6 => Just(0), 2 => 0..3_u64, 1 => Just(1_000), 1 => Just(999), 1 => 0..1_500_u64,
    ];
    let storm = prop::collection::vec((gap, 0..=1_u64 << 16), 1..150);
    proptest!(cases(E::CASES), |(
        count in 1..30_u64, start in start(), storm in storm,
    )| {
        let rate = Rate::new(count, Duration::from_micros(1_000)).expect("a rate");
        let policy = Policy::SlidingLog(SlidingLog::new(rate).expect("a log"));
        let (mut decider, mut now, mut history) = (engine.fresh(), start, Vec::new());
        for (gap, cost) in storm {
            now = Micros(now.0 + gap);
            let cost = share(cost, count / 3).max(1);
            if decider.ask(now, &policy, cost).refused.is_none() {
                history.push((now, cost));
            }
        }
        holds_in_every_window(&history, count, 1_000)?;
    });
}

on_every_engine! {
    no_window_holds_more_than_the_count
    no_window_holds_more_than_the_count_in_a_storm
}
