//! A master, its replica, and one or three sentinels that fail over from the one to the other.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::ports::free_port;
use super::programs::redis_server;
use super::redis::Redis;
use super::resp::{Reply, Resp};
use super::{PATIENCE, Scratch, wait_at_most, wait_until};

/// What the sentinels call them.
pub(crate) const NAME: &str = "weir-main";

/// A failover is voted on, and the vote may have to be repeated; and sentinels that were held up
/// for two seconds do nothing for the next thirty (`+tilt`).
const FAILOVER: Duration = Duration::from_secs(90);

/// How long a server is silent before sentinels take it for dead, in milliseconds. They are patient,
/// because a busy machine may hold up a server for seconds, and alert only where one has died: nobody
/// is replaced unless the test wants it.
const PATIENT: &str = "600000";
const ALERT: &str = "700";

#[derive(Debug)]
pub(crate) struct Sentinel {
    pub(crate) master: Redis,
    pub(crate) replica: Redis,
    pub(crate) watchers: Vec<Watcher>,
}

impl Sentinel {
    /// With one sentinel.
    #[track_caller]
    pub(crate) fn start() -> Sentinel {
        Sentinel::with(1)
    }

    /// With three, two of which have to agree that the master is gone.
    #[track_caller]
    pub(crate) fn three() -> Sentinel {
        Sentinel::with(3)
    }

    #[track_caller]
    fn with(count: usize) -> Sentinel {
        let master = Redis::with(&["--repl-diskless-sync-delay", "0"]);
        let port = master.port().to_string();
        let replica = Redis::with(&["--replicaof", "127.0.0.1", &port]);
        wait_until("the replica follows", || {
            replica.info("replication", "master_link_status").as_deref() == Some("up")
        });
        let quorum = count / 2 + 1;
        let watchers: Vec<_> = (0..count).map(|_| Watcher::of(&master, quorum)).collect();
        let sentinel = Sentinel { master, replica, watchers };
        for watcher in &sentinel.watchers {
            wait_until("the sentinel knows the replica", || {
                // A replica it has not contacted has no run id yet and cannot be chosen.
                watcher.field(&["SENTINEL", "REPLICAS", NAME], "flags").as_deref() == Some("slave")
                    && watcher
                        .field(&["SENTINEL", "REPLICAS", NAME], "master-link-status")
                        .as_deref()
                        == Some("ok")
            });
            wait_until("the sentinel knows the others", || {
                watcher.field(&["SENTINEL", "MASTER", NAME], "num-other-sentinels")
                    == Some((count - 1).to_string())
            });
        }
        sentinel
    }

    /// The lines of `[store]` that lead to the current master.
    pub(crate) fn store(&self) -> String {
        let all: Vec<usize> = (0..self.watchers.len()).collect();
        self.store_by(&all)
    }

    /// The same by way of these sentinels.
    pub(crate) fn store_by(&self, watchers: &[usize]) -> String {
        self.store_as(watchers, "")
    }

    /// The same with further fields of `sentinel`.
    pub(crate) fn store_as(&self, watchers: &[usize], fields: &str) -> String {
        let node = |n: &usize| format!("\"127.0.0.1:{}\"", self.watchers[*n].port);
        let nodes: Vec<String> = watchers.iter().map(node).collect();
        let nodes = nodes.join(", ");
        format!(
            "kind = \"redis\"\nsentinel = {{ master = \"{NAME}\", nodes = [{nodes}]{fields} }}\n"
        )
    }

    /// The port of the master, as the first sentinel reports it.
    pub(crate) fn master_port(&self) -> u16 {
        self.watchers[0].master_port()
    }

    /// Asks the first sentinel for the replica to take over while the master lives.
    #[track_caller]
    pub(crate) fn failover(&self) {
        self.failover_by(0);
    }

