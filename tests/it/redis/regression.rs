//! Bugs of the past between gateways and their Redis.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::{
    Client, Cluster, Config, Load, RECOVERY, Redis, Weir, get, get_with, wait_at_most, wait_until,
};

fn as_user(user: &str) -> String {
    get_with("/", &format!("X-User: {user}\r\n"))
}

/// How many of so many requests pass, one after another.
fn passed(address: SocketAddr, request: &str, count: usize) -> usize {
    let mut client = Client::connect(address);
    let statuses: Vec<u16> = (0..count).map(|_| client.ask(request).status).collect();
    assert!(statuses.iter().all(|it| matches!(it, 200 | 429)), "{statuses:?}");
    statuses.iter().filter(|it| **it == 200).count()
}

/// How many of so many requests pass, all at once.
fn passed_at_once(weir: &Weir, request: &str, count: usize) -> usize {
    let requests = [request.to_owned()];
    crate::support::passed_at_once(std::slice::from_ref(weir), count, 1, &requests)[0]
}

/// The audit lines of that event.
fn audited(weir: &Weir, event: &str) -> Vec<serde_json::Value> {
    let said = weir.output();
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let lines = lines.map(|line| serde_json::from_str(line).expect("a line of JSON"));
    lines.filter(|it: &serde_json::Value| it["event"] == event).collect()
}

/// Accepts connections, answers the login, and stays silent from then on. The connections stay
/// when it goes.
#[derive(Debug)]
struct Mute {
    address: SocketAddr,
    over: Arc<Mutex<bool>>,
}

impl Mute {
    fn start() -> Mute {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let over = Arc::new(Mutex::new(false));
        let ends = Arc::clone(&over);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if *ends.lock().unwrap() {
                    return;
                }
                thread::spawn(move || greet(stream));
            }
        });
        Mute { address, over }
    }

    /// Stops listening.
    fn leave(self) -> u16 {
        *self.over.lock().unwrap() = true;
        drop(TcpStream::connect(self.address));
        wait_until("its port is free", || TcpListener::bind(self.address).is_ok());
        self.address.port()
    }
}

fn greet(mut stream: TcpStream) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        // A login is a few commands in one piece, each of which is fine.
        let logins = chunk[..count].windows(7).filter(|it| it == b"SETINFO").count();
        let _ = stream.write_all("+OK\r\n".repeat(logins).as_bytes());
    }
}

#[test]
fn server_that_goes_silent_after_login_delays_no_request() {
    let mute = Mute::start();
    let store = format!("kind = \"redis\"\nurl = \"redis://{}\"", mute.address);
    let weir = Weir::start(&Config::echo().store(&store));
    assert!(weir.degraded());
    assert_eq!(weir.get("/").status, 200);
    // The old connections stay silent; new ones find a Redis.
    let _redis = Redis::at(mute.leave());
    wait_at_most(2 * RECOVERY, "Redis is in use", || !weir.degraded());
}

#[test]
fn reconnectable_connection_loss_does_not_open_the_breaker() {
    let redis = Redis::start();
    let store = format!("{}on_error = \"deny\"\ntimeout = \"5s\"", redis.store());
    let limit = "key = \"ip\"\nrate = \"100000/second\"\nburst = 100000";
    let weir = Weir::start(&Config::echo().limit(limit).store(&store));
    let load = Load::start(&[weir.address()], &[get("/")], 4);
    // Two workers and the supervisor; the fourth is this client.
    let connections = || redis.command(&["CLIENT", "LIST", "TYPE", "normal"]).text();
    let all_back = || connections().lines().filter(|it| !it.trim().is_empty()).count() >= 4;
    for _ in 0..3 {
        wait_until("all are connected", all_back);
        redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        load.wait_for(100);
    }
    wait_until("all are connected", all_back);
    let answers = load.finish();
    let denied = answers.iter().filter(|it| it.status != 200).count();
    assert_eq!(denied, 0, "of {} with Redis there all the time", answers.len());
    assert_eq!(audited(&weir, "store_degraded").len(), 0);
}

