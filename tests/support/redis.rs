//! A real `redis-server` in a folder of its own, with faults on demand.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::certificates::Certificates;
use super::monitor::Monitor;
use super::ports::free_port;
use super::programs::{redis_major, redis_server};
use super::resp::{Reply, Resp};
use super::skew::Skew;
use super::{PATIENCE, POLL_INTERVAL, Scratch, wait_until};

#[derive(Debug)]
pub(crate) struct Redis {
    child: Child,
    port: u16,
    args: Vec<String>,
    /// Of the default user, which the tests speak as.
    password: Option<String>,
    tls: bool,
    skew: Option<Skew>,
    scratch: Scratch,
}

/// A key as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// `string`, `zset`, …
    pub(crate) kind: String,
    /// Milliseconds until it expires; -1 for never.
    pub(crate) ttl: i64,
}

impl Key {
    /// Whether it goes by itself, be it within this very millisecond.
    pub(crate) fn expires(&self) -> bool {
        self.ttl >= 0
    }
}

impl Redis {
    #[track_caller]
    pub(crate) fn start() -> Redis {
        Redis::with(&[])
    }

    /// With further arguments.
    #[track_caller]
    pub(crate) fn with(args: &[&str]) -> Redis {
        Redis::launch(args, None, false, None)
    }

    /// On a port that was found free before.
    #[track_caller]
    pub(crate) fn at(port: u16) -> Redis {
        let scratch = Scratch::in_memory();
        let child = spawn(&scratch, port, false, &[], None);
        let (args, password, tls, skew) = (vec![], None, false, None);
        let mut redis = Redis { child, port, args, password, tls, skew, scratch };
        assert!(redis.comes_up(), "redis-server does not start on {port}");
        redis
    }

    /// One that takes `DEBUG`, which every server did before version 7.
    #[track_caller]
    pub(crate) fn debugged() -> Redis {
        let allowed = ["--enable-debug-command", "yes"];
        Redis::with(if redis_major() >= 7 { &allowed } else { &[] })
    }

    /// With a clock that is ahead by so many milliseconds, or behind if they are below zero.
    #[track_caller]
    pub(crate) fn skewed(args: &[&str], milliseconds: i64) -> Redis {
        Redis::launch(args, None, false, Some(milliseconds))
    }

    /// Sets the clock of one that was started with another.
    #[track_caller]
    pub(crate) fn set_clock(&self, milliseconds: i64) {
        self.skew.as_ref().expect("it was started with a clock of its own").set(milliseconds);
    }

    /// With a password for the default user.
    #[track_caller]
    pub(crate) fn guarded(password: &str) -> Redis {
        Redis::launch(&["--requirepass", password], Some(password), false, None)
    }

