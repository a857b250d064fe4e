//! Which of several servers takes the next request.

use std::cell::Cell;
use std::rc::Rc;

use tokio::time::Instant;

use super::pool::Server;
use crate::config::settings::Balance;

#[derive(Debug)]
pub(super) struct Balancer {
    balance: Balance,
    /// Where the next turn starts, or the state of the random choice.
    turn: Cell<u64>,
}

impl Balancer {
    pub(super) fn new(balance: Balance) -> Self {
        Balancer { balance, turn: Cell::new(0) }
    }

    /// A server that is available and not the one that just failed, if there is one.
    ///
    /// # Panics
    /// If there are no servers: the configuration does not allow that.
    pub(super) fn pick<'a>(
        &self,
        servers: &'a [Rc<Server>],
        failed: Option<&Rc<Server>>,
        now: Instant,
    ) -> &'a Rc<Server> {
        if let [only] = servers {
            return only;
        }
        let usable = |server: &Rc<Server>| {
            !server.is_unavailable(now) && failed.is_none_or(|failed| !Rc::ptr_eq(server, failed))
        };
        let start = self.next_turn() as usize % servers.len();
        let in_turn = || servers[start..].iter().chain(&servers[..start]);
        let chosen = match self.balance {
            Balance::RoundRobin | Balance::Random => in_turn().find(|server| usable(server)),
            // Equals are served in turn, so that a quiet upstream does not lean on its first.
            Balance::LeastRequests => {
                in_turn().filter(|server| usable(server)).min_by_key(|server| server.active())
            }
        };
        chosen.unwrap_or(&servers[start])
    }

    fn next_turn(&self) -> u64 {
        let turn = self.turn.get();
        match self.balance {
            Balance::RoundRobin | Balance::LeastRequests => {
                self.turn.set(turn.wrapping_add(1));
                turn
            }
            Balance::Random => {
                // SplitMix64: even enough to spread load, and no lock or system call.
                let next = turn.wrapping_add(0x9e37_79b9_7f4a_7c15);
                self.turn.set(next);
                let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^ (mixed >> 31)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Origin;
    use crate::upstream::ConnectError;

    fn servers(count: u16) -> Vec<Rc<Server>> {
        let origin = |port| Origin { host: "127.0.0.1".into(), port };
        (1..=count).map(|port| Rc::new(Server::new(&origin(port)))).collect()
    }

    fn tally(balance: Balance, servers: &[Rc<Server>], picks: usize) -> Vec<usize> {
        let (balancer, now) = (Balancer::new(balance), Instant::now());
        let mut tally = vec![0; servers.len()];
        for _ in 0..picks {
            let picked = balancer.pick(servers, None, now);
            let at = servers.iter().position(|server| Rc::ptr_eq(server, picked));
            tally[at.unwrap()] += 1;
        }
        tally
    }

    #[test]
    fn equal_servers_share_equally() {
        assert_eq!(tally(Balance::RoundRobin, &servers(3), 30), [10, 10, 10]);
        assert_eq!(tally(Balance::LeastRequests, &servers(3), 30), [10, 10, 10]);
        let random = tally(Balance::Random, &servers(3), 3000);
        assert!(random.iter().all(|&n| (800..1200).contains(&n)), "{random:?}");
    }

    #[test]
    fn the_least_busy_server_is_preferred() {
        let servers = servers(3);
        let now = Instant::now();
        let _busy = (servers[0].begin_request(now), servers[2].begin_request(now));
        assert_eq!(tally(Balance::LeastRequests, &servers, 10), [0, 10, 0]);
    }

    #[test]
    fn an_unavailable_server_is_passed_over_unless_all_are() {
        let servers = servers(2);
        servers[0].note_failed(Instant::now(), &ConnectError::TimedOut);
        assert_eq!(tally(Balance::RoundRobin, &servers, 10), [0, 10]);
        servers[1].note_failed(Instant::now(), &ConnectError::TimedOut);
        assert_eq!(tally(Balance::RoundRobin, &servers, 10), [5, 5]);
    }
}
