//! The rules against abuse, as they are shipped.

use crate::support::{Scratch, Weir, fields, get_with};

const SHIPPED: &str = include_str!("../../../config/examples/abuse.toml");

/// The file with ports of the test's own, and nothing else changed.
fn shipped() -> Weir {
    let listen = "\"0.0.0.0:8080\"";
    assert_eq!(SHIPPED.matches(listen).count(), 1);
    let text = SHIPPED.replace(listen, "\"127.0.0.1:0\"");
    let scratch = Scratch::new();
    let text = format!("{text}\n[admin]\nlisten = \"127.0.0.1:0\"\n");
    let file = scratch.file("abuse.toml", &text);
    Weir::start_from(scratch, file)
}

#[test]
fn shipped_user_is_held_to_numbers_that_grow_with_good_calls() {
    let weir = shipped();
    let mut client = weir.connect();
    let mut ask = || client.ask(get_with("/", "X-User-Id: ann\r\n"));
    for burst in [20, 30] {
        let policies = fields::list(&ask().all("ratelimit-policy"));
        let of_user = policies.iter().find(|it| it.name() == "per-user").expect("its limit");
        assert_eq!(of_user.integer("q"), burst);
    }
    let refused = (0..10_000).map(|_| ask()).find(|it| it.status == 429).expect("an end");
    assert_eq!(refused.json()["limit"], "per-user", "no other limit comes first");
}
