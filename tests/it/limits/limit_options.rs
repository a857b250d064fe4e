//! Options of a limit: `enabled`, `status`, `message`, `description`, `jitter`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::gateway::program;
use crate::support::{Config, Scratch, TestStore, Weir, get, get_with, on_each_store};

on_each_store!(
    disabled_limit_applies_to_nothing,
    refusal_has_the_status_and_message_of_its_limit,
    jitter_spreads_retries_and_never_states_too_short_a_wait,
);

fn disabled_limit_applies_to_nothing(test_store: &TestStore) {
    let with = |enabled: bool| {
        let off = format!(
            "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 1\nmissing = \"deny\"\n\
             enabled = {enabled}"
        );
        let config = Config::echo().open().add_limit("off", &off).bucket("on", "ip", 6);
        test_store.configure(config.route("all", "/*", &["off", "on"]))
    };
    let config = with(false);
    let weir = Weir::start(&config);
    let ask = || weir.ask(get_with("/", "X-User: a\r\n"));
    for left in (2..6).rev() {
        let response = ask();
        assert_eq!(response.status, 200);
        assert_eq!(response.all("ratelimit-policy").len(), 1);
        assert!(!format!("{response:?}").contains("\\\"off\\\""), "{response:?}");
        assert_eq!(response.one("x-ratelimit-remaining"), left.to_string());
    }
    assert_eq!(weir.get("/").status, 200, "not even its key is missed");
    // One word and a reload switch it on.
    weir.reload(&with(true));
    assert_eq!(ask().status, 200, "nothing was counted while it was off");
    let refused = ask();
    assert_eq!(refused.status, 429);
    assert!(weir.get("/").status == 400 || weir.get("/").error() == "missing_key");
    weir.reload(&config);
    assert_eq!(ask().json()["limit"], "on", "and off again");
}

fn refusal_has_the_status_and_message_of_its_limit(test_store: &TestStore) {
    let awkward = r#"Say "please" \ and don't </wait> — é"#;
    let daily = |burst: u32, key: &str, rest: &str| {
        format!("key = \"{key}\"\nrate = \"1/day\"\nburst = {burst}\n{rest}")
    };
    let words = format!("status = 503\nmessage = '''{awkward}'''");
    let config = Config::echo()
        .open()
        .add_limit("closed", &daily(1, "header:x-user", &words))
        .add_limit("usual", &daily(2, "global", "message = \"Come back tomorrow.\""))
        .route("all", "/*", &["closed", "usual"]);
    let weir = Weir::start(&test_store.configure(config));
    let ask = |user: &str| weir.ask(get_with("/", &format!("X-User: {user}\r\n")));
    assert_eq!(ask("a").status, 200);
    let refused = ask("a");
    assert_eq!((refused.status, refused.error()), (503, "rate_limit_exceeded".into()));
    let problem = refused.json();
    assert_eq!(problem["error_description"], awkward);
    assert_eq!((&problem["status"], &problem["limit"]), (&503.into(), &"closed".into()));
    assert_eq!(problem["title"], "Service Unavailable");
    assert!(refused.has("retry-after"));
    assert!(refused.one("proxy-status").contains("status-code=503"), "{refused:?}");
    assert_eq!(ask("b").status, 200);
    let refused = ask("c");
    assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
    assert_eq!(refused.json()["error_description"], "Come back tomorrow.");
    assert_eq!(refused.json()["limit"], "usual");
}

fn check(text: &str) -> (Option<i32>, String) {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", text);
    let output = program().arg("check").arg(file).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn check_shows_descriptions_and_warns_of_a_burst_below_one_second() {
    let limit = "key = \"ip\"\nrate = \"100/second\"\nburst = 20\n\
                 description = \"A hundred a second for everybody.\"";
    let (code, said) = check(&Config::echo().limit(limit).text());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("A hundred a second for everybody."), "{said}");
    assert!(said.contains("warning") && said.contains("burst of at least 100"), "{said}");
    let (code, said) = check(&Config::echo().limit(&limit.replace("20", "100")).text());
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("warning"), "{said}");
}

fn jitter_spreads_retries_and_never_states_too_short_a_wait(test_store: &TestStore) {
    const WAIT: u64 = 1000;
    let limit = format!("key = \"header:x-user\"\nrate = \"1/{WAIT}s\"\nburst = 1");
    let config = |jitter: &str| {
        let respond = format!("[respond]\nretry_jitter = {jitter}");
        test_store.configure(Config::echo().limit(&limit).also(&respond))
    };
    let weir = Weir::start(&config("0.5"));
    let unix_now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let refused = |user: usize| {
        let request = get_with("/", &format!("X-User: {user}\r\n"));
        let refused = weir.ask(request);
        assert_eq!(refused.status, 429);
        let retry: u64 = refused.one("retry-after").parse().unwrap();
        let (told, problem) = (refused.one("x-ratelimit-reset").parse::<u64>(), refused.json());
        let told = told.unwrap().abs_diff(unix_now() + retry);
        assert!(told <= 2, "the reset is when to come again: {refused:?}");
        assert_eq!(problem["retry_after"], retry);
        let exact = problem["retry_after_ms"].as_u64().unwrap();
        assert!(exact <= WAIT * 1000 && exact > (WAIT - 60) * 1000, "{exact} ms is exact");
        assert!(retry * 1000 >= exact, "{retry} s is before {exact} ms");
        assert!(retry <= WAIT * 3 / 2, "{retry} s");
        retry
    };
    let mut waits = Vec::new();
    for user in 0..30 {
        assert_eq!(weir.ask(get_with("/", &format!("X-User: {user}\r\n"))).status, 200);
        let first = refused(user);
        // As time goes by it only gets nearer.
        let again = refused(user);
        assert!(again <= first && first - again <= 60, "{first} s and then {again} s");
        waits.push(first);
    }
    let mut different = waits.clone();
    different.sort_unstable();
    different.dedup();
    assert!(different.len() >= 15, "{waits:?}");
    let (least, most) = (different[0], different[different.len() - 1]);
    assert!(least < WAIT * 5 / 4 && most > WAIT * 5 / 4, "spread over half the wait: {waits:?}");
    weir.reload(&config("0.0"));
    let retry: u64 = weir.ask(get_with("/", "X-User: 0\r\n")).one("retry-after").parse().unwrap();
    assert!(retry <= WAIT, "{retry} s");
    assert_eq!(weir.ask(get("/")).status, 200);
}
