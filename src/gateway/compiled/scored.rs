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
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::token_bucket::TokenBucket;
    use crate::limit::{Key, Rate, Source, State};

    fn bucket(count: u64, burst: u64) -> Policy {
        let rate = Rate::new(count, Duration::from_secs(1)).expect("a rate");
        Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
    }

    fn scored(
        policy: Policy,
        overriding: Option<adjust::Numbers>,
        adaptive: bool,
    ) -> ScoredNumbers {
        let limit = Limit { adaptive, ..Limit::new("a", Key(vec![Source::User]), policy) };
        ScoredNumbers::new(&limit, Recipe { policy, overriding }).expect("numbers")
    }

    /// A state that is as deep as can be, once these numbers have looked at it.
    fn clamped(numbers: &Numbers) -> State {
        let now = crate::clock::Micros(1_000_000);
        numbers.policy.clamp(State::new(crate::clock::Micros(u64::MAX >> 12), 0), now)
    }

    #[test]
    fn numbers_of_all_scores_reach_as_deep_as_the_deepest() {
        let numbers = scored(bucket(1, 10), None, true);
        let alone = bucket(1, 10).adaptive(Score::FULL).expect("a limit");
        let deepest =
            clamped(&Numbers { policy: alone, text: numbers.at(Score::ZERO).text.clone() });
        for score in Score::all() {
            assert_eq!(clamped(numbers.at(score)), deepest, "{score:?}");
        }
        assert_eq!(numbers.at(Score::ZERO).policy.quota(), 10);
        assert_eq!(numbers.at(Score::of_hundredths(55)).policy.quota(), 15);
    }

    #[test]
    fn numbers_that_coexist_reach_as_deep_as_either() {
        let mut ours = scored(bucket(1, 10), None, true);
        let theirs = scored(bucket(1, 100), None, true);
        ours.prepare();
        ours.coexist_with(&theirs);
        assert_eq!(clamped(ours.at(Score::ZERO)), clamped(theirs.at(Score::FULL)));
        assert_eq!(ours.clone().at(Score::FULL).policy, ours.at(Score::FULL).policy);
        let mut plain = scored(bucket(1, 10), None, false);
        plain.coexist_with(&theirs);
        assert_eq!(clamped(plain.at(Score::FULL)), clamped(theirs.at(Score::ZERO)));
        assert_eq!(plain.at(Score::FULL).policy.quota(), 10, "not adaptive");
    }

    #[test]
    fn an_override_keeps_what_it_sets_and_trust_the_rest() {
        let set = adjust::Numbers { burst: Some(3), ..adjust::Numbers::default() };
        let numbers = scored(bucket(1, 10), Some(set), true);
        assert_eq!(numbers.at(Score::FULL).policy.quota(), 3);
        let boost = adjust::Numbers { boost: Some(2.0), ..adjust::Numbers::default() };
        let numbers = scored(bucket(1, 10), Some(boost), true);
        assert_eq!(numbers.at(Score::FULL).policy.quota(), 40);
    }
}
