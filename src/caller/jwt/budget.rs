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
mod tests;
