use super::*;

fn origin(port: u16) -> Origin {
    Origin { host: "10.0.0.1".to_owned(), port }
}

fn report(master: u16, epoch: u64, is_replaced: bool) -> SentinelReport {
    SentinelReport { master: origin(master), epoch, is_replaced }
}

/// Three sentinels at the ports 1, 2, 3.
fn three() -> (SentinelReports, Instant) {
    let answers = [1, 2, 3].map(|port| (origin(port), Answer::None));
    (SentinelReports { answers: answers.to_vec(), in_use: None }, Instant::now())
}

fn port(chosen: Result<Origin, Failure>) -> Result<u16, Reason> {
    chosen.map(|it| it.port).map_err(|it| it.reason)
}

#[test]
fn a_sentinel_is_understood() {
    let state = |flags: &str| {
        let fields = ["ip", "10.0.0.1", "port", "6379", "flags", flags, "config-epoch", "7"];
        let values = fields.map(|it| Value::BulkString(it.as_bytes().to_vec()));
        SentinelReport::of_state(Value::Array(values.to_vec()))
    };
    assert_eq!(state("master"), Ok(report(6379, 7, false)));
    assert_eq!(state("master,o_down"), Ok(report(6379, 7, false)));
    assert_eq!(state("master,failover_in_progress"), Ok(report(6379, 7, true)));
    let odd = SentinelReport::of_state(Value::Array(vec![])).map_err(|it| it.reason);
    assert_eq!(odd, Err(Reason::Reply));
    let address = ["10.0.0.1", "6379"].map(|it| Value::BulkString(it.as_bytes().to_vec()));
    let named = SentinelReport::of_address(Value::Array(address.to_vec()));
    assert_eq!(named, Ok(Some(report(6379, 0, false))));
    assert_eq!(SentinelReport::of_address(Value::Nil), Ok(None));
}

#[test]
fn the_highest_epoch_is_believed_and_not_who_is_asked_first() {
    let (mut reports, now) = three();
    assert_eq!(port(reports.choose(now)), Err(Reason::Connection));
    assert!(reports.settled(now).is_none(), "they are still being asked");
    reports.record(&origin(1), report(6379, 4, false), now);
    assert_eq!(port(reports.choose(now)), Ok(6379));
    assert_eq!(reports.give_up(now), None);
    reports.record(&origin(3), report(6380, 5, false), now);
    let failure = reports.give_up(now).expect("another master");
    assert_eq!(failure.to_string(), "10.0.0.1:6380 is the master in the place of 10.0.0.1:6379");
    assert_eq!(reports.give_up(now), None, "it is reported once");
    // The first has not noticed yet, and repeats its old report.
    reports.record(&origin(1), report(6379, 4, false), now);
    assert_eq!(port(reports.choose(now)), Ok(6380));
}

#[test]
fn a_master_that_is_being_replaced_is_none() {
    let (mut reports, now) = three();
    for sentinel in 1..=3 {
        reports.record(&origin(sentinel), report(6379, 4, false), now);
    }
    assert_eq!(port(reports.choose(now)), Ok(6379));
    reports.record(&origin(2), report(6379, 4, true), now);
    assert_eq!(reports.give_up(now).map(|it| it.reason), Some(Reason::ReadOnly));
    assert!(reports.settled(now).is_none(), "it is worth waiting");
    assert_eq!(port(reports.choose(now)), Err(Reason::ReadOnly));
    // It gave up: there was no replica to choose.
    reports.record(&origin(2), report(6379, 4, false), now);
    assert_eq!(port(reports.choose(now)), Ok(6379));
    assert_eq!(reports.give_up(now), None);
}

#[test]
fn a_failover_that_others_have_seen_end_is_over() {
    let (mut reports, now) = three();
    reports.record(&origin(1), report(6379, 4, false), now);
    reports.record(&origin(2), report(6379, 4, true), now);
    assert_eq!(port(reports.choose(now)), Err(Reason::ReadOnly));
    // The one that leads it was held up after it had told the others.
    reports.record(&origin(1), report(6380, 5, false), now);
    assert_eq!(port(reports.choose(now)), Ok(6380));
    // That the next one begins is told by a sentinel that knows of the last.
    reports.record(&origin(3), report(6380, 5, true), now);
    assert_eq!(port(reports.choose(now)), Err(Reason::ReadOnly));
}

