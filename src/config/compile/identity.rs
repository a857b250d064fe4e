//! `[identity]`: which proxies are believed, and how it is found who the caller is.

use http::{HeaderName, header};
use ipnet::IpNet;

use super::claimed_names::{self, AlwaysVerified};
use super::client_plans::ClientPlans;
use super::clients::WrittenClients;
use super::request_source::{self, KnownIdentities, SourceUse, is_connection_header};
use super::server::{ClientCertificates, read};
use super::{address, clients, forwarded_identity, jwt};
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, Value, unique_values};
use crate::config::settings::{Client, Identity};
use crate::config::suggest::quote;
use crate::limit::Source;

/// Headers that mean something else to every server.
const UNFIT: [&str; 4] = ["authorization", "cookie", "host", "via"];

/// `certificates`: how listeners ask clients for theirs.
pub(super) fn identity<'a>(
    mut section: Section<'a>,
    written: Option<WrittenClients<'a>>,
    certificates: ClientCertificates,
) -> (Identity, KnownIdentities, ClientPlans<'a>) {
    let trusted_proxies = trusted_proxies(&mut section);
    let header = section.get("address_header");
    if let Some(header) = header.as_ref().filter(|_| trusted_proxies.is_empty()) {
        header.warning("is never read: there are no `trusted_proxies`", "list your proxies there");
    }
    let ipv6_prefix = read(&mut section, "ipv6_prefix", 64, |it| it.integer(1..=128)) as u8;
    let verified = section.section("jwt");
    let jwt_there = section.has("jwt");
    let mut known = KnownIdentities {
        jwt: jwt_there,
        certificates: certificates != ClientCertificates::Unasked,
        ..KnownIdentities::default()
    };
    let jwt = jwt::jwt(verified);
    let always = AlwaysVerified {
        certificates: certificates == ClientCertificates::Required,
        tokens: jwt.as_ref().is_some_and(|it| it.required),
    };
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
    let place = written.as_ref().map(|it| it.span.clone()).or(file.as_ref().map(Value::span));
    let (written, plans) = written.map(|it| (it.clients, it.plans)).unzip();
    let plans = ClientPlans {
        written: plans.unwrap_or_default(),
        file: file.clone(),
        before_files: written.as_ref().map_or(0, Vec::len),
    };
    let (clients, clients_files) = clients::with_files(file.as_ref(), written);
    // The keys of clients are verified, too.
    let keys_of =
        [Some("user"), Some("client").filter(|_| clients.is_none()), Some("tenant"), Some("plan")];
    for value in keys_of.into_iter().flatten().filter_map(|key| section.get(key)) {
        claimed_names::warn_of_claims(&value, always);
    }
    if let Some(place) = place.filter(|_| clients.is_some() && !client_there) {
        let message = "`[identity]` does not say where a `client` is found, so no client is known by \
                       its key";
        let help = "add a line such as `client = \"header:x-api-key\"` to `[identity]`";
        section.reporter().report(Diagnostic::warning(place, message).help(help));
    }
    // What a file says may change at any time.
    let of_clients = |has: fn(&Client) -> bool| file.is_some() || clients.iter().flatten().any(has);
    known = KnownIdentities {
        user: user_there,
        client: client_there,
        tenant: tenant_there || of_clients(|it| it.tenant.is_some()),
        plan: plan_there || of_clients(|it| it.plan.is_some()),
        trust: of_clients(|it| it.trust.is_some()),
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
        forward: forwarded_identity::forward(section.section("forward"), known),
    };
    (identity, known, plans)
}

/// Those of the file, and those of the environment: one file may serve several places.
fn trusted_proxies(section: &mut Section<'_>) -> Vec<IpNet> {
    let listed = section.get("trusted_proxies").and_then(|it| it.list("[\"10.0.0.0/8\"]"));
    let mut networks = unique_values(&listed.unwrap_or_default(), address::trusted);
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
        Ok(name) if is_connection_header(name.as_str()) || UNFIT.contains(&name.as_str()) => {
            value.error(&format!("cannot be {}: it never names an address", quote(text)), FORM);
            None
        }
        Ok(name) => Some(name),
        Err(_) => {
            value.error(&format!("is not the name of a header: {}", quote(text)), FORM);
            None
        }
    }
}

/// One source or several, of which the first that a request has counts.
fn sources(value: &Value<'_>, known: KnownIdentities) -> Option<Vec<Source>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error("is empty", "write a source such as `\"jwt:sub\"`, or leave it out");
    }
    let sources = unique_values(&entries, |entry| {
        let parsed = request_source::parse(entry.text("jwt:sub")?, SourceUse::Identity);
        let source = parsed.and_then(|source| known.check(&source).map(|()| source));
        let source = source.inspect_err(|error| error.report(entry)).ok()?;
        if source == Source::Header(header::COOKIE) {
            entry.warning(
                "is all cookies together, so any other cookie makes a new caller",
                "name the one that counts, such as `\"cookie:session\"`",
            );
        }
        Some(source)
    });
    (sources.len() == entries.len()).then_some(sources)
}
