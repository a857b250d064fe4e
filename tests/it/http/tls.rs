//! Requests over TLS: handshakes, certificates by host, versions, bodies, and clients that do not
//! speak it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::support::{
    After, Certificates, Client, Config, PATIENCE, TlsClient, Upstream, Weir, get, post, tool,
    wait_until,
};

/// A gateway whose listener shows `server.pem`.
fn over_tls(config: Config, certificates: &Certificates) -> Weir {
    Weir::start(&config.server(&format!("tls = {{ {} }}", certificates.pair("server"))))
}

fn errors(weir: &Weir, reason: &str) -> f64 {
    let name = "weir_tls_handshake_errors_total";
    weir.metrics().value(name, &[("reason", reason)]).expect("every reason has its series")
}

/// What a program prints, both ways together, given this input.
fn run(program: &str, arguments: &[&str], input: &str) -> Option<String> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = tool(program, spawned)?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_request_over_tls_is_told_to_the_upstream_as_https() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let weir = over_tls(Config::to(&upstream).open(), &certificates);
    let mut client = TlsClient::trusting(&certificates).connect(weir.address());
    for _ in 0..3 {
        assert_eq!(client.ask(get("/a")).status, 200);
    }
    let received = upstream.requests();
    assert_eq!(received.len(), 3);
    for request in received {
        assert_eq!(request.one("x-forwarded-proto"), "https");
        assert!(request.one("forwarded").contains("proto=https"), "{}", request.raw);
    }
    assert!(weir.output().contains("listening on https://127.0.0.1:"));
}

#[test]
fn curl_and_openssl_are_served() {
    let certificates = Certificates::new();
    let weir = over_tls(Config::echo().open(), &certificates);
    let port = weir.address().port();
    let authority = certificates.path("ca.pem").display().to_string();
    let url = format!("https://localhost:{port}/hello");
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        let max = if version == "--tlsv1.2" { "1.2" } else { "1.3" };
        let resolve = format!("localhost:{port}:127.0.0.1");
        let arguments = [
            "-sS",
            "-i",
            version,
            "--tls-max",
            max,
            "--cacert",
            &authority,
            "--resolve",
            &resolve,
            &url,
        ];
        let Some(said) = run("curl", &arguments, "") else { return };
        assert!(said.starts_with("HTTP/2 200"), "{said}");
    }
    let at = format!("127.0.0.1:{port}");
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let arguments = [
        "s_client",
        "-connect",
        &at,
        "-servername",
        "localhost",
        "-CAfile",
        &authority,
        "-ign_eof",
    ];
    let Some(said) = run("openssl", &arguments, request) else { return };
    assert!(said.contains("HTTP/1.1 200 OK") && said.contains("Verify return code: 0"), "{said}");
}

#[test]
fn old_versions_are_refused_where_a_newer_one_is_asked_for() {
    let certificates = Certificates::new();
    let pair = certificates.pair("server");
    let config =
        Config::echo().open().server(&format!("tls = {{ {pair}, min_version = \"1.3\" }}"));
    let weir = Weir::start(&config);
    let old = TlsClient::with_versions(&certificates, &[&rustls::version::TLS12]);
    assert!(old.try_connect(weir.address()).is_err());
    wait_until("the refusal is counted", || errors(&weir, "incompatible") == 1.0);
    let new = TlsClient::with_versions(&certificates, &[&rustls::version::TLS13]);
    assert_eq!(new.connect(weir.address()).ask(get("/")).status, 200);
}

#[test]
fn the_certificate_is_that_of_the_host() {
    let certificates = Certificates::new();
    certificates.issue("shop", &["shop.example", "*.shop.example"]);
    certificates.issue("blog", &["blog.example"]);
    let pairs = ["server", "shop", "blog"].map(|it| format!("{{ {} }}", certificates.pair(it)));
    let weir = Weir::start(&Config::echo().open().server(&format!("tls = [{}]", pairs.join(", "))));
    for (host, name) in [
        ("localhost", "server"),
        ("shop.example", "shop"),
        ("www.shop.example", "shop"),
        ("BLOG.example", "blog"),
        // Addresses are not asked for by name.
        ("127.0.0.1", "server"),
    ] {
        let client = TlsClient::trusting(&certificates).host(host);
        let mut client = client.connect(weir.address());
        let expected = crate::support::tls_client::pem(&certificates.path(&format!("{name}.pem")));
        assert_eq!(client.shown(), expected[0], "{host}");
        assert_eq!(client.ask(get("/")).status, 200);
    }
}

