//! What has become known of calls whose replies did not come in time: from the reply itself, if it
//! came late, or from the fence after a reconnect (`lua/fence.lua`).

use std::collections::VecDeque;

use crate::clock::Micros;

/// Calls that are remembered: more than can be in doubt at once. On a cluster every slot has its
/// own.
const MOST: usize = 2_048;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Verdicts {
    /// Calls up to this number that are not named have charged nothing, and never will.
    settled: u64,
    calls: VecDeque<(u64, Heard)>,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// It was run at that instant of Redis's clock, if that is known, and of its requests these
    /// were admitted.
    Run { at: Option<Micros>, admitted: Vec<bool> },
    /// It was not, and never will be.
    NotRun,
    /// Nobody will ever know.
    Lost,
}

/// What became of one of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Admitted(Option<Micros>),
    Refused,
    NotRun,
    Lost,
}

impl Verdicts {
    /// Takes in the text of a fence that was raised to `sent`. Whatever is no fence says nothing.
    pub(super) fn hear_fence(&mut self, text: &str, sent: u64) {
        self.settled = self.settled.max(sent);
        for entry in text.split(' ').skip(1) {
            let mut parts = entry.split(':');
            if let Some(Ok(number)) = parts.next().map(str::parse)
                && let Some(admitted) = parts.next()
            {
                let admitted = admitted.bytes().map(|it| it == b'1').collect();
                let at = parts.next().and_then(|at| at.parse().ok()).map(Micros);
                self.hear(number, Heard::Run { at, admitted });
            }
        }
    }

    /// Takes in what became of a call.
    pub(super) fn hear(&mut self, call: u64, heard: Heard) {
        if self.find(call).is_some() {
            return;
        }
        self.calls.push_back((call, heard));
        if self.calls.len() > MOST {
            self.calls.pop_front();
        }
    }

    /// Whether a call was run, and its requests have their verdicts.
    pub(super) fn was_run(&self, call: u64) -> bool {
        matches!(self.find(call), Some(Heard::Run { .. }))
    }

    /// What became of a request of a call, if that is known.
    pub(super) fn of(&self, call: u64, request: usize) -> Option<Verdict> {
        Some(match self.find(call) {
            Some(Heard::Run { at, admitted }) => match admitted.get(request) {
                Some(true) => Verdict::Admitted(*at),
                _ => Verdict::Refused,
            },
            Some(Heard::NotRun) => Verdict::NotRun,
            Some(Heard::Lost) => Verdict::Lost,
            None if call <= self.settled => Verdict::NotRun,
            None => return None,
        })
    }

    /// Whether it was charged, or has to be taken to have been.
    pub(super) fn charged(&self, call: u64, request: usize) -> Option<bool> {
        let verdict = self.of(call, request)?;
        Some(matches!(verdict, Verdict::Admitted(_) | Verdict::Lost))
    }

    fn find(&self, call: u64) -> Option<&Heard> {
        self.calls.iter().rev().find(|(number, _)| *number == call).map(|(_, heard)| heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(admitted: &[bool]) -> Heard {
        Heard::Run { at: Some(Micros(5)), admitted: admitted.to_vec() }
    }

    #[test]
    fn a_fence_names_the_requests_that_were_charged_and_those_that_were_refused() {
        let mut verdicts = Verdicts::default();
        assert_eq!(verdicts.of(16, 0), None);
        verdicts.hear_fence("17 16:1101:70 15:1:60", 18);
        let of = |call, request| verdicts.of(call, request);
        let at = |at| Some(Verdict::Admitted(Some(Micros(at))));
        assert_eq!([of(16, 0), of(16, 3), of(15, 0)], [at(70), at(70), at(60)]);
        assert_eq!(of(16, 2), Some(Verdict::Refused));
        assert_eq!([of(17, 0), of(18, 0)], [Some(Verdict::NotRun); 2]);
        assert_eq!(of(19, 0), None);
        assert!(verdicts.was_run(15) && !verdicts.was_run(17));
        let charged = |call, request| verdicts.charged(call, request);
        assert_eq!(
            [charged(16, 0), charged(16, 2), charged(17, 0)].map(Option::unwrap),
            [true, false, false]
        );
    }

    #[test]
    fn what_is_no_fence_says_nothing() {
        for text in ["", "garbage", "1:1", "5 x:1 :1 7", "5"] {
            let mut verdicts = Verdicts::default();
            verdicts.hear_fence(text, 5);
            assert_eq!(verdicts, Verdicts { settled: 5, calls: VecDeque::new() }, "{text}");
        }
    }

    #[test]
    fn a_late_reply_is_believed_before_a_fence_and_not_forgotten_for_it() {
        let mut verdicts = Verdicts::default();
        verdicts.hear(7, run(&[true]));
        verdicts.hear_fence("9 9:1 8:1", 9);
        assert_eq!(verdicts.charged(7, 0), Some(true));
        for call in 100..10_000 {
            verdicts.hear(call, run(&[true]));
        }
        assert_eq!(verdicts.calls.len(), MOST);
    }

    #[test]
    fn what_nobody_will_ever_know_counts_as_charged() {
        let mut verdicts = Verdicts::default();
        verdicts.hear(1, Heard::Lost);
        verdicts.hear(2, Heard::NotRun);
        assert_eq!((verdicts.charged(1, 0), verdicts.of(1, 0)), (Some(true), Some(Verdict::Lost)));
        assert_eq!(verdicts.charged(2, 0), Some(false));
    }
}
