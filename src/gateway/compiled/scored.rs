//! The numbers of a limit by how far its caller is trusted: one set, or one for each score.
//!
//! Sets for different scores alternate on one bucket, because a score changes and gateways hear of it
//! at different times. So each knows the deepest debt that any of them allows, and clamps no state to
//! less ([`Policy::beside`]).

use std::array;
use std::sync::OnceLock;

use crate::limit::adjust::{self, AdjustError};
use crate::limit::trust::Score;
use crate::limit::{Limit, Policy};
use crate::respond::rate_headers::PolicyText;

/// What a limit allows, and how answers describe it.
#[derive(Debug, Clone)]
pub struct Numbers {
    pub policy: Policy,
    pub text: PolicyText,
}

/// The numbers that hold for a bucket, whatever the score of its caller.
#[derive(Debug, Clone)]
pub(super) struct ScoredNumbers {
    /// For a caller without trust, and for everybody if the limit is not adaptive.
    plain: Numbers,
    /// Boxed, so that limits without it are found side by side.
    adaptive: Option<Box<AdaptiveNumbers>>,
}

/// Sets of numbers, one for each score.
#[derive(Debug)]
struct AdaptiveNumbers {
    recipe: Recipe,
    /// Allows the deepest debt of all sets, and of those that other workers or gateways serve.
    deepest: Policy,
    by_score: [OnceLock<Box<Numbers>>; Score::COUNT],
}

/// What the numbers for a score are made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recipe {
    /// The limit's policy, or the plan's.
    pub(super) policy: Policy,
    /// What an override makes of it.
    pub(super) overriding: Option<adjust::Numbers>,
}

impl Recipe {
    pub(super) fn policy(&self, score: Score) -> Result<Policy, AdjustError> {
        match &self.overriding {
            None => self.policy.adaptive(score),
            Some(numbers) => self.policy.adjusted_for(numbers, score),
        }
    }
}

impl ScoredNumbers {
    /// # Errors
    /// If the limit cannot have such numbers.
    pub(super) fn new(limit: &Limit, recipe: Recipe) -> Result<Self, AdjustError> {
        let policy = recipe.policy(Score::ZERO)?;
        let text = PolicyText::new(limit).with_policy(&policy);
        let plain = Numbers { policy, text };
        if !limit.adaptive {
            return Ok(ScoredNumbers { plain, adaptive: None });
        }
        let mut deepest = policy;
        for score in Score::all() {
            deepest = deepest.beside(&recipe.policy(score)?);
        }
        let by_score = array::from_fn(|_| OnceLock::new());
        let adaptive = Some(Box::new(AdaptiveNumbers { recipe, deepest, by_score }));
        Ok(ScoredNumbers { plain, adaptive })
    }

    /// The numbers of a limit or of one of its plans, for every score. One that cannot be adaptive, which
    /// the configuration has refused, has the same numbers for everybody.
    pub(super) fn of_limit(limit: &Limit, policy: &Policy) -> Self {
        let numbers = Self::new(limit, Recipe { policy: *policy, overriding: None });
        let numbers = numbers.unwrap_or_else(|_| {
            let text = PolicyText::new(limit).with_policy(policy);
            ScoredNumbers { plain: Numbers { policy: *policy, text }, adaptive: None }
        });
        numbers.prepare();
        numbers
    }

    /// What holds for a caller of that score.
    #[inline]
    pub(super) fn at(&self, score: Score) -> &Numbers {
        match &self.adaptive {
            None => &self.plain,
            Some(adaptive) => adaptive.at(score, &self.plain.text),
        }
    }

    /// Makes the numbers for every score now, so that no request has to. There may be thousands of
    /// overrides with numbers for a single caller each: those are made when they are first used.
    fn prepare(&self) {
        if self.adaptive.is_some() {
            Score::all().for_each(|score| {
                self.at(score);
            });
        }
    }

    /// Takes into account that other numbers alternate with these on the same bucket.
    pub(super) fn coexist_with(&mut self, other: &ScoredNumbers) {
        self.plain.policy = self.plain.policy.beside(other.deepest());
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.deepest = adaptive.deepest.beside(other.deepest());
            adaptive.by_score = array::from_fn(|_| OnceLock::new());
        }
    }

    fn deepest(&self) -> &Policy {
        self.adaptive.as_ref().map_or(&self.plain.policy, |adaptive| &adaptive.deepest)
    }
}

impl AdaptiveNumbers {
    fn at(&self, score: Score, text: &PolicyText) -> &Numbers {
        self.by_score[usize::from(score.hundredths())].get_or_init(|| {
            // It was possible when the limit was compiled.
            let policy = self.recipe.policy(score).unwrap_or(self.recipe.policy);
            let policy = policy.beside(&self.deepest);
            Box::new(Numbers { policy, text: text.with_policy(&policy) })
        })
    }
}

impl Clone for AdaptiveNumbers {
    fn clone(&self) -> Self {
        let AdaptiveNumbers { recipe, deepest, .. } = *self;
        AdaptiveNumbers { recipe, deepest, by_score: array::from_fn(|_| OnceLock::new()) }
    }
}

#[cfg(test)]
mod tests;