#[test]
fn sessions_are_resumed_by_whichever_worker() {
    let certificates = Certificates::new();
    let weir = over_tls(Config::echo().open(), &certificates);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = TlsClient::with_versions(&certificates, &[version]);
        let mut resumed = Vec::new();
        for _ in 0..6 {
            let mut connection = client.connect(weir.address());
            assert_eq!(connection.ask(get("/")).status, 200);
            resumed.push(connection.resumed());
        }
        assert_eq!(resumed, [false, true, true, true, true, true], "{version:?}");
    }
}

#[test]
fn the_protocol_above_is_agreed_on() {
    let certificates = Certificates::new();
    let weir = over_tls(Config::echo().open(), &certificates);
    let client = TlsClient::trusting(&certificates).offering(&["http/1.1"]);
    let mut client = client.connect(weir.address());
    assert_eq!(client.protocol().as_deref(), Some("http/1.1"));
    assert_eq!(client.ask(get("/")).status, 200);
    let other = TlsClient::trusting(&certificates).offering(&["http/1.1"]);
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_eq!(other.connect(weir.address()).ask(preface).status, 505);
    let stranger = TlsClient::trusting(&certificates).offering(&["imap"]);
    assert!(stranger.try_connect(weir.address()).is_err());
    wait_until("the refusal is counted", || errors(&weir, "incompatible") == 1.0);
}

#[test]
fn a_plain_request_on_a_tls_port_is_told_so() {
    let certificates = Certificates::new();
    let weir = over_tls(Config::echo().open(), &certificates);
    let mut client = weir.connect();
    let answer = client.ask(get("/"));
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"], "bad_request");
    assert!(answer.text().contains("plain HTTP"), "{}", answer.text());
    client.wire.finish_writing();
    assert!(client.closes());
    assert_eq!(errors(&weir, "plain_http"), 1.0);
    let mut stranger = weir.connect();
    stranger.send([0x80, 0x2e, 0x01]);
    assert!(stranger.closes());
    wait_until("it is counted", || errors(&weir, "not_tls") == 1.0);
}

#[test]
fn tls_on_a_plain_port_is_closed_at_once() {
    let certificates = Certificates::new();
    let weir = Weir::start(&Config::echo().open().server("header_timeout = \"1h\""));
    assert!(TlsClient::trusting(&certificates).try_connect(weir.address()).is_err());
    assert_eq!(weir.get("/").status, 200);
}

#[test]
fn slow_and_broken_handshakes_end_and_hold_up_nobody() {
    let certificates = Certificates::new();
    let config = Config::echo().open().server("header_timeout = \"300ms\"\nworkers = 1");
    let weir = over_tls(config, &certificates);
    let address = weir.address();
    // A record that announces more than ever comes.
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
            stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
            stream
        })
        .collect();
    let client = TlsClient::trusting(&certificates);
    for _ in 0..20 {
        assert_eq!(client.connect(address).ask(get("/")).status, 200);
    }
    for mut stream in slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // A reset ends it as well.
        let _ = stream.read_to_end(&mut rest);
    }
    wait_until("all of them are counted", || errors(&weir, "timeout") == 200.0);
    let mut broken = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    // A hello that is whole, and says nothing.
    broken.write_all(&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]).unwrap();
    broken.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut alert = Vec::new();
    let _ = broken.read_to_end(&mut alert);
    assert_eq!(alert.first(), Some(&0x15), "an alert says what is wrong: {alert:?}");
    wait_until("it is counted", || errors(&weir, "malformed") == 1.0);
    let gone = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    (&gone).write_all(&[0x16, 3, 1, 2, 0]).unwrap();
    drop(gone);
    wait_until("it is counted", || errors(&weir, "disconnected") == 1.0);
}

/// More clients than there is room for handshakes of a worker.
fn crowd(weir: &Weir, count: usize, first_bytes: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect_timeout(&weir.address(), PATIENCE).unwrap();
        stream.write_all(first_bytes).unwrap();
        stream
    };
    (0..count).map(connect).collect()
}

