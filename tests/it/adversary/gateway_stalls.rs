//! Promises at scale and around failures: many keys, several workers, a gateway that stands still.
//! Stalls of queues and of leaky buckets are in `limits/stalled_gateway.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::slots::{free_slots, start};
use crate::support::upstream::ok;
use crate::support::{
    After, Client, Config, HeldUpstream, TestStore, Upstream, Weir, get, get_with, on_each_store,
    wait_until,
};

on_each_store!(
    no_more_than_the_limit_are_in_flight_while_the_gateway_stalls,
    deferred_charges_survive_a_stall,
);

/// Two workers, more clients than slots, and stalls while requests come, are held and end.
fn no_more_than_the_limit_are_in_flight_while_the_gateway_stalls(test_store: &TestStore) {
    const SLOTS: usize = 5;
    let held = HeldUpstream::start();
    let weir = start(test_store, &held, SLOTS);
    let mut clients: Vec<Client> = (0..40).map(|_| weir.connect()).collect();
    for time in [50, 300, 1000] {
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(get(if number % 2 == 0 { "/held" } else { "/slow" }));
        }
        weir.stall(Duration::from_millis(time));
        // Those with a slot are answered as they are released, and the others are refused.
        let statuses = clients.iter_mut().map(|client| {
            wait_until("it is answered", || {
                held.release("/held");
                crate::support::slots::is_answered(client)
            });
            client.response().status
        });
        let statuses: Vec<u16> = statuses.collect();
        assert!(statuses.contains(&200), "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    }
    assert!(held.most_at_once() <= SLOTS, "{} at once", held.most_at_once());
    wait_until("all slots are free again", || free_slots(&weir) == Some(SLOTS as i64));
}

/// What an answer costs is charged once, though the gateway stood still while it was on its way.
fn deferred_charges_survive_a_stall(test_store: &TestStore) {
    let (stalled, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (may_answer, count) = (Arc::clone(&stalled), Arc::clone(&answered));
    let upstream = Upstream::scripted(move |exchange| {
        wait_until("the gateway stands still", || may_answer.load(Ordering::SeqCst));
        let answer = String::from_utf8(ok("ok")).unwrap();
        exchange.reply(answer.replacen("\r\n", "\r\nX-Cost: 7\r\n", 1));
        count.fetch_add(1, Ordering::SeqCst);
        After::Keep
    });
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 100\n\
                 cost = { from = \"response:x-cost\", default = 1, max = 10 }";
    let weir = Weir::start(&test_store.configure(Config::to(&upstream).limit(limit)));
    let mut clients: Vec<Client> = (0..10).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("all are on their way", || upstream.heads() == 10);
    weir.signal(Signal::STOP);
    stalled.store(true, Ordering::SeqCst);
    wait_until("all are answered", || answered.load(Ordering::SeqCst) == 10);
    weir.signal(Signal::CONT);
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    let told = weir.get("/");
    let left = crate::support::fields::list(&told.all("ratelimit"))[0].integer("r");
    assert_eq!((told.status, left), (200, 100 - 11 * 7));
}

/// Callers that have spent their tokens stay refused though a hundred thousand others come, a hundred
/// for each entry of the table, over two workers; and the table does not grow.
#[test]
fn hundred_thousand_keys_neither_grow_the_table_nor_evict_a_bucket() {
    const KEYS: usize = 100_000;
    const GROUP: usize = 250;
    // The flood is admitted: of what is refused, records are kept.
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 20000\n\
                 cost = { from = \"header:x-weight\", default = 1, max = 20000 }";
    let config = Config::echo().limit(limit).store("max_keys = 1000");
    let weir = Weir::start(&config);
    let as_user = |user: &str| get_with("/", &format!("X-User: {user}\r\n"));
    let spending = |user: &str| get_with("/", &format!("X-User: {user}\r\nX-Weight: 20000\r\n"));
    let regulars: Vec<String> = (0..20).map(|number| format!("regular-{number}")).collect();
    for user in &regulars {
        let asked = [spending(user), as_user(user)];
        assert_eq!(asked.map(|request| weir.ask(request).status), [200, 429]);
    }
    let flood = |keys: std::ops::Range<usize>| {
        let mut client = weir.connect();
        let keys: Vec<usize> = keys.collect();
        for group in keys.chunks(GROUP) {
            let requests: Vec<String> =
                group.iter().map(|key| as_user(&format!("flood-{key}"))).collect();
            client.send(requests.concat());
            group.iter().for_each(|_| assert_eq!(client.response().status, 200));
        }
    };
    // The table is full after the first of them.
    flood(0..KEYS / 10);
    let before = weir.peak_memory();
    thread::scope(|scope| {
        for part in 1..10 {
            scope.spawn(move || flood(part * KEYS / 10..(part + 1) * KEYS / 10));
        }
    });
    let grown = weir.peak_memory().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB more for keys that have no room");
    for user in &regulars {
        assert_eq!(weir.ask(as_user(user)).status, 429, "{user} was forgotten");
    }
}
