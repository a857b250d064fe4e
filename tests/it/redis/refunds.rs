//! A request that is not admitted is not charged, and what Redis refused stays refused, whatever
//! fails on the way.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::support::fault_proxy::{Link, Loss};
use crate::support::load::{FREE, read_everything};
use crate::support::{
    Cluster, Config, FaultProxy, Load, RECOVERY, Redis, Sentinel, Weir, get, get_with,
    wait_at_most, wait_for_value, wait_until,
};

/// Three an hour, and a 503 if Redis does not answer.
fn three(store: &str) -> Config {
    let limit = "key = \"header:x-user\"\nrate = \"3/hour\"\nburst = 3";
    Config::echo().store(store).store("on_error = \"deny\"").limit(limit)
}

/// After the 503s the whole burst is still there.
#[track_caller]
fn nothing_was_charged(weir: &Weir) {
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
    let mut passed = 0;
    // Refunds may still be on their way.
    wait_until("all three pass", || {
        passed += usize::from(weir.ask(as_user("a")).status == 200);
        passed == 3
    });
    // A busy machine may make Redis look slow.
    wait_until("the fourth is refused", || {
        let status = weir.ask(as_user("a")).status;
        assert_ne!(status, 200);
        status == 429
    });
}

#[track_caller]
fn three_denied(weir: &Weir) {
    for _ in 0..3 {
        assert_eq!(weir.ask(as_user("a")).status, 503);
    }
}

#[test]
fn a_503_while_redis_hangs_costs_nothing() {
    let redis = Redis::start();
    let weir = Weir::start(&three(&redis.store()));
    redis.stop();
    three_denied(&weir);
    wait_until("it decides without Redis", || weir.degraded());
    redis.cont();
    nothing_was_charged(&weir);
}

#[test]
fn a_503_while_a_sentinels_master_hangs_costs_nothing() {
    let sentinel = Sentinel::start();
    let weir = Weir::start(&three(&sentinel.store()));
    sentinel.master.stop();
    three_denied(&weir);
    wait_until("it decides without Redis", || weir.degraded());
    sentinel.master.cont();
    nothing_was_charged(&weir);
}

#[test]
fn a_503_while_a_cluster_hangs_costs_nothing() {
    let cluster = Cluster::start();
    let weir = Weir::start(&three(&cluster.store()));
    // Others have been there before: all nodes know the script.
    for user in 0..30 {
        let user = as_user(&user.to_string());
        wait_until("it passes", || weir.ask(&user).status == 200);
    }
    cluster.nodes.iter().for_each(Redis::stop);
    three_denied(&weir);
    wait_until("it decides without Redis", || weir.degraded());
    cluster.nodes.iter().for_each(Redis::cont);
    nothing_was_charged(&weir);
}

#[test]
fn charge_of_a_503_whose_reply_is_late_is_refunded() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = Weir::start(&three(&proxy.store()));
    // Redis decides in time, and its reply is late.
    proxy.set(Link::Slow(Duration::from_millis(200)));
    three_denied(&weir);
    proxy.set(Link::Good);
    nothing_was_charged(&weir);
}

/// Each of several refunds counts, and none puts off the refill that what is used waits for.
#[test]
fn charges_of_503s_in_a_row_are_all_refunded_to_a_bucket_with_refills() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let limit = "key = \"header:x-user\"\nrefill = { every = \"1h\", amount = 1 }\nburst = 4";
    let weir = Weir::start(&three(&proxy.store()).limit(limit));
    wait_until("one passes", || weir.ask(as_user("a")).status == 200);
    proxy.set(Link::Slow(Duration::from_millis(200)));
    three_denied(&weir);
    proxy.set(Link::Good);
    nothing_was_charged(&weir);
}

#[test]
fn charge_of_a_503_whose_reply_is_lost_is_refunded_by_the_fence() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = Weir::start(&three(&proxy.store()));
    // The connection ends in place of the reply, and there is no other for a while.
    proxy.set(Link::Refusing);
    proxy.lose_next_reply(Loss::Cut);
    three_denied(&weir);
    assert_eq!(proxy.lost(), 1);
    proxy.set(Link::Good);
    nothing_was_charged(&weir);
}

fn as_user(user: &str) -> String {
    get_with("/", &format!("X-User: {user}\r\n"))
}

