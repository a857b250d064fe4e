//! A master, its replica, and a sentinel that puts the one in the other's place.

use std::process::{Child, Command, Stdio};

use super::ports::free_port;
use super::redis::Redis;
use super::resp::{Reply, Resp};
use super::{PATIENCE, Scratch, wait_until};

/// What the sentinel calls them.
pub(crate) const NAME: &str = "weir-main";

#[derive(Debug)]
pub(crate) struct Sentinel {
    pub(crate) master: Redis,
    pub(crate) replica: Redis,
    watcher: Watcher,
}

impl Sentinel {
    #[track_caller]
    pub(crate) fn start() -> Sentinel {
        let master = Redis::with(&["--repl-diskless-sync-delay", "0"]);
        let port = master.port().to_string();
        let replica = Redis::with(&["--replicaof", "127.0.0.1", &port]);
        wait_until("the replica follows", || {
            replica.info("replication", "master_link_status").as_deref() == Some("up")
        });
        let watcher = Watcher::of(&master);
        let sentinel = Sentinel { master, replica, watcher };
        wait_until("the sentinel knows the replica", || {
            let reply = sentinel.watcher.ask(&["SENTINEL", "REPLICAS", NAME]);
            let text = reply.map(|it| it.text()).unwrap_or_default();
            // A replica it has only heard of has no run id yet and cannot be chosen.
            let fields: Vec<&str> = text.lines().collect();
            let value = |name| fields.iter().position(|it| *it == name).map(|at| fields[at + 1]);
            value("flags") == Some("slave") && value("master-link-status") == Some("ok")
        });
        sentinel
    }

    /// The lines of `[store]` that lead to whoever is the master.
    pub(crate) fn store(&self) -> String {
        format!(
            "kind = \"redis\"\nsentinel = {{ master = \"{NAME}\", nodes = [\"127.0.0.1:{}\"] }}\n",
            self.watcher.port
        )
    }

    /// The port of the master, as the sentinel tells those who ask.
    pub(crate) fn master_port(&self) -> u16 {
        let reply = self.watcher.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        reply.expect("the sentinel answers").list()[1].text().parse().unwrap()
    }

    /// Asks for the replica to take over while the master lives.
    #[track_caller]
    pub(crate) fn failover(&self) {
        let reply = self.watcher.ask(&["SENTINEL", "FAILOVER", NAME]);
        reply.expect("the sentinel answers").ok();
    }

    /// Waits until the replica is the master, and is known to be.
    #[track_caller]
    pub(crate) fn wait_failover(&self) {
        wait_until("the replica is the master", || {
            self.master_port() == self.replica.port()
                && self.replica.info("replication", "role").as_deref() == Some("master")
        });
    }
}

/// The sentinel's process.
#[derive(Debug)]
struct Watcher {
    child: Child,
    port: u16,
    scratch: Scratch,
}

impl Watcher {
    #[track_caller]
    fn of(master: &Redis) -> Watcher {
        for _ in 0..20 {
            let (scratch, port) = (Scratch::new(), free_port());
            let socket = scratch.path().join("redis.sock");
            let text = format!(
                "port {port}\nbind 127.0.0.1\nunixsocket {}\ndir {}\nlogfile sentinel.log\n\
                 sentinel monitor {NAME} 127.0.0.1 {} 1\n\
                 sentinel down-after-milliseconds {NAME} 700\n\
                 sentinel failover-timeout {NAME} 5000\n",
                socket.display(),
                scratch.path().display(),
                master.port()
            );
            let file = scratch.file("sentinel.conf", &text);
            let mut command = Command::new("redis-server");
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

    fn ask(&self, words: &[&str]) -> Option<Reply> {
        let socket = self.scratch.path().join("redis.sock");
        Resp::connect(&socket, PATIENCE).and_then(|mut resp| resp.ask(words)).ok()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