    /// With TLS on its port, and in the clear only on its Unix socket.
    #[track_caller]
    pub(crate) fn tls(certificates: &Certificates, clients: bool) -> Redis {
        let path = |name: &str| certificates.path(name).to_str().unwrap().to_owned();
        let (ca, cert, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
        let clients = if clients { "yes" } else { "no" };
        let args = [
            ["--tls-ca-cert-file", &ca],
            ["--tls-cert-file", &cert],
            ["--tls-key-file", &key],
            ["--tls-auth-clients", clients],
        ];
        Redis::launch(args.as_flattened(), None, true, None)
    }

    #[track_caller]
    fn launch(args: &[&str], password: Option<&str>, tls: bool, skew: Option<i64>) -> Redis {
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        for _ in 0..20 {
            let (scratch, port) = (Scratch::in_memory(), free_port());
            let skew = skew.map(Skew::of);
            let child = spawn(&scratch, port, tls, &args, skew.as_ref());
            let (args, password) = (args.clone(), password.map(str::to_owned));
            let mut redis = Redis { child, port, args, password, tls, skew, scratch };
            if redis.comes_up() {
                return redis;
            }
        }
        panic!("redis-server does not start with {args:?}");
    }

    /// Whether it answers; not if it ended, say because the port was taken meanwhile.
    fn comes_up(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.try_command(&["PING"]).is_ok_and(|reply| reply.text() == "PONG") {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        false
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket(&self.scratch)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The lines of `[store]` that lead to it. `WEIR_TEST_STORE=hybrid` runs every test on the other
    /// kind.
    pub(crate) fn store(&self) -> String {
        self.store_of(&std::env::var("WEIR_TEST_STORE").unwrap_or_else(|_| "redis".to_owned()))
    }

    /// The same for a store of that kind.
    pub(crate) fn store_of(&self, kind: &str) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("kind = \"{kind}\"\nurl = \"{scheme}://{}\"\n", self.address())
    }

    /// SIGKILL: nothing is saved, and no client is notified.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it runs, and brings it back on its port with nothing in it.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.scratch.path().join("dump.rdb"));
        self.spawn_again(&[]);
        assert!(self.comes_up(), "redis-server does not come back on {}", self.port);
    }

    /// Brings it back with what was last saved and with further arguments, and does not wait.
    pub(crate) fn spawn_again(&mut self, args: &[&str]) {
        self.kill();
        let _ = std::fs::remove_file(self.socket());
        let args: Vec<_> =
            self.args.iter().cloned().chain(args.iter().map(|it| (*it).to_owned())).collect();
        self.child = spawn(&self.scratch, self.port, self.tls, &args, self.skew.as_ref());
    }

    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    pub(crate) fn cont(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// A connection, as the default user.
    pub(crate) fn connect(&self, patience: Duration) -> io::Result<Resp> {
        let mut resp = Resp::connect(&self.socket(), patience)?;
        if let Some(password) = &self.password {
            resp.ask(&["AUTH", password])?;
        }
        Ok(resp)
    }

    /// The reply, which may be an error; `Err` if there is none.
    pub(crate) fn try_command(&self, words: &[&str]) -> io::Result<Reply> {
        self.connect(PATIENCE)?.ask(words)
    }

    #[track_caller]
    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        let reply = self.try_command(words);
        reply.unwrap_or_else(|error| panic!("no reply to {words:?}: {error}")).ok()
    }

    #[track_caller]
    pub(crate) fn set_config(&self, name: &str, value: &str) {
        self.command(&["CONFIG", "SET", name, value]);
    }

    /// A field of INFO.
    #[track_caller]
    pub(crate) fn info(&self, section: &str, field: &str) -> Option<String> {
        let text = self.info_text(section);
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        fields.filter(|(name, _)| *name == field).map(|(_, value)| value.to_owned()).next()
    }

    /// Asked again if need be: a sentinel that gives a server another role closes all connections.
    #[track_caller]
    fn info_text(&self, section: &str) -> String {
        let mut replies = (0..3).map(|_| self.try_command(&["INFO", section]));
        match replies.find_map(Result::ok) {
            Some(reply) => reply.ok().text(),
            None => panic!("no reply to INFO {section}"),
        }
    }

    /// How many script calls it received, those of probes included.
    #[track_caller]
    pub(crate) fn script_calls(&self) -> u64 {
        let text = self.info_text("commandstats");
        let calls = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let script = matches!(name, "eval" | "evalsha" | "fcall");
            script.then(|| rest.split(',').next()?.parse::<u64>().ok()).flatten()
        });
        calls.sum()
    }

    /// All keys of the database 0.
    #[track_caller]
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.keys_of("0")
    }

    #[track_caller]
    pub(crate) fn keys_of(&self, database: &str) -> Vec<Key> {
        let mut resp = self.connect(PATIENCE).unwrap();
        resp.ask(&["SELECT", database]).unwrap().ok();
        // A cluster's replica answers reads only after READONLY.
        let _ = resp.ask(&["READONLY"]).unwrap();
        let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let page = resp.ask(&["SCAN", &cursor, "COUNT", "1000"]).unwrap().ok();
            for name in page.list()[1].list() {
                let name = name.text();
                // Without it a cluster's node redirects requests for a key that it is importing.
                let mut ask = |word: &str| {
                    let _ = resp.ask(&["ASKING"]).unwrap();
                    resp.ask(&[word, &name]).unwrap().ok()
                };
                let (kind, ttl) = (ask("TYPE").text(), ask("PTTL").integer());
                if kind != "none" && ttl != -2 {
                    keys.push(Key { name, kind, ttl });
                }
            }
            cursor = page.list()[0].text();
            if cursor == "0" {
                keys.sort_by(|a, b| a.name.cmp(&b.name));
                keys.dedup_by(|a, b| a.name == b.name);
                return keys;
            }
        }
    }

    /// The names of the keys that hold buckets: what the gateways keep for themselves, such as
    /// the list of nodes, is named `PREFIX:@…`.
    #[track_caller]
    pub(crate) fn buckets(&self) -> Vec<String> {
        let names = self.keys().into_iter().map(|key| key.name);
        names.filter(|name| !name.contains(":@")).collect()
    }

    #[track_caller]
    pub(crate) fn monitor(&self) -> Monitor<'_> {
        Monitor::of(self)
    }

    /// Waits until it answers commands again.
    #[track_caller]
    pub(crate) fn wait_ready(&self) {
        wait_until("redis-server is ready", || {
            self.try_command(&["PING"]).is_ok_and(|reply| reply.text() == "PONG")
        });
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn socket(scratch: &Scratch) -> PathBuf {
    scratch.path().join("redis.sock")
}

fn spawn(scratch: &Scratch, port: u16, tls: bool, args: &[String], skew: Option<&Skew>) -> Child {
    let mut command = redis_server();
    if let Some(skew) = skew {
        skew.apply(&mut command);
    }
    let port = port.to_string();
    let ports = if tls { vec!["--port", "0", "--tls-port", &port] } else { vec!["--port", &port] };
    command.args(ports).arg("--dir").arg(scratch.path());
    command.arg("--unixsocket").arg(socket(scratch));
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--daemonize", "no", "--logfile", "redis.log"]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("redis-server is installed")
}
