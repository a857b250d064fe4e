//! Running a gateway over Redis: what it prints, how it reloads and stops while Redis is away, what
//! it counts, and requests with very many limits.

use std::fmt::Write as _;
use std::thread;
use std::time::Instant;

use rustix::process::Signal;

use crate::support::gateway::program;
use crate::support::load::FREE;
use crate::support::ports::free_port;
use crate::support::{Cluster, Config, Redis, Scratch, Weir, fields, get, get_with, wait_until};

const PATIENT: &str = "timeout = \"5s\"\non_error = \"deny\"";

fn as_user(user: impl std::fmt::Display) -> String {
    get_with("/", &format!("X-User: {user}\r\n"))
}

/// Sends requests of new callers until the gateway decides without Redis.
#[track_caller]
fn goes_by_itself(weir: &Weir) {
    let (mut client, mut user) = (weir.connect(), 0);
    wait_until("the gateway decides without Redis", || {
        user += 1;
        client.ask(as_user(format!("nobody-{user}")));
        weir.degraded()
    });
}

#[test]
fn no_password_of_a_redis_out_of_reach_is_printed() {
    const SECRET: &str = "correct-horse-battery";
    let port = free_port();
    let scratch = Scratch::new();
    let secret = scratch.file("secret", SECRET);
    let file = format!("\"{}\"", secret.display());
    let stores = [
        format!("url = \"redis://weir:{SECRET}@127.0.0.1:{port}/2\""),
        format!("url = \"redis://127.0.0.1:{port}\"\nusername = \"weir\"\npassword_file = {file}"),
        format!("url = \"redis://weir:{SECRET}@127.0.0.1:{port}\"\ncluster = true"),
        format!(
            "password_file = {file}\nsentinel = {{ master = \"main\", nodes = \
             [\"127.0.0.1:{port}\"], password_env = \"WEIR_TEST_SECRET\" }}"
        ),
    ];
    let program = || {
        let mut command = program();
        command.env("WEIR_TEST_SECRET", SECRET);
        command
    };
    for store in stores {
        let config = Config::echo().store("kind = \"redis\"").store(&store);
        let scratch = Scratch::new();
        let file = scratch.file("weir.toml", &config.text());
        let output = program().arg("check").arg(&file).output().unwrap();
        let checked =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{checked}");
        let weir = Weir::start_with(program(), scratch, file);
        let errors = || weir.metrics().value("weir_store_errors_total", &[]).unwrap_or(0.0);
        wait_until("it has tried more than once", || errors() >= 3.0);
        let place = format!("127.0.0.1:{port}");
        wait_until("it says so", || {
            weir.output().lines().any(|it| it.contains("store degraded") && it.contains(&place))
        });
        assert_eq!(weir.get("/").status, 200);
        let told = ["/readyz", "/metrics"].map(|target| weir.admin(target).text());
        for text in told.into_iter().chain([weir.output(), checked]) {
            assert!(!text.contains(SECRET), "{text}");
            assert!(!text.is_empty());
        }
    }
}

#[test]
fn reloaded_on_error_applies_at_once_while_redis_is_dead() {
    let mut redis = Redis::start();
    let with = |on_error: &str| {
        let limit = format!("key = \"ip\"\nrate = \"1/day\"\nburst = 1000\n{on_error}");
        Config::echo().store(&redis.store()).store("timeout = \"1s\"").limit(&limit)
    };
    let [deny, allow, local] =
        ["deny", "allow", "local"].map(|it| with(&format!("on_error = \"{it}\"")));
    let weir = Weir::start(&deny);
    assert_eq!(weir.get("/").status, 200);
    redis.kill();
    wait_until("the gateway decides without Redis", || {
        weir.get("/");
        weir.degraded()
    });
    let told = || {
        let response = weir.get("/");
        (response.status, !response.all("ratelimit").is_empty())
    };
    assert_eq!(weir.get("/").error(), "store_unavailable");
    weir.reload(&allow);
    assert_eq!(told(), (200, false), "it does not apply");
    weir.reload(&local);
    assert_eq!(told(), (200, true), "it is held here");
    weir.reload(&deny);
    assert_eq!(weir.get("/").error(), "store_unavailable");
    assert!(weir.degraded());
}

