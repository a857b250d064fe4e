//! Warnings and blocks as operators see them, and as gateways tell each other of them.

use serde::{Deserialize, Serialize};

use crate::clock::Micros;
use crate::limit::Mode;
use crate::limit::guard::{GuardStage, GuardState};
use crate::store::BucketId;

/// A key that is warned or blocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Penalty {
    pub id: BucketId,
    pub guard: String,
    /// In which mode of the guard it holds.
    pub mode: Mode,
    /// As it is [listed](super::listed_key).
    pub key: String,
    /// The name of the counter in a shared store; empty where there is none.
    pub shared_key: Box<[u8]>,
    pub stage: GuardStage,
    pub until: Micros,
    /// The end of the window of the last offence.
    pub offence: Micros,
    /// The requests with which that was noticed.
    pub count: u64,
}

/// What gateways tell each other, and what a snapshot keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PenaltyNotice {
    pub guard: String,
    /// It holds while the guard only watches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    pub key: String,
    /// The name of the counter in a shared store.
    pub name: String,
    /// The number of the stage; 0 lifts the penalty.
    pub stage: u64,
    /// In microseconds since the epoch.
    pub until: u64,
    pub offence: u64,
    pub count: u64,
    /// When it was lifted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lifted: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Penalty {
    pub fn notice(&self) -> PenaltyNotice {
        PenaltyNotice {
            guard: self.guard.clone(),
            shadow: self.mode == Mode::Shadow,
            key: self.key.clone(),
            name: String::from_utf8_lossy(&self.shared_key).into_owned(),
            stage: self.stage as u64,
            until: self.until.0,
            offence: self.offence.0,
            count: self.count,
            lifted: 0,
        }
    }

    /// What tells others that it was lifted at an instant.
    pub fn lifted_notice(&self, lifted: Micros) -> PenaltyNotice {
        PenaltyNotice { stage: 0, lifted: lifted.0, ..self.notice() }
    }

    /// What a snapshot keeps: there the key is named by its id.
    pub fn kept(&self) -> PenaltyNotice {
        PenaltyNotice { name: format!("{:032x}", self.id.0), ..self.notice() }
    }
}

impl PenaltyNotice {
    /// The key, of a notice that a snapshot has kept.
    pub fn kept_id(&self) -> Option<BucketId> {
        u128::from_str_radix(&self.name, 16).ok().map(BucketId)
    }

    /// In which mode of the guard the penalty holds.
    pub(super) fn mode(&self) -> Mode {
        if self.shadow { Mode::Shadow } else { Mode::Enforce }
    }

    /// `None` if the stage is none of this version's.
    pub(super) fn state(&self) -> Option<GuardState> {
        Some(GuardState {
            stage: GuardStage::of_number(self.stage)?,
            until: Micros(self.until),
            offence: Micros(self.offence),
            offence_count: self.count,
            lifted: Micros(self.lifted),
            ..GuardState::default()
        })
    }
}
