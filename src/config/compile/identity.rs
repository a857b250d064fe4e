//! `[identity]`: which proxies are believed, and how it is found who the caller is.

use http::{HeaderName, header};
use ipnet::IpNet;

use super::server::read;
use super::source::{self, Known, Use, of_the_connection};
use super::{address, clients, jwt};
use crate::config::file::{Section, Unique, Value};
use crate::config::settings::{Client, Identity};
use crate::config::suggest::quote;
use crate::limit::Source;

/// Headers that mean something else to every server.
const UNFIT: [&str; 4] = ["authorization", "cookie", "host", "via"];

pub(super) fn identity(
    mut section: Section<'_>,
    written: Option<Vec<Client>>,
) -> (Identity, Known) {
    let trusted_proxies = trusted_proxies(&mut section);
    let header = section.get("address_header");
    if let Some(header) = header.as_ref().filter(|_| trusted_proxies.is_empty()) {
        header.doubtful("is never read: there are no `trusted_proxies`", "list your proxies there");
    }
    let ipv6_prefix = read(&mut section, "ipv6_prefix", 64, |it| it.integer(1..=128)) as u8;
    let verified = section.section("jwt");
    let mut known = Known { jwt: section.has("jwt"), ..Known::default() };
    let jwt = jwt::jwt(verified);
    let mut found = |key, there: &mut bool| {
        let value = section.get(key);
        *there = value.is_some();
        value.and_then(|value| sources(&value, known)).unwrap_or_default()
    };
    let [mut user_there, mut client_there, mut tenant_there, mut plan_there] = [false; 4];
    let user = found("user", &mut user_there);
    let client = found("client", &mut client_there);
    let tenant = found("tenant", &mut tenant_there);
    let plan = found("plan", &mut plan_there);
    let file = section.get("clients_file");
    let (clients, clients_files) = clients::with_files(file.as_ref(), written);
    if clients.is_some() && !client_there {
        section.doubtful(
            "does not say where a `client` is found, so no client is known by its key",
            "add a line such as `client = \"header:x-api-key\"`",
        );
    }
    // What a file says may change at any time.
    let of_clients = |has: fn(&Client) -> bool| file.is_some() || clients.iter().flatten().any(has);
    known = Known {
        user: user_there,
        client: client_there,
        tenant: tenant_there || of_clients(|it| it.tenant.is_some()),
        plan: plan_there || of_clients(|it| it.plan.is_some()),
        ..known
    };
    let identity = Identity {
        trusted_proxies,
        address_header: header.and_then(|value| address_header(&value)),
        ipv6_prefix,
        user,
        client,
        tenant,
        plan,
        jwt,
        clients,
        clients_files,
    };
    (identity, known)
}

/// Those of the file, and those of the environment: one file may serve several places.
fn trusted_proxies(section: &mut Section<'_>) -> Vec<IpNet> {
    let mut seen = Unique::new();
    let listed = section.get("trusted_proxies").and_then(|it| it.list("[\"10.0.0.0/8\"]"));
    let mut networks = Vec::new();
    for entry in listed.unwrap_or_default() {
        let Some(network) = address::trusted(&entry) else { continue };
        if seen.insert(network, &entry) {
            networks.push(network);
        }
    }
    let variable = section.get("trusted_proxies_env");
    for network in variable.iter().flat_map(address::trusted_in_variable) {
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

fn address_header(value: &Value<'_>) -> Option<HeaderName> {
    const FORM: &str = "write the header your proxies set, such as `\"x-forwarded-for\"`, \
                        `\"forwarded\"` or `\"x-real-ip\"`";
    let text = value.text("x-forwarded-for")?;
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) if of_the_connection(name.as_str()) || UNFIT.contains(&name.as_str()) => {
            value.wrong(&format!("cannot be {}: it never names an address", quote(text)), FORM);
            None
        }
        Ok(name) => Some(name),
        Err(_) => {
            value.wrong(&format!("is not the name of a header: {}", quote(text)), FORM);
            None
        }
    }
}

/// One source or several, of which the first that a request has counts.
fn sources(value: &Value<'_>, known: Known) -> Option<Vec<Source>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.wrong("is empty", "write a source such as `\"jwt:sub\"`, or leave it out");
    }
    let mut seen = Unique::new();
    let mut sources = Vec::new();
    for entry in &entries {
        let Some(text) = entry.text("jwt:sub") else { continue };
        let parsed = source::parse(text, Use::Identity);
        let source = parsed.and_then(|source| known.check(&source).map(|()| source));
        match source {
            Ok(source) => {
                if source == Source::Header(header::COOKIE) {
                    entry.doubtful(
                        "is all cookies together, so any other cookie makes a new caller",
                        "name the one that counts, such as `\"cookie:session\"`",
                    );
                }
                if seen.insert(source.clone(), entry) {
                    sources.push(source);
                }
            }
            Err((message, help)) => entry.wrong(&message, help),
        }
    }
    (sources.len() == entries.len()).then_some(sources)
}
