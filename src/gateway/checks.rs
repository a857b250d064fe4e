//! The limits that apply to one request, each with the check it asks for.

use std::borrow::Cow;

use http::{HeaderMap, request};
use smallvec::SmallVec;

use super::compiled::{Compiled, Rule};
use super::way::Way;
use crate::caller::Caller;
use crate::limit::key::{KeyError, Subject};
use crate::respond::rate_headers::retry_at;
use crate::respond::refusal::Refusal;
use crate::respond::{Answer, Applied, Fault, RateHeaders};
use crate::route::bare_host;
use crate::store::redis::name;
use crate::store::{BucketHasher, Check, Decision, Name, Names};

/// Side by side, so that the store sees nothing but checks. A few need no allocation.
#[derive(Debug, Default)]
pub struct Checks<'a> {
    pub rules: SmallVec<[&'a Rule; 4]>,
    pub checks: SmallVec<[Check<'a>; 4]>,
    pub names: Names,
}

impl<'a> Checks<'a> {
    /// Names the bucket of each of the route's limits.
    ///
    /// # Errors
    /// If a limit needs a key that the request lacks, or carries twice.
    pub fn collect(
        &mut self,
        hasher: &BucketHasher,
        shared: &'a Compiled,
        way: &Way<'_>,
        caller: &Caller,
        parts: &request::Parts,
        headers: &HeaderMap,
    ) -> Result<(), Fault> {
        let host = if shared.counts_host { bare_host(way.host()) } else { Cow::Borrowed("") };
        let subject = Subject {
            ip: shared.addresses.counted(caller.ip),
            route: &way.settings.name,
            headers,
            host: &host,
            query: parts.uri.query(),
        };
        for &index in &way.settings.limits {
            let rule = &shared.limits[index];
            let limit = &rule.limit;
            let mut bucket = hasher.start(rule.prefix);
            let name = match &rule.shared_prefix {
                None => limit
                    .key
                    .parts(&subject, limit.missing, |kind, bytes| {
                        bucket.part(kind as u8, bytes);
                    })
                    .map(|()| Name::default()),
                Some(prefix) => self.names.write(|name| {
                    name.extend_from_slice(prefix);
                    limit.key.parts(&subject, limit.missing, |kind, bytes| {
                        bucket.part(kind as u8, bytes);
                        name::part(name, kind, bytes);
                    })
                }),
            };
            let name = match name {
                Ok(name) => name,
                Err(KeyError::Skipped) => continue,
                Err(error) => return Err(error.into()),
            };
            let check = Check::new(
                &limit.policy,
                rule.prefix,
                bucket.finish(),
                limit.cost.of_request(headers, parts.uri.query()),
            );
            self.rules.push(rule);
            self.checks.push(Check { name, on_error: limit.on_error, ..check });
        }
        Ok(())
    }

    /// What rate headers are made of.
    pub fn applied(&self) -> impl Iterator<Item = Applied<'_>> + Clone {
        let pairs = self.rules.iter().zip(&self.checks).filter(|(_, check)| check.decided);
        pairs.map(|(rule, check)| Applied { text: &rule.policy_text, check })
    }

    /// The limits that refused, the one that holds out longest first.
    pub fn refusing(&self) -> impl Iterator<Item = &'a Rule> {
        let refused = |pair: &(&&'a Rule, &Check<'a>)| pair.1.refused.is_some();
        let mut refusing: SmallVec<[_; 4]> =
            self.rules.iter().zip(&self.checks).filter(refused).collect();
        refusing.sort_by_key(|(_, check)| std::cmp::Reverse(check.refused));
        refusing.into_iter().map(|(rule, _)| *rule)
    }

    /// The answer to a request that was not admitted.
    #[must_use]
    pub fn refuse(&self, rate: RateHeaders, decision: Decision, headers: HeaderMap) -> Answer {
        let limits: SmallVec<[_; 4]> = self.refusing().map(|rule| &rule.refusal_text).collect();
        let retry_at = retry_at(self.checks.iter(), decision.now);
        let refusal = Refusal { limits: &limits, now: decision.now, retry_at };
        let rate = rate.refusing(retry_at);
        let mut answer = refusal.into_answer(headers);
        rate.write(self.applied(), answer.response.headers_mut(), &mut answer.fields);
        answer
    }
}
