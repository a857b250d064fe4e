//! Two buckets of which the first that admits is charged, on real servers: what is refunded, owed and
//! known of them, whatever fails on the way.

mod worker;

use std::time::Duration;

use weir::limit::fixed_window::FixedWindow;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{OnError, Policy, Rate, Retry};

use crate::support::fault_proxy::{Link, Loss};
use crate::support::{Cluster, FaultProxy, Redis};
use worker::{Answered, Asked, Worker};

const DAY: Duration = Duration::from_secs(86_400);
const OWN: &str = "weir:tenants:{root}:parent:guaranteed:a";
const POOL: &str = "weir:tenants:{root}:parent:pool";

fn window(count: u64) -> Policy {
    Policy::FixedWindow(FixedWindow::new(Rate::new(count, DAY).unwrap()))
}

fn bucket(burst: u64) -> Policy {
    Policy::TokenBucket(TokenBucket::new(Rate::new(1, DAY).unwrap(), burst).unwrap())
}

fn refilled(burst: u64) -> Policy {
    Policy::RefillBucket(RefillBucket::new(DAY, 1, burst).unwrap())
}

fn sliding(count: u64) -> Policy {
    Policy::SlidingWindow(SlidingWindow::new(Rate::new(count, DAY).unwrap()))
}

/// A guarantee of two and a pool of three.
fn pair(cost: u64) -> Vec<Asked> {
    Asked::pair([OWN, POOL], [window(2), window(3)], cost)
}

/// The lines of a store that gives Redis all the time that a busy machine may take.
fn patient(redis: &Redis) -> String {
    format!("{}timeout = \"5s\"", redis.store())
}

/// What was charged to the guarantee and to the pool.
fn counted(redis: &Redis) -> [u64; 2] {
    [OWN, POOL].map(|key| count_of(redis, key))
}

fn count_of(redis: &Redis, key: &str) -> u64 {
    if redis.command(&["EXISTS", key]).integer() == 0 {
        return 0;
    }
    let text = redis.command(&["GET", key]).text();
    text.split([' ', '|']).nth(1).unwrap().parse().unwrap()
}

/// What is left of a bucket of any algorithm, as another gateway sees it.
fn left(worker: &Worker, key: &str, policy: Policy) -> u64 {
    let Answered { decision, outcomes } = worker.ask(&[Asked::alone(key, policy, 0)]);
    policy.report(outcomes[0].state, decision.unwrap().now).remaining
}

#[test]
fn pairs_of_two_gateways_spend_the_guarantee_and_then_the_pool() {
    let redis = Redis::start();
    let workers = [0, 1].map(|_| Worker::start(&patient(&redis), OnError::Deny));
    let told: Vec<String> = (0..7).map(|n| workers[n % 2].ask(&pair(1)).told()).collect();
    assert_eq!(told, ["cs", "cs", "rc", "rc", "rc", "rr", "rr"]);
    assert_eq!(counted(&redis), [2, 3]);
}

/// The pair lies in one hash slot, and a limit that refuses in another.
fn refusal_elsewhere_refunds_what_was_charged(make: fn(u64) -> Policy) {
    let cluster = Cluster::start();
    let lines = format!("{}timeout = \"5s\"", cluster.store());
    let (worker, other) =
        (Worker::start(&lines, OnError::Deny), Worker::start(&lines, OnError::Deny));
    let policies = [make(2), make(3)];
    let one = Asked::pair([OWN, POOL], policies, 1);
    let watched = ["weir:tenants:{other}:own", "weir:tenants:{other}:pool"];
    let watching: Vec<Asked> = Asked::pair(watched, [make(1), make(1)], 1)
        .into_iter()
        .map(|it| Asked { enforced: false, ..it })
        .collect();
    let all_left = || {
        let of = |key, at: usize| left(&other, key, policies[at]);
        [
            of(OWN, 0),
            of(POOL, 1),
            left(&other, watched[0], make(1)),
            left(&other, watched[1], make(1)),
        ]
    };
    // What is left before; which of each pair is charged, and refunded.
    let rounds = [([2, 3, 1, 1], "cscsr"), ([0, 3, 0, 1], "rcrcr"), ([0, 1, 0, 0], "rcrrr")];
    for (round, (before, told)) in rounds.into_iter().enumerate() {
        for attempt in 0..3 {
            assert_eq!(all_left(), before, "round {round}");
            // The worker does not know that it is spent.
            let small = format!("weir:small:{round}-{attempt}");
            let spent = vec![Asked::alone(&small, window(1), 1)];
            assert!(other.ask(&spent).admitted());
            let request = [one.clone(), watching.clone(), spent].concat();
            let answered = worker.ask(&request);
            assert!(!answered.admitted());
            assert_eq!(answered.told(), told, "round {round}");
            worker.wait("all is refunded", || all_left() == before);
        }
        let spend: &[(&str, usize, u64)] = match round {
            0 => &[(OWN, 0, 2)],
            1 => &[(POOL, 1, 2)],
            _ => &[],
        };
        for (key, at, cost) in spend {
            assert!(other.ask(&[Asked::alone(key, policies[*at], *cost)]).admitted());
        }
        if round < 2 {
            let key = watched[round];
            assert!(other.ask(&[Asked::alone(key, make(1), 1)]).admitted());
        }
    }
    assert!(worker.ask(&one).admitted());
    assert_eq!(all_left(), [0, 0, 0, 0]);
}

