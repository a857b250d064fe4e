use std::time::Duration;

use super::*;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Key, Policy, Rate, Source, State, Verdict};
use crate::respond::fields::Field;
use crate::store::BucketId;

const NOW: Micros = Micros(1_000_000_250_000);
const ALL: settings::Respond =
    settings::Respond { draft: true, x: true, legacy: true, retry_jitter: 0 };

fn limit(name: &str, burst: u64, visible: bool) -> Limit {
    let rate = Rate::new(1, Duration::from_secs(1)).unwrap();
    let policy = Policy::TokenBucket(TokenBucket::new(rate, burst).unwrap());
    Limit { response_headers: visible, ..Limit::new(name, Key(vec![Source::Ip]), policy) }
}

/// A check on a bucket of which so much has been spent just now.
fn spent(limit: &Limit, cost: u64, refused: Option<Retry>) -> (Check<'_>, CheckOutcome) {
    let state = match limit.policy.evaluate(State::default(), NOW, cost) {
        Verdict::Admit(state) => state,
        Verdict::Refuse(_) => panic!("{cost} is more than the limit holds"),
    };
    let outcome = CheckOutcome { state, refused, now: NOW, ..CheckOutcome::default() };
    (Check::new(&limit.policy, 0, BucketId(0), cost), outcome)
}

fn written(
    rate: RateHeaders,
    checks: &[(&Limit, (Check<'_>, CheckOutcome))],
    headers: &mut HeaderMap,
) -> String {
    let texts: Vec<_> = checks.iter().map(|(limit, _)| PolicyText::new(limit)).collect();
    let applied = texts.iter().zip(checks);
    let applied = applied.map(|(text, (_, (check, outcome)))| Applied { text, check, outcome });
    let mut fields = Fields::default();
    rate.write(applied, headers, &mut fields);
    let line = |field: Field<'_>| {
        format!("{}: {}\r\n", field.name.as_str(), std::str::from_utf8(field.value).unwrap())
    };
    fields.iter().map(line).collect()
}

#[test]
fn an_admitted_request_is_told_of_every_limit_and_the_closest() {
    let (wide, narrow) = (limit("wide", 100, true), limit("narrow", 5, true));
    let checks = [(&wide, spent(&wide, 1, None)), (&narrow, spent(&narrow, 2, None))];
    let text = written(RateHeaders::new(ALL, NOW, 0), &checks, &mut HeaderMap::new());
    let expected = "RateLimit: \"wide\";r=99;t=1, \"narrow\";r=3;t=1\r\n\
                    RateLimit-Policy: \"wide\";q=100;w=100, \"narrow\";q=5;w=5\r\n\
                    X-RateLimit-Limit: 5\r\n\
                    X-RateLimit-Remaining: 3\r\n\
                    X-RateLimit-Reset: 1000003\r\n\
                    RateLimit-Limit: 5\r\n\
                    RateLimit-Remaining: 3\r\n\
                    RateLimit-Reset: 2\r\n";
    assert_eq!(text, expected);
}

#[test]
fn a_refusal_is_told_of_the_limit_that_refused() {
    // The one that admits has the smaller share left.
    let (admits, refuses) = (limit("admits", 10, true), limit("refuses", 19, true));
    let retry = Some(Retry::At(Micros(NOW.0 + 1_500_000)));
    let checks = [(&admits, spent(&admits, 9, None)), (&refuses, spent(&refuses, 10, retry))];
    let rate = RateHeaders::new(ALL, NOW, 0).refusing(Some(Micros(NOW.0 + 1_500_000)));
    let text = written(rate, &checks, &mut HeaderMap::new());
    assert!(text.contains("X-RateLimit-Limit: 19\r\n"), "{text}");
    assert!(text.contains("X-RateLimit-Reset: 1000002\r\n"), "not before 1000001.75: {text}");
    assert!(text.contains("\r\nRateLimit-Reset: 2\r\n"), "{text}");
}

#[test]
fn a_hidden_limit_is_never_shown() {
    let (shown, hidden) = (limit("shown", 10, true), limit("hidden", 5, false));
    let retry = Some(Retry::At(Micros(NOW.0 + 1)));
    let checks = [(&shown, spent(&shown, 1, None)), (&hidden, spent(&hidden, 5, retry))];
    let rate = RateHeaders::new(ALL, NOW, 0).refusing(Some(Micros(NOW.0 + 1)));
    let text = written(rate, &checks, &mut HeaderMap::new());
    let expected = "RateLimit: \"shown\";r=9;t=1\r\nRateLimit-Policy: \"shown\";q=10;w=10\r\n";
    assert_eq!(text, expected);
    let alone = written(rate, &checks[1..], &mut HeaderMap::new());
    assert_eq!(alone, "");
}

#[test]
fn a_reset_is_given_in_the_time_of_a_wall_clock_that_was_moved() {
    let one = limit("one", 5, true);
    for (step, expected) in [(0, 1_000_002), (3_600_000_000, 1_003_602), (-3_600_000_000, 996_402)]
    {
        let checks = [(&one, spent(&one, 1, None))];
        let text = written(RateHeaders::new(ALL, NOW, step), &checks, &mut HeaderMap::new());
        assert!(text.contains(&format!("X-RateLimit-Reset: {expected}\r\n")), "{step}: {text}");
    }
}

#[test]
fn what_the_upstream_said_is_kept_if_it_can_be_parsed() {
    let one = limit("one", 5, true);
    for (said, kept) in [("\"theirs\";r=7;t=1", "\"theirs\";r=7;t=1, "), ("limit=7", "")] {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit", said.parse().unwrap());
        headers.insert("x-ratelimit-limit", "7".parse().unwrap());
        let checks = [(&one, spent(&one, 1, None))];
        let text = written(RateHeaders::new(ALL, NOW, 0), &checks, &mut headers);
        assert!(text.starts_with(&format!("RateLimit: {kept}\"one\";r=4;t=1\r\n")), "{text}");
        assert!(headers.is_empty(), "{headers:?}");
    }
}
