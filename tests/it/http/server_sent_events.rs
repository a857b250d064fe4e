//! Server-sent events: each reaches its client when it is sent, over every protocol, and a client that
//! leaves ends the stream.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, mpsc};

use crate::support::{After, Certificates, Config, PATIENCE, Upstream, Weir, get, wait_until};

/// curl that reads a stream line by line.
struct EventClient {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl EventClient {
    fn connect(url: &str, arguments: &[&str]) -> Self {
        let mut process = Command::new("curl")
            .args(["-sS", "-N", "-m", "60", "-H", "Accept: text/event-stream"])
            .args(arguments)
            .arg(url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl");
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        EventClient { process, lines }
    }

    /// The data of the next event.
    fn event(&mut self) -> String {
        let line = self.lines.next().expect("another event").unwrap();
        assert_eq!(self.lines.next().expect("an event ends").unwrap(), "");
        line.strip_prefix("data: ").unwrap_or_else(|| panic!("no event: {line}")).to_owned()
    }
}

impl Drop for EventClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends an event whenever it is told to, until its client has left, which it reports.
fn event_source() -> (Upstream, mpsc::Sender<&'static str>, mpsc::Receiver<()>) {
    let (go, events) = mpsc::channel();
    let (left, has_left) = mpsc::channel();
    let (events, left) = (Mutex::new(events), Mutex::new(left));
    let upstream = Upstream::scripted(move |exchange| {
        exchange.reply(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
        );
        let events = events.lock().unwrap();
        while let Ok(data) = events.recv_timeout(PATIENCE) {
            if data == "end" {
                exchange.reply("0\r\n\r\n");
                return After::Keep;
            } else if data == "leave" {
                while exchange.wire.fill().is_ok() {}
                let _ = left.lock().unwrap().send(());
                return After::Close;
            }
            let event = format!("data: {data}\n\n");
            exchange.reply(format!("{:x}\r\n{event}\r\n", event.len()));
        }
        After::Close
    });
    (upstream, go, has_left)
}

#[test]
fn each_event_arrives_before_the_next_one_is_sent() {
    let certificates = Certificates::new();
    let (upstream, go, _) = event_source();
    let tls =
        format!("{{ address = \"127.0.0.1:0\", tls = {{ {} }} }}", certificates.pair("server"));
    let listen = format!("listen = [\"127.0.0.1:0\", {tls}]");
    let weir = Weir::start(&Config::to(&upstream).open().server(&listen));
    let addresses = weir.addresses();
    let [plain, secure] = addresses[..] else { panic!("two listeners: {addresses:?}") };
    let (plain, secure) = (format!("http://{plain}/events"), format!("https://{secure}/events"));
    let ways: [(&str, &[&str]); 4] = [
        (&plain, &["--http1.1"]),
        (&plain, &["--http2-prior-knowledge"]),
        (&secure, &["--insecure", "--http1.1"]),
        (&secure, &["--insecure", "--http2"]),
    ];
    for (url, arguments) in ways {
        let mut client = EventClient::connect(url, arguments);
        for data in ["one", "two", "three"] {
            go.send(data).unwrap();
            assert_eq!(client.event(), data, "{arguments:?}");
        }
        go.send("end").unwrap();
        assert!(client.lines.next().is_none(), "{arguments:?}");
        assert!(client.process.wait().unwrap().success(), "{arguments:?}");
    }
}

#[test]
fn a_client_that_leaves_ends_its_stream_and_gives_its_slot_back() {
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let (upstream, go, has_left) = event_source();
        let limit = "algorithm = \"concurrency\"\nkey = \"ip\"\nlimit = 1";
        let weir = Weir::start(&Config::to(&upstream).limit(limit));
        let url = format!("http://{}/events", weir.address());
        let mut client = EventClient::connect(&url, &[protocol]);
        go.send("one").unwrap();
        assert_eq!(client.event(), "one", "{protocol}");
        assert_eq!(weir.connect().ask(get("/other")).status, 429, "{protocol}: it has the slot");
        go.send("leave").unwrap();
        drop(client);
        has_left
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("{protocol}: the stream goes on"));
        go.send("end").unwrap();
        wait_until("the slot is free", || {
            let status = weir.connect().ask(get("/other")).status;
            if status == 200 {
                return true;
            }
            assert_eq!(status, 429, "{protocol}");
            false
        });
    }
}
