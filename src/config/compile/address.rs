//! Addresses to listen on, and networks to trust.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;

use ipnet::IpNet;

use super::env_variable::EnvVariable;
use crate::caller::address::{UNIX_PEER, unmapped};
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Reporter, Value};
use crate::config::suggest::quote;

/// What the address of a Unix socket begins with, and how `trusted_proxies` names peers that come by
/// one.
pub(in crate::config) const UNIX: &str = "unix:";

/// The addresses that are listened on already.
#[derive(Default)]
pub(super) struct ListenAddresses {
    tcp: Vec<(SocketAddr, Range<usize>)>,
    unix: Vec<(PathBuf, Range<usize>)>,
}

impl ListenAddresses {
    /// The address to listen on, unless another listener has it.
    pub(super) fn claim(&mut self, value: &Value<'_>) -> Option<SocketAddr> {
        let help = "write an IP address and a port, such as `\"0.0.0.0:8080\"` or `\"[::]:8080\"`, or \
                    the path of a socket as `\"unix:/run/weir.sock\"`";
        self.claim_parsed(listen(value, help)?, value)
    }

    /// The same for the admin listener, which is never a Unix socket.
    pub(super) fn claim_admin(&mut self, value: &Value<'_>) -> Option<SocketAddr> {
        let help =
            "write an IP address and a port, such as `\"127.0.0.1:9090\"` or `\"[::1]:9090\"`";
        if let Some(text) = value.as_str().filter(|it| it.starts_with(UNIX)) {
            value.error(&format!("cannot be a Unix socket: {}", quote(text)), help);
            return None;
        }
        self.claim_parsed(listen(value, help)?, value)
    }

    fn claim_parsed(&mut self, address: SocketAddr, value: &Value<'_>) -> Option<SocketAddr> {
        if let Some((_, first)) = self.tcp.iter().find(|(it, _)| collide(*it, address)) {
            let message = format!("`{address}` is listened on already");
            value.report(
                Diagnostic::error(value.span(), message)
                    .also(first.clone(), "by this listener")
                    .help("give one of the two another port"),
            );
            return None;
        }
        self.tcp.push((address, value.span()));
        Some(address)
    }

    /// The same for the path of a socket.
    pub(super) fn claim_path(&mut self, path: PathBuf, value: &Value<'_>) -> Option<PathBuf> {
        if let Some((_, first)) = self.unix.iter().find(|(it, _)| *it == path) {
            let message = format!("`{UNIX}{}` is listened on already", path.display());
            value.report(
                Diagnostic::error(value.span(), message)
                    .also(first.clone(), "by this listener")
                    .help("give one of the two another path"),
            );
            return None;
        }
        self.unix.push((path.clone(), value.span()));
        Some(path)
    }

    /// The address that holds where the file names none, which others may have taken as well.
    pub(super) fn claim_default(
        &mut self,
        key: &str,
        default: SocketAddr,
        reporter: &Reporter,
    ) -> SocketAddr {
        if let Some((address, span)) = self.tcp.iter().find(|(it, _)| collide(*it, default)) {
            let message = format!("`{address}` is listened on already: `{key}` is `{default}`");
            let help = format!("use another port here, or set `{key}`");
            reporter.report(Diagnostic::error(span.clone(), message).help(help));
        }
        default
    }
}

/// Port 0 is a free port each time, and the unspecified address is all of its family.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let all = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port()
        && one.port() != 0
        && one.is_ipv4() == other.is_ipv4()
        && (all || one.ip() == other.ip())
}

