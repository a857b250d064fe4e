//! The binary under test, as a user runs it: a file, a process, two sockets.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use super::client::Client;
use super::config::Config;
use super::metrics::Metrics;
use super::response::Response;
use super::scratch::Scratch;
use super::{PATIENCE, POLL_INTERVAL, get, wait_until};

#[derive(Debug)]
pub(crate) struct Weir {
    child: Child,
    data: Vec<SocketAddr>,
    admin: SocketAddr,
    file: PathBuf,
    output: Arc<Mutex<String>>,
    scratch: Scratch,
}

/// What operators show, where a configuration is [`operated`](Config::operated).
pub(crate) const TOKEN: &str = "a-token-of-the-tests";

/// The program, without the surroundings that would change what it reads.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env_remove("WEIR_CONFIG").env_remove("RUST_LOG").stdin(Stdio::null());
    command.env("WEIR_TEST_TOKEN", TOKEN);
    command
}

/// The program with room for so many open files.
pub(crate) fn program_with_files(count: u32) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {count} && exec \"$0\" \"$@\"");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_weir"));
    command.env_remove("WEIR_CONFIG").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// The admin listener on loopback answers to loopback names only; most tests do not care which.
fn for_admin(request: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(request.to_vec()).expect("requests of tests are text");
    text.replacen("Host: weir.test\r\n", "Host: localhost\r\n", 1).into_bytes()
}

/// The tests of this process hold both ends of many connections at once.
fn raise_file_limit() {
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
}

impl Weir {
    #[track_caller]
    pub(crate) fn start(config: &Config) -> Weir {
        let scratch = Scratch::new();
        let file = scratch.file("weir.toml", &config.text());
        Weir::start_from(scratch, file)
    }

    /// Two that are configured alike.
    #[track_caller]
    pub(crate) fn start_two(config: &Config) -> [Weir; 2] {
        [Weir::start(config), Weir::start(config)]
    }

    /// Starts from a file that lies somewhere in `scratch`.
    #[track_caller]
    pub(crate) fn start_from(scratch: Scratch, file: PathBuf) -> Weir {
        Weir::start_with(program(), scratch, file)
    }

    /// Starts a program that is `weir` in the end, and waits until it serves.
    #[track_caller]
    pub(crate) fn start_with(mut command: Command, scratch: Scratch, file: PathBuf) -> Weir {
        command.arg("run");
        Weir::launch(command, scratch, file)
    }

    /// Starts the same program from the same file, to replace this one.
    #[track_caller]
    pub(crate) fn take_over(&self) -> Weir {
        let mut command = program();
        command.args(["run", "--takeover"]);
        Weir::launch(command, Scratch::new(), self.file.clone())
    }

