//! The sections that stand for themselves: `[server]`, `[admin]` and `[respond]`.

mod listen;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::{address, http2, secret, takeover};
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::{Admin, Identity, MinBodyRate, Respond, Server};
use crate::config::suggest::quote;
use crate::config::units::LONGEST;
pub(super) use crate::config::units::SOME_TIME;
use listen::WrittenListeners;

/// Where the admin listener is unless the file says otherwise.
pub const DEFAULT_ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// A time to wait that may be none at all.
pub(super) const ANY_TIME: RangeInclusive<Duration> = Duration::ZERO..=LONGEST;

/// Below this hardly a request gets through; above it a head is an attack.
const HEADER_BYTES: RangeInclusive<u64> = 1 << 10..=1 << 20;

/// How many fields a head may have: every one of them costs some work.
pub(super) const FIELDS: RangeInclusive<u64> = 10..=1000;

/// How long a body may take before it matters how fast it comes.
const BODY_GRACE: Duration = Duration::from_secs(20);

/// Whether clients have certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientCertificates {
    Unasked,
    /// Some may have one.
    Some,
    /// Nobody gets in without one.
    Required,
}

/// `[server]` and `[admin]`, and what is checked once the callers are known.
pub(super) struct Listeners<'a> {
    pub(super) server: Server,
    pub(super) admin: Admin,
    written: WrittenListeners<'a>,
}

impl Listeners<'_> {
    /// Whether clients may be known by their certificates.
    pub(super) fn client_certificates(&self) -> ClientCertificates {
        self.written.client_certificates()
    }

    pub(super) fn check_proxies(&self, identity: &Identity) {
        self.written.check_proxies(identity);
    }
}

/// `[server]` and `[admin]`, which must not claim the same address. `folder` is where the file is.
pub(super) fn listeners<'a>(
    mut server: Section<'a>,
    mut admin: Section<'a>,
    folder: &Path,
) -> Listeners<'a> {
    let mut addresses = address::ListenAddresses::default();
    let admin_listen = admin
        .get("listen")
        .map(|value| addresses.claim_admin(&value).unwrap_or(DEFAULT_ADMIN_LISTEN));
    let http2 = http2::http2(&mut server);
    let written = WrittenListeners::of(&mut server, &mut addresses, folder, http2.is_some());
    let redirect_https = listen::redirect_https(&mut server, &written);
    let max_connections = read(&mut server, "max_connections", 0, |it| it.integer(0..=10_000_000));
    let data = Server {
        listen: written.listeners.clone(),
        workers: read(&mut server, "workers", 0, |it| it.integer(0..=1024)) as usize,
        drain: read(&mut server, "drain", secs(30), |it| it.duration(ANY_TIME)),
        drain_delay: read(&mut server, "drain_delay", secs(0), |it| it.duration(ANY_TIME)),
        takeover: server
            .get("takeover")
            .and_then(|value| takeover::socket_path(&value, &mut addresses)),
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
        max_request_headers: read(&mut server, "max_request_headers", 100, |it| it.integer(FIELDS))
            as usize,
        max_body: Some(read(&mut server, "max_body", 0, |it| it.size(0..=i64::MAX as u64)))
            .filter(|bytes| *bytes > 0),
        max_connections: max_connections as usize,
        max_connections_per_ip: max_connections_per_ip(&mut server, max_connections) as usize,
        redirect_https,
        max_requests: Some(read(&mut server, "max_requests", 0, |it| it.integer(0..=10_000_000)))
            .filter(|most| *most > 0)
            .map(|most| most as usize),
        min_body_rate: min_body_rate(&mut server),
        http2,
    };
    let listen = admin_listen.unwrap_or_else(|| {
        addresses.claim_default("admin.listen", DEFAULT_ADMIN_LISTEN, admin.reporter())
    });
    let token = admin.get("token_env");
    let token = token.and_then(|value| secret::optional(&value, "WEIR_ADMIN_TOKEN")?);
    let hosts =
        admin.get("hosts").map(|value| value.one_or_more().iter().filter_map(admin_host).collect());
    let admin = Admin { listen, token, hosts: hosts.unwrap_or_default() };
    Listeners { server: data, admin, written }
}

/// `of_all`: how many all addresses may have together; 0 for any number.
fn max_connections_per_ip(server: &mut Section<'_>, of_all: u64) -> u64 {
    read(server, "max_connections_per_ip", 0, |value| {
        let most = value.integer(0..=10_000_000)?;
        if of_all > 0 && most > of_all {
            value.warning(
                &format!(
                    "has no effect: there are never more than the {of_all} of `max_connections`"
                ),
                "write less, or leave it out",
            );
        }
        Some(most)
    })
}

/// How fast bodies have to come, if that matters.
fn min_body_rate(server: &mut Section<'_>) -> Option<MinBodyRate> {
    let bytes_per_second = read(server, "min_body_rate", 0, |it| it.size(0..=1 << 30));
    let grace = read(server, "body_grace", BODY_GRACE, |value| {
        let grace = value.duration(SOME_TIME)?;
        if bytes_per_second == 0 && grace != BODY_GRACE {
            value.warning(
                "has no effect: without `min_body_rate` bodies may take any time",
                "add `min_body_rate`, or remove it",
            );
        }
        Some(grace)
    });
    (bytes_per_second > 0).then_some(MinBodyRate { bytes_per_second, grace })
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
