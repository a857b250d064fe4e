//! `listen`: one address, a list of them, or tables with an address and what differs for it.
//!
//! `tls` and `proxy_protocol` of `[server]` hold for every entry that says nothing itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::ClientCertificates;
use super::tls::{self, WrittenTls};
use crate::config::compile::address::{self, ListenAddresses};
use crate::config::compile::output_file;
use crate::config::file::{Section, Value};
use crate::config::settings::{HttpsPort, Identity, ListenAddress, Listener};
use crate::config::suggest::quote;

const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
/// Owner and group may connect.
const DEFAULT_MODE: u32 = 0o660;
/// What the address of a socket has room for, with the zero at its end.
const LONGEST_PATH: usize = 107;

/// The listeners, and where `proxy_protocol` is on.
pub(super) struct WrittenListeners<'a> {
    pub(super) listeners: Vec<Listener>,
    /// Whether there is one whose `tls` has been found fault with.
    faulty_tls: bool,
    proxy_protocol: Vec<Value<'a>>,
}

/// One entry, as far as it says something itself.
struct ListenEntry<'a> {
    value: Option<Value<'a>>,
    address: Option<ListenAddress>,
    tls: WrittenTls,
    tls_value: Option<Value<'a>>,
    proxy_protocol: Option<bool>,
}

impl<'a> WrittenListeners<'a> {
    pub(super) fn of(
        server: &mut Section<'a>,
        addresses: &mut ListenAddresses,
        folder: &Path,
        http2: bool,
    ) -> Self {
        let mut proxied = Vec::new();
        let tls = tls::tls(server, folder);
        let proxy_protocol = proxy_protocol(server, &mut proxied).unwrap_or(false);
        let value = server.get("listen");
        let entries = value.as_ref().map(Value::one_or_more);
        if let (Some(value), Some([])) = (&value, entries.as_deref()) {
            value.error("is empty", "write an address such as `\"0.0.0.0:8080\"`");
        }
        // Also without an entry, so that its keys are known.
        let mut read = |entry: Option<&Value<'a>>| {
            let section = server.entry_section("listen", entry.filter(|it| it.is_table()));
            ListenEntry::of(section, entry, addresses, folder, &mut proxied)
        };
        let mut written: Vec<ListenEntry<'a>> = match &entries {
            Some(entries) => entries.iter().map(|it| read(Some(it))).collect(),
            None => vec![read(None)],
        };
        if entries.is_none() {
            let default = addresses.claim_default("server.listen", DEFAULT, server.reporter());
            written[0].address = Some(ListenAddress::Tcp(default));
        }
        if let (WrittenTls::Tls(_), Some(value)) = (&tls, server.get("tls")) {
            let uses = |it: &ListenEntry<'_>| {
                matches!(it.tls, WrittenTls::Absent | WrittenTls::Faulty)
                    && !matches!(it.address, Some(ListenAddress::Unix { .. }))
            };
            if !written.iter().any(uses) {
                let help = "remove it, or the `tls` of a listener that is to have it";
                value.warning("has no effect: no listener goes by it", help);
            }
        }
        let is_faulty = |it: &WrittenTls| matches!(it, WrittenTls::Faulty);
        let faulty_tls = is_faulty(&tls) || written.iter().any(|it| is_faulty(&it.tls));
        let listener = |entry: ListenEntry<'_>| {
            let address = entry.address?;
            let is_unix = matches!(address, ListenAddress::Unix { .. });
            let tls = match (entry.tls, &tls) {
                (WrittenTls::Tls(_), _) if is_unix => {
                    let value = entry.tls_value.as_ref()?;
                    value.error("does not go with a Unix socket", "leave it out");
                    None
                }
                (WrittenTls::Tls(own), _) => Some(own),
                (WrittenTls::Absent, WrittenTls::Tls(all)) if !is_unix => Some(all.clone()),
                (WrittenTls::Absent, WrittenTls::Absent) => {
                    warn_of_https_port(&address, entry.value.as_ref());
                    None
                }
                _ => None,
            };
            let proxy_protocol = entry.proxy_protocol.unwrap_or(proxy_protocol);
            Some(Listener { address, tls, proxy_protocol, http2 })
        };
        let listeners = written.into_iter().filter_map(listener).collect();
        WrittenListeners { listeners, faulty_tls, proxy_protocol: proxied }
    }

    /// Whether clients may be known by their certificates, as far as can be told.
    pub(super) fn client_certificates(&self) -> ClientCertificates {
        let auth = |it: &Listener| {
            it.tls.as_ref().and_then(|tls| Some(tls.client_auth.as_ref()?.required))
        };
        let mut all = self.listeners.iter().map(auth);
        if !self.faulty_tls && all.clone().all(|it| it == Some(true)) {
            ClientCertificates::Required
        } else if self.faulty_tls || all.any(|it| it.is_some()) {
            ClientCertificates::Some
        } else {
            ClientCertificates::Unasked
        }
    }

    /// Notes where PROXY headers are expected of nobody.
    pub(super) fn check_proxies(&self, identity: &Identity) {
        for value in self.proxy_protocol.iter().filter(|_| identity.trusted_proxies.is_empty()) {
            value.warning(
                "has no effect: there are no `trusted_proxies` to say whom they speak for",
                "list your proxies in `identity.trusted_proxies`",
            );
        }
    }
}

