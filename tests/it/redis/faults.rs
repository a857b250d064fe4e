//! A Redis that dies, hangs or refuses: no request fails or waits for it, and no caller gets more
//! than its limit.

use std::thread;
use std::time::{Duration, Instant};

use super::test_servers::load_slowly;
use crate::support::fault_proxy::Link;
use crate::support::load::{FREE, LoadAnswer, assert_prompt, assert_verdicts};
use crate::support::{
    Config, FaultProxy, Load, RECOVERY, Redis, Weir, get, get_with, wait_at_most, wait_until,
};

/// What one decision may wait.
const TIMEOUT: Duration = Duration::from_millis(300);
const BURST: f64 = 40.0;
const RATE: f64 = 20.0;

/// `/tight` is refused most of the time; `/wide` never, so each of its requests needs Redis.
fn tight_and_wide() -> Config {
    Config::echo()
        .open()
        .add_limit("tight", "key = \"ip\"\nrate = \"20/second\"\nburst = 40")
        .add_limit("wide", "key = \"ip\"\nrate = \"100000/second\"\nburst = 100000")
        .route("tight", "/tight", &["tight"])
        .route("wide", "/wide", &["wide"])
        .also(FREE)
}

fn config(store: &str) -> Config {
    let waits = format!("timeout = \"{}ms\"", TIMEOUT.as_millis());
    tight_and_wide().store(store).store(&waits)
}

fn load(weir: &Weir) -> Load {
    Load::start(&[weir.address()], &[get("/tight"), get("/wide"), get("/free")], 3)
}

/// Whether Redis kept its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Kept,
    Lost,
}

/// Every answer is prompt and a verdict, and the promise holds over the whole time.
#[track_caller]
fn judge(answers: &[LoadAnswer], memory: Memory) {
    assert_verdicts(answers);
    assert_prompt(answers, 2);
    let begin = answers.iter().map(|it| it.sent).min().unwrap();
    let end = answers.iter().map(|it| it.sent + it.took).max().unwrap();
    let forgotten = if memory == Memory::Lost { BURST } else { 0.0 };
    let most = BURST + RATE * (end - begin).as_secs_f64() + forgotten;
    let passed = |request| {
        answers.iter().filter(|it| it.request == request && it.status == 200).count() as f64
    };
    assert!(passed(0) <= most, "{} passed, at most {most} may", passed(0));
    assert!(answers.iter().any(|it| it.status == 429), "nothing was ever refused");
    let wide = answers.iter().filter(|it| it.request == 1).count() as f64;
    assert_eq!(passed(1), wide, "what is far from its limit was refused");
}

/// The audit lines of that event.
fn audited(weir: &Weir, event: &str) -> Vec<serde_json::Value> {
    let said = weir.output();
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let lines = lines.map(|line| serde_json::from_str(line).expect("a line of JSON"));
    lines.filter(|it: &serde_json::Value| it["event"] == event).collect()
}

/// The log's warnings that speak of the store.
fn warnings(weir: &Weir) -> Vec<String> {
    let loud = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let said = weir.output();
    let lines = said.lines().filter(loud).filter(|it| it.contains("store") || it.contains("redis"));
    lines.map(str::to_owned).collect()
}

fn readiness(weir: &Weir) -> (u16, serde_json::Value) {
    let response = weir.admin("/readyz");
    (response.status, response.json())
}

