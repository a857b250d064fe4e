//! `strategy = "degrade"`: requests over the limit pass in another way, and are marked.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::upstream::ok;
use crate::support::{
    Client, Config, Response, TestStore, Upstream, Weir, fields, get, get_with, on_each_store,
    wait_until,
};

on_each_store!(
    request_over_the_limit_is_marked_and_goes_to_the_spare_upstream,
    degraded_request_goes_to_the_usual_upstream_without_a_spare,
    clients_cannot_set_or_strip_the_degraded_mark,
    refusal_by_another_limit_charges_the_degrading_limit_nothing,
    several_limits_are_all_named,
    degraded_request_within_a_leaky_bucket_is_still_paced,
);

const MARK: &str = "x-weir-degraded";

fn saying(name: &'static str) -> Upstream {
    Upstream::replying(move |_| ok(name))
}

/// A route to `api`, and to `spare` for what is over the limit.
fn tables(limits: &str, spare: &Upstream) -> String {
    format!(
        r#"
        {limits}

        [upstreams.spare]
        servers = ["http://{}"]

        [[routes]]
        name = "plain"
        path = "/plain"
        upstream = "api"

        [[routes]]
        name = "all"
        path = "/*"
        upstream = "api"
        limits = ["soft"]
        degrade = {{ upstream = "spare" }}
    "#,
        spare.address()
    )
}

const SOFT: &str = "[limits.soft]\nkey = \"header:x-user\"\nrate = \"1/day\"\nburst = 2\n\
                    strategy = \"degrade\"\n";

fn outcomes(weir: &Weir, limit: &str, outcome: &str) -> f64 {
    weir.metrics().decisions(limit, outcome).unwrap_or(0.0)
}

fn left(response: &Response, limit: &str) -> i64 {
    let told = fields::list(&response.all("ratelimit"));
    told.iter().find(|it| it.name() == limit).expect("the limit is told").integer("r")
}

fn request_over_the_limit_is_marked_and_goes_to_the_spare_upstream(test_store: &TestStore) {
    let (api, spare) = (saying("api"), saying("spare"));
    let weir =
        Weir::start(&test_store.configure(Config::to(&api).open().routes(&tables(SOFT, &spare))));
    let mut client = weir.connect();
    for (number, upstream_name) in ["api", "api", "spare", "spare", "spare"].into_iter().enumerate()
    {
        let response = client.ask(get("/a?b=c"));
        assert_eq!((response.status, response.text().as_str()), (200, upstream_name), "{number}");
        assert_eq!(left(&response, "soft"), (1 - number as i64).max(0));
        assert!(!response.has("retry-after") && !response.has(MARK), "{response:?}");
    }
    assert!(api.requests().iter().all(|it| !it.has(MARK)));
    for request in spare.requests() {
        assert_eq!((request.one(MARK), request.target.as_str()), ("soft", "/a?b=c"));
    }
    assert_eq!(client.ask(get_with("/", "X-User: other\r\n")).text(), "api");
    assert_eq!(client.ask(get("/plain")).text(), "api");
    wait_until("outcomes are counted", || {
        (outcomes(&weir, "soft", "degraded"), outcomes(&weir, "soft", "allowed")) == (3.0, 3.0)
    });
    assert_eq!(outcomes(&weir, "soft", "refused"), 0.0);
}

fn degraded_request_goes_to_the_usual_upstream_without_a_spare(test_store: &TestStore) {
    let upstream = saying("api");
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 1\nstrategy = \"degrade\"";
    let weir = Weir::start(&test_store.configure(Config::to(&upstream).limit(limit)));
    assert_eq!([0; 3].map(|_| weir.get("/").status), [200; 3]);
    let marks: Vec<_> = upstream
        .requests()
        .iter()
        .map(|it| it.all(MARK).iter().map(|mark| (*mark).to_owned()).collect::<Vec<_>>())
        .collect();
    assert_eq!(marks, [vec![], vec!["per-ip".to_owned()], vec!["per-ip".to_owned()]]);
}