/// Two requests share a call that admits one and refuses the other, and its reply is lost.
fn a_lost_refusal_stays_one(on_error: &str) {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 1";
    let store = format!("{}timeout = \"5s\"\non_error = \"{on_error}\"", proxy.store());
    let config = Config::echo().server("workers = 1").limit(limit).also(FREE).store(&store);
    let (weir, other) = (Weir::start(&config), Weir::start(&config.store("")));
    let fences = || {
        let keys = redis.keys().into_iter().map(|it| it.name);
        let fences = keys.filter(|it| it.contains("@fence"));
        fences.map(|it| redis.command(&["GET", &it]).text()).collect::<Vec<_>>().join(" ")
    };
    for attempt in 0..20 {
        let user = |who: &str| as_user(&format!("{who}-{attempt}"));
        assert_eq!(other.ask(user("spent")).status, 200);
        let mut clients = [weir.connect(), weir.connect(), weir.connect()];
        // While the first call is out, the other two join the next.
        proxy.set(Link::Slow(Duration::from_millis(200)));
        let before = redis.script_calls();
        clients[0].send(user("first"));
        wait_until("the first call is out", || redis.script_calls() > before);
        clients[1].send(user("spent"));
        clients[2].send(user("fresh"));
        read_everything(&weir);
        proxy.lose_next_reply(Loss::Cut);
        let [first, spent, fresh] = clients.each_mut().map(|it| it.response().status);
        proxy.set(Link::Good);
        assert_eq!((first, fresh), (200, 200));
        assert_eq!(spent, 429, "{on_error}: Redis had refused it");
        let text = fences();
        if text.contains(":01:") || text.contains(":10:") {
            assert!(proxy.lost() > 0);
            return;
        }
    }
    panic!("no two requests ever shared a call");
}

#[test]
fn refusal_by_redis_stands_under_local_if_its_reply_is_lost() {
    a_lost_refusal_stays_one("local");
}

#[test]
fn refusal_by_redis_stands_under_allow_if_its_reply_is_lost() {
    a_lost_refusal_stays_one("allow");
}

/// The count of a `fixed_window` whose limit is called so.
fn counted(cluster: &Cluster, limit: &str) -> u64 {
    let found = cluster.buckets().into_iter().find(|(_, name)| name.contains(limit));
    let Some((node, name)) = found else { return 0 };
    let text = cluster.nodes[node].command(&["GET", &name]).text();
    let count = text.split([' ', '|']).nth(1).and_then(|count| count.parse().ok());
    count.expect("an end and a count")
}

#[test]
fn refused_clients_that_reset_drain_no_quota_of_a_cluster() {
    let cluster = Cluster::start();
    let store = format!("{}timeout = \"2s\"", cluster.store());
    let own = "key = \"header:x-user\"\nalgorithm = \"sliding_log\"\nrate = \"1/day\"";
    let shared = "key = \"global\"\nalgorithm = \"fixed_window\"\nrate = \"1000/day\"";
    let config = Config::echo()
        .open()
        .add_limit("own", own)
        .add_limit("shared", shared)
        .route("both", "/*", &["own", "shared"])
        .store(&store);
    let [one, two] = Weir::start_two(&config);
    assert_eq!(one.ask(as_user("a")).status, 200);
    assert_eq!(counted(&cluster, ":shared:"), 1);
    for _ in 0..400 {
        let client = TcpStream::connect(two.address()).unwrap();
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        std::io::Write::write_all(&mut &client, as_user("a").as_bytes()).unwrap();
        drop(client);
    }
    assert_eq!(two.ask(as_user("a")).status, 429);
    wait_until("what was taken is given back", || counted(&cluster, ":shared:") <= 2);
    assert_eq!(two.ask(as_user("b")).status, 200);
    assert!(counted(&cluster, ":shared:") <= 3);
}

