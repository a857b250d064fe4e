//! Which share of Redis's answers may come too late before it counts as too slow.
//!
//! Answers that alternate between fast and slow are never late several times in a row, and yet half
//! of the requests would wait. So late answers have a budget of their own, refilled by calls in
//! place of time: of any `n` calls at most `n / 20 + slack + 1` are late before it is spent.

use std::sync::atomic::{AtomicU32, Ordering};

/// One call of so many may be late for ever.
const ONE_IN: u32 = 20;

/// Several workers may count on one.
#[derive(Debug)]
pub(crate) struct LateBudget {
    /// Calls in time that it takes until all late ones are made up for.
    debt: AtomicU32,
    most: u32,
}

impl LateBudget {
    /// `slack` late answers in a row spend it.
    pub(crate) fn new(slack: u32) -> Self {
        LateBudget { debt: AtomicU32::new(0), most: slack.saturating_mul(ONE_IN - 1) }
    }

    pub(crate) fn record_in_time(&self) {
        // Mostly nothing is late, and nothing is written.
        if self.debt.load(Ordering::Relaxed) > 0 {
            let less = |debt: u32| Some(debt.saturating_sub(1));
            let _ = self.debt.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// True if more are late than may be.
    pub(crate) fn record_late(&self) -> bool {
        let more = |debt: u32| Some(debt.saturating_add(ONE_IN - 1).min(self.most));
        let before = self.debt.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        before.is_ok_and(|debt| debt + (ONE_IN - 1) >= self.most)
    }

    pub(crate) fn reset(&self) {
        self.debt.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many of these calls are late before it is spent, and how many there are until then.
    fn until_spent(slack: u32, calls: impl Iterator<Item = bool>) -> (u32, u32, bool) {
        let late_budget = LateBudget::new(slack);
        let (mut late, mut count) = (0, 0);
        for is_late in calls {
            count += 1;
            if is_late {
                late += 1;
                if late_budget.record_late() {
                    return (late, count, true);
                }
            } else {
                late_budget.record_in_time();
            }
        }
        (late, count, false)
    }

    proptest! {
        #[test]
        fn few_calls_are_late_before_it_is_spent(
            slack in 1_u32..20,
            share in 0.0..1.0_f64,
            draws in prop::collection::vec(0.0..1.0_f64, 1..400),
        ) {
            let (late, calls, _) = until_spent(slack, draws.iter().map(|it| *it < share));
            prop_assert!(f64::from(late) <= f64::from(calls) / 20.0 + f64::from(slack) + 1.0);
        }

        #[test]
        fn one_late_answer_in_twenty_five_never_spends_it(
            slack in 2_u32..20,
            first in 0_usize..25,
        ) {
            let (late, _, spent) = until_spent(slack, (0..5000).map(|it| it % 25 == first));
            prop_assert!(late == 200 && !spent);
        }
    }

    #[test]
    fn every_other_answer_late_spends_it_and_so_do_as_many_in_a_row_as_its_slack() {
        assert_eq!(until_spent(4, (0..100).map(|it| it % 2 == 0)), (5, 9, true));
        assert_eq!(until_spent(4, std::iter::repeat_n(true, 100)), (4, 4, true));
    }

    #[test]
    fn it_starts_over_after_a_reset() {
        let late_budget = LateBudget::new(2);
        assert!(!late_budget.record_late());
        late_budget.reset();
        assert!(!late_budget.record_late() && late_budget.record_late());
    }
}
