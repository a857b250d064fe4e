//! A log that cannot be written: the disk is full, or its reader has gone.

use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::gateway::program;
use crate::support::ports::free_port;
use crate::support::scratch::Scratch;
use crate::support::{Client, Config, HeldUpstream, get, wait_until};

/// A standard error that cannot be written.
fn full_disk() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// A pipe without a reader.
fn broken_pipe() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

/// A gateway of which nothing is heard, at an address of the test's choice.
struct MuteGateway {
    process: Option<Child>,
    address: SocketAddr,
    admin: SocketAddr,
    scratch: Scratch,
}

impl MuteGateway {
    fn start(config: &Config, log: Stdio) -> Self {
        let [address, admin] = [free_port(), free_port()].map(|port| ([127, 0, 0, 1], port).into());
        let mut gateway = MuteGateway { process: None, address, admin, scratch: Scratch::new() };
        let file = gateway.scratch.file("weir.toml", &gateway.placed(config).text());
        let mut command = program();
        command.arg("run").arg("--config").arg(&file).env("WEIR_LOG", "debug");
        gateway.process = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        wait_until("it listens", || TcpStream::connect(address).is_ok());
        assert_eq!(Client::connect(address).ask(get("/")).status, 200);
        gateway
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.process.as_ref().unwrap()), signal).unwrap();
    }

    fn reload(&self, config: &Config) {
        let file = self.scratch.path().join("weir.toml");
        std::fs::write(file, self.placed(config).text()).unwrap();
        self.signal(Signal::HUP);
    }

    fn placed(&self, config: &Config) -> Config {
        let MuteGateway { address, admin, .. } = self;
        let config = config.clone().server(&format!("listen = \"{address}\""));
        config.admin(&format!("listen = \"{admin}\""))
    }
}

impl Drop for MuteGateway {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn a_gateway_whose_log_cannot_be_written_starts_reloads_and_drains() {
    for log in [full_disk(), broken_pipe()] {
        let held = HeldUpstream::start();
        // A burst below a second of the rate is warned of.
        let config = |burst: u32| {
            held.config().limit(&format!("key = \"ip\"\nrate = \"1000/second\"\nburst = {burst}"))
        };
        let mut gateway = MuteGateway::start(&config(900), log);
        for burst in [901, 902, 903] {
            gateway.reload(&config(burst));
            let policy = format!("\"per-ip\";q={burst};w=1");
            wait_until("it has reloaded", || {
                Client::connect(gateway.address).ask(get("/")).one("ratelimit-policy") == policy
            });
        }
        let mut client = Client::connect(gateway.address);
        client.send(get("/held"));
        wait_until("the request is there", || held.held_count() == 1);
        gateway.signal(Signal::TERM);
        wait_until("it has stopped to listen", || TcpStream::connect(gateway.address).is_err());
        held.release("/held");
        assert_eq!(client.response().status, 200);
        assert_eq!(gateway.process.take().unwrap().wait().unwrap().code(), Some(0));
    }
}

#[test]
fn commands_keep_their_exit_codes_when_nobody_reads_what_they_say() {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", "[servre]\n");
    for arguments in [&["check"][..], &["run", "--config"]] {
        for log in [full_disk(), broken_pipe()] {
            let status = program().args(arguments).arg(&file).stderr(log).status().unwrap();
            assert_eq!(status.code(), Some(2), "{arguments:?}");
        }
    }
}
