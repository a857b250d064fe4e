//! A server's name that comes to mean another address, servers that are killed and servers that hang:
//! all under load, and no safe request fails.
//!
//! The gateway runs in a mount namespace of its own, where `/etc/hosts` is a file of the test, and
//! names that are not there are asked of a name server that never answers. That takes root, and
//! `unshare` of util-linux.

use std::fs::File;
use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::gateway::program;
use crate::support::ports::free_port;
use crate::support::upstream::{LONG, ok};
use crate::support::{
    After, Config, Load, Scratch, Upstream, Weir, get, skip, wait_until, wait_until_steady,
};

const NAME: &str = "moving.weir.test";

/// A gateway for which names are what a file says.
struct Named {
    weir: Weir,
    hosts: PathBuf,
    /// Hears the questions for names that are not in the file.
    name_server: UdpSocket,
}

impl Named {
    /// `None` where that cannot be had.
    fn start(config: &Config, address: SocketAddr) -> Option<Named> {
        let scratch = Scratch::new();
        let hosts = scratch.file("hosts", &line(address));
        let script = "mount --bind \"$0\" /etc/hosts && mount --bind \"$1\" /etc/resolv.conf && \
                      mount --bind \"$2\" /etc/nsswitch.conf && shift 2 && exec \"$@\"";
        let name_server = silent_name_server();
        let ip = name_server.as_ref().map_or_else(String::new, |it| it.1.clone());
        let resolver = scratch.file("resolv.conf", &format!("nameserver {ip}\n"));
        let switch = scratch.file("nsswitch.conf", "hosts: files dns\n");
        let unshared = |hosts: &Path| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", script]).args([hosts, &resolver, &switch]);
            command
        };
        let works = unshared(&hosts).arg("true").output().is_ok_and(|it| it.status.success());
        let Some((name_server, _)) = name_server.filter(|_| works) else {
            skip("a mount namespace takes root and `unshare`");
            return None;
        };
        let mut command = unshared(&hosts);
        command.arg(program().get_program()).env_remove("WEIR_CONFIG").env_remove("RUST_LOG");
        let file = scratch.file("weir.toml", &config.text());
        Some(Named { weir: Weir::start_with(command, scratch, file), hosts, name_server })
    }

    fn moves_to(&self, address: SocketAddr) {
        self.rewrite_hosts(&line(address));
    }

    /// The same file, since that is what is mounted; and at no time without what is to be there.
    fn rewrite_hosts(&self, text: &str) {
        let mut hosts = File::options().write(true).open(&self.hosts).unwrap();
        let rest = hosts.metadata().unwrap().len() as usize - text.len();
        hosts.write_all(format!("{text}{}", "\n".repeat(rest)).as_bytes()).unwrap();
    }

    /// From now on only the name server could tell what the name means. Returns once it was asked.
    fn is_forgotten(&self) {
        self.rewrite_hosts("127.0.0.1 localhost\n");
        self.name_server.set_read_timeout(Some(LONG)).unwrap();
        self.name_server.recv(&mut [0; 512]).expect("a question");
    }
}

/// With its address, which is one that nobody else has.
fn silent_name_server() -> Option<(UdpSocket, String)> {
    let [low, high] = free_port().to_be_bytes();
    let ip = format!("127.7.{low}.{high}");
    UdpSocket::bind((ip.as_str(), 53)).ok().map(|socket| (socket, ip))
}

fn line(address: SocketAddr) -> String {
    format!("127.0.0.1 localhost\n{} {NAME}\n", address.ip())
}

/// Two addresses with the same port.
fn addresses() -> [SocketAddr; 2] {
    let port = free_port();
    [2, 3].map(|last| SocketAddr::from(([127, 0, 0, last], port)))
}

fn answering(address: SocketAddr, body: &'static str) -> Upstream {
    Upstream::at(address, move |exchange| {
        exchange.read_body();
        exchange.reply(ok(body));
        After::Keep
    })
}

fn config(servers: &str, lines: &str) -> Config {
    let upstream = format!("servers = [{servers}]\nresolve_interval = \"200ms\"\n{lines}");
    Config::echo().open().upstream(&upstream)
}

#[test]
fn connections_to_an_address_that_a_name_has_left_are_closed_and_used_no_more() {
    let [old, new] = addresses();
    let (before, after) = (answering(old, "old"), answering(new, "new"));
    let config = config(&format!("\"http://{NAME}:{}\"", old.port()), "");
    let Some(named) = Named::start(&config, old) else { return };
    // On both workers.
    let mut clients: Vec<_> = (0..4).map(|_| named.weir.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(get("/")).text(), "old"));
    // The watch of its configuration may begin after the first requests.
    let files = wait_until_steady("all its files are open", || named.weir.open_files());
    let kept = before.connections();
    assert!(kept >= 2, "a pool for each worker");
    named.moves_to(new);
    // The idle ones are closed without a request.
    wait_until("they are closed", || named.weir.open_files() + kept <= files);
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(get("/")).text(), "new"));
    assert_eq!((before.heads(), after.heads()), (4, 4));
}

