//! Ways to reach a Redis: TLS, users and passwords, a Unix socket, a database.

use crate::support::certificates::Certificates;
use crate::support::gateway::program;
use crate::support::resp::Reply;
use crate::support::{Config, RECOVERY, Redis, Scratch, Weir, wait_at_most, wait_until};

const LIMIT: &str = "key = \"ip\"\nrate = \"1/day\"\nburst = 3";

fn config(store: &str) -> Config {
    Config::echo().store(store).store("timeout = \"5s\"").limit(LIMIT)
}

/// Two gateways give three together: the store is in use.
#[track_caller]
fn is_shared(store: &str) {
    let config = config(store).store("on_error = \"deny\"");
    let [one, two] = Weir::start_two(&config);
    let statuses = [&one, &two, &one, &two, &one].map(|it| it.get("/").status);
    assert_eq!(statuses, [200, 200, 200, 429, 429], "{store}");
    assert!(!one.degraded() && !two.degraded());
}

/// The gateway decides without Redis, and logs why in a text that contains one of these.
#[track_caller]
fn is_refused(store: &str, words: &[&str]) {
    let weir = Weir::start(&config(store));
    wait_until("it serves alone", || {
        assert!(matches!(weir.get("/").status, 200 | 429));
        weir.degraded()
    });
    wait_until("it says why", || {
        let said = weir.output().to_lowercase();
        words.iter().any(|word| said.contains(&word.to_lowercase()))
    });
}

fn tls(certificates: &Certificates, names: &[(&str, &str)]) -> String {
    let files = names
        .iter()
        .map(|(key, file)| format!("{key} = \"{}\"", certificates.path(file).display()));
    format!("tls = {{ {} }}\n", files.collect::<Vec<_>>().join(", "))
}

#[test]
fn tls_connects_to_a_server_of_the_configured_authority() {
    let certificates = Certificates::new();
    let redis = Redis::tls(&certificates, false);
    let ca = tls(&certificates, &[("ca", "ca.pem")]);
    is_shared(&(redis.store() + &ca));
    redis.command(&["FLUSHALL"]);
    let by_name = redis.store().replace("127.0.0.1", "localhost");
    is_shared(&(by_name + &ca));
}

#[test]
fn server_of_another_authority_is_not_trusted() {
    let certificates = Certificates::new();
    let redis = Redis::tls(&certificates, false);
    let strangers = Certificates::new();
    let store = redis.store() + &tls(&strangers, &[("ca", "ca.pem")]);
    is_refused(&store, &["certificate", "UnknownIssuer", "tls"]);
    is_refused(&redis.store(), &["certificate", "UnknownIssuer", "tls"]);
    assert_eq!(redis.buckets(), Vec::<String>::new());
}

#[test]
fn plaintext_server_is_rejected_where_tls_is_configured() {
    let certificates = Certificates::new();
    let redis = Redis::start();
    let store = redis.store().replace("redis://", "rediss://");
    let store = store + &tls(&certificates, &[("ca", "ca.pem")]) + "on_error = \"local\"\n";
    let weir = Weir::start(&Config::echo().store(&store).store("timeout = \"300ms\"").limit(LIMIT));
    wait_until("it serves alone", || {
        assert!(matches!(weir.get("/").status, 200 | 429));
        weir.degraded()
    });
}

#[test]
fn client_certificate_is_sent_on_request() {
    let certificates = Certificates::new();
    let redis = Redis::tls(&certificates, true);
    let names = [("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key")];
    is_shared(&(redis.store() + &tls(&certificates, &names)));
    redis.command(&["FLUSHALL"]);
    let without = redis.store() + &tls(&certificates, &[("ca", "ca.pem")]);
    is_refused(&without, &["certificate", "tls", "unreachable"]);
    assert_eq!(redis.buckets(), Vec::<String>::new());
}

#[test]
fn password_authenticates() {
    let redis = Redis::guarded("p:w/%@ #1");
    let url =
        |part: &str| format!("kind = \"redis\"\nurl = \"redis://{part}{}\"\n", redis.address());
    is_shared(&url(":p%3Aw%2F%25%40%20%231@"));
    redis.command(&["FLUSHALL"]);
    is_shared(&url("default:p%3Aw%2F%25%40%20%231@"));
    is_refused(&url(""), &["NOAUTH", "authentication"]);
    is_refused(&url(":wrong@"), &["WRONGPASS", "password", "authentication"]);
}

#[test]
fn a_password_may_come_from_a_file_or_the_environment() {
    let redis = Redis::guarded("from-elsewhere");
    let scratch = Scratch::new();
    let secret = scratch.file("secret", "from-elsewhere\n");
    is_shared(&format!("{}password_file = \"{}\"\n", redis.store(), secret.display()));
    redis.command(&["FLUSHALL"]);
    let store = redis.store() + "password_env = \"WEIR_TEST_SECRET\"\n";
    let file = scratch.file("weir.toml", &config(&store).text());
    let mut command = program();
    command.env("WEIR_TEST_SECRET", "from-elsewhere");
    let weir = Weir::start_with(command, scratch, file);
    assert_eq!([0; 4].map(|_| weir.get("/").status), [200, 200, 200, 429]);
    assert_eq!(redis.buckets().len(), 1);
    assert!(!weir.output().contains("from-elsewhere"));
}