#[test]
fn refusal_in_another_hash_slot_refunds_the_window_of_a_pair_that_was_charged() {
    refusal_elsewhere_refunds_what_was_charged(window);
}

#[test]
fn refusal_in_another_hash_slot_refunds_the_token_bucket_of_a_pair_that_was_charged() {
    refusal_elsewhere_refunds_what_was_charged(bucket);
}

#[test]
fn refusal_in_another_hash_slot_refunds_the_refill_bucket_of_a_pair_that_was_charged() {
    refusal_elsewhere_refunds_what_was_charged(refilled);
}

#[test]
fn refusal_in_another_hash_slot_refunds_the_sliding_window_of_a_pair_that_was_charged() {
    refusal_elsewhere_refunds_what_was_charged(sliding);
}

/// Denied because the reply does not come: once with something left of the guarantee, once without.
fn a_denied_request_costs_neither_of_its_pair(lose: fn(&FaultProxy), heal: fn(&FaultProxy)) {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let lines = format!("{}timeout = \"100ms\"", proxy.store());
    let worker = Worker::start(&lines, OnError::Deny);
    let other = Worker::start(&patient(&redis), OnError::Deny);
    for before in [[0, 0], [2, 0], [2, 1]] {
        while counted(&redis) != before {
            assert!(other.ask(&pair(1)).admitted());
        }
        worker.wait("its Redis is in use", || {
            !worker.is_degraded() && worker.ask(&peek()).admitted()
        });
        lose(&proxy);
        let answered = worker.ask(&pair(1));
        assert!(answered.decision.is_err(), "{answered:?}");
        heal(&proxy);
        worker.wait("it is refunded", || counted(&redis) == before);
        worker.run_for(Duration::from_millis(300));
        assert_eq!(counted(&redis), before, "it is refunded once");
    }
}

/// A request that charges nothing.
fn peek() -> Vec<Asked> {
    vec![Asked::alone("weir:nothing", window(1), 0)]
}

#[test]
fn charge_of_a_denied_pair_whose_reply_is_lost_is_refunded_by_the_fence() {
    a_denied_request_costs_neither_of_its_pair(
        |proxy| {
            // The connection ends in place of the reply, and there is no other for a while.
            proxy.set(Link::Refusing);
            proxy.lose_next_reply(Loss::Cut);
        },
        |proxy| {
            assert!(proxy.lost() > 0);
            proxy.set(Link::Good);
        },
    );
}

#[test]
fn charge_of_a_denied_pair_whose_reply_is_late_is_refunded() {
    a_denied_request_costs_neither_of_its_pair(
        |proxy| proxy.set(Link::Slow(Duration::from_millis(300))),
        |proxy| proxy.set(Link::Good),
    );
}

/// The fence tells that it was admitted, and by which of the pair.
#[test]
fn pair_whose_reply_is_lost_is_charged_once_and_told_by_the_fence() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let lines = format!("{}timeout = \"5s\"", proxy.store());
    let worker = Worker::start(&lines, OnError::Deny);
    let history = [("cs", [1, 0]), ("cs", [2, 0]), ("rc", [2, 1]), ("rc", [2, 2]), ("rc", [2, 3])];
    for (told, charged) in history {
        proxy.lose_next_reply(Loss::Cut);
        let answered = worker.ask(&pair(1));
        assert!(answered.admitted(), "{answered:?}");
        assert_eq!(answered.told(), told);
        assert_eq!(counted(&redis), charged);
        // Several failures in a row are an outage.
        worker.wait("Redis is in use", || worker.ask(&peek()).admitted());
    }
    proxy.lose_next_reply(Loss::Cut);
    assert!(!worker.ask(&pair(1)).admitted());
    assert_eq!((counted(&redis), proxy.lost()), ([2, 3], 6));
}

