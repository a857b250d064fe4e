//! The client's address: the peer's, or what a trusted proxy says it is.

use crate::support::gateway::program;
use crate::support::{Config, Scratch, Upstream, Weir, get, get_with};

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\", \"fd00::/8\"]";

#[test]
fn one_route_limits_short_and_long_prefixes_together() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .open()
        .also(&format!("[identity]\n{TRUSTED}"))
        .bucket("near", "ip", 1)
        .bucket("far", "ip/48", 2)
        .route("all", "/*", &["near", "far"]);
    let weir = Weir::start(&config);
    let ask = |ip: &str| {
        let response = weir.ask(get_with("/", &format!("X-Forwarded-For: {ip}\r\n")));
        let refusing = if response.status == 429 {
            response.json()["limit"].to_string()
        } else {
            String::new()
        };
        (response.status, refusing)
    };
    assert_eq!(ask("2001:db8:1:1::1").0, 200);
    assert_eq!(ask("2001:db8:1:1::2"), (429, "\"near\"".into()), "the same /64");
    assert_eq!(ask("2001:db8:1:2::1").0, 200, "another /64 of the /48");
    assert_eq!(ask("2001:db8:1:3::1"), (429, "\"far\"".into()), "the /48 is spent");
    assert_eq!(ask("2001:db8:2:1::1").0, 200, "another /48");
    // IPv4 counts whole with either.
    assert_eq!(ask("192.0.2.1").0, 200);
    assert_eq!(ask("192.0.2.1"), (429, "\"near\"".into()));
    assert_eq!(ask("192.0.2.2").0, 200);
}

/// A gateway that trusts its peers, reads one header, and lets every caller in once.
fn reading(upstream: &Upstream, header: &str) -> Weir {
    let config = Config::to(upstream)
        .server("max_header_bytes = \"1MiB\"")
        .limit("key = \"ip\"\nrate = \"1/day\"\nburst = 1")
        .also(&format!("[identity]\n{TRUSTED}\naddress_header = \"{header}\""));
    Weir::start(&config)
}

/// How the header of that name writes an address.
fn entry(header: &str, node: &str) -> String {
    match header {
        "forwarded" if node.contains(['[', ':']) => format!("proto=https;for=\"{node}\""),
        "forwarded" => format!("for={node}"),
        _ => node.to_owned(),
    }
}

#[test]
fn chains_are_read_the_same_in_every_header() {
    for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let upstream = Upstream::ok();
        let weir = reading(&upstream, header);
        let ask = |nodes: &[&str]| {
            let entries: Vec<String> = nodes.iter().map(|node| entry(header, node)).collect();
            weir.ask(get_with("/", &format!("{header}: {}\r\n", entries.join(", ")))).status
        };
        let rows: [(&[&str], u16); 12] = [
            (&["192.0.2.1"], 200),
            (&["6.6.6.6", "192.0.2.1"], 429),
            (&["6.6.6.6", "192.0.2.1", "10.0.0.1", "10.0.0.2"], 429),
            (&["192.0.2.1:4711"], 429),
            (&["::ffff:192.0.2.1"], 429),
            (&["[::ffff:192.0.2.1]:80"], 429),
            (&["192.0.2.2"], 200),
            (&["[2001:db8::1]"], 200),
            (&["[2001:db8::2]:443"], 429),
            (&["2001:db8::3"], 429),
            (&["2001:db8:0:1::1"], 200),
            (&["6.6.6.6", "[2001:db8:0:1::2]", "[fd00::1]:1"], 429),
        ];
        for (nodes, status) in rows {
            assert_eq!(ask(nodes), status, "{header}: {nodes:?}");
        }
    }
}

#[test]
fn unusable_chain_entries_count_as_the_proxy_that_wrote_them() {
    for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let upstream = Upstream::ok();
        let weir = reading(&upstream, header);
        let ask = |line: &str| weir.ask(get_with("/", &format!("{header}: {line}\r\n"))).status;
        assert_eq!(weir.get("/").status, 200, "the peer itself");
        for node in ["unknown", "_hidden", "_a1.b", "1.1.1", "999.1.1.1", "[::1", "01.1.1.1", ""] {
            let told = entry(header, node);
            assert_eq!(ask(&told), 429, "{header}: {told}");
            let told = format!("{}, {told}", entry(header, "6.6.6.6"));
            // An empty entry is no entry, RFC 9110 section 5.6.1.
            let status = if node.is_empty() && header != "forwarded" { 200 } else { 429 };
            assert_eq!(ask(&told), status, "{header}: {told}");
        }
        for line in ["", ",", " , ,,", "\"", ";;,"] {
            assert_eq!(ask(line), 429, "{header}: {line:?}");
        }
        // Up to what is unreadable, a chain holds.
        let told = ["9.9.9.9", "unknown", "10.0.0.7"].map(|node| entry(header, node)).join(",");
        assert_eq!([ask(&told), ask(&entry(header, "10.0.0.7"))], [200, 429], "{header}");

        let many = vec![entry(header, "192.0.2.9"); 10_000].join(",");
        assert_eq!([ask(&many), ask(&many)], [200, 429], "{header}");
        let trusted = vec![entry(header, "10.0.0.8"); 10_000].join(",");
        assert_eq!([ask(&trusted), ask(&entry(header, "10.0.0.8"))], [200, 429], "{header}");
    }
}