#[test]
fn first_gateway_to_recover_still_counts_the_others() {
    let mut redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 40";
    let config = Config::echo().limit(limit).store(&redis.store()).store("timeout = \"1s\"");
    let weirs: Vec<Weir> = (0..4).map(|_| Weir::start(&config)).collect();
    wait_until("they know each other", || weirs.iter().all(|it| it.nodes() == 4.0));
    redis.kill();
    wait_until("all go by themselves", || weirs.iter().all(Weir::degraded));
    redis.restart();
    wait_until("one is back", || weirs.iter().any(|it| !it.degraded()));
    redis.kill();
    wait_until("all go by themselves", || weirs.iter().all(Weir::degraded));
    let each: Vec<usize> =
        weirs.iter().map(|it| passed(it.address(), &as_user("fresh"), 50)).collect();
    let nodes: Vec<f64> = weirs.iter().map(Weir::nodes).collect();
    assert!(each.iter().sum::<usize>() <= 40, "{each:?} passed of 40, counting {nodes:?}");
}

#[test]
fn requests_admitted_while_a_node_is_silent_are_charged_on_the_others() {
    let cluster = Cluster::start();
    let names: Vec<String> = (0..8).map(|n| format!("wide-{n}")).collect();
    let limits: Vec<String> = names
        .iter()
        .map(|it| format!("[limits.{it}]\nkey = \"global\"\nrate = \"1000000/second\"\n"))
        .collect();
    let tables = format!(
        "[limits.tight]\nkey = \"global\"\nrate = \"1/day\"\nburst = 60\n{}\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n\
         limits = [\"tight\", \"{}\"]",
        limits.concat(),
        names.join("\", \"")
    );
    let config = Config::echo().open().routes(&tables);
    let weir = Weir::start(&config.store(&cluster.store()).store("timeout = \"300ms\""));
    let mut sum = passed_at_once(&weir, &get("/"), 10);
    let buckets = cluster.buckets();
    let (test_store, _) =
        buckets.iter().find(|(_, it)| it.contains(":tight:")).expect("its bucket");
    let (other, _) = buckets.iter().find(|(node, _)| node != test_store).expect("several nodes");
    for _ in 0..2 {
        cluster.nodes[*other].stop();
        sum += passed_at_once(&weir, &get("/"), 20);
        cluster.nodes[*other].cont();
        wait_at_most(2 * RECOVERY, "Redis is in use again", || {
            !weir.degraded() && cluster.nodes[*other].try_command(&["PING"]).is_ok()
        });
    }
    for _ in 0..10 {
        sum += passed_at_once(&weir, &get("/"), 10);
    }
    assert!(sum <= 60, "{sum} passed of 60, and no node has lost anything");
}

#[test]
fn debt_whose_payment_got_no_reply_is_not_paid_twice() {
    let redis = Redis::start();
    let line = LossyLine::to(redis.address());
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 100";
    let store = format!("kind = \"redis\"\nurl = \"redis://{}\"", line.address);
    let weir = Weir::start(&Config::echo().limit(limit).store(&store));
    line.refuse(true);
    wait_until("the gateway decides without Redis", || weir.degraded());
    assert_eq!(passed(weir.address(), &as_user("a"), 20), 20);
    line.lose_next(b"per-ip");
    line.refuse(false);
    wait_at_most(2 * RECOVERY, "Redis is in use again", || !weir.degraded());
    assert!(line.has_lost(), "the reply to the payment was lost");
    assert_eq!(passed(weir.address(), &as_user("a"), 100), 80);
}

/// A proxy that refuses connections, and that closes instead of replying to a script that names a
/// key.
#[derive(Debug)]
struct LossyLine {
    address: SocketAddr,
    state: Arc<Mutex<LossyStore>>,
}

#[derive(Debug, Default)]
struct LossyStore {
    refuses: bool,
    loses: Option<Vec<u8>>,
    lost: bool,
    open: Vec<TcpStream>,
}

