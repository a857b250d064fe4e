//! `max_connections_per_ip`: how many connections one address may have.

use crate::support::{Certificates, Client, Config, TlsClient, Weir, get, wait_until};

fn turned_away(weir: &Weir) -> f64 {
    weir.metrics().value("weir_connections_turned_away_per_ip_total", &[]).unwrap()
}

/// Connections that have had an answer, over all workers.
fn held(weir: &Weir, header: &str, count: usize) -> Vec<Client> {
    let connect = |_| {
        let mut client = weir.connect();
        assert_eq!(client.ask(format!("{header}{}", get("/"))).status, 200);
        client
    };
    (0..count).map(connect).collect()
}

#[test]
fn an_address_has_so_many_connections_and_one_more_when_one_ends() {
    let weir =
        Weir::start(&Config::echo().open().server("max_connections_per_ip = 5\nworkers = 3"));
    let mut clients = held(&weir, "", 5);
    for _ in 0..3 {
        let answer = weir.connect().response();
        assert_eq!((answer.status, answer.json()["error"].as_str()), (503, Some("overloaded")));
    }
    assert_eq!(turned_away(&weir), 3.0);
    for client in &mut clients {
        assert_eq!(client.ask(get("/")).status, 200);
    }
    clients.pop();
    // Not before the gateway has seen that it is closed.
    wait_until("there is room again", || {
        let mut client = weir.connect();
        client.try_ask(get("/")).is_ok_and(|answer| answer.status == 200)
    });
}

#[test]
fn connections_count_by_the_address_in_a_proxy_header() {
    let config = Config::echo()
        .open()
        .server("max_connections_per_ip = 2\nproxy_protocol = true")
        .also("[identity]\ntrusted_proxies = [\"127.0.0.1\"]");
    let weir = Weir::start(&config);
    let from = |source: &str| format!("PROXY TCP6 {source} ::1 4711 80\r\n");
    let _held = held(&weir, &from("2001:db8::1"), 2);
    // The same network, by `ipv6_prefix`.
    let answer = weir.connect().ask(format!("{}{}", from("2001:db8::2"), get("/")));
    assert_eq!(answer.status, 503);
    let _others = held(&weir, &from("2001:db8:0:1::1"), 2);
    // A proxy that speaks for itself.
    let _own = held(&weir, "PROXY UNKNOWN\r\n", 4);
    assert_eq!(turned_away(&weir), 1.0);
}

#[test]
fn proxies_that_are_trusted_are_not_counted_by_their_own_address() {
    let config = Config::echo()
        .open()
        .server("max_connections_per_ip = 1")
        .also("[identity]\ntrusted_proxies = [\"127.0.0.1\"]");
    let _held = held(&Weir::start(&config), "", 4);
}

#[test]
fn a_reload_changes_the_bound_for_new_connections() {
    let config =
        |most: usize| Config::echo().open().server(&format!("max_connections_per_ip = {most}"));
    let weir = Weir::start(&config(2));
    let mut clients = held(&weir, "", 2);
    assert_eq!(weir.connect().response().status, 503);
    weir.reload(&config(3));
    clients.extend(held(&weir, "", 1));
    assert_eq!(weir.connect().response().status, 503);
    weir.reload(&config(1));
    assert_eq!(clients[0].ask(get("/")).status, 200, "those that are open stay");
    weir.reload(&config(0));
    clients.extend(held(&weir, "", 3));
}

#[test]
fn over_tls_a_connection_too_many_is_closed() {
    let certificates = Certificates::new();
    let tls = format!("max_connections_per_ip = 1\ntls = {{ {} }}", certificates.pair("server"));
    let weir = Weir::start(&Config::echo().open().server(&tls));
    let client = TlsClient::trusting(&certificates);
    let mut first = client.connect(weir.address());
    assert_eq!(first.ask(get("/")).status, 200);
    assert!(client.try_connect(weir.address()).is_err());
    assert_eq!(turned_away(&weir), 1.0);
}