/// Puts a gateway with a load through a fault and out of it again.
#[track_caller]
fn endures(
    weir: &Weir,
    memory: Memory,
    harm: impl FnOnce(),
    heal: impl FnOnce(),
    in_use: impl Fn() -> bool,
) -> Vec<LoadAnswer> {
    let load = load(weir);
    load.wait_for(200);
    assert!(!weir.degraded());
    assert_eq!(readiness(weir), (200, serde_json::json!({"status": "ready", "store": "redis"})));
    harm();
    wait_until("the gateway decides without Redis", || weir.degraded());
    let (status, ready) = readiness(weir);
    assert_eq!((status, ready["status"].as_str()), (200, Some("degraded")));
    load.wait_for(300);
    heal();
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
    assert_eq!(readiness(weir).1["status"], "ready");
    wait_until("it decides again", in_use);
    load.wait_for(200);
    let answers = load.finish();
    judge(&answers, memory);
    wait_until("the end is audited", || !audited(weir, "store_recovered").is_empty());
    let degraded = audited(weir, "store_degraded");
    assert_eq!(degraded.len(), 1, "{degraded:#?}");
    assert!(degraded[0]["time"].is_string() || degraded[0]["time"].is_number(), "{degraded:?}");
    assert!(degraded[0]["reason"].as_str().is_some_and(|it| !it.is_empty()), "{degraded:?}");
    assert_eq!(audited(weir, "store_recovered").len(), 1);
    assert_eq!(warnings(weir).len(), 1, "{:#?}", warnings(weir));
    let errors = weir.metrics().value("weir_store_errors_total", &[]).unwrap();
    assert!(errors >= 1.0, "each is counted");
    answers
}

/// Whether further script calls reach it.
fn in_use(redis: &Redis) -> impl Fn() -> bool {
    let before = std::cell::Cell::new(None);
    move || {
        let calls = redis.script_calls();
        let first = before.get().unwrap_or(calls);
        before.set(Some(first));
        calls > first + 20
    }
}

/// A fault that one command makes and another ends.
#[track_caller]
fn endures_commands(harm: &[&[&str]], heal: &[&[&str]]) {
    let redis = Redis::start();
    let weir = Weir::start(&config(&redis.store()));
    let run = |commands: &[&[&str]]| {
        for words in commands {
            redis.command(words);
        }
    };
    endures(&weir, Memory::Kept, || run(harm), || run(heal), in_use(&redis));
}

#[test]
fn killed_redis_fails_no_request() {
    let redis = std::cell::RefCell::new(Redis::start());
    let weir = Weir::start(&config(&redis.borrow().store()));
    let harm = || redis.borrow_mut().kill();
    let heal = || redis.borrow_mut().restart();
    let seen = || redis.borrow().script_calls() > 20;
    endures(&weir, Memory::Lost, harm, heal, seen);
}

#[test]
fn redis_stopped_for_ten_seconds_fails_no_request() {
    let redis = Redis::start();
    let weir = Weir::start(&config(&redis.store()));
    let begin = std::cell::Cell::new(Instant::now());
    let harm = || {
        begin.set(Instant::now());
        redis.stop();
    };
    let heal = || {
        // The length of the outage is what is tested.
        thread::sleep(Duration::from_secs(10).saturating_sub(begin.get().elapsed()));
        redis.cont();
    };
    let answers = endures(&weir, Memory::Kept, harm, heal, in_use(&redis));
    // The first few wait for their deadline, the rest for nothing.
    let stopped = begin.get()..begin.get() + Duration::from_secs(10);
    let meanwhile: Vec<_> = answers.iter().filter(|it| stopped.contains(&it.sent)).collect();
    let waited = meanwhile.iter().filter(|it| it.took >= TIMEOUT).count();
    assert!(waited * 10 <= meanwhile.len(), "{waited} of {} waited", meanwhile.len());
}

#[test]
fn redis_out_of_memory_fails_no_request() {
    endures_commands(
        &[&["CONFIG", "SET", "maxmemory", "1"]],
        &[&["CONFIG", "SET", "maxmemory", "0"]],
    );
}

#[test]
fn read_only_redis_fails_no_request() {
    // A master that does not exist: the new replica keeps its data.
    let nobody = crate::support::ports::free_port().to_string();
    endures_commands(&[&["REPLICAOF", "127.0.0.1", &nobody]], &[&["REPLICAOF", "NO", "ONE"]]);
}

#[test]
fn redis_that_pauses_its_clients_fails_no_request() {
    // The command that heals is held up as long as everybody else's.
    endures_commands(&[&["CLIENT", "PAUSE", "4000", "ALL"]], &[&["PING"]]);
}

