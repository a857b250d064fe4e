//! Gateways that have lost Redis together and find it again one after the other: each admits its share
//! meanwhile, and what it admitted is charged before another can spend it once more.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::support::fault_proxy::Link;
use crate::support::{
    Config, FaultProxy, RECOVERY, Redis, Weir, check_for, get, get_with, wait_at_most, wait_until,
};

const BURST: usize = 100;
/// Who has lost Redis, and who has not, shows by the heartbeats of this time.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// By how much one finds Redis later than another. With the 0.8 s between two of its attempts that is less
/// than the two seconds for which the other waits.
const LATER: Duration = Duration::from_millis(200);

const LIMIT: &str = "rate = \"1/day\"\nburst = 100";

/// For how long requests are held back, and how long before they are the instant is named, goes by this.
const TIMEOUT: &str = "1s";
const SHORT_TIMEOUT: &str = "100ms";

fn config(store: &str, timeout: &str, limit: &str) -> Config {
    let store = format!("{store}timeout = \"{timeout}\"\non_error = \"local\"");
    Config::echo().store(&store).limit(&format!("key = \"global\"\n{limit}"))
}

/// Puts members into the sets of gateways, as if they had just said so.
fn say(redis: &Redis, sets: &[&str], members: &[&str]) {
    let script = "local time = redis.call('TIME') \
                  local now = time[1] * 1000 + math.floor(time[2] / 1000) \
                  for _, key in ipairs(KEYS) do for _, member in ipairs(ARGV) do \
                  redis.call('ZADD', key, now, member) end end";
    let count = sets.len().to_string();
    redis.command(&[&["EVAL", script, &count], sets, members].concat());
}

/// What passes of so many requests, one after another on one connection: the other gateway is waited for
/// no longer than two seconds.
fn ask(weir: &Weir, count: usize) -> usize {
    let mut client = weir.connect();
    (0..count).filter(|_| client.ask(get("/")).status == 200).count()
}

/// The same of as many as a burst has.
fn spend(weir: &Weir) -> usize {
    ask(weir, BURST)
}

/// Two gateways that know each other, each behind a link of its own. No token comes back meanwhile.
struct Pair {
    links: [FaultProxy; 2],
    weirs: [Weir; 2],
}

impl Pair {
    #[track_caller]
    fn start(redis: &Redis) -> Pair {
        Pair::with(redis, TIMEOUT, LIMIT)
    }

    #[track_caller]
    fn with(redis: &Redis, timeout: &str, limit: &str) -> Pair {
        let links = [(); 2].map(|()| FaultProxy::to(redis.address()));
        let weirs =
            links.each_ref().map(|link| Weir::start(&config(&link.store(), timeout, limit)));
        wait_until("they know each other", || weirs.iter().all(|weir| weir.nodes() == 2.0));
        Pair { links, weirs }
    }

    /// Has both know of a gateway that is gone.
    #[track_caller]
    fn know_a_dead_one(&self, redis: &Redis) {
        say(redis, &["weir:@nodes"], &["dead"]);
        wait_until("all know of it", || self.weirs.iter().all(|weir| weir.nodes() == 3.0));
    }

    /// Takes Redis away from both.
    fn lose_redis(&self) {
        for link in &self.links {
            link.set(Link::Refusing);
            link.cut();
        }
    }

    /// The same until both have noticed, and for longer than a heartbeat.
    #[track_caller]
    fn lose_redis_for_long(&self) {
        self.lose_redis();
        let begun = Instant::now();
        wait_until("both decide without Redis, and it has lasted", || {
            self.weirs.iter().all(Weir::degraded) && begun.elapsed() > 2 * HEARTBEAT
        });
    }

    /// The same; spends what they admit without it.
    #[track_caller]
    fn spend_without_redis(&self) -> usize {
        self.lose_redis();
        let begun = Instant::now();
        let mut passed = 0;
        wait_until("both decide without Redis", || {
            passed += self.weirs.iter().filter(|weir| weir.get("/").status == 200).count();
            self.weirs.iter().all(Weir::degraded)
        });
        wait_until("it has lasted, and nothing is left", || {
            let more = self.weirs.iter().filter(|weir| weir.get("/").status == 200).count();
            passed += more;
            more == 0 && begun.elapsed() > 2 * HEARTBEAT
        });
        passed
    }

    /// Sends the first a request: 1 if it passes.
    fn ask_first(&self) -> usize {
        usize::from(self.weirs[0].get("/").status == 200)
    }

    /// What passes until both have Redis again, and after that.
    #[track_caller]
    fn spend_until_both_are_back(&self) -> usize {
        let spend = || self.weirs.iter().filter(|weir| weir.get("/").status == 200).count();
        let mut passed = 0;
        wait_at_most(RECOVERY, "both are back", || {
            passed += spend();
            self.weirs.iter().all(|weir| !weir.degraded())
        });
        passed + spend()
    }
}

