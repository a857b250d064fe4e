//! Which of several servers takes the next request.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use tokio::time::Instant;

use super::breaker::BreakerPass;
use super::hashing::{self, KeyDigest, ServerSeed};
use super::pool::Server;
use crate::config::settings::{Balance, UpstreamServer};

#[derive(Debug)]
pub(super) struct Balancer {
    balance: Balance,
    /// One for each server, in their order.
    weights: Box<[u32]>,
    /// Whether some weigh more than others.
    weighted: bool,
    seeds: Box<[ServerSeed]>,
    /// How much of its share each server is behind with, for turns by weight.
    behind: Box<[Cell<i64>]>,
    /// Where the next turn starts, or the state of the random choice.
    turn: Cell<u64>,
}

/// What is known of a request that needs a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PickRequest<'a> {
    /// What it is hashed by, where servers are chosen by that.
    pub key: Option<KeyDigest>,
    /// The server that has just failed it.
    pub failed: Option<&'a Rc<Server>>,
    pub client: IpAddr,
    pub pass: BreakerPass,
    pub now: Instant,
}

/// How well a server would do for a request. The best there is takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fitness {
    Good,
    /// It has as many connections as it may.
    Full,
    /// It is left out for its failures. Better than one that says itself that it is not well.
    Ejected,
    Unhealthy,
    /// It has just failed this very request.
    Failed,
}

impl Balancer {
    pub(super) fn new(balance: Balance, servers: &[UpstreamServer]) -> Self {
        let weights: Box<[u32]> = servers.iter().map(|it| it.weight).collect();
        Balancer {
            balance,
            weighted: weights.iter().any(|weight| *weight != weights[0]),
            seeds: servers.iter().map(|it| ServerSeed::new(&it.origin, it.weight)).collect(),
            behind: weights.iter().map(|_| Cell::new(0)).collect(),
            weights,
            turn: Cell::new(0),
        }
    }

    /// The server that is best off. If none is well, all of those that are alike share the requests:
    /// one of them may answer, and refusing would help nobody.
    ///
    /// # Panics
    /// If there are no servers: the configuration does not allow that.
    pub(super) fn pick<'a>(
        &self,
        servers: &'a [Rc<Server>],
        request: PickRequest<'_>,
    ) -> &'a Rc<Server> {
        if let [only] = servers {
            return only;
        }
        let PickRequest { key, client, now, .. } = request;
        let is_left_out = |server: &Rc<Server>| server.shared.ejection.is_out_for(client);
        let is_avoided = |server: &Rc<Server>| server.shared.ejection.is_ejected(now, client);
        let has_failed =
            |it: &Rc<Server>| request.failed.is_some_and(|failed| Rc::ptr_eq(it, failed));
        let is_due = |it: &&Rc<Server>| {
            is_left_out(it) && !is_avoided(it) && it.shared.is_healthy() && !has_failed(it)
        };
        let start = self.next_turn();
        if request.pass == BreakerPass::TrialOfServer {
            let (before, from) = servers.split_at(start as usize % servers.len());
            if let Some(server) = from.iter().chain(before).find(is_due) {
                return server;
            }
        }
        let is_out = |server: &Rc<Server>| match request.pass {
            BreakerPass::Closed => is_avoided(server),
            BreakerPass::Trial | BreakerPass::TrialOfServer => is_left_out(server),
        };
        let fitness = |server: &Rc<Server>| match server {
            it if has_failed(it) => Fitness::Failed,
            it if !it.shared.is_healthy() => Fitness::Unhealthy,
            it if is_out(it) => Fitness::Ejected,
            it if it.is_full() => Fitness::Full,
            _ => Fitness::Good,
        };
        let choose = |wanted: Fitness| {
            self.choose(servers, key, start, |at| fitness(&servers[at]) == wanted)
        };
        let best = || servers.iter().map(fitness).min().and_then(choose);
        let chosen = choose(Fitness::Good).or_else(best);
        &servers[chosen.unwrap_or(start as usize % servers.len())]
    }

    /// One of those that may be chosen.
    fn choose(
        &self,
        servers: &[Rc<Server>],
        key: Option<KeyDigest>,
        start: u64,
        may_be: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let count = servers.len();
        let first = start as usize % count;
        let in_turn = (first..count).chain(0..first).filter(|at| may_be(*at));
        match (&self.balance, key) {
            (Balance::Hash(_), Some(key)) => {
                let score = |at: &usize| self.seeds[*at].score(key);
                in_turn.min_by(|a, b| score(a).total_cmp(&score(b)))
            }
            (Balance::RoundRobin, _) => self.turn_by_weight(count, may_be),
            (Balance::Random, _) => self.draw_by_weight(count, start, may_be),
            (Balance::LeastRequests | Balance::Hash(_), _) => {
                let active = |at: usize| servers[at].active() as u64;
                if !self.weighted {
                    // Equals are served in turn, so that a quiet upstream does not lean on its first.
                    return in_turn.min_by_key(|at| active(*at));
                }
                // Shares go by weight, unless another server would have less to do for its weight
                // with this request than the one whose turn it is has without: a server with little
                // weight is idle most of the time, and must not be given each request for that.
                let turn = self.turn_by_weight(count, &may_be)?;
                let (weight, load) = (|at: usize| self.weight(at), |at| active(at) + 1);
                let least =
                    in_turn.min_by(|&a, &b| (load(a) * weight(b)).cmp(&(load(b) * weight(a))))?;
                let is_busier = load(least) * weight(turn) <= active(turn) * weight(least);
                Some(if is_busier { least } else { turn })
            }
        }
    }

    /// Turns by weight, spread evenly: of weights 3 and 1 the turns are a, a, b, a.
    fn turn_by_weight(&self, count: usize, may_be: impl Fn(usize) -> bool) -> Option<usize> {
        let (mut total, mut most) = (0, None::<usize>);
        for at in (0..count).filter(|at| may_be(*at)) {
            let weight = i64::from(self.weights[at]);
            self.behind[at].set(self.behind[at].get() + weight);
            total += weight;
            if most.is_none_or(|most| self.behind[at].get() > self.behind[most].get()) {
                most = Some(at);
            }
        }
        if let Some(most) = most {
            self.behind[most].set(self.behind[most].get() - total);
        }
        most
    }

    fn draw_by_weight(
        &self,
        count: usize,
        drawn: u64,
        may_be: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let total: u64 = (0..count).filter(|at| may_be(*at)).map(|at| self.weight(at)).sum();
        let mut left = drawn.checked_rem(total)?;
        (0..count).filter(|at| may_be(*at)).find(|at| match left.checked_sub(self.weight(*at)) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
    }

    fn weight(&self, at: usize) -> u64 {
        u64::from(self.weights[at])
    }

    fn next_turn(&self) -> u64 {
        let turn = self.turn.get();
        match self.balance {
            Balance::RoundRobin | Balance::LeastRequests | Balance::Hash(_) => {
                self.turn.set(turn.wrapping_add(1));
                turn
            }
            Balance::Random => {
                // SplitMix64: even enough to spread load, and no lock or system call.
                let next = turn.wrapping_add(0x9e37_79b9_7f4a_7c15);
                self.turn.set(next);
                hashing::mix(next)
            }
        }
    }
}

#[cfg(test)]
mod tests;