#[test]
fn gateway_shuts_down_while_redis_hangs() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 5";
    // None of them would end in time if it waited for Redis, or for its drain.
    for known in [false, true] {
        let config = Config::echo().store(&redis.store()).limit(limit);
        let config = config.store("timeout = \"1s\"\non_error = \"local\"");
        let mut weir = Weir::start(&config.server("drain = \"1h\"").also(FREE));
        assert_eq!(weir.ask(as_user("a")).status, 200);
        redis.stop();
        if known {
            goes_by_itself(&weir);
        }
        let (mut client, mut idle) = (weir.connect(), weir.connect());
        assert_eq!(idle.ask(get("/free")).status, 200);
        let before = calls(&weir);
        client.send(as_user("b"));
        wait_until("it is in flight", || calls(&weir) > before || weir.degraded());
        weir.signal(Signal::TERM);
        assert_eq!(client.response().status, 200);
        assert!(client.closes() && idle.closes());
        assert_eq!(weir.exit().code(), Some(0));
        redis.cont();
    }
}

const MANY: usize = 70;

/// A route with seventy limits: one that holds two, and windows of five.
fn many() -> String {
    let mut tables = "[limits.few]\nkey = \"global\"\nrate = \"1/day\"\nburst = 2\n".to_owned();
    let mut names = vec!["\"few\"".to_owned()];
    for number in 1..MANY {
        let key = ["ip", "route", "global", "header:x-user"][number % 4];
        writeln!(
            tables,
            "[limits.n{number}]\nalgorithm = \"fixed_window\"\nkey = \"{key}\"\nrate = \"5/366d\""
        )
        .unwrap();
        names.push(format!("\"n{number}\""));
    }
    let names = names.join(", ");
    tables
        + &format!(
            "[[routes]]\nname = \"many\"\npath = \"/*\"\nupstream = \"echo\"\nlimits = [{names}]\n"
        )
}

/// What is stated to be left of each limit.
fn left(response: &crate::support::Response) -> Vec<i64> {
    let members = fields::list(&response.all("ratelimit"));
    members.iter().map(|member| member.integer("r")).collect()
}

/// The counts of all windows.
fn counts<'a>(nodes: impl IntoIterator<Item = &'a Redis>) -> Vec<u64> {
    let mut counts = Vec::new();
    for node in nodes {
        for name in node.buckets().iter().filter(|name| !name.contains(":few:")) {
            let text = node.command(&["GET", name]).text();
            counts.push(text.rsplit(' ').next().unwrap().parse().unwrap());
        }
    }
    counts
}

/// Seventy limits are charged together or not at all.
#[track_caller]
fn decides_many<'a>(store: &str, nodes: impl IntoIterator<Item = &'a Redis> + Clone) {
    let config = Config::echo().open().routes(&many()).store(store).store(PATIENT);
    let weir = Weir::start(&config);
    let answers = [0; 2].map(|_| weir.ask(as_user("a")));
    for (n, answer) in (1..).zip(&answers) {
        assert_eq!(answer.status, 200);
        let mut expected = vec![5 - n; MANY];
        expected[0] = 2 - n;
        assert_eq!(left(answer), expected);
    }
    assert_eq!(counts(nodes.clone()), [2; MANY - 1]);
    let refused = weir.ask(as_user("a"));
    assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("few")));
    let mut expected = vec![3; MANY];
    expected[0] = 0;
    assert_eq!(left(&refused), expected);
    // On a cluster it was taken and is given back.
    wait_until("nothing stays charged", || counts(nodes.clone()) == [2; MANY - 1]);
    assert!(!weir.degraded());
}

#[test]
fn a_request_with_seventy_limits_is_decided_as_one() {
    let redis = Redis::start();
    decides_many(&redis.store(), [&redis]);
}

#[test]
fn a_request_with_seventy_limits_is_decided_on_a_cluster() {
    let cluster = Cluster::start();
    decides_many(&cluster.store(), &cluster.nodes);
}