#[test]
fn what_another_gateway_owes_is_charged_before_it_can_be_spent_again() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    let mut passed = pair.spend_without_redis();
    assert_eq!(passed, BURST, "each has half of it");
    let [first, second] = &pair.links;
    first.set(Link::Good);
    wait_until("the first has found Redis", || {
        passed += pair.ask_first();
        redis.command(&["ZCARD", "weir:@paid"]).integer() == 1
    });
    // Some of what the other has not paid yet, if it may be spent.
    passed += ask(&pair.weirs[0], BURST / 4);
    second.set(Link::Good);
    passed += pair.spend_until_both_are_back();
    assert_eq!(passed, BURST);
}

#[test]
fn no_gateway_decides_by_its_share_beside_one_that_has_redis_again() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    let [idle, busy] = &pair.weirs;
    pair.lose_redis_for_long();
    let mut passed = spend(busy);
    assert_eq!(passed, BURST / 2, "its share");
    // The idle one hears late what the other says.
    pair.links[0].set(Link::Slow(Duration::from_millis(40)));
    pair.links[1].set(Link::Good);
    wait_at_most(RECOVERY, "one has Redis again", || busy.get("/").status == 200);
    passed += 1;
    passed += std::thread::scope(|scope| {
        let other = scope.spawn(|| spend(idle));
        spend(busy) + other.join().unwrap()
    });
    assert_eq!(passed, BURST);
}

#[test]
fn whom_a_dead_one_keeps_waiting_for_longer_stops_with_the_others() {
    let redis = Redis::start();
    let pair = Pair::with(&redis, SHORT_TIMEOUT, LIMIT);
    pair.know_a_dead_one(&redis);
    let [busy, idle] = &pair.weirs;
    pair.lose_redis_for_long();
    let mut passed = spend(busy);
    assert_eq!(passed, BURST / 3, "its share");
    pair.links[0].set(Link::Good);
    wait_until("the first has found Redis", || {
        redis.command(&["ZCARD", "weir:@paid"]).integer() > 0
    });
    // It will have waited for so much longer than the other, and gives the dead one up as much earlier.
    let begun = Instant::now();
    wait_until("it has waited alone", || begun.elapsed() > 3 * LATER);
    pair.links[1].set(Link::Good);
    wait_at_most(RECOVERY, "the first has Redis again", || busy.get("/").status == 200);
    passed += 1 + spend(busy) + spend(idle);
    assert_eq!(passed, BURST);
}

#[test]
fn one_that_goes_on_by_its_share_is_waited_for_by_one_that_begins_anew() {
    let redis = Redis::start();
    let link = FaultProxy::to(redis.address());
    let weir = Weir::start(&config(&link.store(), TIMEOUT, LIMIT));
    let other = |sets: &[&str], state: &str| say(&redis, sets, &[&format!("other{state}")]);
    wait_until("it knows another", || {
        other(&["weir:@nodes"], "");
        weir.nodes() == 2.0
    });
    link.set(Link::Refusing);
    link.cut();
    let begun = Instant::now();
    wait_until("it decides without Redis, and it has lasted", || {
        weir.get("/");
        weir.degraded() && begun.elapsed() > 2 * HEARTBEAT
    });
    // What the other said before that is over: that it has found Redis, and pays.
    link.set(Link::Good);
    let words = |state: &str| {
        let said = redis.command(&["ZRANGE", "weir:@paid", "0", "-1"]);
        said.list().iter().any(|it| it.text().ends_with(state))
    };
    wait_at_most(RECOVERY, "it names an instant at which both stop", || {
        other(&["weir:@paid"], " paid");
        words(" cutover")
    });
    wait_at_most(RECOVERY, "it is back once the other is ready", || {
        other(&["weir:@paid"], " ready");
        !weir.degraded()
    });
}