    /// The same of another sentinel: it leads the failover.
    #[track_caller]
    pub(crate) fn failover_by(&self, watcher: usize) {
        let reply = self.watchers[watcher].ask(&["SENTINEL", "FAILOVER", NAME]);
        reply.expect("the sentinel answers").ok();
    }

    /// Waits until the sentinels have found out that the master is dead, and the replica is in its
    /// place.
    #[track_caller]
    pub(crate) fn wait_takeover(&self) {
        self.take_for_dead_after(ALERT);
        self.wait_failover();
        self.take_for_dead_after(PATIENT);
    }

    #[track_caller]
    fn take_for_dead_after(&self, milliseconds: &str) {
        for watcher in &self.watchers {
            let set = ["SENTINEL", "SET", NAME, "down-after-milliseconds", milliseconds];
            watcher.ask(&set).expect("the sentinel answers").ok();
        }
    }

    /// Waits until the replica is the master, and is known to be by all sentinels that answer.
    #[track_caller]
    pub(crate) fn wait_failover(&self) {
        wait_at_most(FAILOVER, "the replica is the master", || {
            let mut answers =
                self.watchers.iter().filter_map(|it| it.ask(&["PING"]).map(|_| it.master_port()));
            answers.all(|port| port == self.replica.port())
                && self.replica.info("replication", "role").as_deref() == Some("master")
        });
    }

    /// Waits until the old master, which lives, is a replica of the new one.
    #[track_caller]
    pub(crate) fn wait_demotion(&self) {
        wait_at_most(FAILOVER, "the old master follows", || {
            self.master.info("replication", "role").as_deref() == Some("slave")
        });
    }
}

/// A sentinel's process.
#[derive(Debug)]
pub(crate) struct Watcher {
    child: Child,
    port: u16,
    scratch: Scratch,
}

impl Watcher {
    #[track_caller]
    fn of(master: &Redis, quorum: usize) -> Watcher {
        for _ in 0..20 {
            let (scratch, port) = (Scratch::in_memory(), free_port());
            let socket = scratch.path().join("redis.sock");
            let text = format!(
                "port {port}\nbind 127.0.0.1\nunixsocket {}\ndir {}\nlogfile sentinel.log\n\
                 sentinel monitor {NAME} 127.0.0.1 {} {quorum}\n\
                 sentinel down-after-milliseconds {NAME} {PATIENT}\n\
                 sentinel failover-timeout {NAME} 5000\n",
                socket.display(),
                scratch.path().display(),
                master.port()
            );
            let file = scratch.file("sentinel.conf", &text);
            let mut command = redis_server();
            command.arg(file).arg("--sentinel").stdin(Stdio::null());
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let mut watcher = Watcher { child, port, scratch };
            let mut up = false;
            wait_until("the sentinel runs or has ended", || {
                up = watcher.ask(&["PING"]).is_some_and(|reply| reply.text() == "PONG");
                up || watcher.child.try_wait().unwrap().is_some()
            });
            if up {
                return watcher;
            }
        }
        panic!("no sentinel starts");
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Option<Reply> {
        let socket = self.scratch.path().join("redis.sock");
        Resp::connect(&socket, PATIENCE).and_then(|mut resp| resp.ask(words)).ok()
    }

    /// A field of an answer that is made of names and values.
    pub(crate) fn field(&self, words: &[&str], name: &str) -> Option<String> {
        let text = self.ask(words)?.text();
        let fields: Vec<&str> = text.lines().collect();
        let at = fields.iter().position(|it| *it == name)?;
        fields.get(at + 1).map(|it| (*it).to_owned())
    }

    /// The port of the master, as it reports it.
    pub(crate) fn master_port(&self) -> u16 {
        let reply = self.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        reply.expect("the sentinel answers").list()[1].text().parse().unwrap()
    }

    /// What it has written down, for messages of tests that fail.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("sentinel.log")).unwrap_or_default()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    pub(crate) fn cont(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.kill();
    }
}