#[test]
fn no_header_but_the_named_one_is_read() {
    let upstream = Upstream::ok();
    let others =
        ["X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6", "CF-Connecting-IP: 6.6.6.6"];
    for header in ["x-forwarded-for", "forwarded", "cf-connecting-ip"] {
        let weir = reading(&upstream, header);
        assert_eq!(weir.get("/").status, 200);
        let mine = format!("{header}: {}", entry(header, "192.0.2.1"));
        let mut passed = 0;
        for line in others.iter().filter(|line| !line.to_ascii_lowercase().starts_with(header)) {
            assert_eq!(weir.ask(get_with("/", &format!("{line}\r\n"))).status, 429, "{line}");
            let both = weir.ask(get_with("/", &format!("{line}\r\n{mine}\r\n"))).status;
            passed += usize::from(both == 200);
        }
        assert_eq!(passed, 1, "{header}: one caller, whatever the others say");
    }
}

#[test]
fn an_untrusted_peer_cannot_use_the_named_header() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .limit("key = \"ip\"\nrate = \"1/day\"\nburst = 2")
        .also("[identity]\ntrusted_proxies = [\"10.0.0.0/8\"]\naddress_header = \"x-caller\"");
    let weir = Weir::start(&config);
    let lines = "X-Caller: 192.0.2.1\r\nX_Caller: 192.0.2.1\r\n";
    assert_eq!(weir.ask(get_with("/", lines)).status, 200);
    let seen = upstream.last();
    assert!(!seen.raw.contains("192.0.2.1"), "nor does the upstream see it: {}", seen.raw);
    assert_eq!([weir.ask(get("/")).status, weir.ask(get_with("/", lines)).status], [200, 429]);
}

const VARIABLE: &str = "WEIR_TEST_PROXIES";

/// A file for several deployments: a variable names the proxies that differ between them.
fn with_proxies_variable(upstream: &Upstream, lines: &str) -> Config {
    Config::to(upstream)
        .limit("key = \"ip\"\nrate = \"1/day\"\nburst = 1")
        .also(&format!("[identity]\ntrusted_proxies_env = \"{VARIABLE}\"\n{lines}"))
}

#[test]
fn proxies_of_the_environment_are_trusted_beside_those_of_the_file() {
    let upstream = Upstream::ok();
    let config =
        with_proxies_variable(&upstream, "trusted_proxies = [\"10.0.0.0/8\", \"192.168.0.1\"]");
    for (text, believed) in [
        ("127.0.0.0/8,fd00::/8", true),
        ("  fd00::/8  127.0.0.1\t10.0.0.0/8 ,, 127.0.0.1\n", true),
        ("192.168.0.0/16, ::1", false),
        ("", false),
        (" , ", false),
    ] {
        let scratch = Scratch::new();
        let file = scratch.file("weir.toml", &config.text());
        let mut command = program();
        command.env(VARIABLE, text);
        let weir = Weir::start_with(command, scratch, file);
        let chains = ["192.0.2.1", "6.6.6.6, 192.0.2.1, 10.0.0.1", "192.0.2.2"];
        let told = chains.map(|it| get_with("/", &format!("X-Forwarded-For: {it}\r\n")));
        let statuses = told.map(|it| weir.ask(it).status);
        let expected = if believed { [200, 429, 200] } else { [200, 429, 429] };
        assert_eq!(statuses, expected, "{text:?}");
    }
}

#[test]
fn environment_variable_is_validated_with_the_file() {
    let upstream = Upstream::ok();
    let config = with_proxies_variable(&upstream, "address_header = \"x-real-ip\"");
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.server("proxy_protocol = true").text());
    let named = "`trusted_proxies_env` names the environment variable `WEIR_TEST_PROXIES`, ";
    let without = ["`address_header` is never read", "`proxy_protocol` has no effect"];
    let rows: [(Option<&str>, i32, &[&str]); 7] = [
        (Some("10.0.0.0/8, fd00::/8 192.0.2.1"), 0, &["10.0.0.0/8, fd00::/8, 192.0.2.1/32"]),
        (Some(""), 0, &without),
        (None, 2, &[named, "which is not set", "set it before Weir starts"]),
        (Some("10.0.0.0/8,10.0.0.0/33"), 2, &[named, "in which `10.0.0.0/33` is not a network"]),
        (Some("proxy.internal"), 2, &[named, "`proxy.internal` is not a network", "10.0.0.0/8"]),
        (Some("10.1.2.3/8"), 0, &["warning", "WEIR_TEST_PROXIES", "`10.1.2.3/8`", "10.0.0.0/8"]),
        (Some("::/0"), 0, &["warning", "WEIR_TEST_PROXIES", "trusts everyone: `::/0`"]),
    ];
    for (value, code, parts) in rows {
        let mut command = program();
        value.map(|value| command.env(VARIABLE, value));
        let output = command.arg("check").arg(&file).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{value:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{value:?}: no {part:?} in {said}");
        }
    }
    let mut command = program();
    command.env(VARIABLE, "10.0.0.0/8").arg("check").arg(&file);
    assert_eq!(command.output().unwrap().stderr, b"", "nobody is warned of what is there");
}
