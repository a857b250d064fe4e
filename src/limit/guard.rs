//! A guard: who sends more than a threshold in a window is first warned, then blocked.
//!
//! It counts every request of its key, admitted or not. A window in which there are more than the
//! threshold is one *offence*, noticed with the request that exceeds it. The first one warns for
//! `penalty`; one in a later window while warned blocks for twice as long. When a block ends, the key
//! is clean. All of it is integers and pure; `lua/guard.lua` has the same steps for gateways that
//! share their counts.

use std::time::Duration;

use super::condition::Condition;
use super::key::Key;
use super::{Mode, OnError};
use crate::clock::Micros;

/// The longest penalty. A block holds twice as long.
pub const MAX_PENALTY: Duration = Duration::from_secs(30 * 86_400);

/// `[guards.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    pub name: String,
    pub key: Key,
    pub window: Duration,
    /// The most requests of a window that are no offence.
    pub threshold: u64,
    /// How long a warning holds. A block holds twice as long.
    pub penalty: Duration,
    /// Conditions that a request has to meet to be counted.
    pub when: Vec<Condition>,
    pub mode: Mode,
    /// What it does while the store that gateways share does not answer.
    pub on_error: OnError,
}

/// How far a key has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum GuardStage {
    #[default]
    Clean = 0,
    Warned = 1,
    Blocked = 2,
}

impl GuardStage {
    pub const fn name(self) -> &'static str {
        match self {
            GuardStage::Clean => "clean",
            GuardStage::Warned => "warned",
            GuardStage::Blocked => "blocked",
        }
    }

    /// By its number in a shared store.
    pub fn of_number(number: u64) -> Option<Self> {
        [GuardStage::Clean, GuardStage::Warned, GuardStage::Blocked]
            .into_iter()
            .find(|stage| *stage as u64 == number)
    }
}

/// What a guard knows of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GuardState {
    /// The end of the window that is counted, and how many requests came in it.
    pub window_end: Micros,
    pub count: u64,
    pub stage: GuardStage,
    /// When the stage ends.
    pub until: Micros,
    /// The end of the window of the last offence, and the requests with which it was noticed.
    pub offence: Micros,
    pub offence_count: u64,
    /// When an operator last lifted a penalty: none that began before holds any more.
    pub lifted: Micros,
}

/// The numbers of a guard, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardNumbers {
    pub window_us: u64,
    pub threshold: u64,
    pub penalty_us: u64,
}

impl Guard {
    pub fn numbers(&self) -> GuardNumbers {
        GuardNumbers {
            window_us: self.window.as_micros() as u64,
            threshold: self.threshold,
            penalty_us: self.penalty.as_micros() as u64,
        }
    }
}

impl GuardNumbers {
    /// The end of the window that an instant lies in. Windows are aligned to the epoch.
    pub fn window_end(&self, now: Micros) -> Micros {
        Micros((now.0 / self.window_us + 1) * self.window_us)
    }

    /// How long a stage holds.
    fn length_us(&self, stage: GuardStage) -> u64 {
        stage as u64 * self.penalty_us
    }

    /// When the stage of a state began.
    fn began(&self, state: &GuardState) -> Micros {
        Micros(state.until.0.saturating_sub(self.length_us(state.stage)))
    }

    /// The state at an instant: stages that have ended are gone, and a new window counts from zero.
    /// Time that runs back is time that stands still, for a window at the most. What lies further
    /// ahead is of a clock that was set back, or of a guard that had other numbers, and is clamped.
    #[must_use]
    pub fn at(&self, state: GuardState, now: Micros) -> GuardState {
        let mut state = state;
        state.until = state.until.min(Micros(now.0 + self.length_us(state.stage)));
        state.lifted = state.lifted.min(now);
        if state.stage != GuardStage::Clean && state.until <= now {
            if state.stage == GuardStage::Blocked {
                // What came before the block is paid for.
                (state.count, state.offence, state.offence_count) = (0, Micros(0), 0);
            }
            (state.stage, state.until) = (GuardStage::Clean, Micros(0));
        }
        let window_end = self.window_end(now);
        let next_end = Micros(window_end.0 + self.window_us);
        if window_end > state.window_end || state.window_end > next_end {
            (state.window_end, state.count) = (window_end, 0);
        }
        state.offence = state.offence.min(next_end);
        state
    }

    /// The state after an operator has lifted penalties at an instant. One that began later stays.
    #[must_use]
    pub fn lift(&self, state: GuardState, at: Micros) -> GuardState {
        if at <= state.lifted {
            return state;
        }
        if state.stage != GuardStage::Clean && self.began(&state) > at {
            return GuardState { lifted: at, ..state };
        }
        // What was counted is forgiven, too.
        GuardState { window_end: state.window_end, lifted: at, ..GuardState::default() }
    }

    /// When a penalty has to be lifted at the earliest to be lifted, by whichever clock it began.
    #[must_use]
    pub fn lifting_instant(&self, stage: GuardStage, until: Micros, now: Micros) -> Micros {
        self.began(&GuardState { stage, until, ..GuardState::default() }).max(now)
    }

    /// Counts requests, and notices an offence: then the state has another stage than before.
    #[must_use]
    pub fn count(&self, state: GuardState, now: Micros, requests: u64) -> GuardState {
        let mut state = self.at(state, now);
        if state.stage == GuardStage::Blocked {
            return state;
        }
        state.count = state.count.saturating_add(requests);
        if state.count > self.threshold && state.window_end > state.offence {
            state = self.offend(state, now, state.window_end, state.count);
        }
        state
    }

    /// The state after an offence in the window that ends then.
    fn offend(
        &self,
        state: GuardState,
        now: Micros,
        window_end: Micros,
        offence_count: u64,
    ) -> GuardState {
        let (stage, factor) = match state.stage {
            GuardStage::Clean => (GuardStage::Warned, 1),
            GuardStage::Warned | GuardStage::Blocked => (GuardStage::Blocked, 2),
        };
        let until = Micros(now.0 + factor * self.penalty_us);
        GuardState { stage, until, offence: window_end, offence_count, ..state }
    }

    /// What another gateway, or the store, says of the same key, beside what is known here. Nothing
    /// here gets weaker by it, unless it was lifted; two offences of different windows are two, also
    /// if two gateways noticed them.
    #[must_use]
    pub fn merge(&self, here: GuardState, heard: GuardState, now: Micros) -> GuardState {
        let (here, heard) = (self.at(here, now), self.at(heard, now));
        let (here, heard) = (self.lift(here, heard.lifted), self.lift(heard, here.lifted));
        let mut merged = here;
        match (here.stage, heard.stage) {
            (GuardStage::Warned, GuardStage::Warned) if heard.offence > here.offence => {
                merged = self.offend(here, now, heard.offence, heard.offence_count);
            }
            (a, b) if b > a || (b == a && heard.until > here.until) => {
                (merged.stage, merged.until) = (b, heard.until);
                (merged.offence, merged.offence_count) = (heard.offence, heard.offence_count);
            }
            _ => {}
        }
        merged
    }
}

#[cfg(test)]
mod tests;
