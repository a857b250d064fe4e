//! Gateways that have lost Redis together and find it again one after the other: each admits its share
//! meanwhile, and what it admitted is charged before another can spend it once more.

use std::time::{Duration, Instant};

use crate::support::fault_proxy::Link;
use crate::support::{Config, FaultProxy, RECOVERY, Redis, Weir, wait_at_most, wait_until};

const BURST: usize = 100;
/// Who has lost Redis, and who has not, shows by the heartbeats of this time.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Two gateways that know each other, each behind a link of its own. No token comes back meanwhile.
struct Pair {
    links: [FaultProxy; 2],
    weirs: [Weir; 2],
}

impl Pair {
    #[track_caller]
    fn start(redis: &Redis) -> Pair {
        let links = [(); 2].map(|()| FaultProxy::to(redis.address()));
        let weirs = links.each_ref().map(|link| {
            let store = format!("{}timeout = \"1s\"\non_error = \"local\"", link.store());
            let limit = format!("key = \"global\"\nrate = \"1/day\"\nburst = {BURST}");
            Weir::start(&Config::echo().store(&store).limit(&limit))
        });
        wait_until("they know each other", || weirs.iter().all(|weir| weir.nodes() == 2.0));
        Pair { links, weirs }
    }

    /// Takes Redis away from both for longer than a heartbeat, and spends what they admit without it.
    #[track_caller]
    fn spend_without_redis(&self) -> usize {
        for link in &self.links {
            link.set(Link::Refusing);
            link.cut();
        }
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
}

#[test]
fn what_another_gateway_owes_is_charged_before_it_can_be_spent_again() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    let mut passed = pair.spend_without_redis();
    assert_eq!(passed, BURST, "each has half of it");
    let [first, second] = &pair.links;
    first.set(Link::Good);
    wait_until("the first has paid", || {
        passed += usize::from(pair.weirs[0].get("/").status == 200);
        redis.command(&["ZCARD", "weir:@paid"]).integer() == 1
    });
    // Enough to spend what the other has not paid yet, if it may.
    for _ in 0..BURST {
        passed += usize::from(pair.weirs[0].get("/").status == 200);
    }
    second.set(Link::Good);
    wait_at_most(RECOVERY, "both are back", || {
        passed += pair.weirs.iter().filter(|weir| weir.get("/").status == 200).count();
        pair.weirs.iter().all(|weir| !weir.degraded())
    });
    assert_eq!(passed, BURST);
}

#[test]
fn gateway_that_does_not_come_back_keeps_no_other_from_redis() {
    let redis = Redis::start();
    let pair = Pair::start(&redis);
    pair.spend_without_redis();
    pair.links[0].set(Link::Good);
    wait_at_most(RECOVERY, "it is back", || !pair.weirs[0].degraded());
    assert!(pair.weirs[1].degraded());
}
