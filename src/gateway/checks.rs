//! The limits that apply to one request, each with the check it asks for.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use super::compiled::{Compiled, RouteLimit};
use super::dues::Due;
use super::rule::{Holding, Rule, Variant};
use super::turns::Paced;
use super::way::Way;
use crate::clock::Micros;
use crate::limit::key::KeyError;
use crate::limit::source::Subject;
use crate::limit::{Mode, Policy, Retry, Strategy};
use crate::respond::rate_headers::{PolicyText, retry_at};
use crate::respond::refusal::{self, Refusal};
use crate::respond::{Answer, Applied, Fault, RateHeaders};
use crate::store::redis::name;
use crate::store::{BucketHasher, BucketId, Check, Decision, Lasting, Name, Names};

/// Side by side, so that the store sees nothing but checks. A few need no allocation.
#[derive(Debug, Default)]
pub struct Checks<'a> {
    pub rules: SmallVec<[&'a Rule; 4]>,
    pub checks: SmallVec<[Check<'a>; 4]>,
    /// How answers tell the numbers that hold for this caller.
    texts: SmallVec<[&'a PolicyText; 4]>,
    pub names: Names,
    /// Those that are charged when the response is known, and with how much if it does not say.
    later: SmallVec<[Later<'a>; 1]>,
    /// Limits that refuse nobody, and would have asked for a key that the request does not have.
    pub unkeyed: SmallVec<[&'a Rule; 1]>,
    /// Whether some are charged for as long as the request is under way.
    holds: bool,
    /// Whether some let requests go one by one.
    pub paces: bool,
    /// Whether some have requests wait until they pass.
    pub queues: bool,
}

#[derive(Debug)]
struct Later<'a> {
    /// Which of the checks.
    check: usize,
    cost: u64,
    limit: &'a RouteLimit,
}

/// A limit that a request may wait for.
#[derive(Debug, Clone, Copy)]
pub struct Awaited {
    /// Which of the checks.
    pub check: usize,
    pub max_wait: Duration,
    pub max_queue: usize,
}

impl<'a> Checks<'a> {
    /// Names the bucket of each of the route's limits that applies.
    ///
    /// # Errors
    /// If a limit needs a key that the request lacks, or carries twice.
    pub fn collect(
        &mut self,
        hasher: &BucketHasher,
        shared: &'a Compiled,
        way: &Way<'a>,
        method: &Method,
        subject: &Subject<'_>,
    ) -> Result<(), Fault> {
        for applied in way.limits {
            let rule = &shared.limits[applied.rule];
            let variant = rule.variant(subject.who.plan.as_deref());
            let read = self.read(hasher, applied, (rule, variant), (subject, method));
            let (bucket, name, cost) = match read {
                Ok(Some(read)) => read,
                Ok(None) | Err(KeyError::Skipped) => continue,
                Err(error) if rule.enforced => return Err(error.into()),
                // What does not refuse does not refuse for want of a key either.
                Err(_) => {
                    self.unkeyed.push(rule);
                    continue;
                }
            };
            if applied.later {
                self.later.push(Later { check: self.checks.len(), cost, limit: applied });
            }
            let Holding { numbers, prefix, bucket, name: other } = variant.holding(bucket);
            let policy = &numbers.policy;
            let name = other.map_or(name, |other| self.names.push(other));
            self.holds |= policy.is_held();
            self.paces |= matches!(policy, Policy::LeakyBucket(_));
            self.queues |= matches!(rule.limit.strategy, Strategy::Queue { .. });
            self.rules.push(rule);
            self.texts.push(&numbers.text);
            self.checks.push(Check {
                name,
                on_error: rule.limit.on_error,
                enforced: rule.enforced,
                spends: !applied.later,
                // Whoever is charged later only has to find something there.
                ..Check::new(policy, prefix, bucket, if applied.later { 1 } else { cost })
            });
        }
        Ok(())
    }

    /// Which bucket a limit charges for a request, and with how much. `None` if it is not meant for
    /// it.
    fn read(
        &mut self,
        hasher: &BucketHasher,
        applied: &RouteLimit,
        (rule, variant): (&Rule, &Variant),
        (subject, method): (&Subject<'_>, &Method),
    ) -> Result<Option<(BucketId, Name, u64)>, KeyError> {
        if !applies(rule, subject, method)? {
            return Ok(None);
        }
        let (bucket, name) = self.name(hasher, rule, variant, subject)?;
        let evidence = &subject.evidence;
        let cost = applied.cost.of_request(evidence.headers, evidence.query)?;
        Ok(Some((bucket, name, cost)))
    }

    fn name(
        &mut self,
        hasher: &BucketHasher,
        rule: &Rule,
        variant: &Variant,
        subject: &Subject<'_>,
    ) -> Result<(BucketId, Name), KeyError> {
        let limit = &rule.limit;
        let mut bucket = hasher.start(variant.prefix);
        let name = match &variant.shared_prefix {
            None => {
                let part = |kind, bytes: &[u8]| bucket.part(kind as u8, bytes);
                limit.key.parts(subject, limit.missing, part)?;
                Name::default()
            }
            Some(prefix) => self.names.write(|name| {
                name.extend_from_slice(prefix);
                limit.key.parts(subject, limit.missing, |kind, bytes| {
                    bucket.part(kind as u8, bytes);
                    name::part(name, kind, bytes);
                })
            })?,
        };
        Ok((bucket.finish(), name))
    }

    /// What rate headers are made of: limits that only watch are not told.
    pub fn applied(&self) -> impl Iterator<Item = Applied<'_>> + Clone {
        let pairs = self.texts.iter().zip(&self.checks).filter(|(_, check)| check.decided);
        pairs.map(|(text, check)| Applied { text, check })
    }

    /// The limits that refused, the one that holds out longest first.
    pub fn refusing(&self) -> impl Iterator<Item = &'a Rule> {
        let mut refusing: SmallVec<[_; 4]> = self.pairs().filter(refuses).collect();
        refusing.sort_by_key(|(_, check)| std::cmp::Reverse(check.refused));
        refusing.into_iter().map(|(rule, _)| rule)
    }

    /// What a request that was not admitted is told that it is.
    #[must_use]
    pub fn refusal_error(&self, now: Micros) -> &'static str {
        refusal::error(retry_at(self.checks.iter().filter(|it| it.enforced), now))
    }

    /// The answer to a request that was not admitted.
    #[must_use]
    pub fn refuse(
        &self,
        rate: RateHeaders,
        decision: Decision,
        jitter: u16,
        headers: HeaderMap,
    ) -> Answer {
        let limits: SmallVec<[_; 4]> = self.refusing().map(|rule| &rule.refusal_text).collect();
        let retry_at = retry_at(self.checks.iter().filter(|it| it.enforced), decision.now);
        let told_at = retry_at.map(|at| self.stretch(at, decision.now, jitter));
        let refusal = Refusal { limits: &limits, now: decision.now, retry_at, told_at };
        let rate = rate.refusing(told_at);
        let mut answer = refusal.into_answer(headers);
        rate.write(self.applied(), answer.response.headers_mut(), &mut answer.fields);
        answer
    }

    /// An instant later by up to so many thousandths of the wait, by the key and nothing else: those
    /// who were refused together do not come back together.
    fn stretch(&self, at: Micros, now: Micros, jitter: u16) -> Micros {
        if jitter == 0 {
            return at;
        }
        let Some((_, check)) = self.pairs().find(refuses) else { return at };
        let wait = u128::from(at.0.saturating_sub(now.0));
        // Gateways that share a bucket know it by one name, and have each their own hash of it.
        let share = match self.names.get(check.name) {
            [] => u128::from(check.bucket.0 as u32),
            name => u128::from(SipHasher13::new().hash(name) as u32),
        };
        Micros(at.0 + (wait * u128::from(jitter) * share / (1_000 << 32)) as u64)
    }

    /// The limit of the strategy `queue` for which a refused request may wait, and until when: the
    /// one that holds out longest. `None` if another kind of limit refuses, or for ever.
    #[must_use]
    pub fn awaited(&self, now: Micros) -> Option<(Awaited, Micros)> {
        let mut longest = None;
        for (index, pair) in self.pairs().enumerate().filter(|(_, pair)| refuses(pair)) {
            let (rule, check) = pair;
            let (Strategy::Queue { max_wait, max_queue }, Some(Retry::At(at))) =
                (rule.limit.strategy, check.refused)
            else {
                return None;
            };
            // A cluster keeps buckets by several clocks.
            let at = Micros(now.0 + at.0.saturating_sub(check.now.0));
            if longest.is_none_or(|(_, latest)| at > latest) {
                longest = Some((Awaited { check: index, max_wait, max_queue }, at));
            }
        }
        longest
    }

    /// The first of its limits of the strategy `queue` for which somebody waits already. Who could
    /// never pass need not wait.
    pub fn behind(&self, waits: impl Fn(BucketId) -> bool) -> Option<Awaited> {
        if self.checks.iter().any(|it| it.enforced && it.cost > it.policy.quota()) {
            return None;
        }
        self.pairs().enumerate().find_map(|(check, (rule, it))| match rule.limit.strategy {
            Strategy::Queue { max_wait, max_queue } if it.enforced && waits(it.bucket) => {
                Some(Awaited { check, max_wait, max_queue })
            }
            _ => None,
        })
    }

    /// What a refused request is told that could not pass before others who wait.
    pub fn put_behind(&mut self, check: usize, wait: Duration) {
        let check = &mut self.checks[check];
        let passes = Micros(check.now.0 + wait.as_micros() as u64);
        let passes = passes.max(check.policy.report(check.state, check.now).grows_at);
        check.refused = match check.refused {
            Some(Retry::At(at)) => Some(Retry::At(at.max(passes))),
            Some(Retry::Never) => Some(Retry::Never),
            None => Some(Retry::At(passes)),
        };
    }

    /// What of an admitted request leaves its buckets one by one, and the limits that say so. Those
    /// that are charged after the answer leave as they come.
    pub fn paced(&self) -> impl Iterator<Item = (&'a Rule, Paced)> {
        let checks = if self.paces { &self.checks[..] } else { &[] };
        self.rules.iter().zip(checks).filter_map(|(rule, it)| {
            let (Policy::LeakyBucket(policy), Mode::Enforce) = (*it.policy, rule.limit.mode) else {
                return None;
            };
            let paced = Paced { bucket: it.bucket, policy, cost: it.cost };
            (it.spends && it.decided && it.refused.is_none()).then_some((*rule, paced))
        })
    }

    /// How long an admitted request waits its turn, and because of which limit.
    #[must_use]
    pub fn turn(&self) -> Option<(&'a Rule, Duration)> {
        if !self.paces {
            return None;
        }
        let enforced = |rule: &Rule| rule.limit.mode == Mode::Enforce;
        let turns = self.pairs().filter(|(rule, it)| enforced(rule) && it.refused.is_none());
        let turns = turns.map(|(rule, it)| (rule, it.policy.turn(it.state, it.now, it.cost)));
        turns.max_by_key(|(_, turn)| *turn).filter(|(_, turn)| !turn.is_zero())
    }

    /// The names of the limits that did not admit a request that is forwarded all the same.
    #[must_use]
    pub fn degraded(&self) -> Option<HeaderValue> {
        let mut marks = self
            .pairs()
            .filter(|(rule, check)| check.refused.is_some() && check.decided && rule.degrades());
        let (first, _) = marks.next()?;
        let more: Vec<&str> = marks.map(|(rule, _)| rule.limit.name.as_str()).collect();
        if more.is_empty() {
            return Some(first.mark.clone());
        }
        let all = format!("{}, {}", first.limit.name, more.join(", "));
        Some(HeaderValue::try_from(all).unwrap_or_else(|_| first.mark.clone()))
    }

    /// What the request holds while it is under way, and what it is charged with when its response
    /// is known. `None` if that is nothing.
    #[must_use]
    pub fn dues(&self) -> Option<(Vec<Lasting>, Vec<Due>)> {
        if !self.holds && self.later.is_empty() {
            return None;
        }
        let taken = |check: &&Check<'_>| check.spends && check.refused.is_none() && check.decided;
        let held = self.checks.iter().filter(taken).filter(|check| check.policy.is_held());
        // Limits that only watch are charged only if they would have admitted.
        let admitted = |later: &&Later<'_>| self.checks[later.check].refused.is_none();
        let later = self.later.iter().filter(admitted).map(|later| {
            let check = Check { cost: later.cost, ..self.checks[later.check] };
            let charge = Lasting::of(&check, &self.names);
            Due { charge, cost: later.limit.cost.clone(), rule: later.limit.rule }
        });
        Some((held.map(|check| Lasting::of(check, &self.names)).collect(), later.collect()))
    }

    /// Tells of buckets as they are with what was charged after the response.
    pub fn note(&mut self, charged: &[Lasting]) {
        for charge in charged {
            let same = self.checks.iter_mut().find(|check| check.bucket == charge.bucket());
            if let Some(check) = same {
                check.state = check.policy.owe(check.state, check.now, charge.cost);
            }
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&'a Rule, &Check<'a>)> + Clone {
        self.rules.iter().copied().zip(&self.checks)
    }
}

/// Whether a limit is meant for a request.
fn applies(rule: &Rule, subject: &Subject<'_>, method: &Method) -> Result<bool, KeyError> {
    for condition in &rule.limit.when {
        if !condition.holds(subject, method)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a limit stands in the way of its request.
fn refuses((_, check): &(&Rule, &Check<'_>)) -> bool {
    check.enforced && check.refused.is_some()
}