    /// Starts a command that lacks nothing but its configuration, and waits until it serves.
    #[track_caller]
    pub(crate) fn launch(mut command: Command, scratch: Scratch, file: PathBuf) -> Weir {
        raise_file_limit();
        command.arg("--config").arg(&file).current_dir(scratch.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        collect(child.stderr.take().unwrap(), Arc::clone(&output));
        collect(child.stdout.take().unwrap(), Arc::clone(&output));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = output.lock().unwrap().clone();
            let data = addresses(&text.replace("https://", "http://"), "listening on http://");
            let admin = addresses(&text, "admin on http://");
            let store = ["memory", "redis", "hybrid"]
                .iter()
                .any(|it| text.contains(&format!("store {it}")));
            if !data.is_empty() && !admin.is_empty() && store {
                return Weir { child, data, admin: admin[0], file, output, scratch };
            }
            let over = Instant::now() > deadline;
            if over || child.try_wait().unwrap().is_some() {
                let _ = child.kill();
                let _ = child.wait();
                let config = std::fs::read_to_string(&file).unwrap_or_default();
                panic!("weir did not start; it output:\n{text}\nfrom:\n{config}");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.data[0]
    }

    /// Every data address it output it listens on.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.data
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn directory(&self) -> &Path {
        self.scratch.path()
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Response {
        self.connect().ask(request)
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Response {
        self.ask(get(target))
    }

    #[track_caller]
    pub(crate) fn admin(&self, target: &str) -> Response {
        self.ask_admin(get(target))
    }

    /// The first page of those whom guards have warned or blocked.
    #[track_caller]
    pub(crate) fn penalties(&self) -> serde_json::Value {
        self.admin("/v1/penalties").json()["penalties"].clone()
    }

    /// One request to the admin listener.
    #[track_caller]
    pub(crate) fn ask_admin(&self, request: impl AsRef<[u8]>) -> Response {
        Client::connect(self.admin).ask(for_admin(request.as_ref()))
    }

    /// The same as an operator makes it, with the token.
    #[track_caller]
    pub(crate) fn operate(&self, method: &str, target: &str, body: &str) -> Response {
        let length = body.len();
        self.ask_admin(format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ))
    }

    #[track_caller]
    pub(crate) fn metrics(&self) -> Metrics {
        let response = self.admin("/metrics");
        assert_eq!(response.status, 200);
        Metrics::parse(&response.text())
    }

    /// Whether it serves without its store.
    #[track_caller]
    pub(crate) fn degraded(&self) -> bool {
        self.metrics().value("weir_store_degraded", &[]).expect("weir_store_degraded") != 0.0
    }

    /// How many gateways share the store, as far as this one knows.
    #[track_caller]
    pub(crate) fn nodes(&self) -> f64 {
        self.metrics().value("weir_store_nodes", &[]).expect("weir_store_nodes")
    }

    /// How many reloads ended so.
    #[track_caller]
    pub(crate) fn reloads(&self, result: &str) -> f64 {
        self.metrics().value("weir_config_reloads_total", &[("result", result)]).unwrap_or(0.0)
    }

    /// Replaces the file by rename, as editors and orchestrators do.
    pub(crate) fn replace_file(&self, text: &str) {
        let fresh = self.file.with_extension("fresh");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, &self.file).unwrap();
    }

    /// Replaces the configuration and waits until it is in force.
    #[track_caller]
    pub(crate) fn reload(&self, config: &Config) {
        let before = self.reloads("ok");
        self.replace_file(&config.text());
        wait_until("the new configuration is in force", || self.reloads("ok") > before);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Stops the process for a while. The length of the stall is what is tested, so it sleeps.
    pub(crate) fn stall(&self, time: Duration) {
        self.signal(Signal::STOP);
        thread::sleep(time);
        self.signal(Signal::CONT);
    }

    /// Waits for the process to end by itself.
    #[track_caller]
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("weir has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Whether a new connection is turned away.
    pub(crate) fn refuses_connections(&self) -> bool {
        TcpStream::connect_timeout(&self.address(), PATIENCE).is_err()
    }

    /// The most memory it has ever had resident, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// How many files and sockets it has open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// The processor time it has used, in ticks of a hundredth of a second.
    fn processor_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        fields.skip(11).take(2).map(|it| it.parse::<u64>().unwrap()).sum()
    }

    /// The processor time it uses meanwhile. A gateway that spins shows it only over time, so this
    /// sleeps.
    pub(crate) fn processor_ticks_in(&self, time: Duration) -> u64 {
        let before = self.processor_ticks();
        thread::sleep(time);
        self.processor_ticks() - before
    }

    /// Everything it has printed so far.
    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("weir output:\n{}", self.output());
        }
    }
}

fn collect(from: impl Read + Send + 'static, into: Arc<Mutex<String>>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut text = into.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    });
}

fn addresses(text: &str, mark: &str) -> Vec<SocketAddr> {
    let after = text.split(mark).skip(1);
    after
        .filter_map(|rest| {
            let end = rest.find(|c: char| !"0123456789abcdef.:[]".contains(c))?;
            rest[..end].parse().ok()
        })
        .collect()
}
