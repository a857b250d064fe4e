use super::*;

fn rate(count: u64) -> Rate {
    Rate::new(count, Duration::from_secs(1)).expect("a rate")
}

fn numbers(rate: Option<Rate>, burst: Option<u64>, boost: Option<f64>) -> Numbers {
    Numbers { rate, burst, boost }
}

#[test]
fn a_limit_stays_what_it_is_with_other_numbers() {
    let bucket = Policy::TokenBucket(TokenBucket::new(rate(10), 5).expect("a bucket"));
    let to = |count, burst| {
        Ok(Policy::TokenBucket(TokenBucket::new(rate(count), burst).expect("a bucket")))
    };
    assert_eq!(bucket.adjusted(&numbers(Some(rate(20)), None, None)), to(20, 5));
    assert_eq!(bucket.adjusted(&numbers(None, Some(50), None)), to(10, 50));
    assert_eq!(bucket.adjusted(&numbers(None, None, Some(2.0))), to(20, 10));
    assert_eq!(bucket.adjusted(&numbers(None, None, Some(0.01))), to(1, 1));
    let debt = bucket.with_debt(3).adjusted(&numbers(None, None, Some(2.0))).expect("a limit");
    assert_eq!(debt.deepest() - debt.quota(), 3);
    let window = Policy::FixedWindow(FixedWindow::new(rate(10)));
    assert_eq!(
        window.adjusted(&numbers(None, None, Some(1.5))),
        Ok(Policy::FixedWindow(FixedWindow::new(rate(15))))
    );
    let slots = Policy::Concurrency(Concurrency::new(3).expect("a limit"));
    let more = Policy::Concurrency(Concurrency::new(30).expect("a limit"));
    assert_eq!(slots.adjusted(&numbers(None, Some(30), None)), Ok(more));
}

#[test]
fn what_a_limit_cannot_have_is_refused() {
    let window = Policy::FixedWindow(FixedWindow::new(rate(10)));
    let error = |numbers: &Numbers| window.adjusted(numbers).expect_err("a fault");
    assert_eq!(error(&Numbers::default()), AdjustError::Nothing);
    assert_eq!(error(&numbers(None, Some(5), None)), AdjustError::Other("burst"));
    for boost in [0.0, -1.0, f64::NAN, f64::INFINITY, 1001.0] {
        assert_eq!(error(&numbers(None, None, Some(boost))), AdjustError::Boost, "{boost}");
    }
}
fn score(hundredths: u64) -> Score {
    Score::of_hundredths(hundredths)
}

#[test]
fn trust_gives_more_of_everything_rounded_down() {
    let bucket = TokenBucket::new(rate(10), 7).expect("a bucket");
    let half = TokenBucket::new(rate(10).times(5, 4), 10).expect("a bucket");
    let half_trusted = Policy::TokenBucket(bucket).adaptive(score(50));
    assert_eq!(half_trusted, Ok(Policy::TokenBucket(half)));
    assert_eq!(Policy::TokenBucket(bucket).adaptive(score(0)), Ok(Policy::TokenBucket(bucket)));
    for policy in [
        Policy::FixedWindow(FixedWindow::new(rate(7))),
        Policy::SlidingWindow(SlidingWindow::new(rate(7))),
        Policy::SlidingLog(SlidingLog::new(rate(7)).expect("a log")),
        Policy::Concurrency(Concurrency::new(7).expect("a limit")),
    ] {
        let quotas = [0, 14, 15, 99, 100].map(|it| policy.adaptive(score(it)).map(|it| it.quota()));
        assert_eq!(quotas, [Ok(7), Ok(7), Ok(8), Ok(13), Ok(14)], "{}", policy.algorithm());
    }
    let refill = RefillBucket::new(Duration::from_secs(1), 10, 7).expect("a bucket");
    let full = RefillBucket::new(Duration::from_secs(1), 15, 14).expect("a bucket");
    let trusted = Policy::RefillBucket(refill).adaptive(Score::FULL);
    assert_eq!(trusted, Ok(Policy::RefillBucket(full)));
    let debt = Policy::TokenBucket(bucket).with_debt(3).adaptive(score(50)).expect("a limit");
    assert_eq!(debt.deepest() - debt.quota(), 3);
}

#[test]
fn what_full_trust_makes_too_large_cannot_be_adaptive() {
    let largest = SlidingLog::new(Rate::new(60_000, Duration::from_secs(1)).expect("a rate"));
    let log = Policy::SlidingLog(largest.expect("a log"));
    assert_eq!(log.adaptive(Score::FULL), Err(AdjustError::Range));
    let fastest = TokenBucket::new(rate(900_000_000), 5).expect("a bucket");
    assert_eq!(Policy::TokenBucket(fastest).adaptive(Score::FULL), Err(AdjustError::Range));
}

#[test]
fn what_an_override_sets_does_not_depend_on_trust() {
    let bucket = Policy::TokenBucket(TokenBucket::new(rate(10), 7).expect("a bucket"));
    let of =
        |rate, burst| Ok(Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket")));
    let adjusted = |numbers: Numbers| bucket.adjusted_for(&numbers, score(50));
    assert_eq!(adjusted(numbers(Some(rate(20)), None, None)), of(rate(20), 10));
    assert_eq!(adjusted(numbers(None, Some(3), None)), of(rate(10).times(5, 4), 3));
    let boosted = adjusted(numbers(None, None, Some(2.0)));
    assert_eq!(boosted, of(rate(20).times(5, 4), 20), "twice what holds for the caller");
}
