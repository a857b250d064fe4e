//! `on_error`: what a gateway does without its Redis, limit by limit.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::fault_proxy::Loss;
use crate::support::gateway::program;
use crate::support::ports::free_port;
use crate::support::{
    Config, FaultProxy, RECOVERY, Redis, Response, Scratch, Weir, check_for, fields, get_with,
    wait_at_most, wait_until,
};

fn config(store: &str, on_error: &str, limit: &str) -> Config {
    let more = format!("timeout = \"1s\"\non_error = \"{on_error}\"");
    Config::echo().store(store).store(&more).limit(limit)
}

fn as_user(user: &str) -> String {
    get_with("/", &format!("X-User: {user}\r\n"))
}

/// Kills Redis, and asks until the gateway knows.
fn kill(redis: &mut Redis, weirs: &[&Weir]) {
    redis.kill();
    for weir in weirs {
        let (mut client, mut user) = (weir.connect(), 0);
        wait_until("the gateway decides without Redis", || {
            user += 1;
            client.ask(as_user(&format!("nobody-{user}")));
            weir.degraded()
        });
    }
}

#[track_caller]
fn is_unavailable(response: &Response) {
    assert_eq!((response.status, response.error()), (503, "store_unavailable".to_owned()));
    let kind = response.json()["type"].as_str().unwrap_or_default().to_owned();
    assert!(kind.ends_with("#temporary-reduced-capacity"), "{kind}");
    assert!(response.one("retry-after").parse::<u64>().unwrap() >= 1);
}

/// How many of so many requests pass, asked of all gateways in turn.
fn flood(weirs: &[&Weir], user: &str, each: usize) -> Vec<usize> {
    let passed = weirs.iter().map(|weir| {
        let mut client = weir.connect();
        let statuses = (0..each).map(|_| client.ask(as_user(user)).status);
        let statuses: Vec<u16> = statuses.collect();
        assert!(statuses.iter().all(|it| matches!(it, 200 | 429)), "{statuses:?}");
        statuses.iter().filter(|it| **it == 200).count()
    });
    passed.collect()
}

/// A Redis that comes back without its data, or a new master, knows of no gateway at first.
#[test]
fn gateway_that_is_back_first_does_not_take_itself_for_the_only_one() {
    let mut redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/hour\"\nburst = 10";
    let [one, two] = [(); 2].map(|()| Weir::start(&config(&redis.store(), "local", limit)));
    wait_until("they know each other", || one.nodes() == 2.0 && two.nodes() == 2.0);
    // For longer than heartbeats count.
    std::thread::sleep(Duration::from_secs(5));
    kill(&mut redis, &[&one, &two]);
    two.signal(Signal::STOP);
    redis.restart();
    wait_at_most(RECOVERY, "it is back", || !one.degraded());
    assert_eq!(one.nodes(), 2.0, "the other has not had the time for a heartbeat");
    two.signal(Signal::CONT);
}

/// The same where it only had to connect again.
#[test]
fn gateway_that_connects_again_first_does_not_take_itself_for_the_only_one() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/hour\"\nburst = 10";
    let [one, two] = [(); 2].map(|()| Weir::start(&config(&redis.store(), "local", limit)));
    wait_until("they know each other", || one.nodes() == 2.0 && two.nodes() == 2.0);
    // For longer than heartbeats count.
    std::thread::sleep(Duration::from_secs(5));
    two.signal(Signal::STOP);
    // First, since a heartbeat over the old connection may well count the other out.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    redis.command(&["DEL", "weir:@nodes"]);
    wait_until("one is heard again", || redis.command(&["ZCARD", "weir:@nodes"]).text() == "1");
    check_for(Duration::from_secs(1), || assert_eq!(one.nodes(), 2.0));
    two.signal(Signal::CONT);
}