#[test]
fn empty_password_counts_as_none() {
    let redis = Redis::start();
    let store = redis.store() + "password_env = \"WEIR_TEST_SECRET\"\non_error = \"deny\"\n";
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config(&store).text());
    let mut command = program();
    command.env("WEIR_TEST_SECRET", "");
    let weir = Weir::start_with(command, scratch, file);
    assert_eq!([0; 4].map(|_| weir.get("/").status), [200, 200, 200, 429]);
    assert_eq!(redis.buckets().len(), 1);
}

/// Makes the user that docs/redis.md shows, with the rights that it shows.
fn grant_documented_rights(redis: &Redis) {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md");
    let document = std::fs::read_to_string(document).unwrap();
    let line = document.lines().find(|line| line.starts_with("ACL SETUSER weir ")).unwrap();
    let line = line.replace(">PASSWORD", ">weir-secret");
    redis.command(&line.split(' ').collect::<Vec<_>>());
}

#[test]
fn documented_acl_rights_are_enough() {
    let redis = Redis::guarded("of-the-operator");
    grant_documented_rights(&redis);
    let url = format!("url = \"redis://weir:weir-secret@{}\"\n", redis.address());
    is_shared(&format!("kind = \"redis\"\n{url}"));
    let keys = redis.keys();
    assert!(!keys.is_empty() && keys.iter().all(|it| it.name.starts_with("weir:")), "{keys:?}");
    redis.command(&["FLUSHALL"]);
    let scratch = Scratch::new();
    let secret = scratch.file("secret", "weir-secret");
    let lines = format!("username = \"weir\"\npassword_file = \"{}\"\n", secret.display());
    is_shared(&(redis.store() + &lines));
    redis.command(&["FLUSHALL"]);
    is_shared(&format!("kind = \"hybrid\"\n{url}"));
    let log = redis.command(&["ACL", "LOG"]);
    // The command that names the program: Redis 7.0 knows neither it nor the right to it.
    let of_naming = ["client", "client|setinfo"];
    let is_needed = |denied: &&Reply| {
        let Reply::List(fields) = denied else { return true };
        !fields.iter().any(|it| matches!(it, Reply::Text(text) if of_naming.contains(&&**text)))
    };
    let denied: Vec<_> = log.list().iter().filter(is_needed).collect();
    assert!(denied.is_empty(), "{denied:?}");
}

#[test]
fn revoked_and_restored_rights_are_noticed() {
    let redis = Redis::guarded("of-the-operator");
    let grant = |on: &str| redis.command(&["ACL", "SETUSER", "weir", on, ">s", "~*", "+@all"]);
    grant("on");
    let url = format!("kind = \"redis\"\nurl = \"redis://weir:s@{}\"\n", redis.address());
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 3";
    let weir = Weir::start(&config(&url).limit(limit));
    let mut user = 0;
    let mut ask = || {
        user += 1;
        let lines = format!("X-User: {user}\r\n");
        weir.ask(crate::support::get_with("/", &lines)).status
    };
    assert_eq!(ask(), 200);
    redis.command(&["ACL", "DELUSER", "weir"]);
    wait_until("it serves alone", || {
        assert_eq!(ask(), 200);
        weir.degraded()
    });
    grant("on");
    wait_at_most(RECOVERY, "it is let in again", || !weir.degraded());
    assert_eq!(ask(), 200);
}

#[test]
fn unix_socket_connects() {
    let redis = Redis::start();
    let socket = redis.socket();
    is_shared(&format!("kind = \"redis\"\nurl = \"unix://{}\"\n", socket.display()));
    assert_eq!(redis.buckets().len(), 1);
    is_shared(&format!("kind = \"redis\"\nurl = \"redis+unix://{}?db=2\"\n", socket.display()));
    assert_ne!(redis.keys_of("2"), []);
}

#[test]
fn configured_database_is_used() {
    let redis = Redis::start();
    for database in [3, 15] {
        let store = format!("kind = \"redis\"\nurl = \"redis://{}/{database}\"\n", redis.address());
        is_shared(&store);
        assert_ne!(redis.keys_of(&database.to_string()), []);
    }
    assert_eq!(redis.keys(), []);
    // A connection that is made anew is on the same one.
    let store = format!("kind = \"redis\"\nurl = \"redis://{}/4\"\n", redis.address());
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 1000";
    let weir = Weir::start(&config(&store).limit(limit));
    assert_eq!(weir.get("/").status, 200);
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    wait_until("it is connected again", || {
        assert_eq!(weir.get("/").status, 200);
        !weir.degraded()
    });
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(redis.keys(), []);
}

#[test]
fn missing_database_is_reported() {
    let redis = Redis::with(&["--databases", "4"]);
    let store = format!("kind = \"redis\"\nurl = \"redis://{}/9\"\n", redis.address());
    is_refused(&store, &["DB index", "database"]);
}
