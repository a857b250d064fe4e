//! Servers behind Unix sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::support::{Config, Scratch, Weir, get, post, wait_until};

/// Answers each request with its own body, and tells of its head.
fn serve(path: &Path) -> Receiver<String> {
    let listener = UnixListener::bind(path).unwrap();
    let (heads, seen) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let heads = heads.clone();
            thread::spawn(move || answer(stream, &heads));
        }
    });
    seen
}

fn answer(stream: UnixStream, heads: &Sender<String>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = head.lines().find_map(|it| it.strip_prefix("content-length: "));
        let length =
            length.or_else(|| head.lines().find_map(|it| it.strip_prefix("Content-Length: ")));
        let mut body = vec![0; length.map_or(0, |it| it.parse().unwrap())];
        reader.read_exact(&mut body).ok()?;
        let _ = heads.send(head);
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[reply.as_bytes(), &body].concat()).ok()?;
    }
}

fn config(path: &Path, lines: &str) -> Config {
    let upstream = format!("servers = [\"unix:{}\"]\n{lines}", path.display());
    Config::echo().open().upstream(&upstream)
}

#[test]
fn requests_go_through_a_unix_socket_and_its_connections_are_used_again() {
    let folder = Scratch::new();
    let path = folder.path().join("app.sock");
    let heads = serve(&path);
    let weir = Weir::start(&config(&path, ""));
    let mut client = weir.connect();
    for _ in 0..3 {
        assert_eq!(client.ask(get("/a")).status, 200);
        assert_eq!(client.ask(post("/b", "a body")).text(), "a body");
    }
    let head = heads.recv().unwrap();
    assert!(head.starts_with("GET /a HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("\r\nhost: weir.test\r\n"), "{head}");
    // HTTP/1.0 clients need not name a host.
    assert_eq!(client.ask("GET /c HTTP/1.0\r\n\r\n").status, 200);
    let head = heads.iter().find(|it| it.starts_with("GET /c ")).unwrap();
    assert!(head.to_ascii_lowercase().contains("\r\nhost: localhost\r\n"), "{head}");
}

#[test]
fn a_unix_socket_that_is_not_there_is_a_502_and_one_that_comes_back_is_used() {
    let folder = Scratch::new();
    let path = folder.path().join("app.sock");
    let lines = "health = { path = \"/healthz\", interval = \"50ms\", unhealthy = 1, healthy = 1 }";
    let weir = Weir::start(&config(&path, lines));
    let mut client = weir.connect();
    let response = client.ask(get("/"));
    assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
    let name = format!("unix:{}", path.display());
    let healthy = || {
        let labels = [("upstream", "api"), ("server", name.as_str())];
        weir.metrics().value("weir_upstream_healthy", &labels)
    };
    wait_until("it is unhealthy", || healthy() == Some(0.0));
    let heads = serve(&path);
    wait_until("it is healthy", || healthy() == Some(1.0));
    let probe = heads.recv().unwrap();
    assert!(probe.starts_with("GET /healthz HTTP/1.1\r\n"), "{probe}");
    assert_eq!(client.ask(get("/")).status, 200);
}
