use std::time::Duration;

use super::*;
use crate::config::parse;
use crate::config::settings::{Ejection, Origin, Upstream};
use crate::limit::Source;
use crate::telemetry::Metrics;
use crate::upstream::connect::{ConnectError, ServerProtocol};
use crate::upstream::hashing::KeyHasher;
use crate::upstream::shared::SharedServer;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

struct Servers {
    settings: Vec<UpstreamServer>,
    servers: Vec<Rc<Server>>,
}

fn servers(weights: &[u32]) -> Servers {
    let origin = |port| Origin { host: "127.0.0.1".into(), port };
    let settings = weights.iter().zip(1..);
    let settings: Vec<_> =
        settings.map(|(&weight, port)| UpstreamServer { origin: origin(port), weight }).collect();
    let upstream = upstream_of(&settings);
    let server = |it: &UpstreamServer| {
        let shared = SharedServer::alone(&upstream, &it.origin);
        Rc::new(Server::new(&it.origin, ServerProtocol::default(), shared))
    };
    Servers { servers: settings.iter().map(server).collect(), settings }
}

fn upstream_of(servers: &[UpstreamServer]) -> Upstream {
    let text = "[upstreams.api]\nservers = [\"http://a\"]\n\
                [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"";
    let upstream = parse("test", text).unwrap().settings.upstreams.remove(0);
    Upstream { servers: servers.to_vec(), ..upstream }
}

impl Servers {
    fn balancer(&self, balance: Balance) -> Balancer {
        Balancer::new(balance, &self.settings)
    }

    fn picked(&self, balancer: &Balancer, key: Option<KeyDigest>) -> usize {
        let (client, now) = (CLIENT, Instant::now());
        let pass = BreakerPass::Closed;
        let request = PickRequest { key, failed: None, client, pass, now };
        let picked = balancer.pick(&self.servers, request);
        self.servers.iter().position(|server| Rc::ptr_eq(server, picked)).unwrap()
    }

    fn order(&self, balance: Balance, picks: usize) -> Vec<usize> {
        let balancer = self.balancer(balance);
        (0..picks).map(|_| self.picked(&balancer, None)).collect()
    }

    fn tally(&self, balance: Balance, picks: usize) -> Vec<usize> {
        let mut tally = vec![0; self.servers.len()];
        self.order(balance, picks).into_iter().for_each(|at| tally[at] += 1);
        tally
    }

    fn find_unhealthy(&self, at: usize) {
        let shared = &self.servers[at].shared;
        assert!(shared.set_healthy(shared.begin_probing(&Metrics::new()), false));
    }

    fn eject(&self, at: usize) {
        let ejection = Ejection::default();
        let (now, error) = (Instant::now(), ConnectError::TimedOut);
        self.servers[at].shared.ejection.note_unreachable(now, &ejection, true, &error);
    }
}

fn digest(number: u32) -> KeyDigest {
    let mut hasher = KeyHasher::new();
    hasher.part(1, &number.to_be_bytes());
    hasher.finish()
}

#[test]
fn equal_servers_share_equally() {
    let servers = servers(&[1, 1, 1]);
    assert_eq!(servers.tally(Balance::RoundRobin, 30), [10, 10, 10]);
    assert_eq!(servers.tally(Balance::LeastRequests, 30), [10, 10, 10]);
    let random = servers.tally(Balance::Random, 3000);
    assert!(random.iter().all(|&n| (800..1200).contains(&n)), "{random:?}");
}

#[test]
fn servers_share_by_weight() {
    let servers = servers(&[3, 1, 2]);
    assert_eq!(servers.tally(Balance::RoundRobin, 60), [30, 10, 20]);
    assert_eq!(servers.tally(Balance::LeastRequests, 60), [30, 10, 20]);
    let random = servers.tally(Balance::Random, 6000);
    for (count, share) in random.iter().zip([3000, 1000, 2000]) {
        assert!((share - 200..share + 200).contains(count), "{random:?}");
    }
}

#[test]
fn turns_by_weight_are_spread_out() {
    assert_eq!(servers(&[3, 1]).order(Balance::RoundRobin, 8), [0, 0, 1, 0, 0, 0, 1, 0]);
}

#[test]
fn the_least_busy_server_is_preferred() {
    let servers = servers(&[1, 1, 1]);
    let now = Instant::now();
    let _busy = (servers.servers[0].begin_request(now), servers.servers[2].begin_request(now));
    assert_eq!(servers.tally(Balance::LeastRequests, 10), [0, 10, 0]);
}

#[test]
fn a_heavier_server_may_be_busier() {
    let servers = servers(&[4, 1]);
    let now = Instant::now();
    let _busy: Vec<_> = (0..3).map(|_| servers.servers[0].begin_request(now)).collect();
    let _one = servers.servers[1].begin_request(now);
    assert_eq!(servers.tally(Balance::LeastRequests, 10), [10, 0]);
}

