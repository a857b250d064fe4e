//! The servers that the tests of the store start behave as configured: a test of a fault
//! that never happens shows nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::certificates::Certificates;
use crate::support::fault_proxy::{Link, Loss};
use crate::support::ports::free_port;
use crate::support::programs::{redis_cli, redis_major};
use crate::support::{Cluster, Config, FaultProxy, PATIENCE, Redis, Sentinel, Weir, wait_until};

/// What a client on the port hears in answer to one inline command; empty at the end of the
/// connection, `None` if nothing comes.
fn over_tcp(address: std::net::SocketAddr, command: &str) -> Option<String> {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, PATIENCE) else {
        return Some(String::new());
    };
    stream.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    if stream.write_all(format!("{command}\r\n").as_bytes()).is_err() {
        return Some(String::new());
    }
    let mut chunk = [0; 1024];
    match stream.read(&mut chunk) {
        Ok(count) => Some(String::from_utf8_lossy(&chunk[..count]).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Some(String::new()),
        Err(_) => None,
    }
}

#[test]
fn a_killed_redis_comes_back_empty_on_its_port() {
    let mut redis = Redis::start();
    let port = redis.port();
    redis.command(&["SET", "a", "1", "PX", "100000"]);
    redis.command(&["ZADD", "weir:@nodes", "1", "me"]);
    let keys = redis.keys();
    assert_eq!(keys.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a", "weir:@nodes"]);
    assert!((1..=100_000).contains(&keys[0].ttl) && keys[1].ttl == -1, "{keys:?}");
    assert_eq!(redis.buckets(), ["a"]);
    redis.kill();
    assert!(redis.try_command(&["PING"]).is_err());
    assert!(TcpStream::connect_timeout(&redis.address(), PATIENCE).is_err());
    redis.restart();
    assert_eq!(redis.port(), port);
    assert_eq!(redis.keys(), []);
    assert_eq!(over_tcp(redis.address(), "PING").as_deref(), Some("+PONG\r\n"));
}

#[test]
fn a_stopped_redis_is_silent_and_still_dies() {
    let redis = Redis::start();
    redis.stop();
    assert_eq!(over_tcp(redis.address(), "PING"), None);
    redis.cont();
    redis.wait_ready();
    redis.stop();
    let folder = redis.folder().to_owned();
    drop(redis);
    assert!(!folder.exists(), "its end is waited for");
}

#[test]
fn a_loading_redis_says_so() {
    let mut redis = Redis::start();
    load_slowly(&mut redis);
    let reply = redis.try_command(&["GET", "a"]).unwrap().text();
    assert!(reply.starts_with("LOADING"), "{reply}");
    redis.wait_ready();
    assert_eq!(redis.keys().len(), 2000, "what was saved is there");
}

/// Brings it back busy for two seconds with what it had.
pub(crate) fn load_slowly(redis: &mut Redis) {
    let mut args = vec!["--key-load-delay", "1000"];
    // Now and then it answers. Before version 7 that is after two megabytes each, whatever the setting.
    let length = if redis_major() >= 7 {
        args.extend(["--loading-process-events-interval-bytes", "1024"]);
        "50"
    } else {
        redis.set_config("rdbcompression", "no");
        "12000"
    };
    let fill = "for i = 1, 2000 do redis.call('SET', 'filler' .. i, ('x'):rep(ARGV[1])) end";
    redis.command(&["EVAL", fill, "0", length]);
    redis.command(&["SAVE"]);
    redis.spawn_again(&args);
    wait_until("it is loading", || {
        redis.try_command(&["GET", "a"]).is_ok_and(|it| it.text().starts_with("LOADING"))
    });
}

#[test]
fn a_redis_refuses_to_write_when_it_is_told_to() {
    let redis = Redis::start();
    let write = || {
        let words = ["EVAL", "return redis.call('SET', KEYS[1], 1, 'PX', 1000)", "1", "a"];
        redis.try_command(&words).unwrap().text()
    };
    redis.set_config("maxmemory", "1");
    assert!(write().contains("OOM"), "{}", write());
    redis.set_config("maxmemory", "0");
    assert_eq!(write(), "OK");
    redis.command(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    assert!(write().contains("READONLY"), "{}", write());
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(write(), "OK");
    redis.set_config("lua-time-limit", "50");
    let mut other = redis.connect(PATIENCE).unwrap();
    other.send(&["EVAL", "while true do end", "0"]).unwrap();
    wait_until("it is busy", || write().starts_with("BUSY"));
    redis.command(&["SCRIPT", "KILL"]);
    wait_until("it has stopped the script", || write() == "OK");
    redis.command(&["CLIENT", "PAUSE", "500", "ALL"]);
    let begin = Instant::now();
    assert_eq!(write(), "OK");
    assert!(begin.elapsed() >= Duration::from_millis(300), "it was held up");
}

#[test]
fn a_monitor_tells_decisions_from_heartbeats() {
    let redis = Redis::start();
    let heartbeat = ["EVAL", "redis.call('ZADD', KEYS[1], 1, 'me')", "1", "weir:@nodes"];
    redis.command(&heartbeat);
    let calls = redis.script_calls();
    let monitor = redis.monitor();
    redis.command(&heartbeat);
    redis.command(&["EVAL", "return redis.call('MGET', KEYS[1])", "1", "a"]);
    assert_eq!(monitor.take_decisions().len(), 1);
    redis.command(&heartbeat);
    redis.command(&["EVAL", "redis.call('MGET', 'a') redis.call('SET', KEYS[1], 1)", "1", "a"]);
    let writes = monitor.take_writes();
    assert!(writes.len() == 1 && writes[0].contains("\"SET\""), "{writes:?}");
    assert_eq!(monitor.take_decisions().len(), 0, "each line is returned once");
    assert_eq!(redis.script_calls(), calls + 4);
    assert_eq!(redis.info("stats", "expired_keys").as_deref(), Some("0"));
}

#[test]
fn a_guarded_redis_wants_its_password() {
    let redis = Redis::guarded("sesame");
    let reply = over_tcp(redis.address(), "DBSIZE").unwrap();
    assert!(reply.starts_with("-NOAUTH"), "{reply}");
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 0);
    redis.set_config("maxmemory-policy", "noeviction");
    assert_eq!(over_tcp(redis.address(), "AUTH sesame").as_deref(), Some("+OK\r\n"));
}

#[test]
fn a_redis_with_tls_speaks_it_and_may_ask_for_a_certificate() {
    let certificates = Certificates::new();
    let ping = |redis: &Redis, more: &[&str]| {
        let mut command = redis_cli();
        command.args(["-h", "127.0.0.1", "-p", &redis.port().to_string(), "--tls", "--cacert"]);
        command.arg(certificates.path("ca.pem"));
        for word in more {
            let file = certificates.path(word);
            if file.exists() {
                command.arg(file)
            } else {
                command.arg(word)
            };
        }
        let output = command.arg("PING").output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let open = Redis::tls(&certificates, false);
    assert_eq!(ping(&open, &[]), "PONG");
    assert!(open.store().contains("rediss://127.0.0.1:"));
    let strict = Redis::tls(&certificates, true);
    assert_ne!(ping(&strict, &[]), "PONG");
    assert_eq!(ping(&strict, &["--cert", "client.pem", "--key", "client.key"]), "PONG");
}

#[test]
fn hash_slot_moves_through_ask_to_moved() {
    let cluster = Cluster::start();
    let slot = cluster.slot("a");
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    let on = |node: usize, command: &str| over_tcp(cluster.nodes[node].address(), command).unwrap();
    assert_eq!(on(from, "SET a 1"), "+OK\r\n");
    assert!(on(to, "GET a").starts_with("-MOVED"));
    assert_eq!(cluster.buckets(), [(from, "a".to_owned())]);
    cluster.begin_move(slot, from, to);
    assert_eq!(on(from, "GET a"), "$1\r\n1\r\n");
    cluster.move_keys(slot, from, to);
    assert!(on(from, "GET a").starts_with("-ASK"));
    assert_eq!(cluster.buckets(), [(to, "a".to_owned())]);
    cluster.end_move(slot, to);
    assert!(on(from, "GET a").starts_with("-MOVED"));
    assert_eq!(on(to, "GET a"), "$1\r\n1\r\n");
    wait_until("all have heard of it", || cluster.owner(slot) == to);
    assert_eq!(cluster.store().matches("redis://").count(), 2);
}

#[test]
fn a_sentinel_replaces_a_master_that_died() {
    let mut sentinel = Sentinel::start();
    assert_eq!(sentinel.master_port(), sentinel.master.port());
    assert!(sentinel.store().contains("nodes = [\"127.0.0.1:"));
    sentinel.master.command(&["SET", "a", "1"]);
    wait_until("it is copied", || sentinel.replica.command(&["GET", "a"]).text() == "1");
    sentinel.master.kill();
    sentinel.wait_takeover();
    assert_eq!(sentinel.replica.command(&["SET", "a", "2"]).text(), "OK");
}

#[test]
fn three_sentinels_replace_a_master_on_demand() {
    let mut sentinel = Sentinel::three();
    assert_eq!(sentinel.store().matches("127.0.0.1:").count(), 3);
    let old = sentinel.master.port();
    sentinel.failover_by(1);
    sentinel.wait_failover();
    assert_ne!(sentinel.replica.port(), old);
    assert!(sentinel.watchers[1].log().contains("+switch-master"), "it has led");
    sentinel.watchers[0].stop();
    assert_eq!(sentinel.watchers[2].master_port(), sentinel.replica.port());
    sentinel.watchers[0].cont();
    sentinel.watchers[2].kill();
    assert!(sentinel.watchers[2].ask(&["PING"]).is_none());
}

#[test]
fn a_replica_takes_the_place_of_a_master_that_died() {
    let mut cluster = Cluster::with_replicas();
    let slot = cluster.slot("a");
    let dead = cluster.owner(slot);
    assert!(dead < 3, "{dead} is a replica");
    assert_eq!(cluster.nodes[dead].command(&["SET", "a", "1"]).text(), "OK");
    wait_until("it is copied", || cluster.nodes[dead + 3].keys().len() == 1);
    cluster.nodes[dead].kill();
    cluster.wait_takeover(dead);
    assert_eq!(cluster.owner(slot), dead + 3);
    assert_eq!(cluster.nodes[dead + 3].command(&["GET", "a"]).text(), "1");
}

#[test]
fn clocks_of_masters_may_differ() {
    let cluster = Cluster::skewed([0, 90_000, -90_000]);
    let now = |n: usize| cluster.nodes[n].command(&["TIME"]).list()[0].integer();
    let base = now(0);
    assert!((80..=110).contains(&(now(1) - base)), "{} {base}", now(1));
    assert!((-100..=-70).contains(&(now(2) - base)), "{} {base}", now(2));
    let set = "return redis.call('SET', KEYS[1], 1, 'PX', 1)";
    let own = (0..3).find(|n| cluster.owner(cluster.slot("a")) == *n).unwrap();
    cluster.nodes[own].command(&["EVAL", set, "1", "a"]);
    wait_until("spans are as long as ever", || cluster.nodes[own].keys().is_empty());
}

#[test]
fn a_cluster_is_down_without_one_of_its_masters() {
    let mut cluster = Cluster::start();
    let (slot, other) = (cluster.slot("a"), cluster.slot("b"));
    let (dead, alive) = (cluster.owner(slot), cluster.owner(other));
    assert_ne!(dead, alive);
    let write = |cluster: &Cluster| cluster.nodes[alive].try_command(&["SET", "b", "1"]).unwrap();
    assert_eq!(write(&cluster).text(), "OK");
    cluster.nodes[dead].kill();
    wait_until("the others give up", || write(&cluster).text().starts_with("CLUSTERDOWN"));
    cluster.nodes[dead].restart();
    cluster.wait_whole();
    assert_eq!(cluster.owner(slot), dead, "back with the slots it had");
    assert_eq!(write(&cluster).text(), "OK");
}

#[test]
fn fault_proxy_injects_the_configured_faults() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let eval = "EVAL \"return redis.call('INCR',KEYS[1])\" 1 n";
    assert_eq!(over_tcp(proxy.address(), eval).as_deref(), Some(":1\r\n"));
    for (count, loss, heard) in [(2, Loss::Cut, Some("")), (3, Loss::Silence, None)] {
        proxy.lose_next_reply(loss);
        assert_eq!(over_tcp(proxy.address(), "PING").as_deref(), Some("+PONG\r\n"));
        assert_eq!(over_tcp(proxy.address(), eval).as_deref(), heard, "{loss:?}");
        assert_eq!(redis.command(&["GET", "n"]).integer(), count, "it was run once");
        assert_eq!(over_tcp(proxy.address(), "PING").as_deref(), Some("+PONG\r\n"));
    }
    assert_eq!(proxy.lost(), 2);
    proxy.set(Link::Slow(Duration::from_millis(100)));
    let begin = Instant::now();
    assert_eq!(over_tcp(proxy.address(), "PING").as_deref(), Some("+PONG\r\n"));
    assert!(begin.elapsed() >= Duration::from_millis(100));
    proxy.set(Link::Silent);
    assert_eq!(over_tcp(proxy.address(), eval), None);
    assert_eq!(redis.command(&["GET", "n"]).integer(), 3, "it was not run");
    proxy.set(Link::Refusing);
    assert_eq!(over_tcp(proxy.address(), "PING").as_deref(), Some(""));
    proxy.set(Link::Good);
    let mut held = TcpStream::connect_timeout(&proxy.address(), PATIENCE).unwrap();
    held.set_read_timeout(Some(PATIENCE)).unwrap();
    held.write_all(b"PING\r\n").unwrap();
    held.read_exact(&mut [0; 7]).unwrap();
    proxy.cut();
    assert!(matches!(held.read(&mut [0; 7]), Ok(0) | Err(_)), "cut off");
    assert!(proxy.store().contains(&proxy.address().to_string()));
}

#[test]
fn load_reports_every_answer() {
    use crate::support::{Load, get};
    let weir = Weir::start(&Config::echo().store("kind = \"memory\""));
    let load = Load::start(&[weir.address()], &[get("/"), get("/b")], 2);
    load.wait_for(100);
    let answers = load.finish();
    assert!(answers.len() >= 100);
    let passed = answers.iter().filter(|it| it.status == 200).count();
    let first = answers.iter().map(|it| it.sent).min().unwrap();
    let last = answers.iter().map(|it| it.sent + it.took).max().unwrap();
    assert!(passed >= 5 && passed as f64 <= 5.0 + (last - first).as_secs_f64());
    assert!(answers.iter().any(|it| it.request == 1));
    assert!(!weir.degraded());
}
