//! A new process in the place of a running one: no connection is refused, no request is lost.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::Signal;

use crate::support::gateway::program;
use crate::support::ports::free_port;
use crate::support::slots::{concurrency_limit, free_slots, hold};
use crate::support::{
    Client, Config, HeldUpstream, Redis, Scratch, Upstream, Weir, get, wait_until,
};

/// Fixed ports, and a socket to take over at.
struct Place {
    folder: Scratch,
    data: u16,
    admin: u16,
}

impl Place {
    fn new() -> Place {
        Place { folder: Scratch::new(), data: free_port(), admin: free_port() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("takeover.sock")
    }

    fn config(&self, config: Config) -> Config {
        let socket = self.socket();
        config
            .server(&format!("listen = \"127.0.0.1:{}\"", self.data))
            .server(&format!("takeover = {socket:?}"))
            .admin(&format!("listen = \"127.0.0.1:{}\"", self.admin))
    }
}

#[test]
fn a_new_process_serves_on_and_the_old_one_finishes_what_it_has() {
    let (upstream, go) = Upstream::on_demand("at last");
    let place = Place::new();
    let config = place.config(Config::to(&upstream).open());
    let mut old = Weir::start(&config);
    let mut under_way = old.connect();
    under_way.send(get("/"));
    wait_until("it is in flight", || upstream.heads() == 1);
    let mode = place.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for nobody else");

    let new = old.take_over();
    wait_until("the old one drains", || old.output().contains("draining"));
    assert!(old.output().contains("taken over by process"), "{}", old.output());
    assert_eq!(new.admin("/readyz").status, 200, "the admin listener is the new one's");
    assert!(old.runs(), "it has a request to finish");
    go.send(()).unwrap();
    assert_eq!(under_way.response().text(), "at last");
    assert_eq!(old.exit().code(), Some(0));
    go.send(()).unwrap();
    assert_eq!(new.get("/").status, 200);
    assert!(place.socket().exists(), "the socket is the new one's");
    go.send(()).unwrap();
    assert_eq!(new.take_over().get("/").status, 200, "and so on");
}

#[test]
fn a_process_that_cannot_start_changes_nothing() {
    let place = Place::new();
    let mut old = Weir::start(&place.config(Config::echo().open()));
    let good = old.file().to_owned();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    let rows = [
        // Found before the running gateway is asked.
        ("drain = 5".to_owned(), 2, false),
        // Found afterwards.
        (format!("listen = [\"127.0.0.1:{}\", \"{taken}\"]", place.data), 1, true),
    ];
    for (line, code, told) in rows {
        let socket = format!("takeover = {:?}", place.socket());
        let admin = format!("listen = \"127.0.0.1:{}\"", place.admin);
        let bad = Config::echo().open().server(&line).server(&socket).admin(&admin);
        let file = place.folder.file("bad.toml", &bad.text());
        let output = program().args(["run", "--takeover", "--config"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        if told {
            wait_until("the running one says so", || {
                old.output().contains("ended before it was ready; this gateway serves on")
            });
        }
        assert_eq!(old.get("/").status, 200);
        assert_eq!(old.admin("/readyz").status, 200);
    }
    assert!(old.runs() && good.exists());
    let mut new = old.take_over();
    assert_eq!(old.exit().code(), Some(0), "and it can still be taken over");
    assert_eq!(new.get("/").status, 200);
    new.signal(Signal::TERM);
    assert_eq!(new.exit().code(), Some(0));
    assert!(!place.socket().exists(), "who leaves alone takes the socket away");
}

#[test]
fn a_peer_that_does_not_ask_for_a_takeover_gets_no_socket_and_no_answer() {
    let place = Place::new();
    let old = Weir::start(&place.config(Config::echo().open()));
    drop(UnixStream::connect(place.socket()).unwrap());
    let mut other = UnixStream::connect(place.socket()).unwrap();
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = other.read_to_end(&mut answer);
    assert!(answer.is_empty());
    wait_until("it says so", || old.output().contains("no gateway of this version"));
    assert_eq!(old.get("/").status, 200);
    assert_eq!(old.take_over().get("/").status, 200);
}

#[test]
fn without_anybody_to_take_over_from_it_starts_as_usual() {
    let place = Place::new();
    // What a crash leaves behind.
    drop(std::os::unix::net::UnixListener::bind(place.socket()).unwrap());
    let config = place.config(Config::echo().open());
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    let mut command = program();
    command.args(["run", "--takeover"]);
    let weir = Weir::launch(command, scratch, file);
    assert!(weir.output().contains("nobody to take over from"), "{}", weir.output());
    assert_eq!(weir.get("/").status, 200);

    // A third one by mistake, with other ports and the same socket, and then with the same ports.
    let other = Config::echo().open().server(&format!("takeover = {:?}", place.socket()));
    for text in [other.text(), config.text()] {
        let file = place.folder.file("other.toml", &text);
        let output = program().args(["run", "--config"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("start with --takeover"), "{said}");
    }

    let file = place.folder.file("none.toml", &Config::echo().text());
    let output = program().args(["run", "--takeover", "--config"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("set server.takeover"), "{said}");
}

#[test]
fn listeners_that_the_new_configuration_lacks_are_closed_and_new_ones_bound() {
    let place = Place::new();
    let (extra, fresh) = (free_port(), free_port());
    let at = |second: u16| {
        let unix = place.folder.path().join("data.sock");
        let (data, unix) = (place.data, unix.display());
        let listen =
            format!("listen = [\"127.0.0.1:{data}\", \"127.0.0.1:{second}\", \"unix:{unix}\"]");
        let socket = format!("takeover = {:?}", place.socket());
        let admin = format!("listen = \"127.0.0.1:{}\"", place.admin);
        Config::echo().open().server(&listen).server(&socket).admin(&admin)
    };
    let mut old = Weir::start(&at(extra));
    // The file is replaced before the running gateway may read it again: it would only warn.
    old.replace_file(&at(fresh).text());
    let new = old.take_over();
    old.exit();
    for port in [place.data, fresh] {
        let answer = Client::connect(([127, 0, 0, 1], port).into()).ask(get("/"));
        assert_eq!(answer.status, 200, "{port}");
    }
    assert!(Client::try_connect(([127, 0, 0, 1], extra).into()).is_none());
    let mut unix = UnixStream::connect(place.folder.path().join("data.sock")).unwrap();
    unix.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    unix.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(new.output().contains(&format!("no longer listening on 127.0.0.1:{extra}")));
}

#[test]
fn what_was_spent_stays_spent_through_a_snapshot() {
    let place = Place::new();
    let snapshot = place.folder.path().join("weir.snapshot");
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 3";
    let config = Config::echo().limit(limit).store(&format!("snapshot = {snapshot:?}"));
    let mut old = Weir::start(&place.config(config));
    for _ in 0..2 {
        assert_eq!(old.get("/").status, 200);
    }
    let new = old.take_over();
    old.exit();
    assert_eq!(new.get("/").status, 200);
    assert_eq!(new.get("/").status, 429);
    // The one that left has not written over what its successor keeps.
    let next = new.take_over();
    assert_eq!(next.get("/").status, 429);
}

/// A gateway with three slots, two of which are held, and its successor.
fn replaced_with_two_slots_held(place: &Place, held: &HeldUpstream) -> ([Weir; 2], [Client; 2]) {
    let snapshot = place.folder.path().join("weir.snapshot");
    let config = held.config().limit(&concurrency_limit(3)).upstream("retries = 0");
    let old = Weir::start(&place.config(config.store(&format!("snapshot = {snapshot:?}"))));
    let clients = ["/held/1", "/held/2"].map(|target| hold(&old, held, target));
    let new = old.take_over();
    ([old, new], clients)
}

#[test]
fn slots_that_the_old_process_holds_are_not_given_twice() {
    let (place, held) = (Place::new(), HeldUpstream::start());
    let ([mut old, new], mut clients) = replaced_with_two_slots_held(&place, &held);
    assert_eq!(free_slots(&new), Some(1));
    let mut third = hold(&new, &held, "/held/3");
    assert_eq!(new.get("/").status, 429);
    held.release("/held/1");
    assert_eq!(clients[0].response().status, 200);
    wait_until("its slot is free", || new.get("/").status == 200);
    let fourth = hold(&new, &held, "/held/3");
    assert_eq!(new.get("/").status, 429, "one is still held");
    held.release("/held/2");
    assert_eq!(clients[1].response().status, 200);
    assert_eq!(old.exit().code(), Some(0));
    wait_until("its slot is free, too", || free_slots(&new) == Some(1));
    drop(fourth);
    held.release("/held/3");
    assert_eq!(third.response().status, 200);
    wait_until("all of them are", || free_slots(&new) == Some(3));
}

#[test]
fn slots_of_an_old_process_that_dies_are_free() {
    let (place, held) = (Place::new(), HeldUpstream::start());
    let ([mut old, new], _clients) = replaced_with_two_slots_held(&place, &held);
    assert_eq!(free_slots(&new), Some(1));
    old.signal(Signal::KILL);
    old.exit();
    wait_until("they are free", || free_slots(&new) == Some(3));
}

#[test]
fn takeover_that_does_not_reach_its_store_changes_nothing() {
    let (place, redis) = (Place::new(), Redis::start());
    let limited = || Config::echo().limit("key = \"ip\"\nrate = \"1/day\"\nburst = 3");
    let old = Weir::start(&place.config(limited().store(&redis.store())));
    assert_eq!(old.get("/").status, 200);
    let nowhere = format!("kind = \"redis\"\nurl = \"redis://127.0.0.1:{}\"", free_port());
    let other = place.config(limited().store(&nowhere));
    let file = place.folder.file("other.toml", &other.text());
    let output = Output::of(program().args(["run", "--takeover", "--config"]).arg(&file));
    let said = output.wait(1);
    assert!(said.contains("the store could not be reached"), "{said}");
    assert!(said.contains("the running gateway serves on"), "{said}");
    let answers = [0; 3].map(|_| old.get("/").status);
    assert_eq!(answers, [200, 200, 429], "by the buckets that it had");
}

#[test]
fn second_of_two_takeovers_hears_that_the_gateway_has_left() {
    let place = Place::new();
    let mut old = Weir::start(&place.config(Config::echo().open()));
    // The listening socket and what has connected to it have the name that it was bound to.
    let name = place.socket().display().to_string();
    let sockets = || {
        let all = std::fs::read_to_string("/proc/net/unix").unwrap();
        all.lines().filter(|line| line.contains(&name)).count()
    };
    let alone = sockets();
    let mut first = UnixStream::connect(place.socket()).unwrap();
    first.write_all(b"takeover 1\n").unwrap();
    wait_until("it is heard", || old.output().contains("a new process starts, to take over"));
    let second = Output::of(program().args(["run", "--takeover", "--config"]).arg(old.file()));
    wait_until("the second waits", || sockets() == alone + 2);
    first.write_all(b"ready\n").unwrap();
    let said = second.wait(1);
    assert!(said.contains("left before it had handed over its sockets"), "{said}");
    assert!(!said.contains("serves on"), "{said}");
    assert_eq!(old.exit().code(), Some(0));
}

/// A process that is to end by itself, and what it says.
struct Output {
    child: Child,
    folder: Scratch,
}

impl Output {
    fn of(command: &mut Command) -> Output {
        let folder = Scratch::new();
        let said = File::create(folder.path().join("said")).unwrap();
        let child = command.stderr(said).current_dir(folder.path()).spawn().unwrap();
        Output { child, folder }
    }

    /// Waits for its end with this code.
    #[track_caller]
    fn wait(mut self, code: i32) -> String {
        let mut status = None;
        wait_until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let said = std::fs::read_to_string(self.folder.path().join("said")).unwrap();
        assert_eq!(status.and_then(|it| it.code()), Some(code), "{said}");
        said
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
