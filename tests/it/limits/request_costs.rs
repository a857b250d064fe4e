//! Costs that a request states itself, in a header or in its query.

use super::costs::{charged, with_thousand};
use crate::support::{Config, TestStore, get_with, on_each_store};

on_each_store!(query_parameter_sets_a_cost, duplicate_cost_is_refused_and_charges_nothing,);

fn query_parameter_sets_a_cost(test_store: &TestStore) {
    let cost = "{ from = \"query:n\", default = 3, max = 50 }";
    let weir = with_thousand(test_store, Config::echo(), cost);
    let rows = [
        ("/?n=7", 7),
        ("/?a=b&n=7&c", 7),
        ("/?%6e=%37", 7),
        ("/?n=51", 50),
        ("/?n=0", 3),
        ("/?n=", 3),
        ("/?n", 3),
        ("/?N=7", 3),
        ("/?n=+7", 7),
        ("/?n=%207+", 7),
        ("/?m=7", 3),
        ("/", 3),
        ("/n=7", 3),
    ];
    for (number, (target, cost)) in rows.into_iter().enumerate() {
        assert_eq!(charged(&weir, &format!("user-{number}"), target, ""), cost, "{target}");
    }
    for value in ["-7", "%2B7", "7.0", "7_0", "1e3", "0x10", "7,", "%D9%A5", "7%C2%A0", "7%00"] {
        let response = weir.ask(get_with(&format!("/?n={value}"), "X-User: ann\r\n"));
        assert_eq!((response.status, response.error()), (400, "bad_request".into()), "{value}");
    }
    assert_eq!(charged(&weir, "ann", "/", ""), 3, "and nothing before");
}

/// Gateway and upstream might each believe another one.
fn duplicate_cost_is_refused_and_charges_nothing(test_store: &TestStore) {
    let cost = "{ from = \"header:x-weight\", default = 2, max = 100 }";
    let by_header = with_thousand(test_store, Config::echo(), cost);
    let cost = "{ from = \"query:items\", default = 2, max = 100 }";
    let by_query = with_thousand(test_store, Config::echo(), cost);
    let rows = [
        (&by_header, "/", "X-Weight: 5\r\nX-Weight: 5\r\n"),
        (&by_header, "/", "X-Weight: 0\r\nx-weight: 50\r\n"),
        (&by_header, "/", "X-Weight: 5, 6\r\n"),
        (&by_query, "/?items=100&items=100", ""),
        (&by_query, "/?items=1&a=b&%69tems=100", ""),
        (&by_query, "/?items=100&items", ""),
        (&by_query, "/?items=1;items=100", ""),
        (&by_query, "/?a=b;items=100", ""),
    ];
    for (weir, target, lines) in rows {
        // Over Redis both count together.
        let user = if target == "/" { "ann" } else { "ben" };
        let response = weir.ask(get_with(target, &format!("X-User: {user}\r\n{lines}")));
        let told = (response.status, response.error());
        assert_eq!(told, (400, "bad_request".into()), "{target} {lines:?}");
    }
    for (weir, user) in [(&by_header, "ann"), (&by_query, "ben")] {
        assert_eq!(charged(weir, user, "/", ""), 2, "and nothing before");
    }
}