#[test]
fn local_holds_a_flood_to_each_nodes_share() {
    let mut redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 20";
    let config = config(&redis.store(), "local", limit);
    let [one, two] = Weir::start_two(&config);
    wait_until("they know each other", || one.nodes() == 2.0 && two.nodes() == 2.0);
    // Both see what is left of this one: about four.
    let spent: usize = (0..8).map(|_| flood(&[&one, &two], "known", 1).iter().sum::<usize>()).sum();
    assert_eq!(spent, 16);
    assert_eq!(flood(&[&one, &two], "spent", 15).iter().sum::<usize>(), 20);
    kill(&mut redis, &[&one, &two]);
    assert_eq!(flood(&[&one, &two], "fresh", 50), [10, 10], "half of it each");
    let rest: usize = flood(&[&one, &two], "known", 50).iter().sum();
    assert!(rest <= 5, "{rest} passed of the four that were left");
    assert!(rest > 0, "something was left");
    let rest: usize = flood(&[&two], "spent", 50).iter().sum();
    assert!(rest <= 1, "{rest} passed where nothing was left");
    assert_eq!((one.nodes(), two.nodes()), (2.0, 2.0), "as last heard");
}

/// Costs that are known only with the answer are charged to each gateway's share as well, and to
/// Redis, once it is back, as they are.
#[test]
fn local_holds_charges_after_the_answer_to_each_nodes_share() {
    let mut redis = Redis::start();
    let limits = [
        ("bucket", "rate = \"1/day\"\nburst = 30"),
        ("refills", "refill = { every = \"1d\", amount = 1 }\nburst = 30"),
        ("window", "algorithm = \"fixed_window\"\nrate = \"30/366d\""),
        ("sliding", "algorithm = \"sliding_window\"\nrate = \"30/366d\""),
        ("log", "algorithm = \"sliding_log\"\nrate = \"30/day\""),
    ];
    let charges = [
        ("count", "count = \"2xx\"", 1),
        ("cost", "cost = { from = \"response:x-none\", default = 3, max = 5 }", 3),
    ];
    let (mut tables, mut routes) = (String::new(), Vec::new());
    for (algorithm, numbers) in limits {
        for (charge, lines, cost) in charges {
            let name = format!("{algorithm}-{charge}");
            tables += &format!(
                "[limits.{name}]\nkey = \"header:x-user\"\n{numbers}\n{lines}\n\n[[routes]]\n\
                 name = \"{name}\"\npath = \"/{name}\"\nupstream = \"echo\"\n\
                 limits = [\"{name}\"]\n\n"
            );
            routes.push((format!("/{name}"), cost));
        }
    }
    let store = format!("{}timeout = \"1s\"", redis.store());
    let config = Config::echo().store(&store).routes(&tables);
    let [one, two] = Weir::start_two(&config);
    wait_until("they know each other", || one.nodes() == 2.0 && two.nodes() == 2.0);
    kill(&mut redis, &[&one, &two]);
    let passed = |weir: &Weir, target: &str| {
        let (mut client, request) = (weir.connect(), get_with(target, "X-User: a\r\n"));
        (0..40).take_while(|_| client.ask(&request).status == 200).count()
    };
    for (target, cost) in &routes {
        let both = [&one, &two].map(|weir| passed(weir, target));
        assert_eq!(both, [15 / cost; 2], "{target}");
    }
    redis.restart();
    wait_at_most(RECOVERY, "Redis is in use again", || !one.degraded() && !two.degraded());
    for (target, _) in &routes {
        assert_eq!([&one, &two].map(|weir| passed(weir, target)), [0, 0], "{target} is spent");
    }
}

#[test]
fn a_gateway_that_leaves_or_dies_is_no_longer_counted() {
    let redis = Redis::start();
    let config = config(&redis.store(), "local", "key = \"ip\"\nrate = \"1/day\"\nburst = 9");
    let one = Weir::start(&config);
    wait_until("it knows itself", || one.nodes() == 1.0);
    let mut leaving = Weir::start(&config);
    let dying = Weir::start(&config);
    wait_until("there are three", || one.nodes() == 3.0);
    leaving.signal(rustix::process::Signal::TERM);
    leaving.exit();
    wait_until("one has left", || one.nodes() == 2.0);
    drop(dying);
    // A dead one is found out by its silence.
    wait_at_most(Duration::from_secs(40), "one has died", || one.nodes() == 1.0);
}