#[test]
fn pair_is_refused_from_knowledge_only_if_both_are_known_to_refuse() {
    let redis = Redis::start();
    let worker = Worker::start(&patient(&redis), OnError::Deny);
    let flood = [Asked::alone(POOL, bucket(3), 1)];
    let hourly = Rate::new(1, DAY / 24).unwrap();
    let own = Policy::TokenBucket(TokenBucket::new(hourly, 2).unwrap());
    let pair = |cost| Asked::pair([OWN, POOL], [own, bucket(3)], cost);
    while worker.ask(&flood).admitted() {}
    let before = redis.script_calls();
    assert!(!worker.ask(&flood).admitted());
    assert_eq!(redis.script_calls(), before, "the pool is known to be empty");
    // The guarantee is not.
    assert_eq!(worker.ask(&pair(2)).told(), "cs");
    let first = worker.ask(&pair(1));
    assert_eq!((first.admitted(), first.told().as_str()), (false, "rr"));
    let before = redis.script_calls();
    let known = worker.ask(&pair(1));
    assert_eq!((known.admitted(), known.told().as_str()), (false, "rr"));
    assert_eq!(redis.script_calls(), before, "both are known to be empty");
    // The guarantee refills first.
    let retries = |answered: &Answered| [0, 1].map(|at| answered.outcomes[at].refused);
    assert_eq!(retries(&first)[0], retries(&first)[1]);
    assert_eq!(retries(&known), retries(&first));
    // Of a dearer one the guarantee knows that it never passes, and the pool when it does.
    let dear = worker.ask(&pair(3));
    assert_eq!(dear.outcomes[0].refused, Some(Retry::Never));
    assert!(matches!(dear.outcomes[1].refused, Some(Retry::At(_))));
    assert_eq!(redis.script_calls(), before);
}

/// Only the guarantee is known to refuse: Redis is asked, and the pool charged.
#[test]
fn known_refusal_of_the_guarantee_leaves_the_pool() {
    let redis = Redis::start();
    let worker = Worker::start(&patient(&redis), OnError::Deny);
    let own = [Asked::alone(OWN, window(2), 1)];
    while worker.ask(&own).admitted() {}
    assert_eq!(worker.ask(&pair(1)).told(), "rc");
    assert_eq!(counted(&redis), [2, 1]);
    // Another limit is known to refuse: of the pair the pool is shown, and nothing is charged.
    let small = [Asked::alone("weir:small", window(1), 1)];
    while worker.ask(&small).admitted() {}
    let before = redis.script_calls();
    let answered = worker.ask(&[pair(1), small.to_vec()].concat());
    assert_eq!((answered.admitted(), answered.told().as_str()), (false, "rcr"));
    assert_eq!((redis.script_calls(), counted(&redis)), (before, [2, 1]));
}

/// Redis is away, and `passing` requests pass meanwhile.
fn what_passes_without_redis_is_owed(passing: usize, told: &str, charged: [u64; 2]) {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let worker = Worker::start(&proxy.store(), OnError::Local);
    // Both are in use before, so each has a state that a wrong debt would be charged to.
    assert_eq!(worker.ask(&pair(1)).told(), "cs");
    assert!(worker.ask(&[Asked::alone(POOL, window(3), 1)]).admitted());
    proxy.set(Link::Refusing);
    proxy.cut();
    worker.wait("it decides without Redis", || {
        worker.ask(&peek());
        worker.is_degraded()
    });
    let answers: Vec<Answered> = (0..passing).map(|_| worker.ask(&pair(1))).collect();
    assert!(answers.iter().all(|it| it.decision.as_ref().unwrap().alone), "{answers:?}");
    assert_eq!(answers.iter().map(Answered::told).collect::<Vec<_>>().join(" "), told);
    assert_eq!(counted(&redis), [1, 1]);
    proxy.set(Link::Good);
    worker.wait("Redis is in use again", || !worker.is_degraded());
    worker.wait("all is paid", || counted(&redis) == charged);
    // Over all of it no more passes than both hold, wherever it is asked.
    let other = Worker::start(&patient(&redis), OnError::Deny);
    let passed = answers.iter().filter(|it| it.admitted()).count() + 2;
    let more = (0..8).filter(|n| [&worker, &other][n % 2].ask(&pair(1)).admitted()).count();
    assert_eq!(passed + more, 5);
    assert_eq!(counted(&redis), [2, 3]);
}