fn clients_cannot_set_or_strip_the_degraded_mark(test_store: &TestStore) {
    let (api, spare) = (saying("api"), saying("spare"));
    let weir =
        Weir::start(&test_store.configure(Config::to(&api).open().routes(&tables(SOFT, &spare))));
    let forged = ["X-Weir-Degraded: soft\r\n", "x-weir-degraded: a\r\nX-WEIR-DEGRADED: b\r\n"];
    let disguised = "X_Weir_Degraded: soft\r\nX-Weir_Degraded: soft\r\n";
    for lines in forged.into_iter().chain([disguised]) {
        // Within the limit, and where there is none.
        for target in ["/", "/plain"] {
            let user = lines.len();
            let response = weir.ask(get_with(target, &format!("X-User: {user}\r\n{lines}")));
            assert_eq!(response.text(), "api");
            let raw = api.last().raw.to_ascii_lowercase().replace('_', "-");
            assert!(!raw.contains(MARK), "{raw}");
        }
    }
    for _ in 0..2 {
        assert_eq!(weir.get("/").text(), "api");
    }
    let lines = [
        "",
        "Connection: X-Weir-Degraded\r\n",
        "Connection: keep-alive, x-weir-degraded\r\n",
        "X-Weir-Degraded: other\r\n",
        "X-Weir-Degraded: other\r\nConnection: X-Weir-Degraded\r\n",
        disguised,
    ];
    for lines in lines {
        assert_eq!(weir.ask(get_with("/", lines)).text(), "spare");
        let request = spare.last();
        assert_eq!(request.one(MARK), "soft", "{lines:?}");
        let same =
            request.headers.iter().filter(|it| it.0.to_ascii_lowercase().replace('_', "-") == MARK);
        assert_eq!(same.count(), 1, "{}", request.raw);
    }
}

fn refusal_by_another_limit_charges_the_degrading_limit_nothing(test_store: &TestStore) {
    let (api, spare) = (saying("api"), saying("spare"));
    let limits = r#"
        [limits.soft]
        key = "header:x-user"
        rate = "1/day"
        burst = 3
        strategy = "degrade"

        [limits.hard]
        key = "global"
        rate = "1/day"
        burst = 5
    "#;
    let tables =
        tables(limits, &spare).replace("limits = [\"soft\"]", "limits = [\"soft\", \"hard\"]");
    let weir = Weir::start(&test_store.configure(Config::to(&api).open().routes(&tables)));
    let ask = |user: &str| weir.ask(get_with("/", &format!("X-User: {user}\r\n")));
    let served_by: Vec<String> = (0..4).map(|_| ask("a").text()).collect();
    assert_eq!(served_by, ["api", "api", "api", "spare"]);
    // Degraded or not, it counts for the others.
    let response = ask("b");
    assert_eq!((left(&response, "soft"), left(&response, "hard")), (2, 0));
    for user in ["a", "b", "c", "b"] {
        let refused = ask(user);
        assert_eq!(refused.status, 429);
        assert_eq!(refused.json()["limit"], "hard");
        assert_eq!(refused.json()["violated-policies"], serde_json::json!(["hard"]));
        let soft = match user {
            "a" => 0,
            "b" => 2,
            _ => 3,
        };
        assert_eq!(left(&refused, "soft"), soft, "{user} was not charged");
    }
    assert_eq!(api.heads() + spare.heads(), 5);
}

fn several_limits_are_all_named(test_store: &TestStore) {
    let (api, spare) = (saying("api"), saying("spare"));
    let limits = format!(
        "{SOFT}\n[limits.softer]\nkey = \"global\"\nrate = \"1/day\"\nburst = 1\n\
         strategy = \"degrade\"\n"
    );
    let tables =
        tables(&limits, &spare).replace("limits = [\"soft\"]", "limits = [\"soft\", \"softer\"]");
    let weir = Weir::start(&test_store.configure(Config::to(&api).open().routes(&tables)));
    let served_by: Vec<String> = (0..3).map(|_| weir.get("/").text()).collect();
    assert_eq!(served_by, ["api", "spare", "spare"]);
    let marks: Vec<String> = spare.requests().iter().map(|it| it.one(MARK).to_owned()).collect();
    assert_eq!(marks, ["softer", "soft, softer"]);
}

fn degraded_request_within_a_leaky_bucket_is_still_paced(test_store: &TestStore) {
    const PACE: Duration = Duration::from_millis(200);
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&arrivals);
    let upstream = Upstream::replying(move |request| {
        noted.lock().unwrap().push((request.has(MARK), Instant::now()));
        ok("ok")
    });
    let limit = "key = \"ip\"\nalgorithm = \"leaky_bucket\"\nrate = \"5/second\"\nburst = 4\n\
                 strategy = \"degrade\"";
    let weir = Weir::start(&test_store.configure(Config::to(&upstream).limit(limit)));
    let begin = Instant::now();
    let mut clients: Vec<Client> = (0..8).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    let arrivals = arrivals.lock().unwrap();
    let paced: Vec<Instant> = arrivals.iter().filter(|it| !it.0).map(|it| it.1).collect();
    assert!((4..8).contains(&paced.len()), "{} of 8 were paced", paced.len());
    for (turn, arrived) in (0..).zip(paced) {
        let waited = arrived - begin;
        assert!(waited + Duration::from_millis(2) >= PACE * turn, "{turn} left after {waited:?}");
    }
}