#[test]
fn a_name_server_that_hangs_takes_no_server_out() {
    let [address, _] = addresses();
    let (named_server, other) = (answering(address, "named"), Upstream::ok());
    let servers = format!("\"http://{}\", \"http://{NAME}:{}\"", other.address(), address.port());
    let lines = "balance = \"round_robin\"\n\
                 health = { path = \"/health\", interval = \"200ms\", timeout = \"200ms\", unhealthy = 1 }";
    let Some(named) = Named::start(&config(&servers, lines), address) else { return };
    let probes =
        |server: &Upstream| server.requests().iter().filter(|it| it.target == "/health").count();
    let mut client = named.weir.connect();
    wait_until("it is used, and probed", || {
        client.ask(get("/")).text() == "named" && probes(&named_server) > 0
    });
    named.is_forgotten();
    let (before, rounds) = (probes(&named_server), probes(&other));
    // Both are probed equally often, if one is not slower to ask.
    wait_until("the other was probed on", || probes(&other) >= rounds + 5);
    assert!(probes(&named_server) > before, "it is probed at the address that is known");
    let texts: Vec<_> = (0..10).map(|_| client.ask(get("/")).text()).collect();
    assert!(texts.iter().any(|it| it == "named"), "{texts:?}");
    assert!(!named.weir.output().contains("is unhealthy"), "{}", named.weir.output());
    // A probe that has just begun knows the address as well.
    let settled = config(&servers, &format!("{lines}\nretries = 0"));
    named.weir.reload(&settled);
    let before = probes(&named_server);
    wait_until("it is probed again", || probes(&named_server) > before + 2);
    assert!(!named.weir.output().contains("is unhealthy"), "{}", named.weir.output());
}

#[test]
fn an_old_connection_makes_room_for_a_new_one() {
    let upstream = Upstream::ok();
    let lines = "max_age = \"300ms\"";
    let weir = Weir::start(&Config::to(&upstream).open().server("workers = 1").upstream(lines));
    let mut client = weir.connect();
    wait_until("a third connection is open", || {
        assert_eq!(client.ask(get("/")).status, 200);
        upstream.connections() >= 3
    });
    assert!(upstream.heads() > 6, "each served several requests");
}

#[test]
fn servers_die_hang_and_move_under_load_without_an_error_for_safe_requests() {
    let [old, new] = addresses();
    let stays = Upstream::ok();
    let hangs = Arc::new(AtomicBool::new(false));
    let is_hung = hangs.clone();
    let hanging = Upstream::scripted(move |exchange| {
        if is_hung.load(Ordering::SeqCst) {
            exchange.wire.set_patience(LONG);
            while exchange.wire.fill().is_ok() {}
            return After::Close;
        }
        exchange.reply(ok("ok"));
        After::Keep
    });
    let moving = answering(old, "old");
    let servers = format!(
        "\"http://{}\", \"http://{}\", \"http://{NAME}:{}\"",
        stays.address(),
        hanging.address(),
        old.port()
    );
    let lines = "response_timeout = \"1s\"\nretries = 2\nejection = { failures = 2, time = \"1s\" }\n\
                 health = { path = \"/\", interval = \"200ms\", timeout = \"200ms\", unhealthy = 2 }";
    let Some(named) = Named::start(&config(&servers, lines), old) else { return };
    let load = Load::start(&[named.weir.address()], &[get("/")], 8);
    load.wait_for(100);
    hangs.store(true, Ordering::SeqCst);
    load.wait_for(300);
    let after = answering(new, "new");
    named.moves_to(new);
    wait_until("the new address is used", || after.heads() > 20);
    // Killed: its connections are reset, and nobody listens there any more.
    drop(moving);
    load.wait_for(200);
    drop(after);
    load.wait_for(300);
    let back = answering(new, "back");
    hangs.store(false, Ordering::SeqCst);
    wait_until("the restarted server is used", || back.heads() > 20);
    let seen = hanging.heads();
    wait_until("the one that hung is used again", || hanging.heads() > seen + 20);
    let answers = load.finish();
    let failed: Vec<_> = answers.iter().filter(|it| it.status != 200).collect();
    assert!(failed.is_empty(), "{} of {}: {failed:?}", failed.len(), answers.len());
}
