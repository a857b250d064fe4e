//! Requests whose form is waited for before Redis is asked about them: that is no time that Redis has
//! taken.

use std::time::Duration;

use crate::support::{Client, Config, Redis, Weir};

/// What one decision may wait, and how long requests wait before it: nothing else happens at their
/// worker meanwhile.
const TIMEOUT: Duration = Duration::from_millis(500);
const DELAY: Duration = Duration::from_millis(700);

fn config(redis: &Redis) -> Config {
    let waits = format!("timeout = \"{}ms\"\non_error = \"deny\"", TIMEOUT.as_millis());
    Config::echo().server("workers = 1").store(&redis.store()).store(&waits)
}

#[test]
fn form_that_comes_long_after_its_head_is_decided_by_redis() {
    let redis = Redis::start();
    let limit = "key = \"client\"\nrate = \"1/day\"\nburst = 1";
    let weir =
        Weir::start(&config(&redis).limit(limit).also("[identity]\nclient = \"form:client_id\"\n"));
    let mut client = weir.connect();
    let form = "client_id=late";
    let ask = |client: &mut Client| {
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n",
            form.len()
        ));
        std::thread::sleep(DELAY);
        client.ask(form).status
    };
    assert_eq!([ask(&mut client), ask(&mut client)], [200, 429]);
}
