//! What operators decide while requests wait in line.

use std::sync::{Arc, Mutex};

use crate::support::upstream::ok;
use crate::support::{Client, Config, Home, Upstream, Weir, get_with, on_each_store, wait_until};

on_each_store!(an_override_moves_nobody_in_a_line_and_refuses_nobody);

fn an_override_moves_nobody_in_a_line_and_refuses_nobody(home: &Home) {
    const WAITING: usize = 12;
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&order);
    let upstream = Upstream::replying(move |request| {
        noted.lock().unwrap().push(request.one("x-number").parse::<usize>().unwrap());
        ok("ok")
    });
    let line = "key = \"global\"\nstrategy = \"queue\"\nrate = \"4/second\"\nburst = 1\n\
                max_wait = \"20s\"";
    let other = "[limits.other]\nkey = \"ip\"\nrate = \"5/second\"";
    let weir = Weir::start(&home.of(Config::to(&upstream).limit(line).also(other).operated()));
    let metric = |name: &str, labels: &[(&str, &str)]| weir.metrics().value(name, labels);
    let waiting = || metric("weir_queue_depth", &[("limit", "per-ip")]).unwrap_or(0.0);
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..=WAITING {
        let mut client = weir.connect();
        client.send(get_with("/", &format!("X-Number: {number}\r\n")));
        clients.push(client);
        wait_until("it is in line", || order.lock().unwrap().len() + waiting() as usize > number);
    }
    for (target, body) in [
        ("/v1/overrides/other/192.0.2.1", "{\"burst\": 9}"),
        ("/v1/overrides/other/192.0.2.2", "{\"burst\": 9}"),
        ("/v1/access/deny/ip/192.0.2.3", "{}"),
    ] {
        assert_eq!(weir.operate("PUT", target, body).status, 200);
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|it| it.response().status).collect();
    assert_eq!(statuses, [200; WAITING + 1]);
    assert_eq!(*order.lock().unwrap(), (0..=WAITING).collect::<Vec<_>>());
    let queued = metric("weir_decisions_total", &[("limit", "per-ip"), ("outcome", "queued")]);
    assert!(queued <= Some(WAITING as f64), "each is counted once: {queued:?}");
}
