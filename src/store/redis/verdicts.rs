//! What a fence says of calls whose replies did not come: see `lua/fence.lua`.

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Verdicts {
    /// Calls up to this number that are not named were not run, and never will be.
    settled: u64,
    /// The last calls that have charged anything, and whether each of their requests was admitted.
    calls: Vec<(u64, Vec<bool>)>,
}

impl Verdicts {
    /// Reads the text of a fence that was raised to `sent`. Whatever is no fence says nothing.
    pub(super) fn parse(text: &str, sent: u64) -> Self {
        let entries = text.split(' ').skip(1).filter_map(|entry| {
            let (number, admitted) = entry.split_once(':')?;
            Some((number.parse().ok()?, admitted.bytes().map(|it| it == b'1').collect()))
        });
        Verdicts { settled: sent, calls: entries.collect() }
    }

    /// Whether it is known what became of a call.
    pub(super) fn settles(&self, call: u64) -> bool {
        call <= self.settled
    }

    /// Whether a call was run, and has charged anything.
    pub(super) fn has(&self, call: u64) -> bool {
        self.calls.iter().any(|(number, _)| *number == call)
    }

    /// Whether a request of a call was charged.
    pub(super) fn charged(&self, call: u64, request: usize) -> bool {
        let found = self.calls.iter().find(|(number, _)| *number == call);
        found.is_some_and(|(_, admitted)| admitted.get(request).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_names_the_requests_that_were_charged() {
        let verdicts = Verdicts::parse("17 16:1101 15:1", 18);
        assert!(verdicts.settles(18) && !verdicts.settles(19));
        assert!(verdicts.has(16) && verdicts.has(15) && !verdicts.has(17));
        assert!(verdicts.charged(16, 0) && !verdicts.charged(16, 2) && verdicts.charged(16, 3));
        assert!(!verdicts.charged(16, 4) && !verdicts.charged(17, 0));
    }

    #[test]
    fn what_is_no_fence_says_nothing() {
        for text in ["", "garbage", "1:1", "5 x:1 :1 7", "5"] {
            assert_eq!(Verdicts::parse(text, 5), Verdicts { settled: 5, calls: Vec::new() });
        }
    }
}
