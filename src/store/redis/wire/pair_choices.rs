//! Which of its pairs a request was charged to: see [`Choice`].

use crate::store::Choice;

/// What came of one pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairChoice {
    /// The first admits, and the second was not asked.
    First,
    /// The first refuses, and the second admits.
    Second,
    Neither,
}

/// What came of all pairs of a request, in their order: two bits each, as `lua/decide.lua` writes
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PairChoices(u64);

impl PairChoices {
    /// `None` if it is not what came of so many pairs.
    pub(crate) fn read(number: u64, pairs: usize) -> Option<Self> {
        let all = PairChoices(number);
        let whole = number.checked_shr(2 * pairs as u32).unwrap_or(0) == 0;
        (whole && (0..pairs).all(|pair| number >> (2 * pair) & 3 < 3)).then_some(all)
    }

    /// The same with one more pair behind them.
    #[must_use]
    pub(crate) fn with(self, pair: usize, choice: PairChoice) -> Self {
        let bits: u64 = match choice {
            PairChoice::First => 0,
            PairChoice::Second => 1,
            PairChoice::Neither => 2,
        };
        PairChoices(self.0 | bits.checked_shl(2 * pair as u32).unwrap_or(0))
    }

    pub fn of(self, pair: usize) -> PairChoice {
        match self.0.checked_shr(2 * pair as u32).unwrap_or(0) & 3 {
            0 => PairChoice::First,
            1 => PairChoice::Second,
            _ => PairChoice::Neither,
        }
    }
}

impl PairChoice {
    /// Whether it fell on this one of the pair.
    pub(crate) fn is(self, choice: Choice) -> bool {
        matches!(
            (self, choice),
            (PairChoice::First, Choice::First) | (PairChoice::Second, Choice::Second)
        )
    }
}

/// Counts the pairs of a request while its checks are gone through in order.
#[derive(Debug, Default)]
pub(crate) struct PairCounter(usize);

impl PairCounter {
    /// The number of the pair that the next check is of; `None` if it stands alone.
    pub(crate) fn next(&mut self, choice: Choice) -> Option<usize> {
        match choice {
            Choice::Alone => None,
            Choice::First => Some(self.0),
            Choice::Second => {
                self.0 += 1;
                Some(self.0 - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_script_can_write_is_read() {
        // The second of the first pair, neither of the second, the first of the third.
        let choices = PairChoices::read(0b00_10_01, 3).expect("three pairs");
        let each = [0, 1, 2].map(|pair| choices.of(pair));
        assert_eq!(each, [PairChoice::Second, PairChoice::Neither, PairChoice::First]);
        assert_eq!(PairChoices::read(0b00_10_01, 1), None, "more than was asked");
        assert_eq!(PairChoices::read(0b11, 1), None, "nothing that can come of a pair");
        let all = (0..Choice::MOST_PAIRS)
            .fold(PairChoices::default(), |choices, pair| choices.with(pair, PairChoice::Neither));
        assert!(all.0 < crate::limit::wire::EXACT, "Lua counts so far");
        assert_eq!(PairChoices::read(all.0, Choice::MOST_PAIRS), Some(all));
    }
}
