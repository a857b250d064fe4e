use http::Request;

use super::*;

fn admit(
    listen: &str,
    hosts: &[&str],
    method: &str,
    lines: &[(&str, &str)],
) -> Result<(), HostError> {
    let hosts = hosts.iter().map(|it| (*it).to_owned()).collect();
    let admin = Admin { listen: listen.parse().unwrap(), token: None, hosts };
    let mut request = Request::builder().method(method).uri("/v1/overrides");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let local =
        Some("192.0.2.7:9090".parse().unwrap()).filter(|_| !admin.listen.ip().is_loopback());
    HostCheck { admin: &admin }.admit(&parts, local)
}

#[test]
fn a_loopback_listener_answers_to_loopback_names_and_to_those_that_are_listed() {
    let ask = |host: &str| admit("127.0.0.1:9090", &["weir.internal"], "GET", &[("host", host)]);
    for host in [
        "localhost",
        "LOCALHOST:9090",
        "localhost.:1",
        "weir.localhost",
        "127.0.0.1:9090",
        "127.0.0.2",
        "[::1]:9090",
        "[::ffff:127.0.0.1]",
        "weir.internal",
        "Weir.Internal:9090",
    ] {
        assert_eq!(ask(host), Ok(()), "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "notlocalhost",
        "192.0.2.7",
        "10.0.0.1:9090",
        "[2001:db8::1]",
        "127.0.0.1.evil.example",
        "0.0.0.0",
    ] {
        assert_eq!(ask(host), Err(HostError::Misdirected), "{host}");
    }
    for host in ["", "a b", "a/b"] {
        assert_eq!(ask(host), Err(HostError::Unreadable), "{host:?}");
    }
    let two = [("host", "localhost"), ("host", "localhost")];
    assert_eq!(admit("127.0.0.1:9090", &[], "GET", &two), Err(HostError::Unreadable));
}

#[test]
fn any_other_listener_answers_to_any_name_until_some_are_listed() {
    let ask = |hosts: &[&str], host: &str| admit("0.0.0.0:9090", hosts, "GET", &[("host", host)]);
    assert_eq!(ask(&[], "gateway:9090"), Ok(()));
    assert_eq!(ask(&["gateway"], "gateway:9090"), Ok(()));
    assert_eq!(ask(&["gateway"], "192.0.2.7:9090"), Ok(()), "the address it came in at");
    assert_eq!(ask(&["gateway"], "192.0.2.8:9090"), Err(HostError::Misdirected));
    assert_eq!(ask(&["gateway"], "evil.example"), Err(HostError::Misdirected));
}

#[test]
fn changes_are_not_taken_from_pages_of_another_origin() {
    let ask = |method: &str, origin: &str| {
        admit("127.0.0.1:9090", &[], method, &[("host", "localhost:9090"), ("origin", origin)])
    };
    assert_eq!(ask("PUT", "http://localhost:9090"), Ok(()));
    for origin in
        ["http://evil.example", "http://localhost:3000", "https://localhost:9090", "null", ""]
    {
        assert_eq!(ask("PUT", origin), Err(HostError::ForeignOrigin), "{origin}");
        assert_eq!(ask("DELETE", origin), Err(HostError::ForeignOrigin), "{origin}");
        assert_eq!(ask("GET", origin), Ok(()), "{origin}");
    }
}

#[test]
fn no_change_has_two_origins() {
    let (own, evil) = ("http://localhost:9090", "http://evil.example");
    for origins in [[own, evil], [evil, own], [own, own]] {
        let [one, other] = origins.map(|it| ("origin", it));
        let lines = [("host", "localhost:9090"), one, other];
        let put = admit("127.0.0.1:9090", &[], "PUT", &lines);
        assert_eq!(put, Err(HostError::TwoOrigins), "{origins:?}");
        assert_eq!(admit("127.0.0.1:9090", &[], "GET", &lines), Ok(()), "{origins:?}");
    }
}