#[test]
fn debt_of_an_outage_lands_in_the_guarantee_that_was_charged() {
    what_passes_without_redis_is_owed(1, "cs", [2, 1]);
}

#[test]
fn debt_of_an_outage_lands_in_the_pool_that_was_charged() {
    what_passes_without_redis_is_owed(2, "cs rc", [2, 2]);
}

#[test]
fn an_outage_admits_no_more_than_guarantee_and_pool_hold() {
    what_passes_without_redis_is_owed(6, "cs rc rc rr rr rr", [2, 3]);
}

/// The worker has never heard of the guarantee, so it charges that here, while Redis, whose reply
/// does not come, charges the pool.
#[test]
fn what_redis_charged_to_the_other_of_a_pair_is_owed_by_neither() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let lines = format!("{}timeout = \"100ms\"", proxy.store());
    let worker = Worker::start(&lines, OnError::Local);
    let other = Worker::start(&patient(&redis), OnError::Deny);
    assert!(other.ask(&[Asked::alone(OWN, window(2), 2)]).admitted());
    proxy.lose_next_reply(Loss::Silence);
    let answered = worker.ask(&pair(1));
    assert!(answered.decision.as_ref().unwrap().alone);
    assert_eq!((answered.told().as_str(), counted(&redis)), ("cs", [2, 1]));
    proxy.cut();
    worker.wait("Redis is in use", || {
        let answered = worker.ask(&peek());
        !worker.is_degraded() && answered.decision.is_ok_and(|it| !it.alone)
    });
    worker.run_for(Duration::from_millis(500));
    assert_eq!(counted(&redis), [2, 1], "the request is charged once, where Redis charged it");
    let more = (0..5).filter(|_| worker.ask(&pair(1)).admitted()).count();
    assert_eq!((more, counted(&redis)), (2, [2, 3]));
}

/// One hash slot admits, and another does not answer: what passes here keeps to the choice that was
/// made there.
#[test]
fn choice_that_one_hash_slot_made_stands_if_another_does_not_answer() {
    let cluster = Cluster::start();
    let lines = format!("{}timeout = \"300ms\"", cluster.store());
    let worker = Worker::start(&lines, OnError::Local);
    let other = Worker::start(&format!("{}timeout = \"5s\"", cluster.store()), OnError::Deny);
    let owner = cluster.owner(cluster.slot(OWN));
    let far = (0..).map(|n| format!("weir:far:{n}"));
    let far = far.into_iter().find(|key| cluster.owner(cluster.slot(key)) != owner).unwrap();
    let node = &cluster.nodes[owner];
    assert!(other.ask(&[Asked::alone(OWN, window(2), 2)]).admitted());
    let far_owner = &cluster.nodes[cluster.owner(cluster.slot(&far))];
    let far = Asked::alone(&far, window(5), 1);
    // So that all nodes know the script.
    worker.wait("it passes", || worker.ask(std::slice::from_ref(&far)).admitted());
    worker.wait("it passes", || {
        worker.ask(&[Asked::alone("weir:{root}:x", window(9), 1)]).admitted()
    });
    far_owner.stop();
    let answered = worker.ask(&[pair(1), vec![far.clone()]].concat());
    far_owner.cont();
    assert!(answered.admitted() && answered.decision.as_ref().unwrap().alone, "{answered:?}");
    assert_eq!(answered.told(), "rcc");
    worker.wait("the cluster is in use", || {
        !worker.is_degraded() && worker.ask(&peek()).decision.is_ok_and(|it| !it.alone)
    });
    worker.run_for(Duration::from_millis(500));
    assert_eq!(counted(node), [2, 1]);
}

/// A cost that is known when the response ends is charged to the bucket that was chosen.
#[test]
fn deferred_cost_is_charged_to_the_bucket_that_was_chosen() {
    let redis = Redis::start();
    let worker = Worker::start(&patient(&redis), OnError::Deny);
    let policies = [window(2).with_debt(5), window(3).with_debt(5)];
    let asked: Vec<Asked> = Asked::pair([OWN, POOL], policies, 1)
        .into_iter()
        .map(|it| Asked { spends: false, ..it })
        .collect();
    for (told, cost, charged) in [("cs", 4, [4, 0]), ("rc", 2, [4, 2]), ("rc", 6, [4, 8])] {
        let answered = worker.ask(&asked);
        assert_eq!((answered.admitted(), answered.told().as_str()), (true, told));
        worker.charge_after(&asked, &answered, cost);
        assert_eq!(counted(&redis), charged);
    }
    assert!(!worker.ask(&asked).admitted());
}
