use super::*;

fn deny(value: &str, until: u64) -> Ruling {
    let about = About::Access { action: Action::Deny, who: Who::Ip, value: value.to_owned() };
    Ruling { about, until, reason: None }
}

#[test]
fn what_is_written_down_can_be_read_again() {
    let book = Book::default();
    let written = Written { rate: Some("5/second".to_owned()), burst: Some(7), boost: None };
    let about = About::Override { limit: "l".into(), key: "a".into(), written };
    let ruling = Ruling { about, until: now() + 60, reason: Some("a launch".into()) };
    book.put(ruling.clone()).expect("room");
    book.put(deny("192.0.2.0/24", now() + 60)).expect("room");
    assert_eq!(Book::of(&book.text()).all(), book.all());
    assert_eq!(book.get("override/l/a"), Some(ruling));
    assert!(Book::of(b"garbage").all().is_empty());
}

#[test]
fn what_has_ended_holds_no_more_and_makes_room() {
    let book = Book::default();
    book.put(deny("192.0.2.1", now())).expect("room");
    assert!(book.all().is_empty() && book.rulings().access().is_none());
    book.put(deny("192.0.2.2", now() + 60)).expect("room");
    assert_eq!(book.rulings.lock().len(), 1);
}

#[test]
fn the_later_of_two_rulings_about_one_caller_holds() {
    let book = Book::default();
    book.put(deny("192.0.2.1", now() + 60)).expect("room");
    let about = About::Access { action: Action::Allow, who: Who::Ip, value: "192.0.2.1".into() };
    book.put(Ruling { about, until: now() + 60, reason: None }).expect("room");
    let access = book.rulings().access().expect("one is named");
    assert!(access.deny.is_empty() && !access.allow.is_empty());
}

#[tokio::test]
async fn an_end_is_a_change() {
    let book = Book::default();
    book.put(deny("192.0.2.1", now() + 1)).expect("room");
    book.changed().await;
    while !book.all().is_empty() {
        book.changed().await;
    }
}