impl LossyLine {
    fn to(server: SocketAddr) -> LossyLine {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(LossyStore::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut state = shared.lock().unwrap();
                if state.refuses {
                    continue;
                }
                let server = TcpStream::connect(server).unwrap();
                state.open.push(client.try_clone().unwrap());
                drop(state);
                carry(&client, &server, &shared);
            }
        });
        LossyLine { address, state }
    }

    fn refuse(&self, refuses: bool) {
        let mut state = self.state.lock().unwrap();
        state.refuses = refuses;
        if refuses {
            state.open.drain(..).for_each(|it| drop(it.shutdown(Shutdown::Both)));
        }
    }

    /// The whole text of a script has to be in the call, so that it is sure to be run.
    fn lose_next(&self, key: &[u8]) {
        self.state.lock().unwrap().loses = Some(key.to_vec());
    }

    fn has_lost(&self) -> bool {
        self.state.lock().unwrap().lost
    }
}

fn carry(client: &TcpStream, server: &TcpStream, state: &Arc<Mutex<LossyStore>>) {
    let cut = Arc::new(Mutex::new(false));
    for (from, to, there) in [(client, server, true), (server, client, false)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let (state, cut) = (Arc::clone(state), Arc::clone(&cut));
        thread::spawn(move || {
            let mut chunk = [0; 64 * 1024];
            // A call may come in several pieces.
            let mut call = Vec::new();
            while let Ok(count @ 1..) = from.read(&mut chunk) {
                let bytes = &chunk[..count];
                if there {
                    let mut state = state.lock().unwrap();
                    call.extend_from_slice(bytes);
                    let begun =
                        find_last(&call, b"\r\nEVAL").unwrap_or(call.len().saturating_sub(6));
                    call.drain(..begun);
                    let is_whole = call.starts_with(b"\r\nEVAL\r\n");
                    let key = state.loses.as_ref().filter(|_| is_whole);
                    if key.is_some_and(|key| find_last(&call, key).is_some()) {
                        (state.loses, state.lost) = (None, true);
                        *cut.lock().unwrap() = true;
                    }
                } else if *cut.lock().unwrap() {
                    break;
                }
                if to.write_all(bytes).is_err() {
                    break;
                }
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

fn find_last(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).rposition(|it| it == text)
}

#[test]
fn reloaded_on_error_is_the_one_reported() {
    let mut redis = Redis::start();
    let config = |on_error: &str| {
        Config::echo().store(&redis.store()).store(&format!("on_error = \"{on_error}\""))
    };
    let (before, after) = (config("local"), config("deny"));
    let weir = Weir::start(&before);
    weir.reload(&after);
    redis.kill();
    wait_until("it is audited", || !audited(&weir, "store_degraded").is_empty());
    assert_eq!(weir.get("/").status, 503);
    assert_eq!(audited(&weir, "store_degraded")[0]["on_error"], "deny");
}

#[test]
fn requests_admitted_around_stalls_are_charged_exactly_once() {
    let redis = Redis::debugged();
    let store = format!("{}timeout = \"20ms\"", redis.store());
    let limit = "key = \"global\"\nalgorithm = \"fixed_window\"\nrate = \"1000000000/day\"";
    let config = Config::echo().server("workers = 1").limit(limit).store(&store);
    let weir = Weir::start(&config);
    let load = Load::start(&[weir.address()], &[get("/")], 64);
    for _ in 0..10 {
        load.wait_for(100);
        // About as long as a call may wait: some are late, some are not sent in time.
        redis.command(&["DEBUG", "SLEEP", "0.023"]);
    }
    load.wait_for(100);
    let answers = load.finish();
    assert!(answers.iter().all(|it| it.status == 200));
    let bucket = redis.buckets().remove(0);
    let charged = || {
        let text = redis.command(&["GET", &bucket]).text();
        text.split_once(' ').and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
    };
    wait_until("what passed alone is paid", || charged() >= answers.len() && !weir.degraded());
    assert_eq!(charged(), answers.len());
}
