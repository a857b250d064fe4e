//! Replies to one batch, sound and broken; real ones are in `tests/model`.

use std::time::Duration;

use super::*;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate, State};
use crate::store::BucketId;
use crate::store::redis::wire::batch::Charge;
use crate::store::redis::wire::check_args::CallContext;
use crate::store::redis::wire::msgpack;
use crate::store::redis::wire::script::Form;

const ASKER: CallContext = CallContext { holder: 1, around: Micros(0), deadline: None };

fn rate() -> Rate {
    Rate::new(10, Duration::from_secs(1)).expect("a rate")
}

fn sliding() -> SlidingWindow {
    SlidingWindow::new(rate())
}

/// Two requests: a token bucket, a sliding window and the token bucket again; a fixed window.
fn batch() -> Batch {
    let bucket = Policy::TokenBucket(TokenBucket::new(rate(), 10).expect("a bucket"));
    let sliding = Policy::SlidingWindow(sliding());
    let fixed = Policy::FixedWindow(FixedWindow::new(rate()));
    let charge = |bucket, policy| Charge::new(BucketId(bucket), b"key", policy, 1);
    let mut batch = Batch::new();
    let several = [charge(1, &bucket), charge(2, &sliding), charge(1, &bucket)];
    assert_eq!(batch.push(several.into_iter()), 0);
    assert_eq!(batch.push([charge(3, &fixed)].into_iter()), 1);
    assert_eq!((batch.requests(), batch.keys()), (2, 3));
    batch
}

const SOUND: [u64; 10] = [1_000, 1, 2_000, 7, 3_000, 4, 5, 0, 4_000, 10];

fn encoded(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    msgpack::array(&mut bytes, numbers.len());
    numbers.iter().for_each(|number| msgpack::number(&mut bytes, *number));
    bytes
}

#[test]
fn charges_on_one_bucket_share_its_state() {
    let reply = Reply::parse(&encoded(&SOUND), &batch()).expect("a reply");
    assert_eq!(reply.now(), Micros(1_000));
    assert_eq!((reply.admitted(0), reply.admitted(1)), (true, false));
    let bucket = State::new(Micros(2_000), 7);
    let window = sliding().state(Micros(3_000), 4, 5);
    let states = |request| {
        reply.check_replies(request).map(|check_reply| check_reply.state).collect::<Vec<_>>()
    };
    assert_eq!(states(0), [bucket, window, bucket]);
    assert_eq!(states(1), [State::new(Micros(4_000), 10)]);
}

#[test]
fn a_reply_that_is_cut_off_or_too_long_is_an_error() {
    let sound = encoded(&SOUND);
    for length in 0..sound.len() {
        assert_eq!(Reply::parse(&sound[..length], &batch()).err(), Some(ReplyError));
    }
    let trailing = [&sound[..], &[0]].concat();
    let longer = encoded(&[&SOUND[..], &[0]].concat());
    for bytes in [trailing, longer] {
        assert_eq!(Reply::parse(&bytes, &batch()).err(), Some(ReplyError));
    }
}

#[test]
fn a_number_out_of_its_range_is_an_error() {
    let bounds = [(1, 2), (2, 1 << 53), (3, 1 << 32), (5, 1 << 30), (6, 1 << 30), (9, 1 << 30)];
    for (place, bound) in bounds {
        let mut numbers = SOUND;
        numbers[place] = bound - 1;
        assert!(Reply::parse(&encoded(&numbers), &batch()).is_ok(), "{place}");
        numbers[place] = bound;
        assert!(Reply::parse(&encoded(&numbers), &batch()).is_err(), "{place}");
    }
}

#[test]
fn a_cleared_batch_is_as_good_as_a_new_one() {
    let mut used = batch();
    used.clear();
    assert!(used.is_empty());
    let script = crate::store::redis::wire::script::Script::new("");
    let packed = |batch: &Batch| batch.call(&script, Form::Hash, None, ASKER).get_packed_command();
    assert_eq!(packed(&used), packed(&Batch::new()));
    assert!(Reply::parse(&encoded(&[1_000]), &used).is_ok());
}

/// A pair of fixed windows before and behind a token bucket that only watches, then a request without
/// pairs.
fn paired() -> Batch {
    let bucket = Policy::TokenBucket(TokenBucket::new(rate(), 10).expect("a bucket"));
    let fixed = Policy::FixedWindow(FixedWindow::new(rate()));
    let of = |id, choice| Charge { choice, ..Charge::new(BucketId(id), b"key", &fixed, 1) };
    let watching = Charge { enforced: false, ..Charge::new(BucketId(9), b"key", &bucket, 1) };
    let (first, second) = (Choice::First, Choice::Second);
    let mut batch = Batch::new();
    batch.push([of(1, first), of(2, second), watching, of(3, first), of(4, second)].into_iter());
    batch.push([of(5, Choice::Alone)].into_iter());
    batch
}

/// The verdict of the first request, what came of its pairs, and the verdict of the second.
fn paired_reply(verdict: u64, pairs: u64, second: u64) -> Vec<u8> {
    let window = [4_000, 1];
    let states = [&window[..], &window, &[2_000, 7], &window, &window].concat();
    encoded(&[&[1_000, verdict, pairs], &states[..], &[second], &window].concat())
}

#[test]
fn a_reply_tells_which_of_each_pair_was_charged() {
    let told = |pairs| {
        let bytes = paired_reply(1, pairs, 0);
        let reply = Reply::parse(&bytes, &paired()).expect("a reply");
        assert!(reply.admitted(0) && !reply.admitted(1));
        // Who has only its positions reads the same.
        let late = verdicts(&bytes, &paired().verdict_positions()).expect("verdicts");
        assert_eq!(late, [reply.verdict(0), reply.verdict(1)]);
        let of_check = |it: CheckReply| match (it.would_refuse, it.skipped) {
            (false, false) => 'c',
            (true, false) => 'r',
            (false, true) => 's',
            (true, true) => '?',
        };
        reply.check_replies(0).map(of_check).collect::<String>()
    };
    assert_eq!(told(0b00_00), "csccs");
    assert_eq!(told(0b00_01), "rcccs");
    assert_eq!(told(0b10_00), "cscrr");
    assert_eq!(told(0b01_10), "rrcrc");
}

#[test]
fn what_cannot_come_of_pairs_is_an_error() {
    for (verdict, pairs) in [(1, 0b11), (1, 0b01_00_00), (1 + 2, 0), (1 + 4, 0), (1 + 16, 0)] {
        let reply = Reply::parse(&paired_reply(verdict, pairs, 1), &paired());
        assert_eq!(reply.err(), Some(ReplyError), "{verdict} {pairs}");
    }
    // The watching one has a bit as ever.
    let reply = Reply::parse(&paired_reply(1 + 8, 0, 1), &paired()).expect("a reply");
    assert!(reply.check_replies(0).nth(2).expect("a check").would_refuse);
}
