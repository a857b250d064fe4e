//! Clients that disconnect, or send more than is read: what they receive, and what they cost.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::support::upstream::LONG;
use crate::support::{
    After, Client, Config, LONG_PATIENCE, Upstream, Weir, get, post, tool, wait_at_most,
    wait_for_value, wait_until, wait_until_steady,
};

/// An upstream that never answers, and counts the connections it was left on.
fn silent() -> (Upstream, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&left);
    let upstream = Upstream::scripted(move |exchange| {
        exchange.wire.set_patience(LONG);
        while exchange.wire.fill().is_ok() {}
        count.fetch_add(1, Ordering::SeqCst);
        After::Close
    });
    (upstream, left)
}

/// Sends until the gateway reads no more.
fn fill(client: &mut Client, bytes: &[u8], most: usize) {
    client.wire.stream().set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    for _ in 0..most {
        if !client.wire.write(bytes) {
            return;
        }
    }
}

/// The most memory it has had, once that grows no more.
#[track_caller]
fn steady_memory(weir: &Weir) -> u64 {
    wait_until_steady("it reads no more", || weir.peak_memory())
}

#[test]
fn requests_pipelined_behind_a_slow_one_are_not_buffered() {
    const CLIENTS: usize = 200;
    let (upstream, left) = silent();
    let config = Config::to(&upstream).open().upstream("response_timeout = \"10m\"");
    let weir = Weir::start(&config);
    let behind = get("/behind").repeat(100);
    // What a connection takes by itself, and with more behind it than is read ahead.
    let mut clients: Vec<Client> = Vec::new();
    let [plain, piled] = [0, 40].map(|blocks| {
        let before = steady_memory(&weir);
        for _ in 0..CLIENTS {
            let mut client = weir.connect();
            client.send(get("/slow"));
            fill(&mut client, behind.as_bytes(), blocks);
            clients.push(client);
        }
        wait_until("all are in flight", || upstream.heads() == clients.len());
        steady_memory(&weir) - before
    });
    let each = piled.saturating_sub(plain) / CLIENTS as u64;
    assert!(each <= 16, "{each} KiB are read ahead on each connection");
    // With all of that unread, it is still seen that they leave.
    clients.into_iter().for_each(|client| client.wire.reset());
    wait_until("no upstream connection is kept for them", || {
        left.load(Ordering::SeqCst) == 2 * CLIENTS
    });
}

#[test]
fn a_reset_is_seen_while_an_upload_waits_for_its_upstream() {
    let (end, over) = mpsc::channel::<()>();
    let over = Mutex::new(over);
    let upstream = Upstream::scripted(move |_| {
        // Nothing of the body is read.
        let _ = over.lock().unwrap().recv_timeout(LONG);
        After::Close
    });
    let config = Config::to(&upstream).open().upstream("response_timeout = \"10m\"");
    let weir = Weir::start(&config.server("request_timeout = \"10m\""));
    let mut client = weir.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    fill(&mut client, &[b'x'; 65_536], 1000);
    wait_until("it is in flight", || upstream.heads() == 1);
    client.wire.reset();
    let labels = [("route", "all"), ("status", "499")];
    let seen = || {
        let metrics = weir.metrics();
        let count = |labels: &[(&str, &str)]| metrics.value("weir_requests_total", labels);
        (count(&labels), count(&[]))
    };
    wait_for_value("it is seen", seen, |(gone, _)| *gone == Some(1.0));
    drop(end);
}

/// What a Python program prints, or `None` where there is no Python.
fn python(program: &str, arguments: &[&str]) -> Option<String> {
    let ran = Command::new("python3").args(["-c", program]).args(arguments).output();
    let output = tool("python3", ran)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

const UPLOAD: &str = r"
import http.client, sys
host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = http.client.HTTPConnection(host, port, timeout=60)
connection.request('POST', '/', body=b'x' * size)
response = connection.getresponse()
print(response.status, len(response.read()) > 0)
";

#[test]
fn a_python_client_reads_the_refusal_of_a_large_upload() {
    let weir = Weir::start(&Config::echo().limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 1"));
    assert_eq!(weir.get("/").status, 200);
    let (host, port) = (weir.address().ip().to_string(), weir.address().port().to_string());
    for size in ["5000000", "50000000"] {
        let Some(said) = python(UPLOAD, &[&host, &port, size]) else { return };
        assert_eq!(said, "429 True", "{size} bytes");
    }
}

#[test]
fn refused_slow_upload_may_finish_before_its_refusal_is_read() {
    let weir = Weir::start(&Config::echo().limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 1"));
    assert_eq!(weir.get("/").status, 200);
    let mut client = weir.connect();
    client.send(post("/", &"x".repeat(3_000_000)).replace("3000000", "3000002"));
    // The passing of time is what is tested here: a courtesy of two seconds is not enough.
    std::thread::sleep(Duration::from_secs(3));
    assert!(client.wire.write(b"x"), "it is cut off");
    // And goes on after its first byte.
    std::thread::sleep(Duration::from_millis(200));
    assert!(client.wire.write(b"x"), "it is cut off");
    assert_eq!(client.response().status, 429);
    assert!(client.closes());
}

#[test]
fn refused_uploads_are_drained_only_up_to_a_bound() {
    // As many as a worker drains for long, see docs/architecture.md.
    const MANY: usize = 512;
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
    let weir = Weir::start(&Config::echo().limit(limit).server("workers = 1"));
    assert_eq!(weir.get("/").status, 200);
    let refused = || {
        let mut client = weir.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nx");
        assert_eq!(client.response().status, 429);
        client
    };
    // More than the kernel's buffers of both sides take by themselves.
    let upload = |client: &mut Client| (0..400).all(|_| client.wire.write(&[b'x'; 65_536]));
    assert!(upload(&mut refused()), "there is room for one");
    let connections = || weir.metrics().value("weir_connections", &[]).unwrap() as usize;
    let many = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        // Silence would end the other uploads.
        scope.spawn(|| {
            let stopped = stopped;
            while stopped.recv_timeout(Duration::from_millis(500)).is_err_and(is_timeout) {
                many.lock().unwrap().iter_mut().for_each(|client: &mut Client| client.send("x"));
            }
        });
        wait_at_most(LONG_PATIENCE, "one more is cut off", || {
            for _ in connections()..MANY {
                // Not under the lock, which the other thread would hardly ever get then.
                let client = refused();
                many.lock().unwrap().push(client);
            }
            let mut one_more = refused();
            let cut_off = !upload(&mut one_more);
            // On a busy machine some may have ended by then: others take their places.
            assert!(cut_off || connections() <= MANY, "it is read from without an end");
            cut_off
        });
        drop(stop);
    });
    drop(many);
    wait_until("there is room again", || upload(&mut refused()));
}

fn is_timeout(error: mpsc::RecvTimeoutError) -> bool {
    error == mpsc::RecvTimeoutError::Timeout
}
