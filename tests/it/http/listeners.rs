//! Several listeners, each with its own TLS and PROXY protocol; Unix sockets; redirects to HTTPS.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::support::ports::free_port;
use crate::support::{
    Certificates, Client, Config, PATIENCE, Scratch, TlsClient, Upstream, Weir, get, get_with,
    post, wait_until,
};

const ONCE: &str = "key = \"ip\"\nrate = \"1/day\"\nburst = 1";

#[test]
fn each_listener_has_its_own_tls_and_proxy_protocol() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let pair = certificates.pair("server");
    let config = Config::to(&upstream)
        .server(&format!(
            "listen = [\"127.0.0.1:0\", {{ address = \"127.0.0.1:0\", tls = {{ {pair} }}, proxy_protocol = true }}]"
        ))
        .limit(ONCE)
        .also("[identity]\ntrusted_proxies = [\"127.0.0.1\"]");
    let weir = Weir::start(&config);
    let &[plain, secure] = weir.addresses() else { panic!("{:?}", weir.addresses()) };
    assert_eq!(Client::connect(plain).ask(get("/")).status, 200);
    let tls = TlsClient::trusting(&certificates);
    // The header comes before the handshake, with which it may share a packet or not.
    for (source, status) in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.1", 429)] {
        let mut tcp = TcpStream::connect_timeout(&secure, PATIENCE).unwrap();
        tcp.write_all(format!("PROXY TCP4 {source} 127.0.0.1 4711 443\r\n").as_bytes()).unwrap();
        assert_eq!(tls.over(tcp).unwrap().ask(get("/")).status, status, "{source}");
    }
    assert!(tls.try_connect(secure).is_err(), "there is no header");
}

#[test]
fn a_reload_changes_the_tls_of_a_listener_that_is_there() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let plain = Config::to(&upstream).open();
    let weir = Weir::start(&plain);
    let mut before = weir.connect();
    assert_eq!(before.ask(get("/")).status, 200);
    weir.reload(&plain.clone().server(&format!("tls = {{ {} }}", certificates.pair("server"))));
    let tls = TlsClient::trusting(&certificates);
    assert_eq!(tls.connect(weir.address()).ask(get("/")).status, 200);
    assert_eq!(before.ask(get("/")).status, 200, "an open connection stays what it is");
    weir.reload(&plain);
    assert_eq!(weir.get("/").status, 200);
}

#[test]
fn a_unix_socket_is_served_and_its_peers_are_one_caller() {
    let (scratch, upstream) = (Scratch::new(), Upstream::ok());
    let path = scratch.path().join("weir.sock");
    let listen = format!(
        "listen = [\"127.0.0.1:0\", {{ address = \"unix:{}\", mode = \"0600\" }}]",
        path.display()
    );
    let config =
        Config::to(&upstream).server(&listen).limit("key = \"ip\"\nrate = \"1/day\"\nburst = 2");
    let weir = Weir::start(&config);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = Client::connect_unix(&path);
    assert_eq!(client.ask(post("/", "body")).status, 200);
    assert_eq!(upstream.last().one("x-forwarded-for"), "::");
    assert_eq!(upstream.last().one("x-forwarded-proto"), "http");
    // Whatever it says of whom it speaks for.
    let ask = |mut client: Client, named: &str| {
        client.ask(get_with("/", &format!("X-Forwarded-For: {named}\r\n"))).status
    };
    assert_eq!(ask(Client::connect_unix(&path), "192.0.2.1"), 200);
    assert_eq!(ask(Client::connect_unix(&path), "192.0.2.2"), 429);
    assert_eq!(weir.get("/").status, 200, "another caller");
    weir.reload(&config.clone().also("[identity]\ntrusted_proxies = [\"unix:\"]"));
    assert_eq!(ask(Client::connect_unix(&path), "192.0.2.1"), 200);
    assert_eq!(ask(client, "192.0.2.2"), 200);
    assert_eq!(upstream.last().one("x-forwarded-for"), "192.0.2.2, ::");
}