/// The sentinel that leads it has the new epoch from the promotion on, and names the old master until
/// all replicas have followed.
#[test]
fn a_failover_is_over_once_another_has_heard_of_the_promotion() {
    let (mut reports, now) = three();
    for sentinel in [1, 3] {
        reports.record(&origin(sentinel), report(6379, 4, false), now);
    }
    reports.record(&origin(2), report(6379, 4, true), now);
    assert_eq!(port(reports.choose(now)), Err(Reason::ReadOnly));
    reports.record(&origin(2), report(6379, 5, true), now);
    assert_eq!(port(reports.choose(now)), Err(Reason::ReadOnly), "nobody names another");
    let later = now + Duration::from_millis(1);
    reports.record(&origin(1), report(6380, 5, false), later);
    assert_eq!(port(reports.choose(later)), Ok(6380));
    assert_eq!(reports.give_up(later), None);
    // The leader repeats itself, and the third has heard of nothing.
    reports.record(&origin(2), report(6379, 5, true), later);
    reports.record(&origin(3), report(6379, 4, false), later);
    assert_eq!(port(reports.choose(later)), Ok(6380));
    assert_eq!(reports.give_up(later), None);
}

/// As by a gateway that starts meanwhile: what is heard last is no news.
#[test]
fn the_sentinel_that_leads_a_failover_does_not_name_the_master_whenever_it_is_heard() {
    let (mut reports, now) = three();
    let later = now + Duration::from_millis(1);
    reports.record(&origin(1), report(6380, 5, false), now);
    reports.record(&origin(3), report(6380, 5, false), now);
    reports.record(&origin(2), report(6379, 5, true), later);
    assert_eq!(port(reports.choose(later)), Ok(6380));
    assert_eq!(reports.give_up(later), None);
}

#[test]
fn a_word_that_is_not_heard_again_holds_for_a_while() {
    let (mut reports, now) = three();
    reports.record(&origin(1), report(6380, 5, false), now);
    reports.record(&origin(2), report(6379, 4, false), now);
    let gone = || Failure::new(Reason::Connection, "gone");
    reports.miss(&origin(1), gone(), now);
    assert_eq!(port(reports.choose(now)), Ok(6380));
    // Sentinels that are set up anew start with low epochs.
    let later = now + TRUST;
    reports.miss(&origin(1), gone(), later);
    reports.record(&origin(2), report(6379, 1, false), later);
    assert_eq!(port(reports.choose(later)), Ok(6379));
}

#[test]
fn sentinels_that_are_all_gone_say_nothing_of_the_master() {
    let (mut reports, now) = three();
    reports.record(&origin(1), report(6379, 4, false), now);
    assert_eq!(port(reports.choose(now)), Ok(6379));
    let later = now + TRUST;
    for sentinel in 1..=3 {
        reports.miss(&origin(sentinel), Failure::new(Reason::Connection, "gone"), later);
    }
    assert_eq!(reports.give_up(later), None, "connections stay");
    let settled = reports.settled(later).expect("nobody is left to wait for");
    let failure = settled.expect_err("new ones are not made").to_string();
    assert!(failure.starts_with("sentinel 10.0.0.1:1: gone; sentinel 10.0.0.1:2"), "{failure}");
    // One of them is back, and another master is there meanwhile.
    reports.record(&origin(3), report(6380, 5, false), later);
    assert!(reports.give_up(later).is_some());
}

#[test]
fn without_epochs_the_latest_change_counts() {
    let (mut reports, now) = three();
    reports.record(&origin(1), report(6379, 0, false), now);
    reports.record(&origin(2), report(6379, 0, false), now);
    let later = now + Duration::from_secs(1);
    reports.record(&origin(2), report(6380, 0, false), later);
    reports.record(&origin(1), report(6379, 0, false), later);
    assert_eq!(port(reports.choose(later)), Ok(6380));
}