#[test]
fn many_gateways_stop_deciding_by_their_shares_at_one_instant() {
    const SHARE: usize = 3;
    const OTHERS: usize = 250;
    let burst = SHARE * (OTHERS + 2);
    for _ in 0..3 {
        let redis = Redis::start();
        // So many ask seldom whether all have paid, and requests are held back for less than that.
        let others: Vec<_> = (0..OTHERS).map(|at| format!("other-{at}")).collect();
        let others: Vec<_> = others.iter().map(String::as_str).collect();
        let say_paid = || say(&redis, &["weir:@nodes", "weir:@paid"], &others);
        say_paid();
        let links = [(); 2].map(|()| FaultProxy::to(redis.address()));
        let limit = format!(
            "key = \"global\"\nrate = \"1/day\"\nburst = {burst}\ncost = {{ from = \"header:x-cost\" }}"
        );
        let store = "timeout = \"100ms\"\non_error = \"local\"\n";
        let config =
            |link: &FaultProxy| Config::echo().store(&link.store()).store(store).limit(&limit);
        let weirs = links.each_ref().map(|link| Weir::start(&config(link)));
        let pair = Pair { links, weirs };
        wait_until("all know of each other", || {
            say_paid();
            pair.weirs.iter().all(|weir| weir.nodes() == (OTHERS + 2) as f64)
        });
        pair.lose_redis_for_long();
        pair.links.iter().for_each(|link| link.set(Link::Good));
        let mut back = None;
        wait_at_most(RECOVERY, "one has Redis again", || {
            say_paid();
            back = pair.weirs.iter().position(|weir| !weir.degraded());
            back.is_some()
        });
        let (first, last) = if back == Some(0) { (0, 1) } else { (1, 0) };
        let passes = |at: usize, cost: usize| {
            pair.weirs[at].ask(get_with("/", &format!("x-cost: {cost}\r\n"))).status == 200
        };
        let mut passed = (0..SHARE).filter(|_| passes(last, 1)).count();
        passed += if passes(first, burst) { burst } else { 0 };
        assert!(passed <= burst, "{passed} of {burst}");
    }
}

#[test]
fn gateway_that_has_paid_and_lost_redis_again_is_waited_for() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    let nodes = redis.command(&["ZRANGE", "weir:@nodes", "0", "-1"]);
    let mut passed = pair.spend_without_redis();
    // What they said when Redis was back for a moment, and has been overtaken since.
    let time = redis.command(&["TIME"]);
    let millis = time.list()[0].integer() * 1000 + time.list()[1].integer() / 1000;
    for node in nodes.list() {
        redis.command(&["ZADD", "weir:@paid", &millis.to_string(), &node.text()]);
    }
    pair.links[0].set(Link::Good);
    wait_until("the first has found Redis", || {
        passed += pair.ask_first();
        redis.command(&["PTTL", "weir:@paid"]).integer() > 0
    });
    passed += ask(&pair.weirs[0], BURST / 4);
    pair.links[1].set(Link::Good);
    passed += pair.spend_until_both_are_back();
    assert_eq!(passed, BURST);
}

#[test]
fn gateways_are_waited_for_by_name_and_not_by_number() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    let mut passed = pair.spend_without_redis();
    redis.command(&["DEL", "weir:@nodes"]);
    // A gateway that was not in the outage, and says so all the time.
    let say_paid = || say(&redis, &["weir:@nodes", "weir:@paid"], &["another"]);
    say_paid();
    pair.links[0].set(Link::Good);
    wait_until("the first has found Redis", || {
        passed += pair.ask_first();
        say_paid();
        redis.command(&["ZCARD", "weir:@paid"]).integer() == 2
    });
    passed += ask(&pair.weirs[0], BURST / 4);
    say_paid();
    pair.links[1].set(Link::Good);
    passed += pair.spend_until_both_are_back();
    assert_eq!(passed, BURST);
}

#[test]
fn gateways_know_of_each_other_whatever_the_clock_is_set_to() {
    let redis = Redis::skewed(&[], 0);
    let limit = "key = \"global\"\nrate = \"1000/second\"";
    let store = "timeout = \"5s\"\non_error = \"local\"";
    let config = Config::echo().store(&redis.store()).store(store).limit(limit);
    // Only one of them hears Redis's time with its decisions.
    let [busy, idle] = Weir::start_two(&config);
    let both = || busy.nodes() == 2.0 && idle.nodes() == 2.0;
    wait_until("they know of each other", both);
    for clock in [10_000, -10_000] {
        redis.set_clock(clock);
        // The next heartbeat of each puts it right. From then on it holds, for longer than they count.
        let mut since = Instant::now();
        wait_until(&format!("they do with the clock set by {clock} ms"), || {
            busy.get("/");
            if !both() {
                since = Instant::now();
            }
            since.elapsed() > Duration::from_secs(6)
        });
    }
}

#[test]
fn gateways_hear_each_other_though_the_clock_is_set_while_they_wait() {
    let redis = Redis::skewed(&[], 0);
    let pair = Pair::start(&redis);
    let mut passed = pair.spend_without_redis();
    pair.links[0].set(Link::Good);
    wait_until("the first has found Redis", || {
        redis.command(&["ZCARD", "weir:@paid"]).integer() > 0
    });
    redis.set_clock(-10_000);
    // Some of what the other has not paid yet, if it may be spent.
    check_for(LATER, || {
        passed += pair.ask_first();
    });
    pair.links[1].set(Link::Good);
    passed += pair.spend_until_both_are_back();
    assert_eq!(passed, BURST);
}

