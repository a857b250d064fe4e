//! Clients that disconnect before their response, on routes that charge by the response.

use std::sync::{Mutex, mpsc};

use crate::support::{
    After, Config, PATIENCE, Response, TestStore, Upstream, Weir, fields, get, get_with,
    on_each_store, wait_until,
};

on_each_store!(
    client_that_resets_is_charged_the_cost_its_response_states,
    client_that_resets_is_charged_the_maximum_without_a_response,
    unfinished_upload_is_charged_the_maximum,
);

/// A limit by what the response says, one that charges nothing but failures, and one that has to do
/// with neither.
fn config(upstream: &Upstream) -> Config {
    let thousand = "key = \"global\"\nrate = \"1/day\"\nburst = 1000\n".to_owned();
    let cost = "cost = { from = \"response:x-cost\", default = 40, max = 100 }";
    Config::to(upstream)
        .open()
        .add_limit("costs", &(thousand.clone() + cost))
        .add_limit("failures", &(thousand + "count = \"401\""))
        .route("all", "/*", &["costs", "failures"])
}

/// An upstream that answers `/slow…` on demand, as the request asks for it; `/` costs nothing.
struct Slow {
    upstream: Upstream,
    go: mpsc::Sender<()>,
}

impl Slow {
    fn start() -> Slow {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let upstream = Upstream::scripted(move |exchange| {
            if exchange.request.target == "/" {
                exchange.reply("HTTP/1.1 200 OK\r\nX-Cost: 0\r\nContent-Length: 0\r\n\r\n");
                return After::Keep;
            }
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
            let status = exchange.request.one("x-status").to_owned();
            exchange
                .reply(format!("HTTP/1.1 {status} X\r\nX-Cost: 70\r\nContent-Length: 0\r\n\r\n"));
            After::Close
        });
        Slow { upstream, go }
    }

    /// Sends a request, and resets the connection when the upstream has it.
    #[track_caller]
    fn leave(&self, weir: &Weir, request: &str) {
        let before = self.upstream.heads();
        let mut client = weir.connect();
        client.send(request);
        wait_until("it is in flight", || self.upstream.heads() > before);
        client.wire.reset();
    }
}

/// What both limits have been charged.
fn spent(weir: &Weir) -> [i64; 2] {
    let response: Response = weir.get("/");
    let told = fields::list(&response.all("ratelimit"));
    [0, 1].map(|limit| 1000 - told[limit].integer("r"))
}

/// How many requests have ended without their clients.
fn without_client(weir: &Weir) -> f64 {
    let labels = [("route", "all"), ("status", "499")];
    weir.metrics().value("weir_requests_total", &labels).unwrap_or(0.0)
}

fn client_that_resets_is_charged_the_cost_its_response_states(test_store: &TestStore) {
    let slow = Slow::start();
    let weir = Weir::start(&test_store.configure(config(&slow.upstream)));
    slow.leave(&weir, &get_with("/slow", "X-Status: 401\r\n"));
    assert_eq!(spent(&weir), [0, 0], "not before it is known");
    slow.go.send(()).unwrap();
    wait_until("both are charged", || spent(&weir) == [70, 1]);
    slow.leave(&weir, &get_with("/slow", "X-Status: 200\r\n"));
    slow.go.send(()).unwrap();
    wait_until("it is charged", || spent(&weir) == [140, 1]);
}

fn client_that_resets_is_charged_the_maximum_without_a_response(test_store: &TestStore) {
    let slow = Slow::start();
    let config = config(&slow.upstream).upstream("response_timeout = \"2s\"\nretries = 0");
    let weir = Weir::start(&test_store.configure(config));
    slow.leave(&weir, &get_with("/slow", "X-Status: 200\r\n"));
    wait_until("it took too long", || without_client(&weir) == 1.0);
    wait_until("both are charged", || spent(&weir) == [100, 1]);
    assert_eq!(weir.get("/slow").status, 504);
    // A client that stayed for the response pays what the response states.
    assert_eq!(spent(&weir), [140, 1]);
}

fn unfinished_upload_is_charged_the_maximum(test_store: &TestStore) {
    let slow = Slow::start();
    let config = config(&slow.upstream).server("request_timeout = \"1s\"");
    let weir = Weir::start(&test_store.configure(config));
    let part = "X-Status: 200\r\nContent-Length: 10\r\n";
    let part = get_with("/slow", part).replace("GET", "POST") + "hello";
    slow.leave(&weir, &part);
    wait_until("both are charged", || spent(&weir) == [100, 1]);
    assert_eq!(weir.ask(&part).status, 408);
    assert_eq!(spent(&weir), [200, 2]);
}

#[test]
fn client_that_resets_is_forgotten_where_no_limit_charges_by_response() {
    let slow = Slow::start();
    let weir = Weir::start(&Config::to(&slow.upstream));
    slow.leave(&weir, &get("/slow"));
    wait_until("it is over", || without_client(&weir) == 1.0);
}