/// `form` is what to write, where nothing better is known.
fn listen(value: &Value<'_>, form: &str) -> Option<SocketAddr> {
    let text = value.text("0.0.0.0:8080")?;
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let help = match (text.parse::<IpAddr>(), port) {
        (Ok(IpAddr::V4(ip)), _) => format!("add a port: `\"{ip}:8080\"`"),
        (Ok(IpAddr::V6(ip)), _) => format!("add brackets and a port: `\"[{ip}]:8080\"`"),
        (_, Some(port)) if text.starts_with("localhost:") => {
            format!("write an address, not a name: `\"127.0.0.1:{port}\"`")
        }
        (_, Some(port)) if text.starts_with(['*', ':']) || !text.contains(':') => {
            format!("write `\"0.0.0.0:{port}\"` to listen on every address")
        }
        _ => form.to_owned(),
    };
    value.error(&format!("is not an address to listen on: {}", quote(text)), help);
    None
}

/// A CIDR, or one address. Callers' addresses are compared as IPv4 where they are, so networks of
/// IPv4-mapped addresses are too.
pub(super) fn network(value: &Value<'_>) -> Option<IpNet> {
    let help = "write a CIDR such as `\"10.0.0.0/8\"` or `\"fd00::/8\"`, or one address";
    network_or(value, help)
}

/// The same, with more to say of what is none.
fn network_or(value: &Value<'_>, help: &str) -> Option<IpNet> {
    let text = value.text("10.0.0.0/8")?;
    let Some(ParsedNetwork { network, has_host_bits }) = parse_network(text) else {
        value.error(&format!("is not a network: {}", quote(text)), help);
        return None;
    };
    if has_host_bits {
        value.warning(
            &format!("names an address within its network: {}", quote(text)),
            format!("write `\"{network}\"`, which is what it means"),
        );
    }
    Some(network)
}

/// A network as somebody wrote it.
struct ParsedNetwork {
    network: IpNet,
    /// Whether it was written with an address that is not its first.
    has_host_bits: bool,
}

fn parse_network(text: &str) -> Option<ParsedNetwork> {
    let parsed = text.parse::<IpNet>().ok();
    let parsed = parsed.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    Some(ParsedNetwork {
        network: unmapped(parsed.trunc()),
        has_host_bits: parsed != parsed.trunc(),
    })
}

const TRUSTS_EVERYONE: &str = "any caller can choose its own address; list your proxies only";

/// A network of proxies.
pub(super) fn trusted(value: &Value<'_>) -> Option<IpNet> {
    if value.as_str() == Some(UNIX) {
        return Some(IpNet::from(UNIX_PEER));
    }
    let help = "write a CIDR such as `\"10.0.0.0/8\"` or `\"fd00::/8\"`, one address, or `\"unix:\"` for \
                peers that come by a Unix socket";
    let network = network_or(value, help)?;
    if network.prefix_len() == 0 {
        value.warning(&format!("trusts everyone: `{network}`"), TRUSTS_EVERYONE);
    }
    Some(network)
}

/// The networks of proxies in an environment variable, with commas or blanks between them. All are
/// looked at, so that each is told what is wrong with it.
pub(super) fn trusted_in_variable(value: &Value<'_>) -> Vec<IpNet> {
    let Some(EnvVariable { name, text }) = EnvVariable::read(value, "WEIR_TRUSTED_PROXIES") else {
        return Vec::new();
    };
    let mut networks = Vec::new();
    let items = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|it| !it.is_empty());
    for item in items {
        if item == UNIX {
            networks.push(IpNet::from(UNIX_PEER));
            continue;
        }
        let told = |what: &str| format!("names the environment variable {}, {what}", quote(name));
        let Some(ParsedNetwork { network, has_host_bits }) = parse_network(item) else {
            value.error(
                &told(&format!("in which {} is not a network", quote(item))),
                "write CIDRs such as `10.0.0.0/8` or `fd00::/8`, single addresses or `unix:`, with \
                 commas between them",
            );
            continue;
        };
        if has_host_bits {
            value.warning(
                &told(&format!("in which {} is an address within its network", quote(item))),
                format!("write `{network}`, which is what it means"),
            );
        }
        if network.prefix_len() == 0 {
            value.warning(&told(&format!("which trusts everyone: `{network}`")), TRUSTS_EVERYONE);
        }
        networks.push(network);
    }
    networks
}
