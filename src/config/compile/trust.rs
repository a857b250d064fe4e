//! `[trust]`, and which limits go by it.

use super::request_source::{self, KnownIdentities, SourceUse};
use super::server::read;
use crate::config::file::{Section, Value};
use crate::config::settings::Trust;
use crate::config::suggest::quote;
use crate::limit::trust::{Score, TrustWeights};
use crate::limit::{Key, Limit, Policy, Source};

pub(super) fn trust(mut section: Section<'_>, known: KnownIdentities, limits: &[Limit]) -> Trust {
    let used = limits.iter().any(|limit| limit.adaptive);
    let mut claim = |key, example| {
        let value = section.get(key)?;
        if !used {
            let help = "remove it, or write `adaptive = true` in a limit";
            value.warning("has no effect: no limit is `adaptive`", help);
        }
        self::claim(&value, example, known)
    };
    let account_created = claim("account_created", "jwt:created_at");
    let email_verified = claim("email_verified", "jwt:email_verified");
    let score = claim("score", "jwt:trust");
    let weights = weights(section.section("weights"));
    Trust { account_created, email_verified, score, weights }
}

fn weights(mut section: Section<'_>) -> TrustWeights {
    let own = TrustWeights::default();
    let one = section.get("violation");
    let mut weight = |key, own| read(&mut section, key, own, |value| value.thousandths(1000));
    let weights = TrustWeights {
        age: weight("age", own.age),
        email: weight("email", own.email),
        success: weight("success", own.success),
        violation: weight("violation", own.violation),
        violations: weight("violations", own.violations),
    };
    if let Some(one) = one.filter(|_| weights.violation > weights.violations) {
        one.warning(
            "is more than `violations`, the most that all of them take away",
            "write a smaller number, or a larger `violations`",
        );
    }
    weights
}

/// Only a token that was verified can say how far its bearer is to be trusted.
fn claim(value: &Value<'_>, example: &str, known: KnownIdentities) -> Option<String> {
    let text = value.text(example)?;
    let source = request_source::parse(text, SourceUse::Identity);
    let source = source.and_then(|source| known.check(&source).map(|()| source));
    let why = match source {
        Ok(Source::Jwt(claim)) => return Some(claim),
        Ok(_) => ": any caller may write it",
        Err(error) if text.starts_with("jwt") => {
            error.report(value);
            return None;
        }
        Err(_) => "",
    };
    let help = format!("write a claim of a token, such as `\"{example}\"`");
    value.error(&format!("cannot be {}{why}", quote(text)), help);
    None
}

/// Whether a limit goes by trust. `policies` are its own and those of its plans.
pub(super) fn adaptive<'p>(
    value: &Value<'_>,
    known: KnownIdentities,
    key: &Key,
    mut policies: impl Iterator<Item = &'p Policy>,
) -> bool {
    let adaptive = value.boolean().unwrap_or(false);
    if adaptive && policies.any(|policy| policy.adaptive(Score::FULL).is_err()) {
        value.error(
            "does not go with these numbers: whoever is trusted most has twice the burst or count and \
             one and a half times the rate, and that is out of range",
            "write smaller numbers, or leave it out",
        );
    } else if adaptive && !known.user && !known.trust {
        value.warning(
            "has no effect: nothing says who is to be trusted",
            "add a line such as `user = \"jwt:sub\"` to `[identity]`, or a `trust` to a client",
        );
    } else if adaptive && key.0.iter().all(|it| matches!(it, Source::Global | Source::Route)) {
        value.warning(
            "is of a limit that all callers share: what trusted ones have more, all others have less",
            "remove it, or count by `user`",
        );
    }
    adaptive
}
