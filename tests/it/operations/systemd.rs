//! What systemd passes and is told: sockets, readiness, reloads, the watchdog.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::gateway::program;
use crate::support::ports::free_port;
use crate::support::{Client, Config, PATIENCE, Scratch, Weir, get, tool, wait_until};

/// Where a service manager listens.
struct Manager {
    folder: Scratch,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Manager {
        let folder = Scratch::new();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { folder, socket }
    }

    fn program(&self) -> Command {
        let mut command = program();
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command
    }

    /// The lines of the next message.
    #[track_caller]
    fn next(&self) -> Vec<String> {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("it is told something");
        let text = String::from_utf8_lossy(&message[..length]).into_owned();
        text.lines().map(str::to_owned).collect()
    }
}

fn start(command: Command, config: &Config) -> Weir {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    Weir::start_with(command, scratch, file)
}

#[test]
fn systemd_is_told_of_readiness_reloads_and_the_end() {
    let manager = Manager::new();
    let mut weir = start(manager.program(), &Config::echo().open());
    assert_eq!(manager.next(), ["READY=1", "STATUS=serving"]);
    let reload = |status: &str| {
        weir.signal(Signal::HUP);
        let message = manager.next();
        assert_eq!(message[0], "RELOADING=1");
        let since = message[1].strip_prefix("MONOTONIC_USEC=").unwrap();
        assert!(since.parse::<u64>().unwrap() > 0);
        let message = manager.next();
        assert_eq!(message[0], "READY=1");
        assert!(message[1].contains(status), "{message:?}");
    };
    reload("serving");
    let text = std::fs::read_to_string(weir.file()).unwrap();
    std::fs::write(weir.file(), text.replace("[server]", "[server]\nnonsense = 1")).unwrap();
    reload("has faults");
    weir.signal(Signal::TERM);
    assert_eq!(manager.next()[0], "STOPPING=1");
    assert_eq!(weir.exit().code(), Some(0));
}

#[test]
fn its_watchdog_is_told_while_everything_goes_on() {
    let manager = Manager::new();
    let mut command = manager.program();
    command.env("WATCHDOG_USEC", "100000");
    let weir = start(command, &Config::echo().open());
    assert_eq!(manager.next()[0], "READY=1");
    for _ in 0..3 {
        assert_eq!(manager.next(), ["WATCHDOG=1"]);
    }
    weir.signal(Signal::STOP);
    let silence = || {
        manager.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        manager.socket.recv(&mut [0; 64]).is_err()
    };
    wait_until("a process that hangs says nothing", silence);
    weir.signal(Signal::CONT);
    manager.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(manager.next(), ["WATCHDOG=1"]);
}

#[test]
fn after_a_takeover_the_new_process_is_the_main_one() {
    let manager = Manager::new();
    let socket = format!("takeover = {:?}", manager.folder.path().join("t.sock"));
    let listen = format!("listen = \"127.0.0.1:{}\"", free_port());
    let admin = format!("listen = \"127.0.0.1:{}\"", free_port());
    let config = Config::echo().open().server(&socket).server(&listen).admin(&admin);
    let mut old = start(manager.program(), &config);
    assert_eq!(manager.next()[0], "READY=1");
    let mut command = manager.program();
    command.args(["run", "--takeover"]);
    let new = Weir::launch(command, Scratch::new(), old.file().to_owned());
    let first = manager.next();
    assert!(first[0].starts_with("MAINPID="), "{first:?}");
    let second = manager.next();
    assert_eq!((&second[0], second[1].as_str()), (&first[0], "READY=1"));
    old.exit();
    new.signal(Signal::TERM);
    assert_eq!(manager.next()[0], "STOPPING=1", "the old one says nothing of its end");
}

/// Opens sockets, and becomes Weir as systemd would start it.
const ACTIVATE: &str = "
import os, socket, sys
kept = []
for address in sys.argv[1].split(','):
    if address.startswith('/'):
        one = socket.socket(socket.AF_UNIX)
        one.bind(address)
    else:
        host, port = address.rsplit(':', 1)
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((host, int(port)))
    one.listen(16)
    kept.append(os.dup2(one.fileno(), 100 + len(kept)))
for number, one in enumerate(kept):
    os.dup2(one, 3 + number)
os.environ['LISTEN_FDS'] = str(len(kept))
os.environ['LISTEN_PID'] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
";

/// `None` without Python.
fn activated(sockets: &str) -> Option<Command> {
    tool("python3", Command::new("python3").arg("--version").stdout(Stdio::null()).status())?;
    let mut command = Command::new("python3");
    command.args(["-c", ACTIVATE, sockets, env!("CARGO_BIN_EXE_weir"), "run"]);
    command.env_remove("WEIR_CONFIG");
    Some(command)
}

fn at(data: u16) -> Config {
    Config::echo().open().server(&format!("listen = \"127.0.0.1:{data}\""))
}

#[test]
fn sockets_that_it_passes_are_listened_on() {
    let (data, admin) = (free_port(), free_port());
    let sockets = format!("127.0.0.1:{data},127.0.0.1:{admin}");
    let Some(command) = activated(&sockets) else { return };
    let config = at(data).admin(&format!("listen = \"127.0.0.1:{admin}\""));
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    let weir = Weir::launch(command, scratch, file);
    assert_eq!(Client::connect(([127, 0, 0, 1], data).into()).ask(get("/")).status, 200);
    assert_eq!(weir.admin("/readyz").status, 200);

    // What is not passed is bound.
    let data = free_port();
    let Some(command) = activated(&format!("127.0.0.1:{data}")) else { return };
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &at(data).text());
    let weir = Weir::launch(command, scratch, file);
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(weir.admin("/readyz").status, 200);
}

#[test]
fn a_socket_that_is_not_configured_is_a_fault() {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &at(free_port()).text());
    let other = format!("127.0.0.1:{}", free_port());
    let unix = scratch.path().join("s").display().to_string();
    for socket in [&other, &unix] {
        let Some(command) = activated(socket) else { return };
        let said = fault(command, &file);
        assert!(said.contains(&format!("a socket for {socket}, which is no address")), "{said}");
    }
    let mut none = program();
    none.arg("run").env("LISTEN_FDS", "1");
    let said = fault(none, &file);
    assert!(said.contains("cannot take the socket number 0 of LISTEN_FDS"), "{said}");
    let mut not_ours = program();
    not_ours.arg("run").env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    let weir = Weir::launch(not_ours, scratch, file);
    assert_eq!(weir.get("/").status, 200, "what is meant for another process is not touched");
}

fn fault(mut command: Command, file: &Path) -> String {
    let output = command.arg("--config").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}