#[test]
fn gateway_that_has_redis_again_says_so_until_others_have_heard_it() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    pair.lose_redis();
    wait_until("it decides without Redis", || {
        pair.weirs[0].get("/");
        pair.weirs[0].degraded()
    });
    pair.links[0].set(Link::Good);
    wait_at_most(RECOVERY, "it is back", || !pair.weirs[0].degraded());
    let mut said = HashSet::new();
    wait_at_most(2 * HEARTBEAT, "it is heard between its heartbeats", || {
        let last = redis.command(&["ZREVRANGE", "weir:@paid", "0", "0", "WITHSCORES"]);
        said.extend(last.list().get(1).map(|it| it.text()));
        // Its recovery and its heartbeats are fewer.
        said.len() >= 8
    });
}

#[test]
fn what_refills_is_lost_once_though_gateways_come_back_one_after_the_other() {
    const RATE: f64 = 40.0;
    let redis = Redis::start();
    let pair = Pair::with(&redis, TIMEOUT, &format!("rate = \"{RATE}/second\"\nburst = {RATE}"));
    let begun = Instant::now();
    let mut passed = 0;
    let mut spend_for = |time: Duration| {
        check_for(time, || {
            for weir in &pair.weirs {
                passed += (0..4).filter(|_| weir.get("/").status == 200).count();
            }
        });
    };
    // Nothing is left when the outage begins, and never after.
    spend_for(2 * HEARTBEAT);
    pair.links.iter().for_each(|link| link.set(Link::Refusing));
    pair.links.iter().for_each(FaultProxy::cut);
    spend_for(3 * HEARTBEAT);
    assert!(pair.weirs.iter().all(Weir::degraded));
    pair.links[0].set(Link::Good);
    let has_said = || redis.command(&["ZCARD", "weir:@paid"]).integer() > 0;
    wait_until("the first has found Redis", || {
        spend_for(HEARTBEAT / 20);
        has_said()
    });
    spend_for(LATER);
    pair.links[1].set(Link::Good);
    wait_at_most(RECOVERY, "both are back", || {
        spend_for(HEARTBEAT / 20);
        pair.weirs.iter().all(|weir| !weir.degraded())
    });
    spend_for(HEARTBEAT);
    assert!(passed as f64 >= RATE, "{passed}");
    let most = RATE + RATE * begun.elapsed().as_secs_f64();
    assert!(passed as f64 <= most, "{passed} of {most:.1}");
}

#[test]
fn gateways_wait_for_each_other_after_a_restart_of_redis_however_short_it_was() {
    let mut redis = Redis::start();
    let pair = Pair::start(&redis);
    let spend = || pair.weirs.iter().filter(|weir| weir.get("/").status == 200).count();
    redis.command(&["SAVE"]);
    redis.kill();
    pair.lose_redis();
    let mut passed = 0;
    wait_until("both decide without Redis", || {
        passed += spend();
        pair.weirs.iter().all(Weir::degraded)
    });
    redis.spawn_again(&[]);
    redis.wait_ready();
    pair.links[0].set(Link::Good);
    let begun = Instant::now();
    wait_until("one has found Redis, and the other has not", || {
        passed += spend();
        begun.elapsed() > LATER
    });
    pair.links[1].set(Link::Good);
    passed += pair.spend_until_both_are_back();
    assert_eq!(passed, BURST);
}

/// A gateway is started when Redis is back, and spends what it may.
#[track_caller]
fn assert_debts_come_first(redis: &Redis, pair: &Pair) {
    let mut passed = pair.spend_without_redis();
    let new = std::thread::scope(|scope| {
        let starting = scope.spawn(|| Weir::start(&config(&redis.store(), TIMEOUT, LIMIT)));
        pair.links.iter().for_each(|link| link.set(Link::Good));
        starting.join().unwrap()
    });
    passed += spend(&new);
    assert_eq!(passed, BURST);
}

#[test]
fn gateway_that_starts_waits_for_what_others_owe() {
    let redis = Redis::start();
    assert_debts_come_first(&redis, &Pair::start(&redis));
}

#[test]
fn gateway_that_starts_waits_for_those_that_wait_for_a_dead_one() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    pair.know_a_dead_one(&redis);
    assert_debts_come_first(&redis, &pair);
}

#[test]
fn gateway_that_does_not_come_back_keeps_no_other_from_redis() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    pair.spend_without_redis();
    pair.links[0].set(Link::Good);
    wait_at_most(RECOVERY, "it is back", || !pair.weirs[0].degraded());
}
