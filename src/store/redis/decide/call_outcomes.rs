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
    /// Not charged, and it never will be.
    NotRun,
    /// It has to be taken to have been charged.
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
mod tests;
