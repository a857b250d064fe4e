//! `weir health`: what a container asks to find out whether its gateway takes traffic.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::gateway::program;
use crate::support::ports::free_port;
use crate::support::upstream::ok;
use crate::support::{Config, Scratch, Upstream, Weir, get, wait_until};

/// The exit code, standard output and standard error.
type Said = (Option<i32>, String, String);

fn ended(output: &Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn said(command: &mut Command) -> Said {
    ended(&command.output().unwrap())
}

fn health() -> Command {
    let mut command = program();
    command.arg("health");
    command
}

fn asked(admin: SocketAddr) -> Said {
    said(health().args(["--admin", &admin.to_string()]))
}

fn healthy(store: &str) -> Said {
    (Some(0), format!("ready, store {store}\n"), String::new())
}

/// Fails with one line that has all these parts in it.
#[track_caller]
fn fails(said: &Said, parts: &[&str]) {
    let (code, out, err) = said;
    assert_eq!((*code, out.as_str()), (Some(1), ""), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    for part in parts {
        assert!(err.contains(part), "no {part:?} in {err}");
    }
}

/// A gateway whose file names the port of its admin listener.
fn on_a_port(listen: &str) -> (Config, u16) {
    let port = free_port();
    (Config::echo().admin(&format!("listen = \"{listen}:{port}\"")), port)
}

#[test]
fn gateway_that_takes_traffic_is_healthy() {
    let (config, port) = on_a_port("127.0.0.1");
    let weir = Weir::start(&config);
    assert_eq!(weir.admin_address().port(), port);
    assert_eq!(asked(weir.admin_address()), healthy("memory"));
    assert_eq!(said(health().arg("--config").arg(weir.file())), healthy("memory"));
    assert_eq!(said(health().arg("-c").arg(weir.file())), healthy("memory"));
    let body = weir.admin("/readyz").text();
    let json = said(health().arg("--json").arg("--config").arg(weir.file()));
    assert_eq!(json, (Some(0), body + "\n", String::new()));
}

#[test]
fn gateway_without_its_store_is_healthy_and_reports_it() {
    let store = format!("kind = \"redis\"\nurl = \"redis://127.0.0.1:{}\"", free_port());
    let weir = Weir::start(&Config::echo().store(&store));
    wait_until("it does without", || weir.degraded());
    let (code, out, err) = asked(weir.admin_address());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("degraded, store redis: ") && out.lines().count() == 1, "{out}");
}

#[test]
fn draining_gateway_is_unhealthy() {
    let (upstream, go) = Upstream::on_demand("at last");
    let weir = Weir::start(&Config::to(&upstream).open().server("drain = \"15s\""));
    let mut client = weir.connect();
    client.send(get("/"));
    wait_until("it is in flight", || upstream.heads() == 1);
    weir.signal(Signal::TERM);
    wait_until("new connections are turned away", || weir.refuses_connections());
    let admin = weir.admin_address();
    fails(&asked(admin), &[&format!("{admin} answered 503 draining")]);
    let (code, out, err) = said(health().args(["--json", "--admin", &admin.to_string()]));
    assert_eq!((code, out), (Some(1), weir.admin("/readyz").text() + "\n"), "{err}");
    go.send(()).unwrap();
    assert_eq!(client.response().status, 200);
}

#[test]
fn closed_port_is_unhealthy() {
    let (config, port) = on_a_port("127.0.0.1");
    let address = format!("127.0.0.1:{port}");
    let refused = format!("cannot connect to {address}");
    fails(&asked(address.parse().unwrap()), &[&refused, "onnection refused"]);
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    let said = said(health().arg("--config").arg(file));
    fails(&said, &[&refused, "admin.listen of ", "weir.toml", "--admin"]);
}

/// A server that does this with each connection.
fn server(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads the head of the request: what is closed with unread bytes is reset.
fn hear(stream: &mut TcpStream) {
    let mut heard = Vec::new();
    let mut byte = [0];
    while !heard.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
        heard.push(byte[0]);
    }
}

/// Keeps the connection until the client closes it.
fn wait_for_close(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn another_server_is_unhealthy() {
    let long = "x".repeat(70_000);
    let rows = [
        (String::new(), "cut off"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"status\":".to_owned(), "cut off"),
        ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n\r\n".to_owned(), "HTTP"),
        ("220 mail.example.com ESMTP\n\n".to_owned(), "HTTP"),
        (ok_text("<html>It works!</html>"), "200"),
        (ok_text("{\"status\":\"ok\"}"), "200"),
        (ok_text("{\"status\":\"ready\"}"), "200"),
        (ok_text("[\"ready\", \"memory\"]"), "200"),
        (ok_text("{\"status\":\"ready\",\"store\":\"\\u001b[2J\"}"), "200"),
        (ok_text("{\"status\":\"green\",\"store\":\"memory\"}"), "200"),
        (
            ok_text(&format!("{{\"status\":\"ready\",\"store\":\"memory\",\"x\":\"{long}\"}}")),
            "64KiB",
        ),
        (format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n"), "64KiB"),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(), "404"),
        ("HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n".to_owned(), "302"),
    ];
    for (answer, part) in rows {
        let sent = answer.clone();
        let address = server(move |mut stream| {
            hear(&mut stream);
            let _ = stream.write_all(sent.as_bytes());
        });
        let said = asked(address);
        let start: String = answer.chars().take(80).collect();
        assert!(said.2.contains(part), "no {part:?} in {:?} for {start:?}", said.2);
        fails(&said, &[&address.to_string(), "Weir"]);
    }
    // The port that callers use is not the one to ask.
    let weir = Weir::start(&Config::echo());
    fails(&asked(weir.address()), &["Weir", "200"]);
}

fn ok_text(body: &str) -> String {
    String::from_utf8(ok(body)).unwrap()
}

#[test]
fn health_response_needs_no_connection_close() {
    let address = server(|mut stream| {
        hear(&mut stream);
        let _ = stream.write_all(&ok("{\"status\":\"ready\",\"store\":\"memory\",\"more\":1}"));
        wait_for_close(&mut stream);
    });
    assert_eq!(asked(address), healthy("memory"));
}

#[test]
fn silent_or_slow_server_does_not_block_the_health_check() {
    let silent = server(|mut stream| wait_for_close(&mut stream));
    let slow = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
        while stream.write_all(b"x").is_ok() {
            // The slow pace is what is tested.
            thread::sleep(Duration::from_millis(50));
        }
    });
    for address in [silent, slow] {
        let mut child = health();
        let child = child.args(["--admin", &address.to_string()]);
        let child = child.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        wait_until("it has given up", || child.try_wait().unwrap().is_some());
        let said = ended(&child.wait_with_output().unwrap());
        fails(&said, &[&format!("{address} has not answered within 2s")]);
    }
}

#[test]
fn invalid_file_does_not_affect_the_health_check() {
    let (config, port) = on_a_port("127.0.0.1");
    let weir = Weir::start(&config);
    let text = config.text();
    let listen = format!("[admin]\nlisten = \"127.0.0.1:{port}\"\n");
    let rows = [
        text.replace("burst", "brust"),
        format!("{text}\n[limits.per-ip"),
        format!("{text}\nnot toml at all [\n"),
        format!("{text}\n[identity]\ntrusted_proxies = [\"10.0.0.0/8\",\n"),
        format!("{listen}token_env = \"WEIR_NO_SUCH_VARIABLE\"\n"),
        format!("{listen}[store]\nkind = \"redis\"\npassword_file = \"no/such/file\"\n"),
        format!("{listen}[server]\nlisten = \"127.0.0.1:{port}\"\n"),
    ];
    for row in rows {
        let failed = weir.reloads("failed");
        weir.replace_file(&row);
        wait_until("it is refused", || weir.reloads("failed") > failed);
        assert_eq!(said(health().arg("--config").arg(weir.file())), healthy("memory"), "{row}");
    }
    let mut bytes = text.into_bytes();
    bytes.extend(b"# \xff\xfe");
    std::fs::write(weir.file(), bytes).unwrap();
    assert_eq!(said(health().arg("--config").arg(weir.file())), healthy("memory"));
}

#[test]
fn default_admin_port_is_asked_if_the_file_names_none() {
    let scratch = Scratch::new();
    let none = "FILE names no admin.listen)";
    let unread = "admin.listen of FILE cannot be read)";
    let rows = [
        ("empty.toml", "", none),
        ("token.toml", "[admin]\ntoken_env = \"T\"\n", none),
        ("nonsense.toml", "[admin]\nlisten = \"nonsense\"\n", unread),
        ("number.toml", "[admin]\nlisten = 5\n", unread),
        ("bare.toml", "[admin]\nlisten = 127.0.0.1:9191\n", unread),
        ("section.toml", "[admin\nlisten = \"127.0.0.1:9191\"\n", unread),
        ("other.toml", "admin = 5\n", unread),
    ];
    let files = rows.map(|(name, text, why)| (scratch.file(name, text), why));
    let away = [scratch.path().join("missing.toml"), scratch.path().to_owned()];
    let away = away.map(|file| (file, "FILE cannot be read, "));
    for (file, why) in files.into_iter().chain(away) {
        let said = said(health().arg("--config").arg(&file));
        // Somebody may be there.
        if said.0 != Some(0) {
            let why = why.replace("FILE", &file.display().to_string());
            fails(&said, &[&format!("127.0.0.1:9090 (the default: {why}")]);
        }
    }
    let built_in = said(health().current_dir(scratch.path()).env_remove("WEIR_CONFIG"));
    if built_in.0 != Some(0) {
        fails(&built_in, &["127.0.0.1:9090 (admin.listen of the built-in configuration)"]);
    }
}

#[test]
fn wildcard_address_is_asked_on_loopback() {
    for listen in ["0.0.0.0", "[::]"] {
        let (config, port) = on_a_port(listen);
        let weir = Weir::start(&config);
        assert_eq!(said(health().arg("--config").arg(weir.file())), healthy("memory"), "{listen}");
        let admin = format!("{listen}:{port}");
        assert_eq!(said(health().args(["--admin", &admin])), healthy("memory"), "{listen}");
    }
}

#[test]
fn health_check_finds_the_file_as_run_does() {
    let (config, port) = on_a_port("127.0.0.1");
    let weir = Weir::start(&config);
    assert_eq!(said(health().env("WEIR_CONFIG", weir.file())), healthy("memory"));
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("config")).unwrap();
    scratch.file("config/config.toml", &config.text());
    assert_eq!(said(health().current_dir(scratch.path())), healthy("memory"));
    let other = scratch.file("other.toml", "[admin]\nlisten = \"127.0.0.1:1\"\n");
    let both = said(health().env("WEIR_CONFIG", weir.file()).arg("--config").arg(&other));
    fails(&both, &["127.0.0.1:1 ", "other.toml"]);
    let admin = format!("127.0.0.1:{port}");
    let named = said(health().arg("--config").arg(&other).args(["--admin", &admin]));
    assert_eq!(named, healthy("memory"));
}

#[test]
fn port_zero_in_the_file_has_to_be_given_on_the_command_line() {
    let weir = Weir::start(&Config::echo());
    let said = said(health().arg("--config").arg(weir.file()));
    fails(&said, &["admin.listen", "127.0.0.1:0", "--admin"]);
}

#[test]
fn bad_usage_and_bad_health_have_different_exit_codes() {
    for arguments in [&["--admin", "localhost:9090"][..], &["--admin", "127.0.0.1"], &["x"]] {
        let (code, _, err) = said(health().args(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
    }
    let (_, _, err) = said(health().args(["--admin", "localhost:9090"]));
    assert!(err.contains("127.0.0.1:9090"), "{err}");
    let (code, out, _) = said(health().arg("--help"));
    assert_eq!(code, Some(0));
    for word in ["/readyz", "--admin", "--config", "--json", "HEALTHCHECK", "Exit codes"] {
        assert!(out.contains(word), "no {word} in:\n{out}");
    }
}
