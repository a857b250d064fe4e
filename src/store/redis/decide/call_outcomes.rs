//! What became of calls whose replies did not come in time, as a late reply or the fence after a
//! reconnect (`lua/fence.lua`) tells.

use std::collections::VecDeque;

use crate::clock::Micros;
use crate::store::redis::wire::pair_choices::{PairChoice, PairChoices};
use crate::store::redis::wire::reply::RequestVerdict;

/// Calls that are remembered: more than can be uncertain at once. On a cluster every hash slot has its
/// own.
const MOST: usize = 2_048;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CallOutcomes {
    /// Calls up to this number that are not named have charged nothing, and never will.
    resolved_up_to: u64,
    calls: VecDeque<(u64, CallOutcome)>,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// It was run at that instant of Redis's clock, if that is known, with these outcomes of its
    /// requests.
    Run { at: Option<Micros>, verdicts: Vec<RequestVerdict> },
    /// It was not, and never will be.
    NotRun,
    /// It can never be known, and counts as charged.
    Lost,
}

/// What became of one of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// Charged at that instant, if it is known, and of pairs to these.
    Admitted {
        at: Option<Micros>,
        pairs: PairChoices,
    },
    Refused,
    NotRun,
    Lost,
}

impl CallOutcomes {
    /// Takes in the text of a fence that was raised to `sent`. Anything else is ignored.
    pub(crate) fn record_fence(&mut self, text: &str, sent: u64) {
        self.resolved_up_to = self.resolved_up_to.max(sent);
        for entry in text.split(' ').skip(1) {
            let mut parts = entry.split(':');
            if let Some(Ok(number)) = parts.next().map(str::parse)
                && let Some(verdicts) = parts.next()
            {
                let verdicts = fence_verdicts(verdicts);
                let at = parts.next().and_then(|at| at.parse().ok()).map(Micros);
                self.record(number, CallOutcome::Run { at, verdicts });
            }
        }
    }

    /// Takes in what became of a call.
    pub(crate) fn record(&mut self, call: u64, outcome: CallOutcome) {
        if self.find(call).is_some() {
            return;
        }
        self.calls.push_back((call, outcome));
        if self.calls.len() > MOST {
            self.calls.pop_front();
        }
    }

    /// Whether a call was run, and the outcomes of its requests are known.
    pub(crate) fn was_run(&self, call: u64) -> bool {
        matches!(self.find(call), Some(CallOutcome::Run { .. }))
    }

    /// What became of a request of a call, if that is known.
    pub(crate) fn of(&self, call: u64, request: usize) -> Option<RequestOutcome> {
        Some(match self.find(call) {
            Some(CallOutcome::Run { at, verdicts }) => match verdicts.get(request) {
                Some(RequestVerdict { admitted: true, pairs }) => {
                    RequestOutcome::Admitted { at: *at, pairs: *pairs }
                }
                _ => RequestOutcome::Refused,
            },
            Some(CallOutcome::NotRun) => RequestOutcome::NotRun,
            Some(CallOutcome::Lost) => RequestOutcome::Lost,
            None if call <= self.resolved_up_to => RequestOutcome::NotRun,
            None => return None,
        })
    }

    fn find(&self, call: u64) -> Option<&CallOutcome> {
        self.calls.iter().rev().find(|(number, _)| *number == call).map(|(_, outcome)| outcome)
    }
}

