//! Which of several servers takes a request.

use std::collections::HashSet;

use crate::support::{Client, Config, Upstream, Weir, get, get_with};

/// Servers that say who they are.
fn servers(count: usize) -> Vec<Upstream> {
    let server = |number: usize| {
        let name = number.to_string();
        Upstream::replying(move |_| crate::support::upstream::ok(&name))
    };
    (0..count).map(server).collect()
}

fn config(servers: &[Upstream], weights: &[u32], lines: &str) -> Config {
    let server = |(server, weight): (&Upstream, &u32)| {
        format!("{{ url = \"http://{}\", weight = {weight} }}", server.address())
    };
    let servers: Vec<String> = servers.iter().zip(weights).map(server).collect();
    // One worker, so that its turns can be counted.
    let upstream = format!("servers = [{}]\n{lines}", servers.join(", "));
    Config::echo().open().server("workers = 1").upstream(&upstream)
}

fn tally(client: &mut Client, servers: usize, requests: usize) -> Vec<usize> {
    let mut tally = vec![0; servers];
    for _ in 0..requests {
        tally[client.ask(get("/")).text().parse::<usize>().unwrap()] += 1;
    }
    tally
}

#[test]
fn servers_get_requests_by_their_weights() {
    let servers = servers(3);
    for balance in ["round_robin", "least_requests"] {
        let lines = format!("balance = \"{balance}\"");
        let weir = Weir::start(&config(&servers, &[4, 1, 2], &lines));
        assert_eq!(tally(&mut weir.connect(), 3, 70), [40, 10, 20], "{balance}");
    }
    let weir = Weir::start(&config(&servers, &[4, 1, 2], "balance = \"random\""));
    let random = tally(&mut weir.connect(), 3, 700);
    assert!(random[0] > random[2] && random[2] > random[1] && random[1] > 30, "{random:?}");
}

#[test]
fn a_session_stays_with_its_server_across_gateways_and_only_those_of_a_dead_one_move() {
    let mut servers = servers(3);
    let lines = "balance = \"hash:header:x-session\"\nconnect_timeout = \"500ms\"";
    let config = config(&servers, &[1, 1, 1], lines);
    let weir = Weir::start(&config);
    let server_of = |weir: &Weir| -> Vec<String> {
        let mut client = weir.connect();
        let ask = |session: usize| get_with("/", &format!("X-Session: {session}\r\n"));
        (0..60).map(|session| client.ask(ask(session)).text()).collect()
    };
    let before = server_of(&weir);
    assert_eq!(before, server_of(&weir));
    assert_eq!(before.iter().collect::<HashSet<_>>().len(), 3, "{before:?}");
    assert_eq!(before, server_of(&Weir::start(&config)), "another gateway chooses alike");

    servers.remove(1);
    for (before, after) in before.iter().zip(server_of(&weir)) {
        assert!(if before == "1" { after != "1" } else { after == *before }, "{before} {after}");
    }
}

#[test]
fn requests_are_hashed_by_the_caller_that_limits_count() {
    let servers = servers(4);
    let lines = "balance = \"hash:user\"";
    let config = config(&servers, &[1; 4], lines).also("[identity]\nuser = \"query:user\"");
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    let mut chosen = HashSet::new();
    for user in 0..40 {
        let first = client.ask(get(&format!("/?user=u{user}"))).text();
        // In another spelling it is still the same user.
        assert_eq!(client.ask(get(&format!("/x?user=%75{user}"))).text(), first);
        chosen.insert(first);
    }
    assert_eq!(chosen.len(), 4);
    // Whoever has no name, or two, is refused nothing and goes where there is least to do.
    let nobody = tally(&mut client, 4, 40);
    assert_eq!(nobody, [10; 4]);
}