#[test]
fn servers_share_by_weight_however_many_requests_are_under_way() {
    for (weights, under_way) in
        [([95, 5], 1), ([95, 5], 2), ([95, 5], 8), ([3, 1], 2), ([3, 1], 12)]
    {
        let servers = servers(&weights);
        let balancer = servers.balancer(Balance::LeastRequests);
        let (mut active, mut tally) = (std::collections::VecDeque::new(), [0_u32; 2]);
        for _ in 0..2000 {
            if active.len() == under_way {
                active.pop_front();
            }
            let picked = servers.picked(&balancer, None);
            active.push_back(servers.servers[picked].begin_request(Instant::now()));
            tally[picked] += 1;
        }
        let expected = 2000 * weights[1] / (weights[0] + weights[1]);
        assert!(tally[1].abs_diff(expected) <= expected / 5, "{weights:?}, {under_way}: {tally:?}");
    }
}

#[test]
fn a_heavy_server_that_does_not_answer_gets_no_more_than_its_share() {
    let servers = servers(&[4, 1]);
    let balancer = servers.balancer(Balance::LeastRequests);
    // Those of the second end at once.
    let mut active = Vec::new();
    for _ in 0..100 {
        if servers.picked(&balancer, None) == 0 {
            active.push(servers.servers[0].begin_request(Instant::now()));
        }
    }
    assert_eq!(active.len(), 4);
}

#[test]
fn an_ejected_server_is_passed_over_unless_all_are() {
    for weights in [[1, 1], [1, 2]] {
        let servers = servers(&weights);
        servers.eject(0);
        for balance in [Balance::RoundRobin, Balance::LeastRequests, Balance::Random] {
            assert_eq!(servers.tally(balance, 12), [0, 12]);
        }
        servers.eject(1);
        let both = servers.tally(Balance::RoundRobin, 12);
        assert!(both.iter().all(|&count| count > 0), "{both:?}");
    }
}

#[test]
fn every_other_trial_of_a_breaker_goes_to_a_server_that_is_left_out_once_its_own_is_due() {
    let servers = servers(&[1, 1]);
    servers.eject(0);
    let (soon, late) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
    for (pass, now, wanted) in [
        (BreakerPass::Trial, soon, 1),
        (BreakerPass::Trial, late, 1),
        (BreakerPass::TrialOfServer, soon, 1),
        (BreakerPass::TrialOfServer, late, 0),
    ] {
        let balancer = servers.balancer(Balance::LeastRequests);
        let request = PickRequest { key: None, failed: None, client: CLIENT, pass, now };
        let picked = balancer.pick(&servers.servers, request);
        assert!(Rc::ptr_eq(picked, &servers.servers[wanted]), "{request:?}");
    }
}

#[test]
fn trials_of_servers_that_are_left_out_are_had_by_all_of_them() {
    let servers = servers(&[1, 1, 1]);
    (0..2).for_each(|at| servers.eject(at));
    let balancer = servers.balancer(Balance::LeastRequests);
    let (pass, now) = (BreakerPass::TrialOfServer, Instant::now() + Duration::from_secs(3600));
    let request = PickRequest { key: None, failed: None, client: CLIENT, pass, now };
    let picked: Vec<_> = (0..8).map(|_| balancer.pick(&servers.servers, request)).collect();
    let is_picked = |at: usize| picked.iter().any(|it| Rc::ptr_eq(it, &servers.servers[at]));
    assert_eq!([0, 1, 2].map(is_picked), [true, true, false]);
}

#[test]
fn unhealthy_servers_are_used_only_if_no_other_is_left() {
    let servers = servers(&[1, 1, 1]);
    servers.find_unhealthy(0);
    assert_eq!(servers.tally(Balance::RoundRobin, 12), [0, 6, 6]);
    servers.eject(1);
    assert_eq!(servers.tally(Balance::RoundRobin, 12), [0, 0, 12]);
    servers.eject(2);
    assert_eq!(servers.tally(Balance::RoundRobin, 12), [0, 6, 6], "ejected before unhealthy");
    servers.find_unhealthy(1);
    servers.find_unhealthy(2);
    assert_eq!(servers.tally(Balance::RoundRobin, 12), [4, 4, 4], "all are used if none is well");
}

#[test]
fn a_key_stays_with_its_server_until_that_is_gone() {
    let servers = servers(&[1, 1, 1]);
    let balancer = servers.balancer(Balance::Hash(Source::Ip));
    let chosen = || -> Vec<usize> {
        (0..300).map(|key| servers.picked(&balancer, Some(digest(key)))).collect()
    };
    let before = chosen();
    assert_eq!(before, chosen());
    assert!((0..3).all(|at| before.iter().filter(|it| **it == at).count() > 60), "{before:?}");
    servers.eject(1);
    for (before, after) in before.into_iter().zip(chosen()) {
        assert!(if before == 1 { after != 1 } else { after == before });
    }
}

#[test]
fn requests_without_a_key_go_to_the_least_busy() {
    let servers = servers(&[1, 1]);
    let _busy = servers.servers[0].begin_request(Instant::now());
    assert_eq!(servers.tally(Balance::Hash(Source::Ip), 10), [0, 10]);
}