/// What a fence says of the requests of a call: see `lua/fence.lua`.
fn fence_verdicts(text: &str) -> Vec<RequestVerdict> {
    let mut verdicts: Vec<RequestVerdict> = Vec::new();
    let mut pair = 0;
    for letter in text.bytes() {
        let choice = match letter {
            b'f' => PairChoice::First,
            b's' => PairChoice::Second,
            b'n' => PairChoice::Neither,
            _ => {
                let (admitted, pairs) = (letter == b'1', PairChoices::default());
                verdicts.push(RequestVerdict { admitted, pairs });
                pair = 0;
                continue;
            }
        };
        if let Some(last) = verdicts.last_mut() {
            last.pairs = last.pairs.with(pair, choice);
            pair += 1;
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(admitted: &[bool]) -> CallOutcome {
        let verdict =
            |admitted: &bool| RequestVerdict { admitted: *admitted, ..Default::default() };
        CallOutcome::Run { at: Some(Micros(5)), verdicts: admitted.iter().map(verdict).collect() }
    }

    fn admitted(at: u64) -> Option<RequestOutcome> {
        let (at, pairs) = (Some(Micros(at)), PairChoices::default());
        Some(RequestOutcome::Admitted { at, pairs })
    }

    #[test]
    fn a_fence_tells_which_bucket_of_each_pair_was_charged() {
        let mut call_outcomes = CallOutcomes::default();
        call_outcomes.record_fence("17 16:01sfn1n1:70", 17);
        let pairs = |request| match call_outcomes.of(16, request) {
            Some(RequestOutcome::Admitted { pairs, .. }) => [0, 1, 2].map(|pair| pairs.of(pair)),
            other => panic!("{other:?}"),
        };
        use PairChoice::{First, Neither, Second};
        assert_eq!(call_outcomes.of(16, 0), Some(RequestOutcome::Refused));
        assert_eq!(pairs(1), [Second, First, Neither]);
        assert_eq!(pairs(2), [Neither, First, First]);
        assert_eq!(call_outcomes.of(16, 3), admitted(70));
        assert_eq!(call_outcomes.of(16, 4), Some(RequestOutcome::Refused));
    }

    #[test]
    fn a_fence_names_the_requests_that_were_charged_and_those_that_were_refused() {
        let mut call_outcomes = CallOutcomes::default();
        assert_eq!(call_outcomes.of(16, 0), None);
        call_outcomes.record_fence("17 16:1101:70 15:1:60", 18);
        let of = |call, request| call_outcomes.of(call, request);
        assert_eq!([of(16, 0), of(16, 3), of(15, 0)], [70, 70, 60].map(admitted));
        assert_eq!(of(16, 2), Some(RequestOutcome::Refused));
        assert_eq!([of(17, 0), of(18, 0)], [Some(RequestOutcome::NotRun); 2]);
        assert_eq!(of(19, 0), None);
        assert!(call_outcomes.was_run(15) && !call_outcomes.was_run(17));
    }

    #[test]
    fn what_is_no_fence_says_nothing() {
        for text in ["", "garbage", "1:1", "5 x:1 :1 7", "5"] {
            let mut call_outcomes = CallOutcomes::default();
            call_outcomes.record_fence(text, 5);
            assert_eq!(
                call_outcomes,
                CallOutcomes { resolved_up_to: 5, calls: VecDeque::new() },
                "{text}"
            );
        }
    }

    #[test]
    fn a_late_reply_is_believed_before_a_fence_and_not_forgotten_for_it() {
        let mut call_outcomes = CallOutcomes::default();
        call_outcomes.record(7, run(&[true]));
        call_outcomes.record_fence("9 9:1 8:1", 9);
        assert_eq!(call_outcomes.of(7, 0), admitted(5));
        for call in 100..10_000 {
            call_outcomes.record(call, run(&[true]));
        }
        assert_eq!(call_outcomes.calls.len(), MOST);
    }

    #[test]
    fn what_can_never_be_known_is_not_taken_for_a_call_that_was_not_run() {
        let mut call_outcomes = CallOutcomes::default();
        call_outcomes.record(1, CallOutcome::Lost);
        call_outcomes.record(2, CallOutcome::NotRun);
        assert_eq!(call_outcomes.of(1, 0), Some(RequestOutcome::Lost));
        assert_eq!(call_outcomes.of(2, 0), Some(RequestOutcome::NotRun));
    }
}
