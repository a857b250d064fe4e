//! What has become known of calls whose replies did not come in time: from the reply itself, if it
//! came late, or from the fence after a reconnect (`lua/fence.lua`).

use std::collections::VecDeque;

/// Calls that are remembered: more than can be in doubt at once.
const MOST: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Verdicts {
    /// Calls up to this number that are not named were not run, and never will be.
    settled: u64,
    /// For each call whether each of its requests was admitted. None were if it was not run.
    calls: VecDeque<(u64, Vec<bool>)>,
}

impl Verdicts {
    /// Takes in the text of a fence that was raised to `sent`. Whatever is no fence says nothing.
    pub(super) fn hear_fence(&mut self, text: &str, sent: u64) {
        self.settled = self.settled.max(sent);
        for entry in text.split(' ').skip(1) {
            if let Some((number, admitted)) = entry.split_once(':')
                && let Ok(number) = number.parse()
            {
                self.hear(number, admitted.bytes().map(|it| it == b'1').collect());
            }
        }
    }

    /// Takes in which requests of a call were admitted.
    pub(super) fn hear(&mut self, call: u64, admitted: Vec<bool>) {
        if self.was_told(call) {
            return;
        }
        self.calls.push_back((call, admitted));
        if self.calls.len() > MOST {
            self.calls.pop_front();
        }
    }

    /// Whether the requests of a call have their verdicts.
    pub(super) fn was_told(&self, call: u64) -> bool {
        self.calls.iter().any(|(number, _)| *number == call)
    }

    /// Whether a request of a call was charged, if that is known.
    pub(super) fn charged(&self, call: u64, request: usize) -> Option<bool> {
        match self.calls.iter().find(|(number, _)| *number == call) {
            Some((_, admitted)) => Some(admitted.get(request).copied().unwrap_or_default()),
            None => (call <= self.settled).then_some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_names_the_requests_that_were_charged() {
        let mut verdicts = Verdicts::default();
        assert_eq!(verdicts.charged(16, 0), None);
        verdicts.hear_fence("17 16:1101 15:1", 18);
        let charged = |call, request| verdicts.charged(call, request);
        assert_eq!([charged(16, 0), charged(16, 2), charged(16, 3)], [true, false, true].map(Some));
        assert_eq!([charged(16, 4), charged(17, 0), charged(18, 0)], [Some(false); 3]);
        assert_eq!(charged(19, 0), None);
        assert!(verdicts.was_told(15) && !verdicts.was_told(17));
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
        verdicts.hear(7, vec![true]);
        verdicts.hear_fence("9 9:1 8:1", 9);
        assert_eq!(verdicts.charged(7, 0), Some(true));
        for call in 100..200 {
            verdicts.hear(call, vec![true]);
        }
        assert_eq!(verdicts.calls.len(), MOST);
    }
}
