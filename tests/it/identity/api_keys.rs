//! Clients by their API keys: what they are called, what they may, and when that changes.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::gateway::program;
use crate::support::{Config, Scratch, Upstream, Weir, fields, get_with, wait_until};

/// A new key and its hash, as operators make them.
pub(crate) fn new_key() -> (String, String) {
    let made = program().args(["hash-key", "--new"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = String::from_utf8(made.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let &[key, hash] = &lines[..] else { panic!("a key and its hash: {text:?}") };
    (key.to_owned(), hash.to_owned())
}

/// The hash of a key that was there before.
pub(super) fn hash(key: &str) -> String {
    let mut child =
        program().arg("hash-key").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{key}\n").as_bytes()).unwrap();
    let made = child.wait_with_output().unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim_end().to_owned()
}

pub(crate) fn client(id: &str, hash: &str, more: &str) -> String {
    format!("[[clients]]\nid = \"{id}\"\nkey_hash = \"{hash}\"\n{more}\n")
}

/// Limits by client and by tenant, and one whose numbers follow the plan, each on the route of its
/// name.
fn limited(upstream: &Upstream) -> Config {
    let known = "key = \"client\"\nrate = \"1000000/second\"\nmissing = \"deny\"";
    let tenant = "key = \"tenant\"\nrate = \"1/day\"\nburst = 2\nmissing = \"deny\"";
    let plan = "key = \"client\"\nrate = \"1/day\"\nburst = 1\nplans.pro = { burst = 3 }";
    let config = Config::to(upstream).open().bucket("client", "client", 1);
    let config = config.add_limit("known", known).add_limit("tenant", tenant);
    let config = config.add_limit("plan", plan);
    let names = ["client", "known", "tenant", "plan"];
    names.iter().fold(config, |config, name| config.route(name, &format!("/{name}"), &[*name]))
}

fn config(upstream: &Upstream, identity: &str, clients: &str) -> Config {
    let identity =
        format!("[identity]\nclient = [\"header:x-api-key\", \"query:key\"]\n{identity}");
    limited(upstream).also(&identity).also(clients)
}

#[track_caller]
fn ask(weir: &Weir, target: &str, key: &str) -> u16 {
    weir.ask(get_with(target, &format!("X-Api-Key: {key}\r\n"))).status
}

#[test]
fn client_is_known_by_its_key_and_others_follow_missing() {
    let upstream = Upstream::ok();
    let (key, made) = new_key();
    let own = "a key of my own, and long";
    assert_eq!(hash(&key), made, "both ways make the same hash");
    let clients = client("billing", &made, "plan = \"pro\"\ntenant = \"acme\"")
        + &client("shop", &hash(own), "");
    let weir = Weir::start(&config(&upstream, "", &clients));
    assert_eq!([ask(&weir, "/known", &key), ask(&weir, "/known", own)], [200, 200]);
    assert_eq!(upstream.last().one("x-api-key"), own, "the upstream gets it");
    let cut = &key[..key.len() - 1];
    let strangers =
        ["billing", "shop", &made, &made[7..], cut, &format!("{key}x"), &key.to_uppercase(), ""];
    for stranger in strangers {
        let response = weir.ask(get_with("/known", &format!("X-Api-Key: {stranger}\r\n")));
        let told = (response.status, response.error());
        if stranger.is_empty() {
            assert_eq!(told, (403, "missing_key".into()));
            continue;
        }
        assert_eq!(told, (401, "unknown_key".into()), "{stranger}");
        assert!(response.has("www-authenticate"), "RFC 9110 section 15.5.2");
        assert!(response.text().contains("key is not known"), "{}", response.text());
    }
    // Together by address, however many keys they try.
    assert_eq!(ask(&weir, "/client", "stranger"), 200);
    for stranger in strangers {
        assert_eq!(ask(&weir, "/client", stranger), 429, "{stranger}");
    }
    assert_eq!([ask(&weir, "/client", &key), ask(&weir, "/client", &key)], [200, 429]);
    assert_eq!(weir.get(&format!("/client?key={key}")).status, 429, "wherever the key is");
    assert_eq!(ask(&weir, "/client", own), 200);
    let doubled = format!("X-Api-Key: {key}\r\nX-Api-Key: {key}\r\n");
    assert_eq!(weir.ask(get_with("/known", &doubled)).status, 400);
    assert!(!weir.output().contains(&key), "keys are not told");
}

#[test]
fn plan_and_tenant_of_a_client_apply() {
    let upstream = Upstream::ok();
    let keys: Vec<(String, String)> = (0..3).map(|_| new_key()).collect();
    let clients = client("a", &keys[0].1, "plan = \"pro\"\ntenant = \"acme\"")
        + &client("b", &keys[1].1, "plan = \"other\"\ntenant = \"acme\"")
        + &client("c", &keys[2].1, "");
    let weir = Weir::start(&config(&upstream, "", &clients));
    let [a, b, c] = [&keys[0].0, &keys[1].0, &keys[2].0];
    assert_eq!([a, b, a, b].map(|key| ask(&weir, "/tenant", key)), [200, 200, 429, 429]);
    assert_eq!(ask(&weir, "/tenant", c), 403, "of no tenant");
    assert_eq!(ask(&weir, "/tenant", "stranger"), 401, "of nobody knows which");
    for (key, burst) in [(a, 3), (b, 1), (c, 1)] {
        let lines = format!("X-Api-Key: {key}\r\n");
        for left in (0..burst).rev() {
            let response = weir.ask(get_with("/plan", &lines));
            let policies = fields::list(&response.all("ratelimit-policy"));
            let told = fields::list(&response.all("ratelimit"));
            let told = (response.status, policies[0].integer("q"), told[0].integer("r"));
            assert_eq!(told, (200, burst, left));
        }
        assert_eq!(weir.ask(get_with("/plan", &lines)).status, 429);
    }
}

#[test]
fn a_file_of_clients_is_read_again_when_it_changes() {
    let upstream = Upstream::ok();
    let [(one, one_hash), (two, two_hash), (kept, kept_hash)] = [(); 3].map(|()| new_key());
    let scratch = Scratch::new();
    let clients = scratch.file("clients.toml", &client("billing", &one_hash, ""));
    let identity = format!("clients_file = \"{}\"", clients.display());
    let text = config(&upstream, &identity, &client("kept", &kept_hash, "")).text();
    let file = scratch.file("weir.toml", &text);
    let weir = Weir::start_from(scratch, file);
    assert_eq!([&one, &two, &kept].map(|key| ask(&weir, "/known", key)), [200, 401, 200]);
    assert_eq!(ask(&weir, "/client", &one), 200);

    // A new key for the same client: it has spent what it has spent.
    std::fs::write(&clients, client("billing", &two_hash, "plan = \"pro\"")).unwrap();
    let known = |keys: [&String; 3]| keys.map(|key| ask(&weir, "/known", key));
    // New connections come to each of the workers.
    let all_know = |statuses| (0..8).all(|_| known([&one, &two, &kept]) == statuses);
    wait_until("the new key is known, and the old one is not", || all_know([401, 200, 200]));
    assert_eq!(ask(&weir, "/client", &two), 429);
    let plan = [(); 4].map(|()| ask(&weir, "/plan", &two));
    assert_eq!(plan, [200, 200, 200, 429], "its plan is new as well");

    // A file that cannot be used changes no client.
    let before = weir.reloads("failed");
    std::fs::write(&clients, "[[clients]]\nid = \"x\"").unwrap();
    wait_until("it is refused", || weir.reloads("failed") > before);
    assert_eq!([&two, &kept].map(|key| ask(&weir, "/known", key)), [200, 200]);

    // By rename, as orchestrators do it.
    let fresh = clients.with_extension("fresh");
    std::fs::write(&fresh, client("billing", &one_hash, "")).unwrap();
    std::fs::rename(&fresh, &clients).unwrap();
    wait_until("the file is read", || all_know([200, 401, 200]));
}
