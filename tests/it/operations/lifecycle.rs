//! Starting and stopping: clear messages, the right exit code, no request lost.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::gateway::program;
use crate::support::ports::free_port;
use crate::support::wire::ReadError;
use crate::support::{Config, PATIENCE, Scratch, Upstream, Weir, get, wait_until};

#[test]
fn a_request_in_flight_outlives_the_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let (upstream, go) = Upstream::on_demand("at last");
        let mut weir = Weir::start(&Config::to(&upstream).open().server("drain = \"15s\""));
        let mut idle = weir.connect();
        let mut client = weir.connect();
        client.send(get("/"));
        wait_until("it is in flight", || upstream.heads() == 1);
        weir.signal(signal);
        wait_until("new connections are turned away", || weir.refuses_connections());
        assert!(weir.runs());
        assert_eq!(weir.admin("/readyz").status, 503, "not ready for more");
        assert_eq!(weir.admin("/healthz").status, 200, "but well");
        go.send(()).unwrap();
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (200, "at last"));
        assert!(client.closes(), "and no more on this connection");
        assert!(idle.closes());
        assert_eq!(weir.exit().code(), Some(0), "{signal:?}");
    }
}

#[test]
fn drain_ends_when_its_time_is_up() {
    let (upstream, _go) = Upstream::on_demand("at last");
    let mut weir = Weir::start(&Config::to(&upstream).open().server("drain = \"300ms\""));
    let mut client = weir.connect();
    client.send(get("/"));
    wait_until("it is in flight", || upstream.heads() == 1);
    weir.signal(Signal::TERM);
    assert_eq!(client.try_response().err(), Some(ReadError::Closed));
    weir.exit();
}

#[test]
fn after_the_signal_requests_are_taken_until_the_delay_is_over() {
    let weir = Config::echo().open().server("drain_delay = \"1h\"\ndrain = \"15s\"");
    let mut weir = Weir::start(&weir);
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/")).status, 200);
    weir.signal(Signal::TERM);
    wait_until("it is not ready", || weir.admin("/readyz").status == 503);
    for _ in 0..3 {
        let answer = client.ask(get("/"));
        assert_eq!((answer.status, answer.all("connection").len()), (200, 0), "and stays open");
        assert_eq!(weir.get("/").status, 200, "new connections are taken, too");
    }
    weir.reload(&Config::echo().open().server("drain_delay = \"1h\"\nidle_timeout = \"9s\""));
    weir.signal(Signal::TERM);
    assert!(client.closes(), "a second signal ends the delay");
    assert_eq!(weir.exit().code(), Some(0));
}

#[test]
fn drain_follows_the_delay_by_itself() {
    let mut weir = Weir::start(&Config::echo().open().server("drain_delay = \"50ms\""));
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
}