fn calls(weir: &Weir) -> f64 {
    weir.metrics().value("weir_store_calls_total", &[]).expect("weir_store_calls_total")
}

fn errors(weir: &Weir, reason: &str) -> f64 {
    let value = weir.metrics().value("weir_store_errors_total", &[("reason", reason)]);
    value.unwrap_or(0.0)
}

#[test]
fn calls_are_counted_as_they_are_sent() {
    let mut redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 2";
    let store = "timeout = \"5s\"\non_error = \"local\"";
    let weir = Weir::start(&Config::echo().store(&redis.store()).store(store).limit(limit));
    let mut client = weir.connect();
    let mut ask = |user: &str| client.ask(as_user(user)).status;
    assert_eq!(calls(&weir), 0.0, "heartbeats are none");
    for user in ["a", "b", "c"] {
        assert_eq!(ask(user), 200);
    }
    assert_eq!(calls(&weir), 3.0, "one a request, if they come one by one");
    assert_eq!([ask("a"), ask("a")], [200, 429]);
    assert_eq!(calls(&weir), 5.0);
    // A known refusal is checked with Redis once a second.
    let begin = Instant::now();
    assert_eq!([0; 20].map(|_| ask("a")), [429; 20]);
    let (more, seconds) = (calls(&weir) - 5.0, begin.elapsed().as_secs());
    assert!(more <= seconds as f64 + 1.0, "{more} calls in {seconds} s");
    redis.kill();
    goes_by_itself(&weir);
    let before = calls(&weir);
    for user in 0..20 {
        assert_eq!(ask(&format!("stranger-{user}")), 200);
    }
    assert_eq!(calls(&weir), before, "nobody tries while the breaker is open");
}

#[test]
fn cluster_gets_one_call_per_hash_slot() {
    let cluster = Cluster::start();
    let tables = "[limits.one]\nkey = \"global\"\nrate = \"9/day\"\n\
                  [limits.two]\nkey = \"route\"\nrate = \"9/day\"\n\
                  [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n\
                  limits = [\"one\", \"two\"]\n";
    let config = Config::echo().open().routes(tables).store(&cluster.store()).store(PATIENT);
    let weir = Weir::start(&config);
    assert_eq!([0; 2].map(|_| weir.get("/").status), [200, 200]);
    let buckets = cluster.buckets();
    let slots: Vec<u32> = buckets.iter().map(|(_, name)| cluster.slot(name)).collect();
    assert!(slots.len() == 2 && slots[0] != slots[1], "{buckets:?}");
    assert_eq!(calls(&weir), 4.0);
}

/// Each way to fail is counted under its own name.
#[test]
fn errors_are_counted_by_their_reason() {
    let nobody = free_port().to_string();
    let harms: [(&str, &[&str]); 4] = [
        ("oom", &["CONFIG", "SET", "maxmemory", "1"]),
        ("readonly", &["REPLICAOF", "127.0.0.1", &nobody]),
        ("timeout", &["CLIENT", "PAUSE", "20000", "ALL"]),
        ("denied", &["ACL", "SETUSER", "default", "-evalsha", "-eval"]),
    ];
    let config = |redis: &Redis| {
        let store = redis.store() + "timeout = \"1s\"\non_error = \"local\"\n";
        let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 5";
        Config::echo().store(&store).limit(limit)
    };
    let counts = |weir: &Weir, reason: &str, harm: &mut dyn FnMut()| {
        assert_eq!(weir.ask(as_user("a")).status, 200);
        let before = errors(weir, reason);
        harm();
        goes_by_itself(weir);
        assert!(errors(weir, reason) > before, "{reason}: {}", weir.admin("/metrics").text());
        let event = format!("\"reason\":\"{reason}\"");
        wait_until("it is accounted for", || weir.output().contains(&event));
    };
    thread::scope(|scope| {
        for (reason, harm) in harms {
            scope.spawn(move || {
                let redis = Redis::start();
                let weir = Weir::start(&config(&redis));
                counts(&weir, reason, &mut || drop(redis.command(harm)));
            });
        }
    });
    let mut redis = Redis::start();
    let weir = Weir::start(&config(&redis));
    counts(&weir, "connection", &mut || redis.kill());
}