#[test]
fn a_socket_that_was_left_behind_is_taken_and_one_in_use_is_not() {
    let scratch = Scratch::new();
    let path = scratch.path().join("weir.sock");
    let listen = format!("listen = [\"127.0.0.1:0\", \"unix:{}\"]", path.display());
    let config = Config::echo().open().server(&listen);
    drop(Weir::start(&config));
    assert!(path.exists(), "a process that is killed leaves it behind");
    let weir = Weir::start(&config);
    assert_eq!(Client::connect_unix(&path).ask(get("/")).status, 200);
    let file = scratch.file("second.toml", &config.text());
    let second = crate::support::gateway::program().arg("run").arg("-c").arg(&file).output();
    let said = String::from_utf8_lossy(&second.unwrap().stderr).into_owned();
    assert!(said.contains("cannot listen on unix:") && said.contains("in use"), "{said}");
    assert_eq!(Client::connect_unix(&path).ask(get("/")).status, 200);
    drop(weir);
}

#[test]
fn plain_listeners_send_clients_to_https() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let pair = certificates.pair("server");
    let listen = "listen = [{ address = \"127.0.0.1:0\", tls = false }, \"127.0.0.1:0\"]";
    let config = Config::to(&upstream)
        .open()
        .server(&format!("{listen}\ntls = {{ {pair} }}\nredirect_https = true"))
        .also("[telemetry]\naccess_log = \"access.log\"");
    let weir = Weir::start(&config);
    let (plain, secure) = (weir.addresses()[0], weir.addresses()[1]);
    let ask = |target: &str, host: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = Client::connect(plain).ask(request);
        (answer.status, answer.all("location").first().map(|it| (*it).to_owned()))
    };
    let to = |text: &str| (308, Some(text.replace("PORT", &secure.port().to_string())));
    assert_eq!(ask("/a?b=c", "localhost"), to("https://localhost:PORT/a?b=c"));
    assert_eq!(ask("/", "127.0.0.1:80"), to("https://127.0.0.1:PORT/"));
    // The target wins over Host.
    assert_eq!(ask("http://localhost/x", "evil.example"), to("https://localhost:PORT/x"));
    assert_eq!(ask("/", "evil.example"), (400, None));
    wait_until("the error is logged", || {
        let log = std::fs::read_to_string(weir.directory().join("access.log")).unwrap_or_default();
        log.lines().any(|line| line.contains("evil.example") && line.contains("\"bad_request\""))
    });
    assert_eq!(ask("/.well-known/acme-challenge/token", "localhost"), (200, None));
    assert_eq!(upstream.heads(), 1);
    let mut client = TlsClient::trusting(&certificates).connect(secure);
    assert_eq!(client.ask(get("/")).status, 200);
    // What was sent with it is not taken for a request.
    let mut client = Client::connect(plain);
    assert_eq!(
        client.ask(post("/", "GET / HTTP/1.1\r\n\r\n").replace("weir.test", "localhost")).status,
        308
    );
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 308);
}

#[test]
fn a_new_process_takes_over_sockets_of_every_kind() {
    let (certificates, scratch) = (Certificates::new(), Scratch::new());
    let path = scratch.path().join("weir.sock");
    let (plain, secure) = (free_port(), free_port());
    let pair = certificates.pair("server");
    let listen = format!(
        "listen = [\"127.0.0.1:{plain}\", {{ address = \"127.0.0.1:{secure}\", tls = {{ {pair} }} }}, \
         \"unix:{}\"]\ntakeover = {:?}",
        path.display(),
        scratch.path().join("takeover.sock")
    );
    let mut old = Weir::start(&Config::echo().open().server(&listen));
    let inode = || std::fs::metadata(&path).unwrap().ino();
    let before = inode();
    let new = old.take_over();
    assert!(old.exit().success());
    assert_eq!(inode(), before, "the socket itself was handed over");
    assert_eq!(Client::connect_unix(&path).ask(get("/")).status, 200);
    let secure = new.addresses()[1];
    assert_eq!(TlsClient::trusting(&certificates).connect(secure).ask(get("/")).status, 200);
    assert_eq!(new.get("/").status, 200);
}
