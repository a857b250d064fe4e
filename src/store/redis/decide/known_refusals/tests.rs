use super::*;
use crate::limit::Rate;
use crate::limit::token_bucket::TokenBucket;

const NOW: Micros = Micros(1_700_000_000_000_000);

fn bucket(burst: u64) -> Policy {
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
}

/// An empty bucket that refills one token in 100 ms, as it was after `spent` tokens at `NOW`,
/// by the reply to a call of 4 ms.
fn known(spent: u64, start: Instant) -> KnownRefusals {
    let Verdict::Admit(state) = bucket(5).evaluate(State::default(), NOW, spent) else {
        panic!("it has {spent} to spend");
    };
    let received = start + Duration::from_millis(4);
    let mut refusals = KnownRefusals::default();
    refusals.insert(BucketId(1), Refusal { state, now: NOW, sent: start, received, promise: None });
    refusals
}

fn asked(refusals: &mut KnownRefusals, policy: &Policy, at: Instant) -> Option<(Retry, Micros)> {
    let check = Check::new(policy, 0, BucketId(1), 1);
    refusals.refused(&check, at).map(|(retry, refusal)| (retry, refusal.now))
}

#[test]
fn a_caller_is_refused_until_the_promised_instant_at_the_latest() {
    let (start, policy) = (Instant::now(), bucket(5));
    let at = |millis| start + Duration::from_millis(millis);
    let retry = Retry::At(Micros(NOW.0 + 100_000));
    let mut refusals = known(5, start);
    // The clock of Redis is shown early, so that no client comes back too soon.
    let redis_clock = Micros(NOW.0 + 95_000);
    assert_eq!(asked(&mut refusals, &policy, at(99)), Some((retry, redis_clock)));
    assert_eq!(asked(&mut refusals, &policy, at(100)), None);
    assert!(refusals.is_empty());
}

#[test]
fn nothing_is_believed_for_longer_than_its_bound() {
    let (start, slow) = (Instant::now(), {
        let rate = Rate::new(1, Duration::from_secs(3600)).expect("a rate");
        Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"))
    });
    let Verdict::Admit(state) = slow.evaluate(State::default(), NOW, 1) else { panic!() };
    let mut refusals = KnownRefusals::default();
    let refusal = Refusal { state, now: NOW, sent: start, received: start, promise: None };
    refusals.insert(BucketId(1), refusal);
    assert!(asked(&mut refusals, &slow, start + TRUST / 2).is_some());
    assert_eq!(asked(&mut refusals, &slow, start + TRUST), None);
}

#[test]
fn a_raised_limit_takes_effect_at_once() {
    let start = Instant::now();
    let mut refusals = known(5, start);
    assert!(asked(&mut refusals, &bucket(5), start).is_some());
    assert_eq!(asked(&mut refusals, &bucket(6), start), None);
}

/// One more than fit, all of them empty for an hour.
fn full(start: Instant) -> (KnownRefusals, Refusal, Policy) {
    let rate = Rate::new(1, Duration::from_secs(3600)).expect("a rate");
    let policy = Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"));
    let Verdict::Admit(state) = policy.evaluate(State::default(), NOW, 1) else { panic!() };
    let refusal = Refusal { state, now: NOW, sent: start, received: start, promise: None };
    let mut refusals = KnownRefusals::default();
    for bucket in 0..=MOST as u128 {
        refusals.insert(BucketId(bucket), refusal);
    }
    (refusals, refusal, policy)
}

#[test]
fn a_full_table_keeps_what_it_knows_until_that_ends_and_then_takes_what_is_new() {
    let start = Instant::now();
    let (mut refusals, refusal, policy) = full(start);
    let refused = |refusals: &mut KnownRefusals, bucket: u128, at| {
        refusals.refused(&Check::new(&policy, 0, BucketId(bucket), 1), at).is_some()
    };
    assert!((0..MOST as u128).all(|it| refused(&mut refusals, it, start)));
    assert!(!refused(&mut refusals, MOST as u128, start), "there was no room");
    let at = start + TRUST;
    let later = Refusal { sent: at, received: at, ..refusal };
    let fresh = 1_000_000..1_000_000 + MOST as u128;
    fresh.clone().for_each(|it| refusals.insert(BucketId(it), later));
    assert!(fresh.clone().all(|it| refused(&mut refusals, it, at)));
    assert!((0..=MOST as u128).all(|it| !refused(&mut refusals, it, at)));
    // Whatever goes leaves the others where they are found.
    let gone = |it: &u128| it.is_multiple_of(3);
    fresh.clone().filter(gone).for_each(|it| refusals.remove(BucketId(it)));
    assert!(fresh.clone().all(|it| refused(&mut refusals, it, at) != gone(&it)));
    assert_eq!(refusals.known.len(), refusals.positions.len());
    refusals.clear();
    assert!(refusals.is_empty() && fresh.clone().all(|it| !refused(&mut refusals, it, at)));
}

#[test]
fn a_full_table_searches_a_few_entries_for_a_new_key() {
    let start = Instant::now();
    let (mut refusals, refusal, _) = full(start);
    let hand = refusals.hand;
    refusals.insert(BucketId(1 << 40), refusal);
    assert_eq!(refusals.hand, hand + SWEPT);
    assert_eq!(refusals.known.len(), MOST);
}

#[test]
fn others_are_not_refused() {
    let (start, policy) = (Instant::now(), bucket(5));
    let mut refusals = known(5, start);
    let check = Check::new(&policy, 0, BucketId(2), 1);
    assert!(refusals.refused(&check, start).is_none());
}