#[test]
fn allow_lets_everything_pass() {
    let mut redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 2";
    let weir = Weir::start(&config(&redis.store(), "allow", limit));
    assert_eq!(flood(&[&weir], "b", 3), [2]);
    kill(&mut redis, &[&weir]);
    assert_eq!(flood(&[&weir], "a", 30), [30]);
}

#[test]
fn deny_answers_503_until_redis_is_back() {
    let mut redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 2";
    let weir = Weir::start(&config(&redis.store(), "deny", limit));
    assert_eq!(weir.ask(as_user("a")).status, 200);
    kill(&mut redis, &[&weir]);
    for user in ["a", "b", "c"] {
        is_unavailable(&weir.ask(as_user(user)));
    }
    redis.restart();
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
    assert_eq!([0; 3].map(|_| weir.ask(as_user("d")).status), [200, 200, 429]);
}

#[test]
fn on_error_of_a_limit_overrides_that_of_the_store() {
    let mut redis = Redis::start();
    let mut tables = String::new();
    for on_error in ["local", "allow", "deny"] {
        tables += &format!(
            "[limits.{on_error}]\nkey = \"ip\"\nrate = \"1/day\"\nburst = 3\n\
             on_error = \"{on_error}\"\n\n[[routes]]\nname = \"{on_error}\"\n\
             path = \"/{on_error}\"\nupstream = \"echo\"\nlimits = [\"{on_error}\"]\n\n"
        );
    }
    tables += "[limits.plain]\nkey = \"ip\"\nrate = \"1/day\"\nburst = 3\n";
    for (name, limits) in
        [("plain", "\"plain\""), ("mixed", "\"allow\", \"deny\""), ("held", "\"allow\", \"local\"")]
    {
        tables += &format!(
            "[[routes]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"echo\"\n\
             limits = [{limits}]\n\n"
        );
    }
    let store = format!("{}timeout = \"300ms\"\non_error = \"deny\"", redis.store());
    let weir = Weir::start(&Config::echo().open().routes(&tables).store(&store));
    wait_until("it knows itself", || weir.nodes() == 1.0);
    redis.kill();
    wait_until("the gateway decides without Redis", || {
        weir.get("/allow");
        weir.degraded()
    });
    assert_eq!([0; 8].map(|_| weir.get("/allow").status), [200; 8]);
    assert_eq!([0; 4].map(|_| weir.get("/local").status), [200, 200, 200, 429]);
    assert_eq!(weir.get("/held").status, 429, "the local one is empty");
    for target in ["/deny", "/plain", "/mixed"] {
        is_unavailable(&weir.get(target));
    }
}

#[test]
fn gateway_starts_without_redis_and_uses_it_later() {
    let port = free_port();
    let url = format!("kind = \"redis\"\nurl = \"redis://127.0.0.1:{port}\"\n");
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 4";
    let weir = Weir::start(&config(&url, "local", limit));
    let address = format!("127.0.0.1:{port}");
    let words = ["unreachable", "out of reach", "cannot be reached"];
    let line = |it: &str| it.contains(&address) && words.iter().any(|word| it.contains(word));
    wait_until("it says what is wrong", || weir.output().lines().any(line));
    assert!(weir.degraded());
    assert_eq!(weir.admin("/readyz").json()["status"], "degraded");
    assert_eq!([0; 6].map(|_| weir.get("/").status), [200, 200, 200, 200, 429, 429]);
    let redis = Redis::at(port);
    wait_at_most(RECOVERY, "Redis is in use", || !weir.degraded());
    assert_eq!(weir.admin("/readyz").json()["status"], "ready");
    wait_until("it decides", || {
        weir.get("/");
        !redis.buckets().is_empty()
    });
}