#[test]
fn redis_busy_with_a_script_fails_no_request() {
    let redis = Redis::start();
    redis.set_config("lua-time-limit", "50");
    let weir = Weir::start(&config(&redis.store()));
    let mut other = redis.connect(crate::support::PATIENCE).unwrap();
    let harm = || other.send(&["EVAL", "while true do end", "0"]).unwrap();
    let heal = || {
        wait_until("the script is stopped", || {
            redis.try_command(&["SCRIPT", "KILL"]).is_ok_and(|it| it.text() == "OK")
        });
        redis.wait_ready();
    };
    endures(&weir, Memory::Kept, harm, heal, in_use(&redis));
}

#[test]
fn loading_redis_fails_no_request() {
    let redis = std::cell::RefCell::new(Redis::start());
    let weir = Weir::start(&config(&redis.borrow().store()));
    let harm = || load_slowly(&mut redis.borrow_mut());
    let heal = || redis.borrow().wait_ready();
    let seen = || redis.borrow().script_calls() > 20;
    // What came between the last save and the end is forgotten.
    endures(&weir, Memory::Lost, harm, heal, seen);
}

#[test]
fn silent_connection_fails_no_request() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = Weir::start(&config(&proxy.store()));
    let harm = || proxy.set(Link::Silent);
    endures(&weir, Memory::Kept, harm, || proxy.set(Link::Good), in_use(&redis));
}

#[test]
fn cut_and_refused_connections_fail_no_request() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = Weir::start(&config(&proxy.store()));
    let harm = || {
        proxy.set(Link::Refusing);
        proxy.cut();
    };
    endures(&weir, Memory::Kept, harm, || proxy.set(Link::Good), in_use(&redis));
}

#[test]
fn connection_slower_than_the_deadline_fails_no_request() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = Weir::start(&config(&proxy.store()));
    let harm = || proxy.set(Link::Slow(3 * TIMEOUT));
    endures(&weir, Memory::Kept, harm, || proxy.set(Link::Good), in_use(&redis));
}

#[test]
fn forgotten_scripts_are_sent_again() {
    let redis = Redis::start();
    // Denied where Redis is not asked: not one may be.
    let store = format!("{}on_error = \"deny\"", redis.store());
    let config = tight_and_wide().store(&store).store("timeout = \"5s\"");
    let weir = Weir::start(&config);
    let load = load(&weir);
    for _ in 0..20 {
        load.wait_for(40);
        redis.command(&["SCRIPT", "FLUSH"]);
    }
    load.wait_for(40);
    judge(&load.finish(), Memory::Kept);
    assert!(!weir.degraded());
    assert_eq!(audited(&weir, "store_degraded").len(), 0);
    assert!(redis.script_calls() > 100, "it was Redis that decided");
}

#[test]
fn killed_connections_are_made_again() {
    let redis = Redis::start();
    let weir = Weir::start(&config(&redis.store()));
    let load = load(&weir);
    for _ in 0..10 {
        load.wait_for(60);
        redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
    wait_until("it decides again", in_use(&redis));
    judge(&load.finish(), Memory::Kept);
}

/// What passes while a call is lost counts for the very next request, though Redis is in use again.
#[test]
fn lost_connections_admit_nothing_on_top() {
    const ROUNDS: usize = 20;
    let redis = Redis::start();
    let limit = "key = \"header:x-key\"\nrate = \"1/day\"\nburst = 2";
    let config = Config::echo().store(&redis.store()).limit(limit);
    let weir = Weir::start(&config.store("timeout = \"1s\"\non_error = \"local\""));
    let mut client = weir.connect();
    for round in 0..ROUNDS {
        redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let request = get_with("/", &format!("X-Key: {round}\r\n"));
        let statuses = [0; 4].map(|_| client.ask(&request).status);
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert!(passed <= 2, "round {round}: {statuses:?}");
    }
}