/// A caller that is refused by its own limit, asked for by gateways that do not know that yet, beside
/// others who spend what all share.
fn refusals_cost_the_others_nothing(shared: &str) {
    let cluster = Cluster::start();
    let config = Config::echo()
        .open()
        .bucket("own", "header:x-user", 50)
        .add_limit("shared", &format!("key = \"global\"\n{shared}"))
        .bucket("small", "header:x-small", 1)
        .route("all", "/*", &["own", "shared", "small"]);
    let store = format!("{}timeout = \"5s\"\non_error = \"deny\"", cluster.store());
    let config = config.store(&store);
    let weirs = Weir::start_two(&config);
    let ask = |weir: &Weir, user: usize, small: &str| {
        weir.ask(get_with("/", &format!("X-User: {user}\r\nX-Small: {small}\r\n"))).status
    };
    let mut passed = 0;
    for n in 0..20 {
        let small = format!("small-{n}");
        assert_eq!(ask(&weirs[n % 2], n, &small), 200, "{passed} of 40 have passed");
        passed += 1;
        // The other has not seen that it is empty, and asks all slots.
        assert_eq!(ask(&weirs[(n + 1) % 2], n, &small), 429);
    }
    wait_until("all forty pass", || {
        let one = ask(&weirs[passed % 2], passed, &format!("more-{passed}"));
        passed += usize::from(one == 200);
        passed == 40
    });
    assert_eq!(ask(&weirs[0], 100, "last"), 429);
}

#[test]
fn refused_request_is_refunded_in_a_refill_bucket() {
    refusals_cost_the_others_nothing("burst = 40\nrefill = { every = \"1h\", amount = 1 }");
}

#[test]
fn refused_request_is_refunded_in_a_token_bucket() {
    refusals_cost_the_others_nothing("burst = 40\nrate = \"1/hour\"");
}

#[test]
fn refused_request_is_refunded_in_a_sliding_window() {
    refusals_cost_the_others_nothing("algorithm = \"sliding_window\"\nrate = \"40/day\"");
}

/// Clients of the load, and how often a master is stopped.
const CLIENTS: usize = 8;
const ROUNDS: usize = 6;

/// Masters are stopped for 120 ms each in turn: every limit counts what passed, and no more.
fn stalls_cost_nobody_anything(on_error: &str, least: u32) {
    let cluster = Cluster::start();
    let names: Vec<String> = (0..6).map(|n| format!("window-{n}")).collect();
    let limit = |name: &String| {
        let count = if name.ends_with('0') { least } else { 1_000_000 };
        let rate = format!("algorithm = \"fixed_window\"\nrate = \"{count}/day\"");
        format!("[limits.{name}]\nkey = \"global\"\n{rate}\n")
    };
    let tables = format!(
        "{}\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\nlimits = [\"{}\"]",
        names.iter().map(limit).collect::<String>(),
        names.join("\", \"")
    );
    let store = format!("{}timeout = \"40ms\"\non_error = \"{on_error}\"", cluster.store());
    let weir = Weir::start(&Config::echo().open().routes(&tables).store(&store));
    let load = Load::start(&[weir.address()], &[get("/")], CLIENTS);
    for round in 0..ROUNDS {
        load.wait_for(40);
        cluster.nodes[round % 3].stop();
        // The length of the stall is what is tested.
        thread::sleep(Duration::from_millis(120));
        cluster.nodes[round % 3].cont();
        load.wait_for(40);
        // Each stall is a relapse, and the next return takes longer.
        wait_until("the cluster is in use again", || !weir.degraded());
    }
    let answers = load.finish();
    let unexpected = |status: u16| match status {
        200 => false,
        429 => least == 1_000_000,
        _ => on_error != "deny",
    };
    let odd = answers.iter().find(|it| unexpected(it.status));
    assert!(odd.is_none(), "{odd:?}");
    let counts = || names.iter().map(|it| counted(&cluster, it)).collect::<Vec<_>>();
    let passed = answers.iter().filter(|it| it.status == 200).count() as u64;
    // Requests that are decided here while Redis decides others may take the same last units: as
    // many as are in flight when a stall begins. The bucket counts no more than it holds.
    let least = u64::from(least);
    assert!(passed <= least + CLIENTS as u64 * ROUNDS as u64, "{passed} of {least}");
    let counted_right = |(index, count): (usize, &u64)| {
        *count == if index == 0 { passed.min(least) } else { passed }
    };
    let what = format!("each limit has counted the {passed} that passed");
    wait_for_value(&what, counts, |counts| counts.iter().enumerate().all(counted_right));
}

#[test]
fn a_cluster_counts_what_passed_around_stalls_of_its_masters_under_local() {
    stalls_cost_nobody_anything("local", 1_000_000);
}

#[test]
fn a_cluster_counts_what_passed_around_stalls_of_its_masters_under_deny() {
    stalls_cost_nobody_anything("deny", 1_000_000);
}

#[test]
fn a_cluster_counts_what_passed_around_stalls_of_its_masters_where_most_are_refused() {
    stalls_cost_nobody_anything("local", 150);
}
