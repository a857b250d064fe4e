//! Starting and stopping: clear messages, the right exit code, no request lost.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::support::gateway::program;
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
    let mut weir = Weir::start(&Config::to(&upstream).open().server("drain = \"15s\""));
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
