//! Overrides that are made while requests are queued.

use super::queue::{charged, counted_queue};
use crate::support::queues::{numbered, queue_depth};
use crate::support::{Client, Response, TestStore, Upstream, Weir, on_each_store, wait_until};

on_each_store!(override_reorders_no_queue_and_refuses_no_queued_request);

fn override_reorders_no_queue_and_refuses_no_queued_request(test_store: &TestStore) {
    const WAITING: usize = 12;
    let upstream = Upstream::ok();
    let numbers = "rate = \"4/second\"\nburst = 1\nmax_wait = \"30s\"";
    let config = counted_queue(&upstream, numbers, 100).operated();
    let config = config.add_limit("other", "key = \"ip\"\nrate = \"5/second\"");
    let weir = Weir::start(&test_store.configure(config));
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..=WAITING {
        let mut client = weir.connect();
        client.send(numbered(number));
        clients.push(client);
        wait_until("it is queued", || upstream.heads() + queue_depth(&weir) > number);
    }
    for (target, body) in [
        ("/v1/overrides/other/192.0.2.1", "{\"burst\": 9}"),
        ("/v1/overrides/other/192.0.2.2", "{\"burst\": 9}"),
        ("/v1/access/deny/ip/192.0.2.3", "{}"),
    ] {
        assert_eq!(weir.operate("PUT", target, body).status, 200);
    }
    let responses: Vec<Response> = clients.iter_mut().map(Client::response).collect();
    assert!(responses.iter().all(|it| it.status == 200), "{responses:?}");
    // The other limit shows in which order they passed, however long they then took to arrive.
    let order: Vec<i64> = responses.iter().map(|it| charged(it, 100)).collect();
    assert_eq!(order, (1..=WAITING as i64 + 1).collect::<Vec<_>>());
    let queued = weir.metrics().decisions("per-ip", "queued");
    assert!(queued <= Some(WAITING as f64), "each is counted once: {queued:?}");
}
