//! How much of each second a worker may spend on signatures that turn out wrong.
//!
//! Anybody can make up tokens, and each costs a signature for every key that might have signed it.
//! So failures are charged to three budgets: the caller's, the key's, and one for all. A caller that
//! floods exhausts its own long before it affects others; tokens that name their key, which cost one
//! signature, may use the half of a budget that tokens without a key name may not.
//!
//! A caller without a failed token in the last minute is checked whatever others have spent, up to a
//! quarter of the worker: a few callers who make up tokens must not keep out those with new ones.
//!
//! Costs are estimates by the type of the key, not measured: what is refused must not depend on how
//! busy the machine is.

use std::net::IpAddr;

/// Microseconds of each second, for all failing tokens together: so little that of a hundred other
/// requests hardly one meets a signature.
const IN_ALL: u32 = 10_000;
/// The same with those of callers that have not failed before.
const WITH_FRESH: u32 = 250_000;
const BY_KEY: u32 = 5_000;
const BY_CALLER: u32 = 1_000;
/// How many callers are told apart, a power of two. A caller that shares its entry with a flood can
/// only use tokens that are cached until the flood ends.
const SLOTS: usize = 16 * 1024;
/// For how many seconds a failure of a caller counts.
const REMEMBERED: u64 = 60;

/// One worker's.
#[derive(Debug)]
pub(super) struct SignatureBudget {
    second: u64,
    all: u32,
    keys: Vec<u32>,
    callers: Vec<CallerSpending>,
    /// Whether any caller has spent something in this second.
    touched: bool,
}

/// What a caller has spent.
#[derive(Debug, Clone, Copy, Default)]
struct CallerSpending {
    /// In the second of the last failure, and when that was; none if it is 0.
    cost: u32,
    failed: u64,
}

impl Default for SignatureBudget {
    fn default() -> Self {
        let callers = vec![CallerSpending::default(); SLOTS];
        SignatureBudget { second: 0, all: 0, keys: Vec::new(), callers, touched: false }
    }
}

/// Where a caller's budget is, by a hash that it cannot foresee.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallerIndex(usize);

impl CallerIndex {
    pub(super) fn of(ip: IpAddr, hash: impl Fn(&[u8]) -> u128) -> Self {
        let hash = match ip {
            IpAddr::V4(ip) => hash(&ip.octets()),
            IpAddr::V6(ip) => hash(&ip.octets()),
        };
        CallerIndex(hash as usize % SLOTS)
    }
}

impl SignatureBudget {
    /// Whether there is something left for a token of this caller that these keys may have signed.
    pub(super) fn allows(
        &mut self,
        now: u64,
        caller: CallerIndex,
        keys: impl IntoIterator<Item = usize>,
        names_key: bool,
    ) -> bool {
        self.reset_if_new_second(now);
        let CallerSpending { cost, failed } = self.callers[caller.0];
        if failed == 0 || now.saturating_sub(failed) > REMEMBERED {
            return self.all < WITH_FRESH;
        }
        let share = if names_key { 1 } else { 2 };
        let key_has = |key| self.keys.get(key).is_none_or(|spent| *spent < BY_KEY / share);
        (failed != now || cost < BY_CALLER)
            && self.all < IN_ALL / share
            && keys.into_iter().all(key_has)
    }

    /// Charges one signature that failed.
    pub(super) fn spend(&mut self, now: u64, caller: CallerIndex, key: usize, cost: u32) {
        self.reset_if_new_second(now);
        if self.keys.len() <= key {
            self.keys.resize(key + 1, 0);
        }
        let caller = &mut self.callers[caller.0];
        if caller.failed != now {
            *caller = CallerSpending { cost: 0, failed: now };
        }
        for spent in [&mut self.all, &mut self.keys[key], &mut caller.cost] {
            *spent = spent.saturating_add(cost);
        }
        self.touched = true;
    }

    fn reset_if_new_second(&mut self, now: u64) {
        if self.second == now {
            return;
        }
        self.second = now;
        if std::mem::take(&mut self.touched) {
            self.all = 0;
            self.keys.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many tokens a caller gets checked in one second, each with these keys, of which each
    /// costs so much.
    fn checked(
        budget: &mut SignatureBudget,
        caller: usize,
        keys: &[usize],
        named: bool,
        cost: u32,
    ) -> u32 {
        let mut checked = 0;
        while budget.allows(7, CallerIndex(caller), keys.iter().copied(), named) {
            keys.iter().for_each(|key| budget.spend(7, CallerIndex(caller), *key, cost));
            checked += 1;
        }
        checked
    }

    #[test]
    fn a_flood_spends_its_own_budget_and_leaves_others_theirs() {
        let mut budget = SignatureBudget::default();
        let eight = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(checked(&mut budget, 1, &eight, false, 300), 1, "each of the eight");
        assert_eq!(checked(&mut budget, 1, &[0], true, 300), 0, "nor for a name");
        assert!(budget.allows(7, CallerIndex(2), eight, false), "another caller");
        assert_eq!(checked(&mut budget, 2, &[9], true, 300), 4);
        assert!(budget.allows(8, CallerIndex(1), eight, false), "a second later");
    }

    #[test]
    fn many_callers_leave_a_key_what_another_has_spent_and_names_the_rest() {
        let mut budget = SignatureBudget::default();
        // All of them have failed before.
        (0..1000).for_each(|caller| budget.spend(6, CallerIndex(caller), 0, 1));
        let all: u32 = (0..100).map(|caller| checked(&mut budget, caller, &[0], false, 100)).sum();
        assert_eq!(all, 25, "half of what a key has");
        let all: u32 = (0..100).map(|caller| checked(&mut budget, caller, &[1], false, 100)).sum();
        assert_eq!(all, 25, "another key, up to half of all");
        assert!(
            !budget.allows(7, CallerIndex(500), [2], false)
                && budget.allows(7, CallerIndex(500), [2], true)
        );
        let all: u32 = (500..900).map(|caller| checked(&mut budget, caller, &[2], true, 100)).sum();
        assert_eq!(all, 50, "tokens that name their key have the rest");
        assert!(!budget.allows(7, CallerIndex(999), [3], true), "and then it is spent");
    }

    #[test]
    fn who_has_not_failed_lately_is_checked_whatever_others_have_spent() {
        let mut budget = SignatureBudget::default();
        let eight = [0, 1, 2, 3, 4, 5, 6, 7];
        for caller in 0..50 {
            checked(&mut budget, caller, &eight, false, 300);
        }
        assert!(budget.all > IN_ALL && !budget.allows(7, CallerIndex(3), eight, false));
        assert!(budget.allows(7, CallerIndex(500), eight, false), "it has shown nothing yet");
        let fresh = (100..1000).filter(|it| checked(&mut budget, *it, &eight, false, 300) > 0);
        assert!(fresh.count() < 100, "a quarter of the worker at most");
    }
}