#[test]
fn redis_that_may_evict_is_warned_about() {
    for (policy, warned) in [("allkeys-lru", true), ("volatile-ttl", true), ("noeviction", false)] {
        let redis = Redis::with(&["--maxmemory-policy", policy]);
        let weir = Weir::start(&Config::echo().store(&redis.store()).store("timeout = \"5s\""));
        assert_eq!(weir.get("/").status, 200);
        let told = || {
            let said = weir.output();
            said.lines().any(|it| it.contains("maxmemory-policy") && it.contains(policy))
        };
        if warned {
            wait_until("it is told", told);
        } else {
            assert!(!told(), "{}", weir.output());
        }
    }
}

/// A request that Redis has charged and whose answer was lost.
#[test]
fn a_lost_reply_is_charged_once_at_most() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 10";
    for on_error in ["allow", "local"] {
        let store = format!("prefix = \"{on_error}\"");
        let config = |to: &str| config(to, on_error, limit).store(&store);
        let (behind, beside) =
            (Weir::start(&config(&proxy.store())), Weir::start(&config(&redis.store())));
        wait_until("they know each other", || behind.nodes() == 2.0);
        let mut strangers = 0;
        let mut stranger = || {
            strangers += 1;
            behind.ask(as_user(&format!("stranger-{strangers}"))).status
        };
        for (round, loss) in [Loss::Cut, Loss::Silence, Loss::Cut, Loss::Silence].iter().enumerate()
        {
            let user = format!("user-{round}");
            assert_eq!(behind.ask(as_user(&user)).status, 200);
            let lost = proxy.lost();
            proxy.lose_next_reply(*loss);
            // A heartbeat's may be the one that is lost: then this one is charged, and answered.
            assert_eq!(behind.ask(as_user(&user)).status, 200, "{on_error}, {loss:?}");
            wait_until("a reply was lost", || {
                assert_eq!(stranger(), 200);
                proxy.lost() > lost
            });
            wait_at_most(RECOVERY, "Redis is in use again", || {
                assert_eq!(stranger(), 200);
                !behind.degraded()
            });
            let left = fields::list(&beside.ask(as_user(&user)).all("ratelimit"))[0].integer("r");
            assert!(left >= 7, "{on_error}, {loss:?}: of ten {left} are left after three");
            assert!(left <= 8, "{on_error}, {loss:?}: {left} are left, and two had their answer");
        }
    }
}

#[test]
fn outage_is_reported_by_its_latest_reason() {
    let mut redis = Redis::start();
    let weir = Weir::start(&config(&redis.store(), "local", "key = \"ip\"\nrate = \"1/day\""));
    redis.kill();
    wait_until("it is missed", || weir.degraded());
    assert!(!weir.output().contains("another reason"));
    redis.spawn_again(&["--requirepass", "another"]);
    wait_until("it is denied", || weir.admin("/readyz").json()["reason"] == "denied");
    let told = "store still degraded, for another reason now";
    wait_until("the log has it", || weir.output().contains(told));
    assert_eq!(weir.output().matches(told).count(), 1);
}

#[test]
fn a_password_is_never_printed() {
    const SECRET: &str = "correct-horse-battery";
    let redis = Redis::guarded("something-else");
    let url = format!("kind = \"redis\"\nurl = \"redis://:{SECRET}@{}\"\n", redis.address());
    let config = config(&url, "local", "key = \"ip\"\nrate = \"1/day\"\nburst = 3");
    let weir = Weir::start(&config);
    wait_until("it is denied", || weir.degraded());
    for _ in 0..5 {
        assert!(matches!(weir.get("/").status, 200 | 429));
    }
    let denied = || weir.metrics().value("weir_store_errors_total", &[]).unwrap_or(0.0);
    wait_until("it has tried more than once", || denied() >= 2.0);
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    let bad = scratch.file("bad.toml", &config.text().replace("redis://", "redish://"));
    let output = |mut command: Command| {
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let check = |file: &std::path::Path| {
        let mut command = program();
        command.arg("check").arg(file);
        output(command)
    };
    let printed = [weir.output(), check(&file), check(&bad), weir.admin("/metrics").text()];
    for text in printed {
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.is_empty());
    }
}
