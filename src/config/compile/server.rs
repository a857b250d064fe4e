//! The sections that stand for themselves: `[server]`, `[admin]` and `[respond]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{address, secret};
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::{Admin, Identity, Respond, Server};
use crate::config::suggest::quote;
use crate::config::units::LONGEST;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
/// Where the admin listener is unless the file says otherwise.
pub const DEFAULT_ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// A time to wait that may be none at all.
pub(super) const ANY_TIME: RangeInclusive<Duration> = Duration::ZERO..=LONGEST;
/// A time within which something must happen: none at all would refuse everything.
pub(super) const SOME_TIME: RangeInclusive<Duration> = Duration::from_millis(1)..=LONGEST;

/// Below this hardly a request gets through; above it a head is an attack.
const HEADER_BYTES: RangeInclusive<u64> = 1 << 10..=1 << 20;

/// `[server]` and `[admin]`, which must not claim the same address.
pub(super) fn listeners(
    mut server: Section<'_>,
    mut admin: Section<'_>,
    identity: &Identity,
) -> (Server, Admin) {
    let mut addresses = address::ListenAddresses::default();
    let admin_listen =
        admin.get("listen").map(|value| addresses.claim(&value).unwrap_or(DEFAULT_ADMIN_LISTEN));
    let listen = server.get("listen").map(|value| {
        let entries = value.one_or_more();
        if entries.is_empty() {
            value.error("is empty", "write an address such as `\"0.0.0.0:8080\"`");
        }
        entries.iter().filter_map(|entry| addresses.claim(entry)).collect()
    });
    let data = Server {
        listen: listen.unwrap_or_else(|| {
            vec![addresses.claim_default("server.listen", LISTEN, server.reporter())]
        }),
        workers: read(&mut server, "workers", 0, |it| it.integer(0..=1024)) as usize,
        drain: read(&mut server, "drain", secs(30), |it| it.duration(ANY_TIME)),
        header_timeout: read(&mut server, "header_timeout", secs(10), |it| it.duration(SOME_TIME)),
        idle_timeout: read(&mut server, "idle_timeout", secs(75), |it| it.duration(SOME_TIME)),
        request_timeout: read(&mut server, "request_timeout", secs(60), |it| {
            it.duration(SOME_TIME)
        }),
        tunnel_timeout: read(&mut server, "tunnel_timeout", secs(3600), |it| {
            it.duration(SOME_TIME)
        }),
        max_header_bytes: read(&mut server, "max_header_bytes", 32 << 10, |it| {
            it.size(HEADER_BYTES)
        }) as usize,
        max_body: Some(read(&mut server, "max_body", 0, |it| it.size(0..=i64::MAX as u64)))
            .filter(|bytes| *bytes > 0),
        max_connections: read(&mut server, "max_connections", 0, |it| it.integer(0..=10_000_000))
            as usize,
        proxy_protocol: read(&mut server, "proxy_protocol", false, |it| {
            proxy_protocol(it, identity)
        }),
    };
    let listen = admin_listen.unwrap_or_else(|| {
        addresses.claim_default("admin.listen", DEFAULT_ADMIN_LISTEN, admin.reporter())
    });
    let token = admin.get("token_env");
    let token = token.and_then(|value| secret::optional(&value, "WEIR_ADMIN_TOKEN")?);
    let hosts =
        admin.get("hosts").map(|value| value.one_or_more().iter().filter_map(admin_host).collect());
    (data, Admin { listen, token, hosts: hosts.unwrap_or_default() })
}

/// A name, as the `Host` of a request has it, without a port.
fn admin_host(value: &Value<'_>) -> Option<String> {
    let text = value.text("weir.internal")?;
    let good = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'-' | b'_');
    if text.is_empty() || !text.bytes().all(good) {
        let help = "write a name without a port, such as `\"weir.internal\"`";
        value.error(&format!("cannot be {}", quote(text)), help);
        return None;
    }
    Some(text.to_ascii_lowercase())
}

/// Where the admin listener of a file is that may have any faults, if it says so; the inner `None`
/// is for what is no address.
pub(in crate::config) fn admin_listen(root: &mut Section<'_>) -> Option<Option<SocketAddr>> {
    let (admin, mut section) = root.value_or_section("admin");
    match section.get("listen") {
        Some(listen) => Some(listen.text("127.0.0.1:9090").and_then(|it| it.parse().ok())),
        None => admin.filter(|it| !it.is_table()).map(|_| None),
    }
}

fn proxy_protocol(value: &Value<'_>, identity: &Identity) -> Option<bool> {
    let wanted = value.boolean()?;
    if wanted && identity.trusted_proxies.is_empty() {
        value.warning(
            "has no effect: there are no `trusted_proxies` to say whom they speak for",
            "list your proxies in `identity.trusted_proxies`",
        );
    }
    Some(wanted)
}

pub(super) fn respond(mut section: Section<'_>) -> Respond {
    let headers = section.get("headers");
    let retry_jitter = read(&mut section, "retry_jitter", 0, |it| it.thousandths(500));
    let Some(value) = headers else {
        return Respond { draft: true, x: true, legacy: false, retry_jitter };
    };
    let mut respond = Respond { draft: false, x: false, legacy: false, retry_jitter };
    let mut seen = UniqueValues::new();
    for entry in value.list("[\"draft\", \"x\"]").unwrap_or_default() {
        let Some(form) = entry.choice(&[("draft", 0), ("x", 1), ("legacy", 2)]) else { continue };
        seen.insert(form, &entry);
        *[&mut respond.draft, &mut respond.x, &mut respond.legacy][form] = true;
    }
    respond
}

/// The value of a key, or its default.
pub(super) fn read<'a, T>(
    section: &mut Section<'a>,
    key: &'static str,
    default: T,
    parse: impl FnOnce(&Value<'a>) -> Option<T>,
) -> T {
    section.get(key).and_then(|value| parse(&value)).unwrap_or(default)
}

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
