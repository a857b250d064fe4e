use super::*;

fn run(admitted: &[bool]) -> CallOutcome {
    let verdict = |admitted: &bool| RequestVerdict { admitted: *admitted, ..Default::default() };
    CallOutcome::Run { at: Some(Micros(5)), verdicts: admitted.iter().map(verdict).collect() }
}

fn admitted(at: u64) -> Option<RequestOutcome> {
    let (at, pairs) = (Some(Micros(at)), PairChoices::default());
    Some(RequestOutcome::Admitted { at, pairs })
}

#[test]
fn a_fence_tells_which_bucket_of_each_pair_was_charged() {
    let mut call_outcomes = CallOutcomes::default();
    call_outcomes.record_fence("17 16:01sfn1n1:70", 17);
    let pairs = |request| match call_outcomes.of(16, request) {
        Some(RequestOutcome::Admitted { pairs, .. }) => [0, 1, 2].map(|pair| pairs.of(pair)),
        other => panic!("{other:?}"),
    };
    use PairChoice::{First, Neither, Second};
    assert_eq!(call_outcomes.of(16, 0), Some(RequestOutcome::Refused));
    assert_eq!(pairs(1), [Second, First, Neither]);
    assert_eq!(pairs(2), [Neither, First, First]);
    assert_eq!(call_outcomes.of(16, 3), admitted(70));
    assert_eq!(call_outcomes.of(16, 4), Some(RequestOutcome::Refused));
}

#[test]
fn a_fence_names_the_requests_that_were_charged_and_those_that_were_refused() {
    let mut call_outcomes = CallOutcomes::default();
    assert_eq!(call_outcomes.of(16, 0), None);
    call_outcomes.record_fence("17 16:1101:70 15:1:60", 18);
    let of = |call, request| call_outcomes.of(call, request);
    assert_eq!([of(16, 0), of(16, 3), of(15, 0)], [70, 70, 60].map(admitted));
    assert_eq!(of(16, 2), Some(RequestOutcome::Refused));
    assert_eq!([of(17, 0), of(18, 0)], [Some(RequestOutcome::NotRun); 2]);
    assert_eq!(of(19, 0), None);
    assert!(call_outcomes.was_run(15) && !call_outcomes.was_run(17));
}

#[test]
fn what_is_no_fence_says_nothing() {
    for text in ["", "garbage", "1:1", "5 x:1 :1 7", "5"] {
        let mut call_outcomes = CallOutcomes::default();
        call_outcomes.record_fence(text, 5);
        assert_eq!(
            call_outcomes,
            CallOutcomes { resolved_up_to: 5, calls: VecDeque::new() },
            "{text}"
        );
    }
}

#[test]
fn a_late_reply_is_believed_before_a_fence_and_not_forgotten_for_it() {
    let mut call_outcomes = CallOutcomes::default();
    call_outcomes.record(7, run(&[true]));
    call_outcomes.record_fence("9 9:1 8:1", 9);
    assert_eq!(call_outcomes.of(7, 0), admitted(5));
    for call in 100..10_000 {
        call_outcomes.record(call, run(&[true]));
    }
    assert_eq!(call_outcomes.calls.len(), MOST);
}

#[test]
fn what_can_never_be_known_is_not_taken_for_a_call_that_was_not_run() {
    let mut call_outcomes = CallOutcomes::default();
    call_outcomes.record(1, CallOutcome::Lost);
    call_outcomes.record(2, CallOutcome::NotRun);
    assert_eq!(call_outcomes.of(1, 0), Some(RequestOutcome::Lost));
    assert_eq!(call_outcomes.of(2, 0), Some(RequestOutcome::NotRun));
}