#[test]
fn clients_that_say_nothing_take_no_room_for_handshakes() {
    let certificates = Certificates::new();
    let config = Config::echo().open().server("header_timeout = \"1h\"\nworkers = 1");
    let weir = over_tls(config, &certificates);
    let _silent = crowd(&weir, 1_200, &[]);
    let client = TlsClient::trusting(&certificates);
    assert_eq!(client.connect(weir.address()).ask(get("/")).status, 200);
    assert_eq!(errors(&weir, "timeout"), 0.0, "none had to give way");
}

#[test]
fn slow_handshakes_give_way_to_all_that_wait_and_not_one_by_one() {
    let certificates = Certificates::new();
    let config = Config::echo().open().server("header_timeout = \"1h\"\nworkers = 1");
    let weir = over_tls(config, &certificates);
    let _slow = crowd(&weir, 3_000, &[0x16]);
    // A second for the first thousand, and another for those that came in their place.
    wait_until("all but the last thousand have given way", || {
        errors(&weir, "timeout") >= 3_000.0 - 1_024.0
    });
    let client = TlsClient::trusting(&certificates);
    assert_eq!(client.connect(weir.address()).ask(get("/")).status, 200);
}

#[test]
fn large_bodies_pass_both_ways() {
    let certificates = Certificates::new();
    let upstream = Upstream::scripted(|exchange| {
        exchange.read_body();
        let body = std::mem::take(&mut exchange.request.body);
        exchange.reply(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
        exchange.reply(body);
        After::Keep
    });
    let weir = over_tls(Config::to(&upstream).open(), &certificates);
    let body: Vec<u8> = (0..5_000_000_u32).map(|it| it.to_le_bytes()[it as usize % 3]).collect();
    let mut client = TlsClient::trusting(&certificates).connect(weir.address());
    for _ in 0..2 {
        client
            .send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
        client.send(&body);
        let answer = client.response();
        assert_eq!(answer.status, 200);
        assert!(answer.body == body, "{} bytes came back", answer.body.len());
    }
}

#[test]
fn a_client_that_has_sent_all_still_gets_its_answer() {
    let certificates = Certificates::new();
    let weir = over_tls(Config::echo().open(), &certificates);
    let mut client = TlsClient::trusting(&certificates).connect(weir.address());
    client.send(post("/", "all there is"));
    client.wire.finish_writing();
    let answer = client.response();
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("all there is"));
    assert!(client.closes());
}

#[test]
fn a_refused_upload_can_be_read() {
    let certificates = Certificates::new();
    let config = Config::echo().limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 1");
    let weir = over_tls(config, &certificates);
    let tls = TlsClient::trusting(&certificates);
    assert_eq!(tls.connect(weir.address()).ask(get("/")).status, 200);
    let mut client = tls.connect(weir.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n");
    let piece = vec![7; 100_000];
    for _ in 0..200 {
        client.send(&piece);
    }
    assert_eq!(client.response().status, 429);
    let port = weir.address().port();
    let file = certificates.path("upload");
    std::fs::write(&file, vec![7; 20_000_000]).unwrap();
    let (file, authority) =
        (format!("@{}", file.display()), certificates.path("ca.pem").display().to_string());
    let (url, resolve) =
        (format!("https://localhost:{port}/"), format!("localhost:{port}:127.0.0.1"));
    let arguments = [
        "-sS",
        "-i",
        "-H",
        "Expect:",
        "--cacert",
        &authority,
        "--resolve",
        &resolve,
        "--data-binary",
        &file,
        &url,
    ];
    let Some(said) = run("curl", &arguments, "") else { return };
    assert!(said.starts_with("HTTP/2 429"), "{said}");
}

#[test]
fn requests_in_flight_end_in_a_drain() {
    let certificates = Certificates::new();
    let (upstream, answer) = Upstream::on_demand("late");
    let mut weir = over_tls(Config::to(&upstream).open(), &certificates);
    let tls = TlsClient::trusting(&certificates);
    let mut busy = tls.connect(weir.address());
    let mut idle = tls.connect(weir.address());
    let mut silent = Client::connect(weir.address());
    busy.send(get("/"));
    wait_until("the request is under way", || upstream.heads() == 1);
    weir.signal(rustix::process::Signal::TERM);
    wait_until("nobody is accepted any more", || weir.refuses_connections());
    answer.send(()).unwrap();
    assert_eq!(busy.response().text(), "late");
    assert!(busy.closes() && idle.closes() && silent.closes());
    assert!(weir.exit().success());
}