impl<'a> ListenEntry<'a> {
    /// What an entry says, which is an address alone or a table.
    fn of(
        mut section: Section<'a>,
        entry: Option<&Value<'a>>,
        addresses: &mut ListenAddresses,
        folder: &Path,
        proxied: &mut Vec<Value<'a>>,
    ) -> Self {
        let named = section.get("address");
        let mode = section.get("mode");
        let tls = tls::tls(&mut section, folder);
        let tls_value = section.get("tls");
        let proxy_protocol = proxy_protocol(&mut section, proxied);
        let address = match entry {
            Some(entry) if !entry.is_table() => listen_address(entry, None, addresses),
            Some(_) => {
                if named.is_none() {
                    section.report_missing("address", "address = \"0.0.0.0:8080\"");
                }
                named.and_then(|value| listen_address(&value, mode.as_ref(), addresses))
            }
            None => None,
        };
        ListenEntry { value: entry.cloned(), address, tls, tls_value, proxy_protocol }
    }
}

fn warn_of_https_port(address: &ListenAddress, value: Option<&Value<'_>>) {
    let is_https = matches!(address, ListenAddress::Tcp(it) if it.port() == 443);
    if let Some(value) = value.filter(|_| is_https) {
        let help = "add it, or write `tls = false` beside the address if a proxy before it has it";
        value.warning("is the port of HTTPS, and has no `tls`", help);
    }
}

fn proxy_protocol<'a>(section: &mut Section<'a>, proxied: &mut Vec<Value<'a>>) -> Option<bool> {
    let value = section.get("proxy_protocol")?;
    let wanted = value.boolean()?;
    if wanted {
        proxied.push(value);
    }
    Some(wanted)
}

fn listen_address(
    value: &Value<'_>,
    mode: Option<&Value<'_>>,
    addresses: &mut ListenAddresses,
) -> Option<ListenAddress> {
    let unix = value.as_str().and_then(|text| text.strip_prefix(address::UNIX));
    let Some(path) = unix else {
        if let Some(mode) = mode {
            let help = "leave it out, or write an address such as `\"unix:/run/weir.sock\"`";
            mode.error("goes with a Unix socket only", help);
        }
        return addresses.claim(value).map(ListenAddress::Tcp);
    };
    if path.is_empty() || path.contains('\0') || path.ends_with('/') || path.len() > LONGEST_PATH {
        value.error(
            &format!("is not the path of a socket: {}", quote(path)),
            format!("write one of at most {LONGEST_PATH} bytes, such as `\"unix:/run/weir.sock\"`"),
        );
        return None;
    }
    let mode = mode.map_or(Some(DEFAULT_MODE), socket_mode);
    let path = PathBuf::from(path);
    if let Some(fault) = output_file::missing_folder(&path) {
        value.warning(&fault, "create the folder first, or name a socket in one that is there");
    }
    if path.is_dir() {
        let (folder, inside) = (path.to_string_lossy(), path.join("weir.sock"));
        let help =
            format!("write a path in it, such as `\"{}{}\"`", address::UNIX, inside.display());
        value.error(&format!("is a folder: {}", quote(&folder)), help);
        return None;
    }
    let path = addresses.claim_path(path, value)?;
    Some(ListenAddress::Unix { path, mode: mode? })
}

/// Permissions as `chmod` takes them.
fn socket_mode(value: &Value<'_>) -> Option<u32> {
    let text = value.text("0660")?;
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
    if mode.is_none() {
        let help = "write them as chmod takes them, such as `\"0660\"`";
        value.error(&format!("is not the permissions of a file: {}", quote(text)), help);
    }
    mode
}

/// `redirect_https`: whether, or the port.
pub(super) fn redirect_https(
    server: &mut Section<'_>,
    written: &WrittenListeners<'_>,
) -> Option<HttpsPort> {
    let value = server.get("redirect_https")?;
    if value.is_integer() {
        return value.integer(1..=65_535).map(|port| HttpsPort::Port(port as u16));
    }
    if value.as_str().is_some() {
        let help = "write a port without quotes, such as `443`";
        value.error("must be true, false or a port, not a string", help);
        return None;
    }
    if !value.boolean()? || written.faulty_tls {
        return None;
    }
    let listeners = &written.listeners;
    if !listeners.iter().any(|it| it.tls.is_some()) {
        let help = "add `tls` to a listener, or write the port that clients use, such as `443`";
        value.error("has nowhere to send clients: no listener has `tls`", help);
        return None;
    }
    if listeners.iter().all(|it| it.tls.is_some()) {
        let help = "add one such as `\"0.0.0.0:80\"`, with `tls = false` if all others have it";
        value.warning("has no effect: every listener has `tls`", help);
    }
    Some(HttpsPort::OfListener)
}