#[test]
fn a_successor_has_the_admin_port_while_the_one_before_drains() {
    let (upstream, go) = Upstream::on_demand("at last");
    let (data, admin) = (free_port(), free_port());
    let config = Config::to(&upstream)
        .open()
        .server(&format!("listen = \"127.0.0.1:{data}\"\ndrain = \"15s\""))
        .admin(&format!("listen = \"127.0.0.1:{admin}\""));
    let mut old = Weir::start(&config);
    let file = old.directory().join("second.toml");
    std::fs::write(&file, config.text()).unwrap();
    let output = program().args(["run", "--config"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "not while the first one serves");
    let mut client = old.connect();
    client.send(get("/"));
    wait_until("it is in flight", || upstream.heads() == 1);
    old.signal(Signal::TERM);
    wait_until("it drains", || old.refuses_connections());
    assert_eq!(old.admin("/readyz").status, 503);
    let new = Weir::start(&config);
    // Until the first one has noticed it, a connection may still come to that.
    wait_until("the new one is asked, and nobody else", || {
        (0..20).all(|_| new.admin("/readyz").status == 200)
    });
    assert!(old.runs(), "while the first one has a request to finish");
    go.send(()).unwrap();
    assert_eq!(client.response().text(), "at last");
    assert_eq!(old.exit().code(), Some(0));
    assert_eq!(new.admin("/readyz").status, 200);
}

#[test]
fn idle_gateway_exits_before_its_drain_is_up() {
    let mut weir = Weir::start(&Config::echo().server("drain = \"1h\""));
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/")).status, 200);
    weir.signal(Signal::TERM);
    assert!(client.closes());
    assert_eq!(weir.exit().code(), Some(0));
}

#[test]
fn no_request_fails_while_stopping_under_load() {
    let upstream = Upstream::ok();
    // What is offered to successors must not outlive the listeners.
    let config = Config::to(&upstream).open().server("drain = \"15s\"\ntakeover = \"t.sock\"");
    let mut weir = Weir::start(&config);
    let asked = AtomicUsize::new(0);
    let address = weir.address();
    thread::scope(|scope| {
        for n in 0..6 {
            let asked = &asked;
            scope.spawn(move || load(address, n % 2 == 0, asked));
        }
        wait_until("the load is on", || asked.load(Ordering::Relaxed) > 200);
        weir.signal(Signal::TERM);
    });
    assert_eq!(weir.exit().code(), Some(0));
}

/// Asks until new connections are turned away. A request on a kept connection may meet its close
/// before a byte of the answer (RFC 9112 9.3.1: such a request is sent again); whatever was
/// begun must be ended, and a connection that was taken must be served.
fn load(address: std::net::SocketAddr, keep: bool, asked: &AtomicUsize) {
    let connect = || std::net::TcpStream::connect_timeout(&address, PATIENCE).ok();
    let wrap = |stream| crate::support::Client { wire: crate::support::wire::Wire::new(stream) };
    let Some(mut client) = connect().map(wrap) else { return };
    let mut fresh = true;
    loop {
        match client.try_ask(get("/")) {
            Ok(response) => {
                assert!(response.status == 200 && !response.truncated, "{response:#?}");
                asked.fetch_add(1, Ordering::Relaxed);
                fresh = false;
                let close = response.all("connection").contains(&"close");
                if keep && !close {
                    continue;
                }
            }
            Err(stop) => {
                assert!(!fresh && stop == ReadError::Closed, "failed on a new connection: {stop:?}")
            }
        }
        match connect().map(wrap) {
            Some(next) => client = next,
            None => return,
        }
        fresh = true;
    }
}

#[test]
fn port_in_use_is_reported_in_one_line() {
    for admin in [false, true] {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let (data_at, admin_at) =
            if admin { ("127.0.0.1:0", &*address) } else { (&*address, "127.0.0.1:0") };
        let text = format!(
            "[server]\nlisten = \"{data_at}\"\n[admin]\nlisten = \"{admin_at}\"\n\
             [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n"
        );
        let scratch = Scratch::new();
        let file = scratch.file("weir.toml", &text);
        let output = program().args(["run", "--config"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let lines: Vec<_> = said.lines().filter(|line| line.contains(&address)).collect();
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].to_ascii_lowercase().contains("in use"), "{said}");
        assert!(!said.contains("panicked") && !said.contains("backtrace"), "{said}");
    }
}

#[test]
fn gateway_does_not_start_with_an_invalid_configuration() {
    let good = Config::echo().text();
    let rows = [
        good.replace("127.0.0.1:0", "not an address"),
        good.replace("127.0.0.1:0", "127.0.0.1"),
        good.replace("127.0.0.1:0", "127.0.0.1:99999"),
        good.replace("burst", "brust"),
        "[server".to_owned(),
    ];
    for row in rows {
        let scratch = Scratch::new();
        let file = scratch.file("weir.toml", &row);
        let output = program().args(["run", "--config"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{row}\n{said}");
        assert!(said.contains("weir.toml:"), "{said}");
        assert!(!said.contains("listening on"), "{said}");
    }
}

#[test]
fn unreadable_file_is_reported_in_one_line() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("folder.toml")).unwrap();
    scratch.file("binary.toml", "");
    std::fs::write(scratch.path().join("binary.toml"), [0xff, 0xfe, 0x00]).unwrap();
    for name in ["missing.toml", "folder.toml", "binary.toml"] {
        let file = scratch.path().join(name);
        for command in [&["run", "--config"][..], &["check"]] {
            let output = program().args(command).arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}: {said}");
            assert!(said.contains(name), "{said}");
            assert!(!said.contains("panicked"), "{said}");
        }
    }
}

#[test]
fn configuration_is_found_by_environment_and_default_path() {
    let scratch = Scratch::new();
    let file = scratch.file("elsewhere.toml", "[server]\nlisten = \"nonsense\"\n");
    let output = program().arg("run").env("WEIR_CONFIG", &file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("elsewhere.toml"));
    std::fs::create_dir(scratch.path().join("config")).unwrap();
    scratch.file("config/config.toml", "[server]\nlisten = \"nonsense\"\n");
    let output = program().current_dir(scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("config.toml"));
}

#[test]
fn reload_that_is_asked_for_during_the_start_does_not_end_it() {
    let scratch = Scratch::new();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = Config::echo().open().server(&format!("listen = \"{address}\""));
    let file = scratch.file("weir.toml", &config.text());
    let signal = thread::spawn({
        let name = file.display().to_string();
        move || {
            let mut found = None;
            wait_until("it runs", || {
                found = process_with(&name);
                found.is_some()
            });
            // As soon as can be seen that something is bound.
            let until = Instant::now() + PATIENCE;
            while TcpStream::connect(address).is_err() && Instant::now() < until {}
            kill_process(found.unwrap(), Signal::HUP).unwrap();
        }
    });
    let weir = Weir::start_from(scratch, file);
    signal.join().unwrap();
    assert_eq!(weir.get("/").status, 200);
}

/// The process that has this among its arguments.
fn process_with(argument: &str) -> Option<Pid> {
    let number = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).find_map(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).ok()?;
        let found = arguments.split(|byte| *byte == 0).any(|it| it == argument.as_bytes());
        found.then(|| process.file_name().to_str()?.parse().ok()).flatten()
    });
    Pid::from_raw(number?)
}
